"""The short script: what a paste or a start-up hook with a narrow limit carries.

The same box, the same places, runs that `status`, `logs` and `stop` find. What
matters to later setups (which work was begun, what an environment is made of)
are the whole script's own functions, taken word for word.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bootstrap import __version__
from bootstrap.paths import shipped
from bootstrap.profile.public_keys import public_keys
from bootstrap.render import uv_release
from bootstrap.render.index import default_index
from bootstrap.render.pack import bare_python, bare_shell
from bootstrap.render.parts import box_files, functions, known_hosts, shell_part
from bootstrap.render.quote import Value, harmless
from bootstrap.render.script import MARKER, render_text
from bootstrap.render.variables import MIN_FREE_MB, Source, gpu_order

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile

STEPS = ("tools", "shell", "ssh", "gpu", "repo", "python", "train")
"""In this order, one after another."""

OWN = ("main", "gather", "packages", "access", "git", "steps")
"""`templates/short/*.sh`."""

TAKEN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "lib",
        "base",
        (
            "have",
            "now",
            "expand_home",
            "inputs",
            "digest",
            "is_line",
            "write_file",
            "write_if_changed",
            "fail",
        ),
    ),
    ("lib", "process", ("identity", "alive")),
    ("lib", "run_state", ("run_state",)),
    ("lib", "repository", ("alive_in",)),
    ("lib", "events", ("write_status",)),
    ("lib", "packages", ("manager", "can_install", "as_root")),
    ("lib", "uv", ("find_uv", "at_least", "read_indexes", "run_uv")),
    (
        "lib",
        "sources",
        (
            "source_kind",
            "requirement_files",
            "source_files",
            "with_included",
            "driver_seen",
            "choose_settings",
            "has_own_index",
            "lock_arguments",
            "project_arguments",
            "requirements_arguments",
        ),
    ),
    (
        "lib",
        "runs",
        (
            "find_work",
            "run_of",
            "new_run",
            "absolute_command",
            "our_tmux",
            "session_name",
        ),
    ),
    (
        "steps",
        "python",
        ("inputs_python", "make_environment", "version_of", "fits_version", "find_python"),
    ),
    ("steps", "ssh", ("authorized", "unknown_hosts", "add_line")),
)
"""Kind, file, functions: what the short script shares with the whole one."""

_WHOLE_ONLY = re.compile(r"^.* # whole\n", re.MULTILINE)
"""Lines of the runner that only the whole script carries."""


def render_short(profile: Profile, work: Source) -> str:
    """The short script, packed: no comments, no indentation."""
    values = short_variables(profile, work)
    return render_text(
        "short.sh.j2",
        {
            "version": __version__,
            "profile_name": harmless(profile.name),
            "variables": values,
            "parts": [bare_shell(part) for part in parts()],
            "files": files(),
            "marker": MARKER[:1],
        },
    )


def parts() -> list[str]:
    """The shell of it, in order."""
    own = [shell_part("short", name) for name in OWN]
    shared = [functions(kind, name, wanted) for kind, name, wanted in TAKEN]
    return [*own, *shared]


def files() -> list[tuple[str, str]]:
    """Name and text of what it lays into `box/` on the box."""
    own = dict(box_files())
    folder = shipped("templates") / "short"
    return [
        *(
            (f.name, bare_python(f.read_text(encoding="utf-8")))
            for f in sorted(folder.glob("*.py"))
        ),
        ("pip_indexes.py", bare_python(own["pip_indexes.py"])),
        ("runner.sh", bare_shell(_WHOLE_ONLY.sub("", own["runner.sh"])).rstrip("\n")),
    ]


def root_mark(work: Source) -> str:
    """As much of its first commit as tells one from another; room is short."""
    return work.root[:16] or "none"


def short_variables(profile: Profile, work: Source) -> list[tuple[str, Value]]:
    """Name and value of what the profile sets; the names are the whole script's."""
    python, train = profile.python, profile.train
    # Keys don't pack: of the git hosts the repository's own alone.
    own_hosts = [
        line
        for line in known_hosts()
        if " ssh-ed25519 " in line and line.split()[0] in (work.url or "")
    ]
    return [
        ("WORKDIR", profile.box.workdir),
        ("IS_LOCAL", False),
        ("MIN_FREE_MB", MIN_FREE_MB),
        ("AUTHORIZED_KEYS", public_keys(profile)),
        ("KNOWN_HOSTS", own_hosts),
        ("REPO_KEY", work.key),
        ("REPO_ROOT", root_mark(work)),
        ("REPO_NAME", work.name),
        ("REPO_COMMIT", work.commit),
        ("REPO_BRANCH", work.branch or ""),
        ("REPO_URL", work.url or ""),
        ("GIT_USER_NAME", profile.git.user.name or work.user_name or ""),
        ("GIT_USER_EMAIL", profile.git.user.email or work.user_email or ""),
        ("PYTHON_VERSION", python.version or ""),
        ("VENV", python.venv),
        ("INSTALLER", "uv"),
        ("TORCH_BACKEND", python.torch_backend),
        ("REQUIREMENTS_SET", python.requirements is not None),
        ("REQUIREMENTS", python.requirements or []),
        ("LOCK", python.lock or ""),
        ("EXTRAS", python.extras),
        ("PACKAGES", profile.packages),
        ("GPU_ORDER", gpu_order(profile)),
        ("ENV_NAMES", list(profile.env)),
        ("ENV_VALUES", list(profile.env.values())),
        ("SECRETS", profile.secrets),
        ("TRAIN_COMMAND", train.command if train else ""),
        ("TRAIN_SESSION", train.session if train else ""),
        ("TRAIN_AT_BOOT", train.at_boot if train else ""),
        ("INDEX", default_index()),
        ("UV_OLDEST", uv_release.OLDEST),
        ("UV_WHEELS", [row for row in uv_release.rows() if row.startswith("Linux")]),
        ("STEPS", [step for step in STEPS if train or step != "train"]),
    ]
