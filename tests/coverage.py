"""`make coverage`: branch coverage by package, and how much of it must be covered.

Covered are programs that the tests start, forks of their server, and threads: what runs on this
machine, and of `onbox/` what tests run here, also as a program that is sent to this machine as a
box, and what the own Python of a box of the rig runs.
"""

import json
import sys
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import coverage
from coverage import Coverage

HERE = Path(__file__).resolve().parents[1]
FOLDER = HERE / ".coverage"
AT_LEAST = {
    "renting": (95, ("bootstrap/renting/*",)),
    "teardown": (95, ("bootstrap/renting/teardown.py", "bootstrap/renting/loss_check.py")),
    "transfer": (95, ("bootstrap/transfer/*", "bootstrap/onbox/transfer/*")),
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
include = */onbox/*
data_file = {ON_BOX}/data
patch = fork, _exit
sigterm = true
disable_warnings = no-data-collected, couldnt-parse, module-not-measured
"""


def box_files() -> dict[str, str]:
    """Return the files of a box that let its Python measure itself."""
    return {f"{_PACKAGES}/a1_coverage.pth": _STARTS}


def box_mounts() -> tuple[str, ...]:
    """Return the mounts for them: coverage itself, and the folder that its data goes to."""
    folder = FOLDER / "boxes"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)
    (folder / "settings").write_text(_SETTINGS)
    return (
        f"bind {_PACKAGES}/coverage {Path(coverage.__file__).parent}",
        f"bind {ON_BOX} {folder}",
    )


# -- the table


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
    measured.html_report(
        directory=str(folder / "html"), include=["bootstrap/*"], ignore_errors=True
    )
    print(f"\nLine by line: {folder / 'html/index.html'}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
