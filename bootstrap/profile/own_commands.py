"""The user's own commands, from files in their config folder: no repository can set them."""

from __future__ import annotations

from pathlib import Path

from bootstrap.errors import UsageError
from bootstrap.owner import of_another
from bootstrap.paths import real
from bootstrap.profile import find


def read_commands(file: Path, example: str) -> dict[str, str]:
    """Read commands by name from a file of lines `NAME: command`; none if there is no file.

    Raises UsageError if others may write the file, or it is not YAML like `example`.
    """
    from bootstrap.profile.yaml_source import Scalar, read

    if not file.exists():
        return {}
    where = find.label(file)
    if of_another(file) or of_another(real(file)) or real(file).stat().st_mode & 0o022:
        raise UsageError(
            "other users can write this file, which names programs to run. It was not used.",
            where=where,
            hint=f"chmod go-w {where}",
        )
    yaml = read(file, where)
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
