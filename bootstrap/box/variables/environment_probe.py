"""Report which variables each kind of shell on this box has: their digests, never their values.

`python box/environment_probe.py ask REQUEST` starts every kind of shell as people and programs
start it; in each, `environment_tell.py` writes a salted digest of each requested variable. A line
of the answer is `digest WAY NAME DIGEST`, `answered WAY`, `not WAY REASON`, `set NAME PLACE` or
`shell NAME`, with tabs between. REQUEST is JSON: {"salt", "names", "folder", "venv", "local"}.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
if not __package__:  # run as a file: PEP 366
    sys.path[0], __package__ = str(HERE.parent), HERE.name
    sys.dont_write_bytecode = True  # a look at the box leaves nothing behind

from .environment_tell import tell  # noqa: E402

HOME = HERE.parent
LIMIT = 10.0
"""Seconds within which a shell must answer: start-up files may be slow, and may wait for ever."""
LOOK_EVERY = 0.3
"""Seconds between two checks whether a window is still open."""
KEPT = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "SSH_CONNECTION", "SSH_CLIENT")
"""Variables that a login gives to a shell before any start-up file is read."""
WINDOWS: dict[str, list[str]] = {
    "tmux": ["tmux", "-u", "-L", "boxstrap", "-f", "/dev/null"],
    "own-tmux": ["tmux", "-u"],
}
"""How each tmux is called: the server that shows runs, and the user's or the provider's own."""
START_UP_FILES = (
    *("/etc/environment", "/etc/profile", "/etc/profile.d/*.sh", "/etc/bash.bashrc"),
    *("/etc/zsh/*", "/etc/zsh*", "/etc/fish/config.fish", "/etc/csh.cshrc", "/etc/csh.login"),
    *("~/.bashrc", "~/.profile", "~/.bash_profile", "~/.bash_login", "~/.bash_aliases"),
    *("~/.zshenv", "~/.zprofile", "~/.zshrc", "~/.zlogin", "~/.config/fish/config.fish"),
    *("~/.config/fish/conf.d/*.fish", "~/.cshrc", "~/.tcshrc", "~/.login"),
)
MOST_PLACES = 3
LARGEST = 1 << 20  # bytes of a start-up file that are read


class Start(NamedTuple):
    """A command that leads to `tell`, and variables in addition to the plain environment."""

    argv: list[str]
    more: dict[str, str]


class ProbedBox(NamedTuple):
    """What the commands of all ways are made of."""

    asked: dict[str, Any]
    folder: Path
    shell: str
    plain: dict[str, str]

    def tell(self, way: str, python: str = sys.executable) -> str:
        """Return the command line that writes the digests; it works in any shell."""
        words = (python, "-I", "-S", str(HERE / "environment_tell.py"), str(self.folder), way)
        return "exec " + " ".join(map(shlex.quote, words))

    @property
    def is_csh(self) -> bool:
        """Whether the shell is csh or tcsh, which take no `-l` with another option."""
        return Path(self.shell).name in ("csh", "tcsh")


def login(box: ProbedBox) -> Start:
    """A login shell, as a console or `su -` starts it."""
    if box.is_csh:
        # A dash before its name makes it a login shell.
        name = f"-{Path(box.shell).name}"
        words = ["bash", "--norc", "-c", 'exec -a "$0" "$@"', name, box.shell, "-c"]
        return Start([*words, box.tell("login")], {})
    return Start([box.shell, "-l", "-c", box.tell("login")], {})


def vscode(box: ProbedBox) -> Start:
    """A terminal in VS Code: it has the environment of an interactive login shell."""
    terminal = "-ic" if box.is_csh else "-i -c"
    inner = f"exec {shlex.quote(box.shell)} {terminal} {shlex.quote(box.tell('vscode'))}"
    words = ["-ic"] if box.is_csh else ["-i", "-l", "-c"]
    return Start([box.shell, *words, inner], {"TERM_PROGRAM": "vscode"})


def window(box: ProbedBox, way: str) -> Start:
    """A tmux window, in which tmux starts a login shell."""
    words = "-ic" if box.is_csh else "-i -l -c"
    command = f"exec {shlex.quote(box.shell)} {words} {shlex.quote(box.tell(way))}"
    return Start([*WINDOWS[way], "new-session", "-d", "-s", session(box), command], {})


def session(box: ProbedBox) -> str:
    """Return the name of the tmux session, in which tmux allows no dots."""
    return box.folder.name.replace(".", "-")


def python(box: ProbedBox) -> Start:
    """Python as a training has it: started by the program that starts runs."""
    run = box.folder / "run"
    run.mkdir()
    texts = {
        "dir": box.asked["folder"],
        "venv": box.asked["venv"],
        "command": box.tell("python", f"{box.asked['venv']}/bin/python"),
    }
    for name, text in texts.items():
        (run / name).write_text(f"{text}\n")
    return Start(["bash", str(HERE / "runner.sh"), str(run), str(HOME / "env")], {})


def file(box: ProbedBox) -> Start:
    """The environment file itself, without any other."""
    script = f'[ ! -r "$1" ] || . "$1"; {box.tell("file")}'
    return Start(["bash", "--norc", "-c", script, "bash", str(HOME / "env")], {})


WAYS: dict[str, Callable[[ProbedBox], Start]] = {
    "tmux": lambda box: window(box, "tmux"),
    "own-tmux": lambda box: window(box, "own-tmux"),
    "login": login,
    "vscode": vscode,
    "python": python,
    "file": file,
}
"""All ways except `ssh`, which is this command's own environment."""
FOR_SHELLS = ("ssh", "login", "tmux", "own-tmux", "vscode")


def ask(asked: dict[str, Any]) -> None:
    """Start all ways at the same time, and print what they found."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    plain = {k: v for k, v in os.environ.items() if k in KEPT and k not in asked["names"]}
    plain.update(SHELL=shell, TERM="xterm-256color")
    folder = Path(tempfile.mkdtemp(prefix="environment.new.", dir=HOME))
    box = ProbedBox(asked, folder, shell, plain)
    out("shell", Path(shell).name)
    try:
        (folder / "asked").write_text("\n".join((asked["salt"], *asked["names"])))
        left_out = reasons(box)
        if "ssh" not in left_out:
            tell(str(folder), "ssh")
        started = begin(box, [way for way in WAYS if way not in left_out])
        await_all(box, started)
        for way in ("ssh", *WAYS):
            answer(box, way, left_out.get(way, "no-answer"))
        if not asked["local"]:
            for name, place in set_again(asked["names"]):
                out("set", name, place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def reasons(box: ProbedBox) -> dict[str, str]:
    """Return the ways that make no sense on this box, and why."""
    found = {}
    if not shutil.which("tmux"):
        found.update(dict.fromkeys(("tmux", "own-tmux"), "no-tmux"))
    if not os.access(f"{box.asked['venv']}/bin/python", os.X_OK):
        found["python"] = "not-built"
    if box.asked["local"]:
        found.update(dict.fromkeys(FOR_SHELLS, "local"))
    elif not os.access(box.plain["HOME"], os.W_OK):
        found.update(dict.fromkeys(FOR_SHELLS, "read-only-home"))
    return found


def begin(box: ProbedBox, ways: list[str]) -> dict[str, subprocess.Popen[bytes]]:
    """Start each way in its own session, without a terminal."""
    started = {}
    for way in ways:
        if way not in WINDOWS:
            # Yield to a training that starts; but a tmux server may stay, and run trainings itself.
            os.nice(max(0, 10 - os.nice(0)))
        start = WAYS[way](box)
        started[way] = subprocess.Popen(
            start.argv,
            env={**box.plain, **start.more},
            cwd=box.plain["HOME"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return started


def await_all(box: ProbedBox, started: dict[str, subprocess.Popen[bytes]]) -> None:
    """Wait until each has answered, ended or run out of time; then end what is left."""
    until = time.monotonic() + LIMIT
    waiting, looked = dict(started), time.monotonic()
    while waiting and time.monotonic() < until:
        time.sleep(0.01)
        look = time.monotonic() - looked > LOOK_EVERY
        looked = time.monotonic() if look else looked
        for way, process in list(waiting.items()):
            over = process.poll() is not None
            if way in WINDOWS:
                # The command that opens a window exits immediately; the window stays.
                over = over and look and not on_window(box, way, "has-session")
            if over or (box.folder / way).exists():
                del waiting[way]
    for way in set(waiting) & set(WINDOWS):
        on_window(box, way, "kill-session")
    for process in started.values():
        try:
            process.wait(timeout=1)  # a runner still records how its run ended
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()


def on_window(box: ProbedBox, way: str, verb: str) -> bool:
    """Run a tmux command on our session; return whether it succeeded."""
    words = [*WINDOWS[way], verb, "-t", f"={session(box)}"]
    done = subprocess.run(words, env=box.plain, capture_output=True, timeout=LIMIT, check=False)
    return done.returncode == 0


def answer(box: ProbedBox, way: str, reason: str) -> None:
    """Print what a way found."""
    try:
        found = (box.folder / way).read_text().splitlines()
    except OSError:
        out("not", way, reason)
        return
    out("answered", way)
    for line in found:
        out("digest", way, *line.split())


def set_again(names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the lines of start-up files that set one of these variables themselves."""
    sets = re.compile(r"(?:^|[\s;])(?:(\w+)=|(?:setenv|set\s+-\S*x\S*)\s+(\w+)\s)")
    count = dict.fromkeys(names, 0)
    home = Path(os.environ.get("HOME", "/"))
    for pattern in START_UP_FILES:
        base, rest = (home, pattern[2:]) if pattern.startswith("~") else (Path("/"), pattern[1:])
        for path in sorted(base.glob(rest)):
            for number, line in lines_of(path):
                for name in {a or b for a, b in sets.findall(line)} & set(count):
                    count[name] += 1
                    if count[name] <= MOST_PLACES:
                        shown = f"~/{path.relative_to(home)}" if base == home else str(path)
                        yield name, f"{shown}:{number}"


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield a file's lines with their numbers, except comments and boxstrap's own."""
    try:
        with path.open(errors="replace") as opened:
            text = opened.read(LARGEST)
    except OSError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith("#") and ".boxstrap/env" not in line:
            yield number, line


def out(*words: str) -> None:
    """Print a line of the answer."""
    sys.stdout.write("\t".join(words) + "\n")


if __name__ == "__main__":
    ask(json.loads(sys.argv[2]))
