"""Make scripts for doors, with a profile and a commit that the box fetches by its address.

A door can't carry a repository, so the commit must be on the git host, at an
address that needs no key of this machine. It gets the script in its wrapper, if that is within its
limit; else the box fetches the program from that same host, where it is pushed after a yes. A paste
may also have the script fetched from any address and checked by SHA-256, or rendered by uvx.

Over SSH this machine passes the secrets to the script and starts it. Behind a door the carrier
(`templates/doors/carrier.sh`), a part of the program, asks for the secrets and starts it. A program
that the box fetches runs only if its SHA-256 is the one that the recipe names.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bootstrap import __version__
from bootstrap.errors import UsageError
from bootstrap.paths import shipped
from bootstrap.profile.consent import NO_SECRET, load_profile
from bootstrap.profile.detect_provider import FALLBACK
from bootstrap.profile.load import public_keys
from bootstrap.profile.schema import Profile
from bootstrap.repo.git import NOWHERE, GitError, run_git
from bootstrap.repo.local import LocalRepository
from bootstrap.repo.mirror import find_program, push_program, refs_of
from bootstrap.repo.names import shown
from bootstrap.repo.snapshot import Snapshot, take_snapshot
from bootstrap.repo.urls import as_https, check_url, without_user_info
from bootstrap.setup.door_table import DOORS, Door, door_named
from bootstrap.setup.payload import (
    address_warning,
    build_payload,
    private_dependencies,
    resolve_source,
)
from bootstrap.setup.program import packed_program, program
from bootstrap.setup.request import SetupRequest
from bootstrap.setup.script import (
    ROOT,
    Source,
    Variables,
    default_values,
    flat,
    render_recipe,
    render_text,
    variables,
)
from bootstrap.steps.plan import steps_for
from bootstrap.steps.shell import (
    ONBOX,
    bare_shell,
    encoded,
    folded,
    functions,
    harmless,
    paste,
    shell_part,
)
from bootstrap.ui.screen import Reporter

_REFUSED = ("Authentication failed", "could not read", "not found", "403")
PASTE_LIMIT = 200_000
"""Characters of a paste with everything in it: a terminal takes them in seconds."""
_PASTE = Door(
    "a paste",
    "",
    "copy all of it into the terminal of the box, its last line too, and Enter",
    limit=PASTE_LIMIT,
    source="what a terminal takes in seconds",
)
_USUAL = "vast"
"""The provider if the profile names none: its boxes have a web terminal to paste into."""
_MOST_LISTED = 10
LOOK_S = 10  # how long the git host may take to answer, in seconds


@dataclass(frozen=True)
class CarriedScript:
    """A script for the user to carry, and what `--json` says about it."""

    text: str
    data: Mapping[str, object]


@dataclass(frozen=True)
class FetchedScript:
    """A script that the user puts at an address, and the paste that fetches it from there."""

    script: str
    sha256: str
    text: str


@dataclass(frozen=True)
class Pushing:
    """Whether boxstrap's program may be pushed to the commit's git host.

    `asked_for`: by an option; else `ask` puts the question to the user.
    """

    asked_for: bool
    ask: Callable[[str], bool]


def render_readable(request: SetupRequest, reporter: Reporter) -> CarriedScript:
    """Return the script itself. Raises UsageError, ProfileError."""
    loaded = load_profile(request, kinds=NO_SECRET).for_provider(FALLBACK)
    payload = build_payload(
        loaded,
        dataclasses.replace(request, committed_only=True),
        local=loaded.profile.name in {"local", "demo"},
        with_secrets=False,
    )
    for warning in payload.warnings:
        reporter.warn(warning)
    digest = payload.program.digest
    own = posixpath.join(_absolute(payload.profile.box.workdir), ".boxstrap/box", digest[:16])
    here = f"templates/ and onbox/ here: {shipped('templates')}, {ONBOX}"
    reporter.note("program", f"{own} on a box, {here}")
    return CarriedScript(payload.script, {"door": None})


def render_for_door(
    name: str, request: SetupRequest, reporter: Reporter, *, push: Pushing
) -> CarriedScript:
    """Return the script packed for a provider's start-up hook. Raises UsageError, ProfileError."""
    door = door_named(name)
    work = _for_door(request, reporter, door.profile)
    made = render_door(door.name, work.profile, work.source)
    if not made.fits or push.asked_for:
        ref = _program_ref(work, made, push=push)
        made = render_door(door.name, work.profile, work.source, ref=ref)
        reporter.note("program", f"{ref} of {work.source.url}, fetched by the box")
    if not made.fits:
        raise too_long(made, work.profile)
    reporter.note("door", f"{door.name}, {made.size:,} bytes")
    reporter.note("use", door.use)
    return CarriedScript(made.text, {"door": door.name, "limit": door.limit, "use": door.use})


def render_paste(
    request: SetupRequest, reporter: Reporter, *, push: Pushing, uvx: str
) -> CarriedScript:
    """Return one paste for a terminal, short if the program is on the git host, or may be pushed.

    `uvx`: what uvx installs to make the script on the box. Raises UsageError, ProfileError.
    """
    work = _for_door(request, reporter, _USUAL)
    if uvx:
        text = by_uvx(uvx, work.profile, work.source)
    else:
        text = paste(render_carrier(work.profile, work.source, bare=True), PASTE_LIMIT)
        whole = Rendering(_PASTE, text)
        if ref := _program_ref(work, whole, push=push, must=not whole.fits):
            reporter.note("program", f"{ref} of {work.source.url}, fetched by the box")
            text = paste(render_fetching(work.profile, work.source, ref))
    reporter.note("paste", f"{len(text):,} characters")
    reporter.note("use", _PASTE.use)
    return CarriedScript(text, {})


def _program_ref(work: _Work, whole: Rendering, *, push: Pushing, must: bool = True) -> str:
    """Return the ref of the program on the commit's git host, where it may be pushed; "" if not.

    Raises UsageError if it isn't there, nobody agreed to push it, and it `must`.
    """
    made = program().text
    if ref := find_program(work.push_url, made):
        return ref
    ref, branch = refs_of(made)
    where = f"{without_user_info(work.push_url)}, as {ref} (where it takes no such ref: {branch})"
    question = f"Push boxstrap's own program there, which the box then fetches? To {where}"
    if push.asked_for or push.ask(question):
        return push_program(work.push_url, made)
    if must:
        raise too_long(whole, work.profile)
    return ""


def render_fetched(request: SetupRequest, reporter: Reporter, url: str) -> FetchedScript:
    """Return a paste that fetches the script from `url`. Raises UsageError, ProfileError."""
    work = _for_door(request, reporter, _USUAL)
    script = render_carrier(work.profile, work.source)
    digest = hashlib.sha256(script.encode()).hexdigest()
    return FetchedScript(script, digest, by_url(url, digest))


@dataclass(frozen=True)
class _Work:
    """What a door is rendered for: the source has an address that a box can use."""

    profile: Profile
    source: Source
    push_url: str  # the repository's address as this machine reaches it


def _for_door(request: SetupRequest, reporter: Reporter, provider: str) -> _Work:
    """Return what a door is rendered for.

    `provider` is the base profile if the user's own names none.
    Raises ProfileError, UsageError: no repository, no address, a commit that is
    not on the host, or work that is more than that commit.
    """
    profile = load_profile(request).for_provider(provider).profile
    for number, item in enumerate(profile.data):
        if item.place in ("local", "bucket"):
            raise UsageError(
                f"a door can't bring {item.source} along: nobody is there to send it or to sign "
                "for it. Through a door come public addresses and what a named secret opens.",
                where=f"data[{number}].from",
                hint="Send it from here: boxstrap setup --host …",
            )
    here, snapshot, source = resolve_source(profile, request)
    if here is not None and snapshot is not None and not request.committed_only:
        _check_nothing_left_behind(here, snapshot)
    if here is not None and not (profile.git.url and here.bare):  # a mirror has what its host has
        _is_on_the_host(here)
    if here is not None:
        _warn_of_dependencies(profile, here, snapshot, reporter)
    url = door_url(source.url)
    if warning := address_warning(profile, source) or check_url(url).warning:
        reporter.warn(warning)
    if anyone_may_read(url) is False:
        reporter.warn(
            f"{url} is private: the box asks for a token on its terminal, or takes GIT_TOKEN "
            "from its environment; without either it stops before it begins."
        )
    carried = dataclasses.replace(source, url=url, tree="")
    return _Work(profile, carried, profile.git.url or source.url or "")


def _warn_of_dependencies(
    profile: Profile, here: LocalRepository, snapshot: Snapshot | None, reporter: Reporter
) -> None:
    """Warn of dependencies that a setup over SSH would send."""
    sent, _ = private_dependencies(profile, here, snapshot)
    for address in dict.fromkeys(each.address for each in sent):
        reporter.warn(
            f"a door can't bring {shown(address)} along: the box asks for it by itself, and needs "
            "a credential. Over SSH it is sent from here: boxstrap setup --host …"
        )


def _check_nothing_left_behind(here: LocalRepository, snapshot: Snapshot) -> None:
    """Raise UsageError if the commit alone is less than the work on this machine."""
    lines = []
    if snapshot.changes and not snapshot.only_profile:
        named = [shown(path) for path in snapshot.new[:_MOST_LISTED]]
        lines.append(f"your changes ({snapshot.changes})" + (f": {', '.join(named)}" * bool(named)))
    commit = take_snapshot(here, "commit")
    if commit.tree != here.tree:
        lines.append("the files of its submodules")
    lines += [f"{shown(path)}: {why}" for path, why in commit.left]
    if lines:
        listed = "\n".join(f"  {line}" for line in lines[:_MOST_LISTED])
        raise UsageError(
            f"a door can't carry this; through it the box fetches commit {here.commit[:12]} "
            f"alone:\n{listed}",
            where=str(here.root),
            hint="Send it from here: boxstrap setup --host …\n"
            "Or commit and push it, or say that the commit is enough: --committed-only",
        )


def door_url(url: str | None) -> str:
    """Return the address over https; `http://` and `git://` stay, and the caller warns of them.

    Raises UsageError if there is none.
    """
    if not url:
        raise UsageError(
            "a door can't carry a repository, and this one has no address.",
            hint="Push it to a git host and add that as origin, or set git.url; "
            "or send it from here: boxstrap setup --host …",
        )
    return without_user_info(url) if check_url(url).warning else as_https(url)


def anyone_may_read(url: str) -> bool | None:
    """Whether the host serves it without a credential; None if the host can't be asked."""
    ask = ("-c", "credential.helper=", "ls-remote", "-q", "--end-of-options", url, "HEAD")
    nobody = {
        "GIT_ASKPASS": "true",
        "GIT_ALLOW_PROTOCOL": "https:http:git",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    try:
        run_git(NOWHERE, *ask, env=nobody, timeout=LOOK_S)
    except GitError as failure:
        return False if any(word in failure.said for word in _REFUSED) else None
    return True


def _is_on_the_host(here: LocalRepository) -> None:
    """Raise UsageError if no branch of a remote, as last fetched, has the commit."""
    options = ("--format=%(refname)", "--contains", here.commit, "refs/remotes")
    listed = run_git(here.folders, "for-each-ref", *options)
    if not listed.decode("utf-8", "replace").split():
        raise UsageError(
            f"commit {here.commit[:12]} is not on {here.url or 'a git host'} yet, "
            "and a door can't carry it.",
            where=str(here.root),
            hint="git push, or send it from here: boxstrap setup --host …",
        )


@dataclass(frozen=True)
class Rendering:
    door: Door
    text: str

    @property
    def size(self) -> int:
        return len(self.text.encode())

    @property
    def fits(self) -> bool:
        return self.door.limit is None or self.size <= self.door.limit


def render_door(name: str, profile: Profile, source: Source, *, ref: str = "") -> Rendering:
    """Render the script for that door, with its program or with the `ref` of it on the git host.

    Raises UsageError for an unknown door, and for one that can't start what the profile asks for.
    """
    door = door_named(name)
    if profile.train and profile.train.nodes > 1 and not (door.nodes or "train" in door.leave):
        raise UsageError(
            f"{name} starts one box, and train.nodes is {profile.train.nodes}.",
            hint="Over SSH, naming all boxes: boxstrap setup --host … --host …; or "
            f"--for {' or '.join(each.name for each in DOORS.values() if each.nodes)}",
        )
    if door.bakes and profile.python.torch_backend == "auto":
        profile = profile.replace(python=profile.python.replace(torch_backend="none"))
    if ref:
        script = render_fetching(profile, source, ref, leave=door.leave)
    else:
        script = render_carrier(profile, source, leave=door.leave, bare=door.takes_bare)
    text = render_text(f"doors/{door.template}", _values(door, script, profile, source))
    return Rendering(door, text)


def too_long(made: Rendering, profile: Profile) -> UsageError:
    could_go = droppable(profile, made.size - (made.door.limit or 0))
    return UsageError(
        f"{made.door.name} takes {made.door.limit:,} bytes ({made.door.source}), and the script "
        f"needs {made.size:,}.",
        hint="Let the box fetch boxstrap's program from the git host of your commit: --push\n"
        "Or from any address: boxstrap oneliner --url https://…"
        + (f"\nWhat could go of the profile: {', '.join(could_go)}." if could_go else ""),
    )


def droppable(profile: Profile, excess: int) -> list[str]:
    """Return the parts of a profile that are a good part of `excess` bytes, the largest first."""
    sizes = {
        "env": sum(len(name) + len(value) for name, value in profile.env.items()),
        "packages": sum(map(len, profile.packages)),
        "ssh.authorized_keys": 120 * len(profile.ssh.authorized_keys),
        "secrets": sum(map(len, profile.secrets)),
        "prepare": sum(map(len, profile.prepare)) + (320 if profile.prepare else 0),  # its step
    }
    largest = sorted(sizes.items(), key=lambda item: item[1], reverse=True)
    return [f"{key} ({size:,} bytes)" for key, size in largest if size > excess // 10]


def as_user(user: str) -> str:
    """Return a line of shell that runs the script as the box's own user, or as root if none."""
    if not user:
        return "exec bash /var/lib/boxstrap/door.sh"
    named = f"u={user};" if user != "first" else ""
    first = "u=$(getent passwd|awk -F: '$3>=1000&&$3<60000{print $1;exit}')"
    known = f'{named}id "$u" >/dev/null 2>&1||{first}' if named else first
    return f"{known};exec runuser -l \"${{u:-root}}\" -c 'bash /var/lib/boxstrap/door.sh'"


def _values(door: Door, script: str, profile: Profile, source: Source) -> dict[str, object]:
    gpu, python = profile.gpu, profile.python
    folder = posixpath.join(_absolute(profile.box.workdir), source.name)
    filled = next((name for name, value in profile.env.items() if "${" in value), "")
    if filled and door.name == "devcontainer":
        raise UsageError(
            f"env.{filled}: a devcontainer fills in ${{…}}, also with your machine's variables.",
            hint="Write its value without that, or take another door.",
        )
    text = encoded(script)
    middle = len(text) // 2
    values: dict[str, object] = {
        "version": __version__,
        "profile_name": harmless(profile.name),
        "use": door.use,
        "packed": text,
        "halves": (text[:middle], text[middle:]),
        "lines": folded(text).splitlines(),
        "script": script,
        "paste": paste(script),
        "as_user": as_user(profile.ssh.user or door.user),
        "name": source.name,
        "run_name": re.sub(r"[^a-z0-9-]+", "-", f"box-{source.name}".lower()).strip("-")[:40],
        "secrets": profile.secrets,
        "folder": folder,
        "needs_gpu": gpu.require,
        "remote_env": dict(profile.env),
        "interpreter": posixpath.join(folder, python.venv, "bin", "python"),
        "accelerators": skypilot_gpus(profile),
        "dstack_gpu": dstack_gpu(profile),
        "nodes": profile.train.nodes if profile.train else 1,
        "spot": profile.rent.spot,
    }
    if door.template == "notebook.j2":
        values["cell"] = render_text("doors/cell.py.j2", values)
    return values


def _absolute(workdir: str) -> str:
    return "/root" + workdir[1:] if workdir.startswith("~") else workdir


def skypilot_gpus(profile: Profile) -> str | list[str]:
    """Return the GPUs that SkyPilot should look for; "" if the profile requires none."""
    gpu = profile.gpu
    least = f"nvidia:{math.ceil(gpu.min_memory_gib or 1)}GB+"
    kinds = gpu.names or ([least] if gpu.require else [])
    return _one_or_all([f"{kind}:{gpu.count or 1}" for kind in kinds])


def dstack_gpu(profile: Profile) -> dict[str, object]:
    """Return the GPU that dstack should look for; empty if the profile requires none."""
    gpu = profile.gpu
    if not gpu.require:
        return {}
    found: dict[str, object] = {"count": gpu.count or 1}
    if gpu.names:
        found["name"] = _one_or_all(gpu.names)
    if gpu.min_memory_gib:
        found["memory"] = f"{gpu.min_memory_gib:g}GB.."
    return found


def _one_or_all(texts: Sequence[str]) -> str | list[str]:
    """Return the only text, or all of several as a list; "" if there is none."""
    return list(texts) if len(texts) > 1 else "".join(texts)


_URL = re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&'()*+,;=%\[\]-]{1,2000}")


def by_url(url: str, sha256: str) -> str:
    """Return a paste that fetches a script, by what every box has one of, and runs it only if its
    SHA-256 matches. Raises UsageError if `url` is none."""
    if not _URL.fullmatch(url):
        raise UsageError("--url takes a URL such as https://example.org/box.sh.")
    address = shlex.quote(url)
    python = shlex.quote("import sys,urllib.request as u;u.urlretrieve(*sys.argv[1:])")
    ways = (
        f"curl -fsSLo $f {address}",
        f"wget -qO $f {address}",
        f"python3 -c {python} {address} $f",
        f"/usr/lib/apt/apt-helper download-file {address} $f",
    )
    tried = "||".join(f"{way} 2>/dev/null" for way in ways)
    return f"f=$(mktemp);{{ {tried};}}&&echo '{sha256}  '$f|sha256sum -c --quiet&&bash $f;rm $f\n"


PLACE = "~/.boxstrap-door"  # the folder on the box for the paste's files; it is removed at the end


def by_uvx(package: str, profile: Profile, source: Source) -> str:
    """Return a paste in which uvx installs boxstrap from `package` on the box, and renders the
    script from the profile and public keys in the paste.

    It also passes the repository's first commit, which a profile can't contain: otherwise the box
    would take the tree that `setup` placed for another repository's, and train again."""
    keys = public_keys(profile)
    values = _without_none(profile.as_dict())
    del values["name"]
    values.pop("extends", None)
    values["git"].update(url=source.url, ref=source.commit, access="url")
    values["ssh"].update(authorized_keys=[f"{PLACE}/{number}.pub" for number in range(len(keys))])
    values["ssh"].pop("identity", None)
    files = {"boxstrap.yaml": json.dumps(values, indent=0)}
    files.update({f"{number}.pub": line for number, line in enumerate(keys)})
    laid = "".join(f"cat >{PLACE}/{name}<<'E'\n{text}\nE\n" for name, text in files.items())
    return (
        f"mkdir -p {PLACE}\n{laid}"
        f"{ROOT}={source.root} uvx --from {shlex.quote(package)} boxstrap render --for terminal "
        f"--profile {PLACE}/boxstrap.yaml --output {PLACE}/box.sh&&bash {PLACE}/box.sh;"
        f"rm -r {PLACE}\n"
    )


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not None
    }


def render_carrier(
    profile: Profile, source: Source, *, leave: tuple[str, ...] = (), bare: bool = False
) -> str:
    """Return a script that sets up the box it runs on, but for the steps to `leave`. `bare`: its
    program is without comments, docstrings and indentation."""
    usual = default_values()
    asked = flat(door_values(profile, source))
    used = {name for name, value in asked.items() if value != usual[name]}
    made = packed_program(used) if bare else program()
    recipe = door_recipe(profile, source, leave, made.digest)
    return _whole(profile, recipe, program=made.text, program_marker=_marker(made.text))


def render_fetching(
    profile: Profile, source: Source, ref: str, *, leave: tuple[str, ...] = ()
) -> str:
    """Return a script that fetches the program from `ref` of the commit's own repository."""
    return _whole(
        profile,
        door_recipe(profile, source, leave, program().digest),
        fetched=[("PROGRAM_URL", source.url or ""), ("PROGRAM_REF", ref)],
        fetch=bare_shell(functions("doors", "access", _ACCESS) + shell_part("doors", "fetch")),
    )


_ACCESS = ("ask_host", "with_access", "ask_for", "refuse")


def door_recipe(profile: Profile, source: Source, leave: tuple[str, ...], digest: str) -> str:
    steps = tuple(step for step in steps_for(profile, local=False) if step.name not in leave)
    return render_recipe(profile.name, door_values(profile, source), steps, digest)


def door_values(profile: Profile, source: Source) -> Variables:
    """Return the variables for a door: the box fetches the commit itself."""
    profile = profile.replace(git=profile.git.replace(access="url"))
    secrets_id = "door" if profile.secrets else ""
    return variables(profile, source, local=False, secrets_id=secrets_id)


def _whole(profile: Profile, recipe: str, **rest: object) -> str:
    """Return the script that a door gets: the recipe, and the program or what fetches it."""
    loads = functions("lib", "program", ("read_program", "load_program_files"))
    return render_text(
        "doors/carrier.sh.j2",
        {
            "version": __version__,
            "profile_name": harmless(profile.name),
            "recipe": recipe,
            "marker": _marker(recipe),
            "loads": bare_shell(loads),
            **{"program": "", "fetched": [], "fetch": "", **rest},
        },
    )


def _marker(text: str) -> str:
    """Return an end marker that is not a line of the text."""
    marker, lines = "END_OF_SCRIPT", set(text.splitlines())
    while marker in lines:
        marker += "_"
    return marker
