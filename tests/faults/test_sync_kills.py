"""Kill either side, or cut the link, while `sync` sends: the next one ends in the right tree, and
nothing that was made on the box is lost."""

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli import Running, UserRepository
from tests.faults.plugin import Faults
from tests.main_job.rented import Rented
from tests.waiting import wait_until

PROFILE = "version: 1\ngpu: {require: false}\n"
ENDS = {0, 3, 7, -9}
"""Exit codes of a `sync` whose box or own process was lost."""
MOST_TRIES = 6


def kill_program(rented: Rented, going: Running, chance: random.Random) -> None:
    with contextlib.suppress(ProcessLookupError):  # it had already ended
        going.kill()


def kill_sshd(rented: Rented, going: Running, chance: random.Random) -> None:
    rented.box.run("pkill -9 -f '^sshd: [^/]' || true")


def kill_query(rented: Rented, going: Running, chance: random.Random) -> None:
    """Kill the shell on the box, its git, or both."""
    shell, git = "-f '[b]ash --norc -c'", "'^git'"
    for which in chance.choice(((shell,), (git,), (git, shell))):
        rented.box.run(f"pkill -9 {which} || true")


def cut_link(rented: Rented, going: Running, chance: random.Random) -> None:
    """Drop all packets, for a moment or until it is noticed."""
    rented.box.blackhole(22)
    time.sleep(chance.choice((0.5, 2, 15)))
    rented.box.unblackhole()


KILLS: tuple[tuple[str, Callable[[Rented, Running, random.Random], None]], ...] = (
    ("kill -9 of the program", kill_program),
    ("kill -9 of the query on the box", kill_query),
    ("kill -9 of sshd", kill_sshd),
    ("kill -9 of the query on the box", kill_query),
    ("link cut", cut_link),
)


@dataclass
class Both:
    """The repository, its tree on the box, and what each side made."""

    rented: Rented
    repository: UserRepository
    chance: random.Random
    made: dict[str, bytes] = field(default_factory=dict)

    @property
    def tree(self) -> Path:
        return self.rented.box.root / self.rented.tree[1:]

    def change_here(self) -> None:
        """Change, add and remove files; replace a file with a folder, or a folder with a file."""
        root, chance = self.repository.root, self.chance
        for number in chance.sample(range(12), 5):
            path = root / "data" / f"{number}"
            if path.is_dir():
                (path / "inside").unlink()
                path.rmdir()
            elif path.exists() and chance.random() < 0.4:
                path.unlink()
                if chance.random() < 0.5:
                    path.mkdir()
                    (path / "inside").write_bytes(chance.randbytes(30_000))
                continue
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(chance.randbytes(chance.choice((0, 10, 200_000))))
            path.chmod(chance.choice((0o644, 0o755)))
        if chance.random() < 0.3:
            self.repository.git("add", "-A")
            self.repository.git("commit", "-q", "--allow-empty", "-m", "Go on")

    def make_there(self, number: int) -> None:
        """Make a new file and an ignored one on the box, and edit a file that is unchanged here."""
        self.made[f"result-{number}"] = self.chance.randbytes(100)
        self.made[f"out/{number}"] = self.chance.randbytes(100)
        self.made["notes.txt"] = self.made.get("notes.txt", b"notes\n") + b"of the box\n"
        for name in (f"result-{number}", f"out/{number}", "notes.txt"):
            (self.tree / name).parent.mkdir(exist_ok=True)
            (self.tree / name).write_bytes(self.made[name])

    def must_be_right(self) -> None:
        here = {
            **files(self.repository.root),
            **{name: (data, 0) for name, data in self.made.items()},
        }
        there = files(self.tree)
        assert {n: d for n, (d, _) in there.items()} == {n: d for n, (d, _) in here.items()}
        modes = {name: mode for name, (_, mode) in here.items() if name not in self.made}
        assert {name: there[name][1] for name in modes} == modes


def files(root: Path) -> dict[str, tuple[bytes, int]]:
    """Return each file's content and execute bits, without git's folder and the environment."""
    found: dict[str, tuple[bytes, int]] = {}
    for path in root.rglob("*"):
        name = path.relative_to(root)
        if path.is_file() and name.parts[0] not in (".git", ".venv"):
            found[str(name)] = path.read_bytes(), path.stat().st_mode & 0o111
    return found


def test_the_next_sync_after_a_killed_sync_makes_the_tree_equal_to_the_local_files(
    rented: Rented, seeded: random.Random, faults: Faults, request: pytest.FixtureRequest
) -> None:
    repository = rented.user.repository(
        boxstrap__yaml=PROFILE, notes__txt="notes\n", **{"__gitignore": "out/\n"}
    )
    rented.run("setup").must(0)
    both = Both(rented, repository, seeded)
    both.change_here()
    usual = rented.run("sync").must(0).seconds
    both.must_be_right()
    for number in range(request.config.getoption("tries")):
        what, kill = KILLS[number % len(KILLS)]
        share = seeded.random()
        both.change_here()
        both.make_there(number)
        with faults.attempt(what, at=f"{share:.0%} of a sync") as attempt:
            going = rented.begin("sync")
            time.sleep(share * usual)
            attempt.begin()
            kill(rented, going, seeded)
            ends = [going.end()]
            while ends[-1].rc != 0:
                assert ends[-1].rc in ENDS, ends[-1].text
                assert "Traceback" not in ends[-1].text
                assert len(ends) < MOST_TRIES, "\n".join(end.text for end in ends)
                ends.append(rented.run("sync"))
            both.must_be_right()
            attempt.outcome(f"right after {len(ends)}")
    watch_goes_on_after_a_lost_link(both)


def watch_goes_on_after_a_lost_link(both: Both) -> None:
    """What is saved while the link is gone arrives when it is back (on the same box)."""
    rented = both.rented
    watch = rented.begin("sync", "--watch")
    try:
        watch.await_said("watching")
        rented.box.run("pkill -9 -f '^sshd: [^/]' || true")
        watch.await_said("lost")
        both.change_here()
        watch.await_said("back")
        (both.repository.root / "last").write_text("last\n")
        wait_until((both.tree / "last").exists, watch.said)
        both.must_be_right()
        watch.interrupt()
        watch.end().must(0)
    finally:
        watch.close()
