"""A script or query that arrives cut off does nothing at all, wherever the cut is.

The effect of a cut is deterministic, so a sample is enough for everyday use: a third of the bytes
near both ends, and of places at line ends and anywhere, drawn from `--seed`. `--every` tries all
of these.
"""

import gzip
import hashlib
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bootstrap.link import build_query
from bootstrap.link.exchange import _frame, shell_command
from bootstrap.steps.shell import shell_part
from tests.faults.plugin import Faults
from tests.unit.setup.scripts import shipped_script

pytestmark = pytest.mark.slow

TRIPWIRE = "this-must-never-be-shown"
SENTINEL = "0123456789abcdef" * 2
# What bash prints about a script that ends too early; the line it stopped at may follow.
UNREADABLE = re.compile(r"unexpected |syntax error|here-document|: `")
MODES = (["preflight"], ["plan"], ["run", "20260101-000000-abcdef", "0"])
ENDS, DRAWN = 400, 100
"""Bytes at each end; number of places anywhere, and again at line ends."""

Cut = Callable[[bytes], str | None]
"""Runs the cut script; returns what it did wrong, None if it did nothing."""


@pytest.fixture(scope="module")
def script() -> bytes:
    return shipped_script("vast").encode()


@pytest.fixture
def places(request: pytest.FixtureRequest, seeded: random.Random) -> Callable[..., list[int]]:
    """Where to cut; losing only the last newline is allowed. `fewer` divides their number."""

    def choose(whole: bytes, fewer: int = 1) -> list[int]:
        every = range(len(whole) - 1)
        ends = [found.end() for found in re.finditer(b"\n", whole)]
        drawn = seeded.choices(every, k=DRAWN // fewer) + seeded.choices(ends, k=DRAWN // fewer)
        near = [at + seeded.randrange(-1, 2) for at in drawn]
        first, last = every[: ENDS // fewer], every[-ENDS // fewer :]
        cuts = sorted({*first, *last, *(at for at in near if 0 <= at < every.stop)})
        usual = len(cuts) // 3
        return cuts if request.config.getoption("every") else sorted(seeded.sample(cuts, usual))

    return choose


def bash(home: Path, argv: list[str], stdin: bytes = b"") -> tuple[str, str]:
    """Run bash with no program on its PATH; return stdout and stderr."""
    done = subprocess.run(
        ["/bin/bash", "--norc", *argv],
        input=stdin,
        capture_output=True,
        cwd=home,
        env={"PATH": str(home / "empty"), "HOME": str(home), "TRIPWIRE": TRIPWIRE},
        timeout=120,
        check=False,
    )
    return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def wrong(out: str, errors: str) -> str | None:
    """Return what a cut script did wrong; None if it did nothing."""
    if TRIPWIRE in out + errors:
        return f"it shows the environment: {(out + errors)[:200]}"
    # No program can be found, so a script that starts to work prints output or errors.
    others = [line for line in errors.splitlines() if not UNREADABLE.search(line)]
    return f"it began to work: {out[:200]} {others[:3]}" if out or others else None


def as_file(home: Path, mode: list[str]) -> Cut:
    """Run it as a box does: from a file."""

    def run(cut: bytes) -> str | None:
        file = home / f"{len(cut)}.sh"
        file.write_bytes(cut)
        found = wrong(*bash(home, [str(file), *mode]))
        file.unlink()
        return found

    return run


def as_input(home: Path, mode: list[str]) -> Cut:
    """Run it as its preflight does: bash reads it from stdin, with only the program `cat`."""
    argv = ["-c", f'eval "$({shutil.which("cat")})"', "setup"]
    return lambda cut: wrong(*bash(home, [*argv, *mode], cut))


def tried(whole: bytes, cuts: Iterable[int], run: Callable[[int], Cut]) -> list[tuple[int, str]]:
    """Return the cuts that did something; `run` picks a way to run by the cut's number."""
    places = list(cuts)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda pair: run(pair[0])(whole[: pair[1]]), enumerate(places))
        return [(at, said) for at, said in zip(places, found, strict=True) if said]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that is empty and must stay so."""
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize("way", [as_file, as_input])
def test_a_cut_setup_script_changes_nothing(way, script: bytes, home: Path, places, faults) -> None:
    # Fewer from stdin: bash parses it the same way.
    cuts = places(script, fewer=12 if way is as_input else 1)
    with faults.attempt("script cut", at=way.__name__) as attempt:
        attempt.outcome(f"held at {len(cuts)} bytes")
        assert tried(script, cuts, lambda number: way(home, MODES[number % len(MODES)])) == []
        assert [path.name for path in home.iterdir()] == ["empty"]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode[0])
@pytest.mark.parametrize("way", [as_file, as_input])
def test_a_setup_script_starts_whether_the_shell_reads_it_as_a_file_or_from_a_pipe(
    way, script: bytes, home: Path, mode: list[str]
) -> None:
    assert "it began to work" in (way(home, mode)(script) or "")
    assert "it began to work" in (way(home, mode)(script[:-1]) or "")


def test_a_setup_script_never_prints_the_environment(script: bytes, home: Path) -> None:
    file = home / "setup.sh"
    file.write_bytes(script)
    for mode in ([], ["unknown"], *MODES):
        assert TRIPWIRE not in "".join(bash(home, [str(file), *mode]))


SENT = gzip.compress(b"true"), gzip.compress(b"\flib/x.sh\n:\n")
QUESTIONS = {
    "launch": {
        **{"setup_id": "20260101-000000-abcdef", "secret_bytes": 0, "files_sum": ""},
        **{"script_bytes": len(SENT[0]), "program_bytes": len(SENT[1])},
        "program_sum": hashlib.sha256(b"\flib/x.sh\n:\n").hexdigest(),
        "storing": shell_part("lib", "program") + 'read_program && store_program "$1"',
    },
    "stop": {"what": "", "repo_key": ""},
    "probe": {"repo_key": "k", "script_id": "x", "hint_names": "", "hint_files": ""},
}


def asked(name: str, home: Path) -> str:
    more = {"wait_seconds": 1, "client_time": 0, "words": ""} if name == "launch" else {}
    text = build_query(name, workdir=str(home / "work"), **QUESTIONS[name], **more)
    return _frame(text.replace("-gt 1000", "-gt 5"), SENTINEL)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_box_query_cut_short_runs_none_of_its_commands(
    name: str, home: Path, places, faults: Faults
) -> None:
    """The text as the box decodes it: it prints at most the line that starts the answer."""
    text = asked(name, home).encode()
    inside = [
        at for at in places(text, fewer=1 if name == "launch" else 4) if at < text.rindex(b"\n)\n")
    ]

    def run(cut: bytes) -> str | None:
        done = subprocess.run(
            ["/bin/sh", "-c", cut],
            input=b"".join(SENT),
            capture_output=True,
            cwd=home,
            env={"PATH": os.environ["PATH"], "HOME": str(home), "TRIPWIRE": TRIPWIRE},
            timeout=120,
            check=False,
        )
        said = done.stdout.decode().replace("echo", "").strip()
        began = SENTINEL.startswith(said.removesuffix("+"))
        return None if began and TRIPWIRE.encode() not in done.stderr else said or "it dumps"

    with faults.attempt("script cut", at=f"question {name}"):
        assert tried(text, inside, lambda _: run) == []
        assert [path.name for path in home.iterdir()] == ["empty"]
    if name == "launch":
        run(text)
        assert (home / "work").exists(), "whole, it does something, so this can fail"


@pytest.mark.parametrize("shell", ["dash", "bash", "fish", "tcsh", "zsh", "busybox"])
def test_a_shell_command_sent_to_a_box_does_nothing_when_cut(
    shell: str, home: Path, seeded: random.Random, faults: Faults
) -> None:
    """SSH passes a command on whole or not at all; this holds even if it did not."""
    argv = ["busybox", "sh"] if shell == "busybox" else [shell]
    if subprocess.run(["/bin/sh", "-c", f"command -v {argv[0]}"], capture_output=True).returncode:  # noqa: PLW1510
        pytest.skip(f"{shell} is not installed")
    command = shell_command(asked("launch", home))
    body = command.rindex(" '") + 2
    drawn = seeded.sample(range(body, len(command) - 20), 15)
    for at in [*range(0, body, 5), *drawn, *range(len(command) - 20, len(command))]:
        subprocess.run(
            [*argv, "-c", command[:at]],
            input=b"".join(SENT),
            capture_output=True,
            cwd=home,
            env={"PATH": os.environ["PATH"], "HOME": str(home)},
            timeout=120,
            check=False,
        )
        made = {path.name for path in home.iterdir()} - {".config", ".local", ".cache"}
        assert made == {"empty"}, f"cut at {at} of {len(command)}"
