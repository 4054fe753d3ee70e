"""The minimal script: as much of a setup as fits into the narrowest door, 4,048 characters.

It uses the same paths as `status`, `logs` and `stop`, and lists what it leaves
out. shellcheck reads the same template, rendered with `for_lint`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap import __version__
from bootstrap.box.verdict import thresholds
from bootstrap.errors import UsageError
from bootstrap.profile.load import public_keys
from bootstrap.render import uv_release
from bootstrap.render.doors import MINIMAL, needs_full
from bootstrap.render.quote import Value, harmless, quote
from bootstrap.render.script import render_text
from bootstrap.render.variables import Source, python_id, requirement_words

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile

TEMPLATE = "minimal.sh.j2"


def render_minimal(profile: Profile, source: Source, *, for_lint: bool = False) -> str:
    """Return the minimal script. `for_lint` keeps the lines that only a linter needs.

    Raises UsageError if the profile needs a feature that it lacks.
    """
    python, train = profile.python, profile.train
    if python.installer == "pip":
        raise UsageError(
            "the minimal script builds with uv alone.", where="python.installer", hint=_LONGER
        )
    needs_full(profile, MINIMAL)
    if profile.prepare:
        raise UsageError(
            "the minimal script runs nothing before the training.", where="prepare", hint=_LONGER
        )
    variables: list[tuple[str, Value]] = [
        ("W", profile.box.workdir),
        ("K", source.key),
        ("N", source.name),
        ("Q", source.root[:16] or "none"),
        ("U", source.url or ""),
        ("C", source.commit),
        ("V", python.venv),
        ("E", "".join(f"export {name}={quote(value)}\n" for name, value in profile.env.items())),
    ]
    if train:
        variables += [("T", train.command), ("s", train.session)]
    return render_text(
        TEMPLATE,
        {
            "for_lint": for_lint,
            "version": __version__,
            "profile_name": harmless(profile.name),
            "variables": variables,
            "secrets": profile.secrets,
            "packages": " ".join(profile.packages),
            "keys": [" ".join(key.split()[:2]) for key in public_keys(profile)],
            "order": _order(profile),
            "name": profile.gpu.name,
            "names": len(profile.gpu.names) > 1,
            "memory": profile.gpu.min_memory_gib,
            "branch": source.branch or "",
            "user_name": profile.git.user.name or source.user_name or "",
            "user_email": profile.git.user.email or source.user_email or "",
            "used": round(thresholds.GPU["used_gib"] + _RESERVED_GIB),
            "uv": _uv(),
            "torch": python.torch_backend if python.torch_backend != "none" else "",
            "python": python.version or "",
            "python_id": python_id(python),
            "install": _install(profile),
            "env": " ".join(map(quote, [*(profile.env or [""]), *(profile.env.values() or [""])])),
            "command": _command(train.command if train else ""),
            "train": train is not None,
            "restart": "yes" if train and train.at_boot == "restart" else "",
        },
    )


def _command(command: str) -> str:
    """Return the command of a run, with the environment's `python` (as `absolute_command`)."""
    program, _, rest = command.partition(" ")
    own = rest and program in ("python", "python3")
    return f'"$V/bin/python "{quote(rest)}' if own else '"$T"'


_RESERVED_GIB = 1.0
"""Memory reserved by the driver: the older NVML call in this script counts it as used."""
_LONGER = "Leave --small out, or: boxstrap oneliner --url https://…"


def _order(profile: Profile) -> str:
    """Return the check's input: exit code, minimum GPU count, name, minimum memory in GiB."""
    gpu = profile.gpu
    least = round((gpu.min_memory_gib or 0) * thresholds.GPU["memory_ecc"], 2)
    count = gpu.count or (1 if gpu.require else 0)
    return repr([6 if gpu.require else 0, count, (gpu.name or "").lower(), least])


def _uv() -> str:
    hashes = [row[1] for name, row in uv_release.WHEELS.items() if name.startswith("Linux")]
    return " ".join([f"uv=={uv_release.VERSION}", *(f"--hash=sha256:{sha}" for sha in hashes)])


def _install(profile: Profile) -> str:
    """Return the lines that install packages, in the order of `templates/lib/sources.sh`."""
    python = profile.python
    words = {name: "".join(map(_word, each)) for name, each in requirement_words(python).items()}
    extras = "".join(f" --extra {quote(extra)}" for extra in python.extras)
    install, beside = '"$u" pip install -qp "$V/bin/python"', words["ADDED_ARGUMENTS"]
    sync = f'"$u" sync -q --frozen --inexact{words["LOCK_OPTIONS"]}'
    late = f"\n{install}{words['ADDED_TO_LOCK']}" if words["ADDED_TO_LOCK"] else ""
    lines = [f"export UV_INDEX={quote(' '.join(python.index))}"] if python.index else []
    if python.no_build_isolation:
        lines += [f'printf "%s;python_version<\'0\'\n"{words["NAMES_OF_LAST"]} >"$B/last"']
        beside += ' --override "$B/last"'
    if python.lock:
        folder = python.lock.rpartition("/")[0] or "."
        lines.append(f"{sync} --project {quote(folder)}{extras}{late}")
    elif python.requirements is not None:
        files = "".join(f" -r {quote(file)}" for file in python.requirements)
        lines.append(f"{install}{files}{beside}" if files or words["ADDED_ARGUMENTS"] else ":")
    else:
        lines += [
            f"if [ -f uv.lock ];then {sync}{extras}{late}",
            f"elif [ -f requirements.txt ];then {install} -r requirements.txt{beside}",
            f"elif [ -f pyproject.toml ];then {install} -r pyproject.toml{extras}{beside}",
            *([f"else {install}{beside}"] if words["ADDED_ARGUMENTS"] else []),
            "fi",
        ]
    return "\n".join(
        [*lines, *([f"{install}{words['BUILT_LAST']}"] if words["BUILT_LAST"] else [])]
    )


def _word(text: str) -> str:
    return f" {quote(text)}"
