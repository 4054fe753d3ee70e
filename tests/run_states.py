"""The states of a run, as every reader must see them: a table of records and their meaning."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class RunCase(NamedTuple):
    """The files in a run's folder (None: no such file), and the state that they mean.

    `pid` has words for the lines of the file: runner first, then the command.
    """

    pid: tuple[str, ...] | None
    exit: str | None
    state: str
    rc: int | None = None
    ended: str | None = None
    queue: str | None = None


CASES = {
    "made, never begun": RunCase(None, None, "waiting"),
    "just begun": RunCase(("alive",), None, "running"),
    "at work": RunCase(("alive", "alive"), None, "running"),
    "its runner was killed": RunCase(("dead", "alive"), None, "running"),
    "its runner writes down the end": RunCase(("alive", "dead"), None, "running"),
    "both were killed": RunCase(("dead", "dead"), None, "died"),
    "killed before its command began": RunCase(("dead",), None, "died"),
    "both were killed, and none collected them": RunCase(("zombie", "zombie"), None, "died"),
    "their numbers are others' now": RunCase(("reused", "reused"), None, "died"),
    "the box was started anew": RunCase(("other boot", "other boot"), None, "died"),
    "the power went while it was written": RunCase((), None, "died"),
    "ended well": RunCase(("dead", "dead"), "0\n", "finished", 0, "exit 0"),
    "failed": RunCase(("dead", "dead"), "7\n", "finished", 7, "pipeline 7 0"),
    "stopped": RunCase(("dead", "dead"), "143\n", "finished", 143, "stop"),
    "ended, and why was not noted": RunCase(("dead", "dead"), "3\n", "finished", 3),
    "ended, its runner is about to go": RunCase(("alive", "dead"), "0\n", "finished", 0, "exit 0"),
    "ended, and something of it lives on": RunCase(("dead", "alive"), "1\n", "finished", 1),
    "ended, and its numbers are others'": RunCase(("reused", "reused"), "0\n", "finished", 0),
    "stopped without a runner": RunCase(None, "143\n", "finished", 143, "stop"),
    "waits for its turn": RunCase(None, None, "queued", queue="gpus"),
    "its turn has come": RunCase(("alive",), None, "running", queue="gpus"),
    "begun from the queue": RunCase(("alive", "alive"), None, "running", queue="after train-1"),
    "begun from the queue, and died": RunCase(("dead", "dead"), None, "died", queue="gpus"),
    "begun from the queue, and over": RunCase(
        ("dead", "dead"), "0\n", "finished", 0, "exit 0", queue="after-any train-1"
    ),
    "taken out of the queue": RunCase(None, "143\n", "finished", 143, "stop", queue="gpus"),
    "not begun, since another failed": RunCase(
        None, "143\n", "finished", 143, "after train-1", queue="after train-1"
    ),
    "the disk was full at its end": RunCase(("dead", "dead"), "", "finished"),
}


@dataclass
class Processes:
    """Real processes for the words of a case."""

    living: subprocess.Popen[bytes]
    zombie: subprocess.Popen[bytes]

    def line(self, word: str) -> str:
        """Return the line that a runner would have written: pid, start time, boot id."""
        if word == "dead":
            return f"{2**22 + 1} 1 {_boot()}"  # above Linux's highest pid
        process = self.zombie if word == "zombie" else self.living
        number, start, boot = identity(process.pid).split()
        boot = "11111111-2222-3333-4444-555555555555" if word == "other boot" else boot
        return f"{number} {int(start) + (word == 'reused')} {boot}"

    def close(self) -> None:
        """End them."""
        for process in (self.living, self.zombie):
            process.kill()
            process.communicate()


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identity(pid: int) -> str:
    """Return a process as the box records it: PID, start time, boot id."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return f"{pid} {stat[19]} {_boot()}"


def some_processes() -> Processes:
    """Start one process that lives, and one that ended and that nobody waited for."""
    # Its name looks like the end of its line in /proc, and of the line itself.
    named = r"printf 'a) Z 1\n(b' >/proc/$$/comm && echo && read -r _"
    pipe = subprocess.PIPE
    living = subprocess.Popen(["sh", "-c", named], stdin=pipe, stdout=pipe)
    assert living.stdout
    living.stdout.readline()
    zombie = subprocess.Popen(["true"])
    while Path(f"/proc/{zombie.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        pass
    return Processes(living, zombie)


def lay(case: RunCase, processes: Processes, run: Path) -> None:
    """Write the folder of a run as in the case."""
    run.mkdir(parents=True)
    words = {"started": "1", "commit": "a" * 40, "work": "w", "session": "train"}
    files = {name: f"{text}\n" for name, text in words.items()}
    files |= {"command": "python train.py\n", "dir": f"{run}/nowhere\n", "log": "step 1\n"}
    if case.pid is not None:
        files["pid"] = "".join(f"{processes.line(word)}\n" for word in case.pid)
    files |= {"exit": case.exit} if case.exit is not None else {}
    files |= {"ended": f"{case.ended}\n"} if case.ended else {}
    files |= {"queue": f"{case.queue}\n"} if case.queue else {}
    for name, text in files.items():
        (run / name).write_text(text)
