"""Find the file that a profile's name means.

The user's own commands, from files in their config folder: no repository can set them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from bootstrap import paths
from bootstrap.errors import ProfileError, UsageError
from bootstrap.paths import is_foreign_owned, real
from bootstrap.profile.values import shown_value
from bootstrap.text.nearest import nearest

OF_A_REPOSITORY = paths.PROFILE
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def shipped_profile(name: str) -> Path | None:
    """Return the file of the shipped profile `name`, if there is one."""
    return _in(paths.shipped("profiles"), name)


def is_shipped(path: Path) -> bool:
    """Whether `path` is a file that comes with boxstrap."""
    return paths.real(path).parent == paths.shipped("profiles").resolve()


def is_path(text: str) -> bool:
    """Whether `text` is meant as a path rather than as a name."""
    return "/" in text or text.endswith((".yaml", ".yml"))


def find_profile(name_or_path: str) -> Path:
    """Return the file that is meant: a path, the user's profile, a shipped one, or a file here.

    Raises ProfileError that lists the known names.
    """
    if is_path(name_or_path):
        return paths.expanded(name_or_path)
    found = _in(paths.config_dir(), name_or_path) or shipped_profile(name_or_path)
    if found:
        return found
    if _NAME.fullmatch(name_or_path) and Path(name_or_path).is_file():
        return Path(name_or_path)
    raise unknown_name(name_or_path, shipped_ones() | users_own())


def profile_of_repository(root: Path) -> Path | None:
    """Return the profile of the repository at `root`, if it has one."""
    path = root / OF_A_REPOSITORY
    return path if os.path.lexists(path) else None


def shipped_ones() -> dict[str, Path]:
    """Name and file of each shipped profile."""
    return _all_in(paths.shipped("profiles"))


def users_own() -> dict[str, Path]:
    """Name and file of each profile in the user's config folder."""
    return _all_in(paths.config_dir())


def unknown_name(name: str, names: Iterable[str]) -> ProfileError:
    """Return the error for a name that no profile has."""
    close = nearest(name, names)
    hint = f"Did you mean {close}? " if close else ""
    return ProfileError(
        f"there is no profile {shown_value(name)}",
        hint=f"{hint}There are: {', '.join(names)}; or give a path, as in ./a100.yaml.",
    )


def label(path: Path) -> str:
    """Return `path` as messages name it: as short as possible, and printable."""
    if is_shipped(path):
        return f"shipped {path.name}"
    text = str(path)
    for folder, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_absolute() and path.is_relative_to(folder):
            text = prefix + str(path.relative_to(folder))
            break
    return text if text.isprintable() else shown_value(text, 200)


def _all_in(folder: Path) -> dict[str, Path]:
    found = sorted(folder.glob("*.yaml"))
    return {path.stem: path for path in found if _NAME.fullmatch(path.stem)}


def _in(folder: Path, name: str) -> Path | None:
    path = folder / f"{name}.yaml"
    return path if _NAME.fullmatch(name) and path.is_file() else None


def read_commands(file: Path, example: str) -> dict[str, str]:
    """Read commands by name from a file of lines `NAME: command`; none if there is no file.

    Raises UsageError if others may write the file, or it is not YAML like `example`.
    """
    from bootstrap.profile.yaml_source import Scalar, read_yaml

    if not file.exists():
        return {}
    where = label(file)
    if is_foreign_owned(file) or is_foreign_owned(real(file)) or real(file).stat().st_mode & 0o022:
        raise UsageError(
            "other users can write this file, which names programs to run. It was not used.",
            where=where,
            hint=f"chmod go-w {where}",
        )
    yaml = read_yaml(file, where)
    wrong = [problem.message for problem in yaml.problems]
    commands = {}
    for name, command in yaml.keys.entries:
        if isinstance(command, Scalar) and command.text.strip() and command.tag == "str":
            commands[name.text] = command.text
        else:
            wrong.append(f"line {name.line}: a command is expected, as in `{example}`")
    if wrong:
        raise UsageError(wrong[0], where=where)
    return commands
