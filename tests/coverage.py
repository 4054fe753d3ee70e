"""`make coverage`: branch coverage by package, and how much of it must be covered.

Covered are programs that the tests start, forks of their server, and threads: what runs on this
machine, and of `onbox/` what tests run here, also as a program that is sent to this machine as a
box. What runs inside a box of the rig is not counted.
"""

from __future__ import annotations

import bisect
import itertools
import json
import re
import shutil
import sys
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import coverage
from coverage import Coverage

from tests.boxes.places import SCRIPTS

HERE = Path(__file__).resolve().parents[1]
FOLDER = HERE / ".coverage"
TEMPLATES = HERE / "templates"
AT_LEAST = {
    "renting": (95, ("bootstrap/renting/*",)),
    "teardown": (95, ("bootstrap/renting/teardown.py", "bootstrap/renting/loss_check.py")),
    "transfer": (
        95,
        ("bootstrap/transfer/*", "bootstrap/transfer/frames.py", "bootstrap/onbox/transfer/*"),
    ),
    "consent": (95, ("bootstrap/profile/consent.py",)),
    "redaction": (95, ("bootstrap/onbox/redact.py", "bootstrap/sanitize.py")),
    "the whole": (85, ("bootstrap/*",)),
}
"""Percent of lines and branches, and of which files: what destroys, deletes, sends or pays."""


class Covered(NamedTuple):
    """Lines and branches: how many there are, and how many ran."""

    there: int
    ran: int

    @property
    def percent(self) -> float:
        return 100 * self.ran / self.there if self.there else 100.0

    def __str__(self) -> str:
        return f"{self.percent:6.1f} %  of {self.there:6,}"


def counted(measured: Coverage, told: Path) -> dict[str, Covered]:
    """Count each file of the package."""
    measured.json_report(outfile=str(told), include=["bootstrap/*"], ignore_errors=True)
    found = {}
    for name, file in json.loads(told.read_text())["files"].items():
        numbers = file["summary"]
        there = numbers["num_statements"] + numbers["num_branches"]
        found[name] = Covered(there, numbers["covered_lines"] + numbers["covered_branches"])
    return found


def total(files: dict[str, Covered], *patterns: str) -> Covered:
    """Add up the files that match one of the patterns."""
    chosen = [one for name, one in files.items() if any(fnmatch(name, each) for each in patterns)]
    return Covered(sum(one.there for one in chosen), sum(one.ran for one in chosen))


# -- what is laid where it is measured

_SAVE_AT_HANGUP = """\
import os,signal
if signal.getsignal(1)==signal.SIG_DFL: signal.signal(1,lambda*_:os._exit(129))
"""
"""A closed link ends a program that was sent: it saves first what it measured."""


def use_whole_programs() -> None:
    """Let a program that is sent to a box be its source, line for line, and under its name.

    Its lines could not be told otherwise.
    """
    shell = import_module("bootstrap.steps.shell")
    file = f"'{HERE}/bootstrap/'+name.replace('.','/')+'.py'"
    load = shell._LOAD.replace("compile(text,name,", f"compile(text,{file},")
    shell._LOAD = _SAVE_AT_HANGUP + load


def keep_traces() -> None:
    """Let the shell of a box see BASH_ENV, which every script that is sent there forgets first."""
    exchange = import_module("bootstrap.link.exchange")
    exchange._EXEC = exchange._EXEC.replace(" -u BASH_ENV", "")


ON_BOX = "/dev/boxstrap-coverage"
"""Where a box of the rig writes what it ran: `/dev` is left out when what changed is listed."""
_PACKAGES = "/usr/lib/python3/dist-packages"
_STARTS = f"""\
import os;exec("try: \
import coverage; \
os.environ['COVERAGE_PROCESS_START']='{ON_BOX}/settings'; \
coverage.process_startup()\\nexcept Exception: pass")
"""
_SETTINGS = f"""\
[run]
branch = true
parallel = true
include = */onbox/*, */onbox/redact.py
data_file = {ON_BOX}/data
patch = fork, _exit
sigterm = true
disable_warnings = no-data-collected, couldnt-parse, module-not-measured
"""


def box_files() -> dict[str, str]:
    """Return the files of a box that let its Python and its bash measure themselves."""
    return {
        f"{_PACKAGES}/a1_coverage.pth": _STARTS,
        "/etc/ssh/sshd_config.d/coverage.conf": f"SetEnv BASH_ENV={ON_BOX}/trace.sh\n",
    }


def box_mounts() -> tuple[str, ...]:
    """Return the mounts for them: coverage itself, and the folder that its data goes to."""
    folder = FOLDER / "boxes"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    (folder / "settings").write_text(_SETTINGS)
    shutil.copy(SCRIPTS / "trace.sh", folder)
    return (
        f"bind {_PACKAGES}/coverage {Path(coverage.__file__).parent}",
        f"bind {ON_BOX} {folder}",
    )


# -- the tables


# -- the shell


class ShellFunction(NamedTuple):
    """A function of a template: its file, its name, and its lines that hold a command, from 0."""

    file: str
    name: str
    lines: frozenset[int]


_DEFINES = re.compile(r"( *)([a-z_]+)\(\) ")
_NO_COMMAND = re.compile(r"(#.*|\{|\}|\)|fi|done|esac|;;|else|then|do|[^()]*\)|)$")
_GOES_ON = re.compile(r"(\\|\||&&)$")
_HEREDOC = re.compile(r"<<-?'?([A-Z]+)")


def shell_functions() -> list[ShellFunction]:
    """Return the functions of the scripts that bash runs on boxes."""
    found = []
    for file in sorted(TEMPLATES.glob("*/*.sh")):
        if file.parent.name in ("lib", "box"):
            name, at, lines, close = "", 0, set[int](), ""
            ends, before = "", ""
            for line in file.read_text().splitlines():
                if (defined := _DEFINES.match(line)) and not ends:
                    name, at, lines, close = defined[2], 0, set[int](), f"{defined[1]}}}"
                words = line.strip()
                is_whole = bool(defined) and words.endswith("}")
                if ends:
                    ends = "" if words == ends else ends
                elif is_whole or not (
                    defined or _NO_COMMAND.match(words) or _GOES_ON.search(before)
                ):
                    lines.add(at)
                if not ends and (heredoc := _HEREDOC.search(words)):
                    ends = heredoc[1]
                if name and (is_whole or line == close):
                    path = file.relative_to(TEMPLATES).as_posix()
                    found.append(ShellFunction(path, name, frozenset(lines)))
                    name = ""
                at, before = at + 1, words
    return found


def shell_lines(folder: Path) -> dict[tuple[str, str], set[int]]:
    """Return which lines of each function ran, by the script that ran and the function's name.

    A line counts from the one that defines the function, which is 0.
    """
    ran: dict[tuple[str, str], set[int]] = {}
    for trace in folder.glob("shell.*"):
        script, *told = trace.read_text().split("\n")
        starts = [(int(line), name) for line, _, name in (e.partition(":") for e in told) if name]
        for line in (int(each) for each in told if each.isdigit()):
            at = bisect.bisect_right(starts, (line, "~")) - 1
            if at >= 0:
                name = starts[at][1].partition("(")[0].strip()
                ran.setdefault((script, name), set()).add(line - starts[at][0])
    return ran


def print_shell(folder: Path) -> None:
    """Print of each file how many functions and about how many lines ran, and what never did."""
    ran = shell_lines(folder)
    print("\nShell of boxes: functions that ran, about how many of their lines, and the others:")
    for file, group in itertools.groupby(shell_functions(), lambda each: each.file):
        functions = list(group)
        own = Path(file).name
        found = {
            each.name: set().union(
                *(
                    lines
                    for (script, name), lines in ran.items()
                    if name == each.name and (not file.startswith("box/") or script == own)
                )
            )
            for each in functions
        }
        there = sum(len(each.lines) for each in functions)
        lines = sum(len(each.lines & found[each.name]) for each in functions)
        never = [name for name, lines_ran in found.items() if not lines_ran]
        count = f"{len(functions) - len(never):3} of {len(functions):3}"
        print(f"{count}  {100 * lines / (there or 1):4.0f} %  {file}  {' '.join(never)}")


def main() -> int:
    """Print the table; return 1 if something is covered less than it must be."""
    folder = FOLDER
    measured = Coverage(data_file=folder / "data", config_file=str(HERE / "pyproject.toml"))
    measured.load()
    measured.combine([str(each) for each in (folder, folder / "boxes") if each.is_dir()])
    # What no process has imported counts too.
    measured.get_data().touch_files(list(map(str, (HERE / "bootstrap").rglob("*.py"))))
    measured.save()
    files = counted(measured, folder / "data.json")
    for package in sorted({"/".join(name.split("/")[:2]) for name in files}):
        print(f"{total(files, package, f'{package}/*')}  {package}")
    print("\nLines and branches of what destroys, deletes, sends or pays, and of all:")
    failed = 0
    for name, (least, patterns) in AT_LEAST.items():
        found = total(files, *patterns)
        failed += found.percent < least
        print(f"{found}  {name}{'' if found.percent >= least else f': less than {least} %'}")
    print_shell(folder / "boxes")
    measured.html_report(
        directory=str(folder / "html"), include=["bootstrap/*"], ignore_errors=True
    )
    print(f"\nLine by line: {folder / 'html/index.html'}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
