"""The script: one page with a recipe, the steps and their values, which the program carries out.

Jinja puts it together. boxstrap names no package index of its own: a box uses the index of its
pip or uv; if it has neither, it uses the default of this machine's pip.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from bootstrap import __version__
from bootstrap.onbox.python import uv_release
from bootstrap.onbox.retries import error_rows
from bootstrap.onbox.verdict.expected_hardware import ExpectedHardware, ExpectedMachine
from bootstrap.paths import cache_dir, shipped, write_private
from bootstrap.profile import values
from bootstrap.profile.load import public_keys
from bootstrap.profile.schema import Profile, Python, SentItem, as_row
from bootstrap.repo.urls import without_user_info
from bootstrap.sizes import seconds_of
from bootstrap.steps.plan import STEPS, Step
from bootstrap.steps.shell import Value, bare_shell, harmless, known_hosts, quote, shell_part
from bootstrap.value import dataclass

if TYPE_CHECKING:
    import jinja2


@cache
def default_index() -> str:
    """Return the URL of pip's default index; empty if pip is not installed."""
    from bootstrap.onbox.pip_indexes import built_in

    return built_in()


CONDA_TOOLS = ("py-rattler==0.28.*", "pyyaml>=6,<7")
"""Packages that build an environment of conda packages, if the profile has one."""
MIN_FREE_MB = 512
MIN_TMP_MB = 16  # bash's here-documents and most tools need a place for temporary files
LOCK_PATIENCE_S = 300  # how long the box waits for another package manager to end, in seconds


ROOT = "BOXSTRAP_ROOT"  # the environment variable in which a paste for uvx passes the first commit


@dataclass(frozen=True)
class Source:
    """The commit to check out: its origin, and its name on the box."""

    key: str
    name: str
    commit: str
    branch: str | None
    url: str | None
    user_name: str | None
    user_email: str | None
    root: str = ""
    """The first commit of its main line, which identifies the repository; "" if unknown."""
    usual_key: str = ""  # the key that it would have by its address alone
    snapshot: str = ""
    """What is checked out: `commit` if nothing differs from it, else a boxstrap commit on top."""
    tags: tuple[str, ...] = ()  # the tags that describe the commit, a row `ID COMMIT NAME` each
    tag_objects: str = ""  # a pack of those that are annotated, in base64
    tree: str = ""
    """Digest of the content, which identifies the work; "" if the box clones and computes it."""


OF_ONE_RUN = "REPO_COMMIT|REPO_SNAPSHOT|REPO_TREE|REPO_BRANCH|TRAIN_COMMAND|TRAIN_SESSION"
"""Variables that differ between runs of one profile; all others are the same."""

Variables = Mapping[str, Mapping[str, Value]]
"""By the step that they are of, "" for the whole box: the value of each name."""
_OF_STAGE0 = ("WORKDIR", "IS_LOCAL", "MIN_FREE_MB", "MIN_TMP_MB", "VOLUME_AT")
"""Variables that are used before the program is there."""

_ORDERED = {*ExpectedHardware._fields} - {"box", "run_alive"}
_ORDERED_OF_BOX = {*ExpectedMachine._fields}

NO_SOURCE = Source("none", "none", "", None, None, None, None)


def variables(  # noqa: PLR0913 - what a script is made of
    profile: Profile,
    source: Source,
    *,
    local: bool,
    secrets_id: str,
    secret_ids: Sequence[str] = (),
    dependencies: Sequence[str] = (),
    sent_data: Mapping[int, SentItem] = MappingProxyType({}),
    rented: float | None = None,
    price: float | None = None,
    ends: bool = False,
) -> Variables:
    """Return the variables of a script.

    `secrets_id` changes when a secret does, but reveals nothing about it; `secret_ids` has
    such an id for each of the profile's secrets, and is empty for a door. `dependencies`: rows of
    those that are sent, see onbox/python/dependencies.py. `sent_data`: the items of `data:` on
    this machine, by their numbers. `rented`: since when the lease counts of a box that `up` rented;
    `ends`: whether its provider ends it after that.
    """
    python, train = profile.python, profile.train
    url = (source.url or profile.git.url) if profile.git.access == "url" else None
    return {
        "": {
            "WORKDIR": profile.box.workdir,
            "IS_LOCAL": local,
            "VOLUME_AT": "" if rented is None else _volume_place(profile),
            "REPO_KEY": source.key,
            "REPO_USUAL_KEY": source.usual_key,
            "REPO_ROOT": source.root,
            "REPO_NAME": source.name,
        },
        "shell": {
            "ENV_NAMES": list(profile.env),
            "ENV_VALUES": list(profile.env.values()),
            "SECRETS": profile.secrets,
            "SECRETS_ID": secrets_id,
            "SECRET_IDS": list(secret_ids),
        },
        "ssh": {"AUTHORIZED_KEYS": [] if local else public_keys(profile)},
        "tools": {"PACKAGES": [] if local else profile.packages},
        "agent": {"INDEX": default_index()},
        "lease": {"LEASE": as_json(lease_terms(profile, rented, price, ends=ends))},
        "gpu": {"GPU": as_json(gpu_order(profile))},
        "repo": {
            "REPO_COMMIT": source.commit,
            "REPO_SNAPSHOT": source.snapshot,
            "REPO_TREE": source.tree,
            "REPO_BRANCH": source.branch or "",
            "REPO_URL": without_user_info(source.url or ""),
            "CLONE_URL": without_user_info(url or ""),
            "REPO_TAGS": list(source.tags),
            "TAG_OBJECTS": source.tag_objects,
            "GIT_USER_NAME": profile.git.user.name or source.user_name or "",
            "GIT_USER_EMAIL": profile.git.user.email or source.user_email or "",
            "SHARED": profile.shared,
        },
        "python": {
            "PYTHON_VERSION": python.version or "",
            "VENV": python.venv,
            "INSTALLER": python.installer,
            "AS_OF": python.as_of or "",
            # Only the index itself has dates; what an image brings may be newer.
            "TORCH_BACKEND": "none" if python.as_of else python.torch_backend,
            "REUSE": "never" if python.as_of else python.reuse,
            "REQUIREMENTS_SET": python.requirements is not None,
            "REQUIREMENTS": python.requirements or [],
            "LOCK": python.lock or "",
            "CONDA": python.conda or "",
            "CONDA_TOOLS": list(CONDA_TOOLS) if python.conda else [],
            "EXTRAS": python.extras,
            **requirement_words(python),
            "DEPENDENCIES": list(dependencies),
            "PYTHON_ID": python_id(python),
        },
        "smoke": {"SMOKE": profile.gpu.smoke},
        "data": {"DATA": [*map(as_json, data_rows(profile, sent_data))]},
        "prepare": {"PREPARE": profile.prepare},
        "train": {
            "TRAIN_COMMAND": train.command if train else "",
            "TRAIN_SESSION": train.session if train else "",
            "TRAIN_NODES": str(train.nodes) if train and train.nodes > 1 else "",
            "TRAIN_AT_BOOT": train.at_boot if train else "",
            "TRAIN_GRACE": train.grace if train else values.GRACE_S,
            "TRAIN_RESUME": (train.resume or "") if train else "",
            "TRAIN_ON_NOTICE": (train.on_notice or "") if train else "",
            "RESULTS": train.results if train else [],
            "RESULTS_OF_ALL": bool(train and train.results_of == "all"),
            "RESULTS_TO": results_to(profile),
            "METRICS": [as_row(line) for line in train.metrics] if train else [],
            "NOTIFY": profile.notify,
            "LOG_MAX_MIB": train.log_max_mib if train else values.LOG_MAX_MIB,
        },
    }


def flat(variables: Variables) -> dict[str, Value]:
    """Return the values of all names."""
    return {name: value for own in variables.values() for name, value in own.items()}


@cache
def default_values() -> dict[str, Value]:
    """Return each variable as the plainest profile has it, and those that are the same for all."""
    plain = variables(Profile(name="plain"), NO_SOURCE, local=False, secrets_id="")
    return {
        "MIN_FREE_MB": MIN_FREE_MB,
        "MIN_TMP_MB": MIN_TMP_MB,
        "LOCK_PATIENCE": LOCK_PATIENCE_S,
        "ERRORS": error_rows(),
        "KNOWN_HOSTS": list(known_hosts()),
        "UV_VERSION": uv_release.VERSION,
        "UV_WHEELS": uv_release.release_rows(),
        "NEEDS": [" ".join((step.name, *step.needs)) for step in STEPS],
        **flat(plain),
    }


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def data_rows(profile: Profile, sent: Mapping[int, SentItem]) -> list[dict[str, object]]:
    """Return the items of `data:` for the box, without their paths on this machine."""
    rows: list[dict[str, object]] = []
    for number, item in enumerate(profile.data):
        row = item.as_dict()
        if item.place == "local":
            row |= {"from": "", **sent.get(number, SentItem(item.to, "-"))._asdict()}
        row["exclude"] = item.exclude_rules()
        rows.append({key: value for key, value in row.items() if value})
    return rows


def lease_terms(
    profile: Profile, rented: float | None = None, price: float | None = None, *, ends: bool = False
) -> dict[str, object]:
    """Return the lease for the box, see `onbox/lease/rules.py`; {} without one."""
    lease = profile.lease
    if lease is None:
        return {}
    terms = {
        "seconds": None if lease.hours is None else lease.hours * 3600,
        "dollars": lease.dollars,
        "idle": seconds_of(lease.idle or ""),
        "stall": seconds_of(lease.stall or ""),
        "then": None if lease.then == "stop" else lease.then,
        "price": profile.box.price or (lease.dollars and price),
        "rented": rented,
        "ends": ends or None,
    }
    return {name: value for name, value in terms.items() if value is not None}


def _volume_place(profile: Profile) -> str:
    """Return where the volume is mounted that was rented with the box; "" without one."""
    box, account = profile.box, profile.provider.account
    if box.volume is None or account is None:
        return ""
    from bootstrap.providers.accounts import PROVIDERS  # here, as most boxes have none
    from bootstrap.providers.offer import RentOrder, volume_at

    order = RentOrder(volume=box.volume, volume_at=volume_at(box.workdir))
    return PROVIDERS[account].volume_place(order)


def results_to(profile: Profile) -> list[str]:
    """Return the results' folder in a bucket, its endpoint and region; [] without a bucket."""
    if not (profile.train and profile.train.results_to):
        return []
    endpoint = profile.env.get("AWS_ENDPOINT_URL_S3") or profile.env.get("AWS_ENDPOINT_URL", "")
    region = profile.env.get("AWS_REGION") or profile.env.get("AWS_DEFAULT_REGION", "")
    return [profile.train.results_to, endpoint, region]


def requirement_words(python: Python) -> dict[str, list[str]]:
    """Return requirements other than files, as arguments for uv and pip; empty by default."""
    groups, wheels = _options("--group", python.groups), python.only_binary
    binary, last = _options("--only-binary", wheels), _arguments(python.no_build_isolation)
    names = [re.split(r"[^A-Za-z0-9._-]", each)[0] for each in last if each[0] not in "-."]
    packages = _arguments(python.packages)
    late = _options("--no-build-isolation-package", names)
    return {
        "PYTHON_INDEX": python.index,
        "LOCK_OPTIONS": [*groups, *_options("--no-build-package", wheels), *late],
        "ADDED_TO_LOCK": [*binary, *packages] if packages else [],
        "ADDED_ARGUMENTS": [*groups, *binary, *packages],
        "BUILT_LAST": ["--no-build-isolation", *binary, *last] if last else [],
        "NAMES_OF_LAST": names,
    }


def _arguments(requirements: list[str]) -> list[str]:
    """Return requirements as arguments: `-e FOLDER` is two of them."""
    split = (each.split(" ", 1) if each.startswith("-e ") else [each] for each in requirements)
    return [word for words in split for word in words]


def python_id(python: Python) -> str:
    """Return a digest of `python:`, the only id of an environment that runs record.

    `reuse` is left out: where files come from doesn't change the environment.
    """
    said = json.dumps(python.changed({*python.fields} - {"reuse"}), sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:6]


def _options(option: str, values: list[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def gpu_order(profile: Profile) -> dict[str, object]:
    """Return the ordered hardware for the box's check: only what is not default."""
    gpu = profile.gpu.changed(_ORDERED)
    box = profile.box.changed(_ORDERED_OF_BOX)
    return {**gpu, **({"box": box} if box else {})}


RECIPE_HERE = "RECIPE_GOES_HERE\n"
"""Stands for the recipe in the page that the program has, for a door."""
STAGE0 = ("stage0", "owner", "preflight")
"""The parts of the library that are in each page, and so not in the program."""
_COMMENTS = re.compile(r"^ *#.*\n", re.MULTILINE)
_SENTENCES = re.compile(r"^# (?!---- ).*\n", re.MULTILINE)
KEPT = 20  # number of scripts to keep in the cache


class _Bare(str):
    """Text that a template writes unquoted, through the filter `bare`."""

    __slots__ = ()


def render_script(
    profile_name: str, variables: Variables, steps: Sequence[Step], program: str
) -> str:
    """Return the page that sets a box up; the same input gives the same page."""
    return page(render_recipe(profile_name, variables, steps, program))


def page(recipe: str, *, bare: bool = False) -> str:
    """Return a script with this recipe: before it stands what is done without the program."""
    # It is sent with each setup; its comments are in its own files.
    stage0 = [_COMMENTS.sub("", shell_part("lib", part)) for part in STAGE0]
    made = render_text(
        "setup.sh.j2",
        {
            "version": __version__,
            "always": [(name, default_values()[name]) for name in _OF_STAGE0],
            "stage0": [bare_shell(part) for part in stage0] if bare else stage0,
            "recipe": RECIPE_HERE,
        },
    )
    if bare:
        made = _SENTENCES.sub("", made)
    return made.replace(RECIPE_HERE, recipe)


def render_recipe(
    profile_name: str, variables: Variables, steps: Sequence[Step], program: str
) -> str:
    """Return the steps in their order, each with the values that are not the plainest profile's."""
    usual = default_values()
    of_step = {
        step: [(name, value) for name, value in own.items() if usual.get(name) != value]
        for step, own in variables.items()
    }
    groups = [("the box, and the repository", "", of_step.pop(""))]
    groups += [(step.does, step.name, of_step.pop(step.name, [])) for step in steps]
    if late := [pair for own in of_step.values() for pair in own]:
        groups.append(("for what may be asked for later", "", late))
    return render_text(
        "recipe.j2", {"profile_name": harmless(profile_name), "program": program, "groups": groups}
    )


def render_text(name: str, values: Mapping[str, object]) -> str:
    """Render the template `name` with `values`; from the cache if it was rendered before."""
    template = (shipped("templates") / name).read_text(encoding="utf-8")
    key = hashlib.sha256(json.dumps([template, values]).encode()).hexdigest()
    return kept_text(
        key, lambda: str(_environment().from_string(template).render(values)).encode()
    ).decode()


def kept_text(key: str, make: Callable[[], bytes]) -> bytes:
    """Return what was made for this key, from the cache if it is there."""
    kept = cache_dir() / "scripts" / f"{key}.sh"
    # Read bytes: reading as text would change carriage returns.
    with contextlib.suppress(OSError):
        digest, _, text = kept.read_bytes().partition(b"\n")
        if digest == _digest(key, text):
            return text
    made = make()
    _keep(kept, _digest(key, made) + b"\n" + made)
    return made


def _digest(key: str, script: bytes) -> bytes:
    """Checksum of a cached script: a power cut or a full disk can leave a corrupt file."""
    return hashlib.sha256(key.encode() + script).hexdigest().encode()


def _keep(file: Path, content: bytes) -> None:
    """Cache a script, readable only by this user; ignore a cache that can't be written."""
    with contextlib.suppress(OSError):
        write_private(file, content)
        # Includes temporary files that a kill left half-written.
        kept = sorted(file.parent.glob("*.*"), key=lambda other: other.stat().st_mtime)
        for old in kept[:-KEPT]:
            old.unlink()


def script_id(script: str) -> str:
    """Return the script's id: the SHA-256 of its bytes."""
    return hashlib.sha256(script.encode()).hexdigest()


def _environment() -> jinja2.Environment:
    import jinja2

    # The default delimiters occur in bash (`${#array[@]}`).
    environment = jinja2.Environment(
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<%=",
        variable_end_string="%>",
        comment_start_string="<%#",
        comment_end_string="%>",
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, _Bare) else quote(value),
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - shell, not HTML: `finalize` quotes every value
    )
    environment.filters["bare"] = _Bare
    environment.filters["json"] = lambda value: _Bare(json.dumps(value))
    return environment
