"""Damage on a box is noticed by the checks and repaired; the user's work there stays."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.cli import LONG, PROFILE, User, UserRepository
from tests.faults.plugin import Faults
from tests.main_job.rented import Rented
from tests.main_job.slow import await_nothing
from tests.main_job.used import start_used
from tests.waiting import wait_until

pytestmark = pytest.mark.sampled(of="module")

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGgsEHGhQK0YcNq5xfbNNBOrtLRuJjb3CtQcYXXCSmnF laptop"
KEYED = PROFILE + "ssh: {authorized_keys: [~/laptop.pub]}\n"
NOTES = "".join(f"line {number} of the notes\n" for number in range(200))
FILES = {"boxstrap__yaml": KEYED, "requirements__txt": "iniconfig>=2\nsix\n", "notes__txt": NOTES}
STORE = "/workspace/.boxstrap/store/*.git"
TREE = "/workspace/homework"
PACKAGES = f"{TREE}/.venv/lib/python3*/site-packages"


def set_up(rented: Rented) -> UserRepository:
    (rented.user.home / "laptop.pub").write_text(f"{KEY}\n")
    repository = rented.user.repository(**FILES)
    rented.user.agree()
    rented.run("setup").must(0)
    return repository


class Mended:
    """A box that is damaged again and again: each test leaves it as it was."""

    def __init__(self, rig: Rig, shared: Path, homes: Path) -> None:
        self._rig, self._shared, self._homes = rig, shared, homes
        self._kept: list[tuple[Rented, UserRepository]] = []
        self._count = 0

    @contextlib.contextmanager
    def lent(self, *, fresh: bool) -> Iterator[tuple[Rented, UserRepository]]:
        """Lend the box, set up and in order; it is discarded if the test fails."""
        if fresh:
            self.close()
        if not self._kept:
            self._count += 1
            box = start_used(self._rig, "vast", self._shared)
            rented = Rented(User(self._homes / str(self._count)), box)
            self._kept.append((rented, set_up(rented)))
        try:
            yield self._kept[0]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for rented, _ in self._kept:
            rented.box.stop()
        self._kept.clear()


@pytest.fixture(scope="module")
def mended(
    mirror_rig: Rig, shared_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mended]:
    made = Mended(mirror_rig, shared_folder, tmp_path_factory.mktemp("mended"))
    yield made
    made.close()


def looks(rented: Rented) -> str:
    """Return what a user sees of the box: files, git's output, importable packages."""
    return rented.box.run(
        f"cd {TREE} && git status --porcelain && git log --oneline && git fsck --full --no-dangling"
        " && cat notes.txt && .venv/bin/python -c 'import iniconfig, six; print(six.__file__)'"
        " && stat -c '%a %n' ~/.ssh ~/.ssh/authorized_keys && sort ~/.ssh/authorized_keys"
        " && cat ~/.bashrc ~/.boxstrap/env"
    )


PACK = "/objects/pack/"
DAMAGE = {
    "package's folder deleted": (f"rm -r {PACKAGES}/iniconfig", "python"),
    "package's only file deleted": (f"rm {PACKAGES}/six.py", "python"),
    "environment's python broken": (f"ln -sfn /nowhere {TREE}/.venv/bin/python", "python"),
    "environment deleted": (f"rm -r {TREE}/.venv", "python"),
    "file cut short": (f"truncate -s 1000 {TREE}/notes.txt", "repo"),
    "file emptied": (f": >{TREE}/notes.txt", "repo"),
    "pack cut short": (f"truncate -s 300 {TREE}/.git/objects/pack/*.pack", "repo"),
    "pack's index cut short": (f"truncate -s 300 {STORE}/objects/pack/*.idx", "repo"),
    "pack deleted": (f"rm {TREE}/.git/objects/pack/*", "repo"),
    "git's index emptied": (f": >{TREE}/.git/index", "repo"),
    "git's HEAD emptied": (f": >{TREE}/.git/HEAD", "repo"),
    "git's branch emptied": (f": >{TREE}/.git/refs/heads/main", "repo"),
    "our key taken out": ("sed -i /laptop/d ~/.ssh/authorized_keys", "ssh"),
    "keys' modes too wide": ("chmod 644 ~/.ssh/authorized_keys; chmod 755 ~/.ssh", "ssh"),
    "small environment deleted": ("rm -r ~/.boxstrap/agent", "agent"),
    "small environment robbed": ("rm -r ~/.boxstrap/agent/lib/python3*/*/psutil", "agent"),
    "uv deleted": ("rm $(head -n 1 ~/.boxstrap/uv)", "agent"),
    "rc line taken out": ("sed -i /boxstrap/d ~/.bashrc", "shell"),
    "link to our folder deleted": ("rm ~/.boxstrap", "shell"),
}
TOGETHER = (
    "file cut short, our key taken out, rc line taken out, small environment robbed",
    "file emptied, keys' modes too wide, uv deleted",
    "git's index emptied, link to our folder deleted",
    "git's branch emptied, small environment deleted",
    "git's HEAD emptied",
    # The step of these waits for the others' to be mended.
    *(name for name, (_, step) in DAMAGE.items() if step == "python"),
    # Repaired objects are no longer in a pack of the tree, so a pack can't be damaged twice.
    *(name for name, (what, _) in DAMAGE.items() if PACK in what),
)
assert sorted(DAMAGE) == sorted(", ".join(TOGETHER).split(", "))


@pytest.mark.sampled
@pytest.mark.parametrize("damage", TOGETHER)
def test_setup_restores_a_damaged_box_to_its_state_before_the_damage_and_starts_no_run(
    mended: Mended, faults: Faults, damage: str
) -> None:
    names = damage.split(", ")
    with (
        mended.lent(fresh=PACK in DAMAGE[names[0]][0]) as (rented, repository),
        contextlib.ExitStack() as attempts,
    ):
        before, runs = looks(rented), rented.runs()
        notes = rented.box.read(f"{TREE}/notes.txt")
        for name in names:
            attempts.enter_context(faults.attempt(f"damage: {name}"))
            rented.box.run(f"shopt -s failglob; {DAMAGE[name][0]}")
        wrong = rented.planned()
        assert {DAMAGE[name][1]: "broken" for name in names}.items() <= wrong.items()
        rented.run("setup").must(0)
        assert looks(rented) == before
        assert rented.planned() == {}
        assert rented.runs() == runs
        # The next commit works too.
        repository.commit({"notes.txt": f"{notes}and on\n"})
        rented.run("setup").must(0)
        assert rented.box.read(f"{TREE}/notes.txt") == f"{notes}and on\n"
        assert rented.runs() == sorted([*runs, f"train-{len(runs) + 1}"])


def test_ending_the_tmux_session_leaves_the_training_alive_and_setup_shows_it_again(
    rented: Rented, faults: Faults
) -> None:
    rented.user.repository(boxstrap__yaml=LONG)
    rented.run("setup").must(0)
    for how in ("kill-session -t train", "kill-server"):
        runs = rented.runs()
        with faults.attempt(f"session removed ({how.split(maxsplit=1)[0]})"):
            rented.box.run(f"tmux -L boxstrap {how}")
            assert rented.planned() == {"train": "broken"}
            assert rented.trainings() == 1
            rented.run("setup").must(0)
            assert (rented.runs(), rented.trainings()) == (runs, 1)
            wait_until(lambda: "step 1 loss" in rented.box.run(PANE))
            assert rented.planned() == {}
            # Ctrl-C in it ends the training, as in the session that was there first.
            rented.box.run("tmux -L boxstrap send-keys -t train C-c")
            await_nothing(rented, "bin/python [t]rain.py")
            rented.run("setup", "--restart").must(0)
            assert (len(rented.runs()), rented.trainings()) == (len(runs) + 1, 1)


PANE = "tmux -L boxstrap capture-pane -p -t train"
COMMIT = "git -c user.name=a -c user.email=a@b.c commit -q"


MADE_THERE = {
    "an edit": ("echo edit >>notes.txt", "notes.txt"),
    "a staged edit": ("echo edit >>notes.txt && git add notes.txt", "notes.txt"),
    "a deletion that is staged": ("git rm -q --cached notes.txt", "notes.txt"),
    "a commit": (f"{COMMIT} --allow-empty -m own", " own"),
    "a commit on the branch, looking elsewhere": (
        f"{COMMIT} --allow-empty -m own && git checkout -q --detach HEAD~1",
        " own",
    ),
    "an untracked file in the way": ("echo mine >new.txt", "new.txt"),
    "an ignored file in the way": ("mkdir -p out && echo mine >out/a.txt", "out/a.txt"),
}


def test_setup_is_refused_where_the_new_commit_would_overwrite_work_made_on_the_box(
    rented: Rented, faults: Faults
) -> None:
    repository = rented.user.repository(notes__txt="one\n")
    first = repository.commit({".gitignore": "out/\n"})
    rented.run("setup").must(0)
    repository.write({"notes.txt": "two\n", "new.txt": "new\n", "out/a.txt": "new\n"})
    repository.git("add", "--force", "out/a.txt")
    repository.commit({})
    state = (
        f"cd {TREE} && git log --format=%H --branches && git status --porcelain"
        " && cat *.txt out/* 2>/dev/null; true"
    )
    undo = f"git checkout -qf -B main {first} && git clean -qfd && rm -f out/a.txt"
    for made, (how, named) in MADE_THERE.items():
        rented.as_user(f"cd {TREE} && {undo} && {how}")
        before = rented.as_user(state)
        with faults.attempt(f"user's work on the box: {made}"):
            stopped = rented.run("setup").must(7)
            assert "the step repo failed" in stopped.err
            assert named in stopped.err
            assert "on the box" in stopped.err
            assert rented.as_user(state) == before
            assert first in before
            assert rented.runs() == ["train-1"]


def test_setup_keeps_stashes_branches_and_edits_on_the_box(rented: Rented, faults: Faults) -> None:
    repository = rented.user.repository(notes__txt="one\n", other__txt="one\n")
    rented.run("setup").must(0)
    rented.as_user(
        f"cd {TREE} && echo stashed >>train.py && git stash -q && echo edit >>other.txt"
        " && git branch mine && echo mine >untracked.txt && echo staged >staged.txt"
        " && git add staged.txt"
    )
    state = (
        f"cd {TREE} && git stash list && git stash show -p && git rev-parse mine"
        " && cat other.txt untracked.txt staged.txt && git status --porcelain"
    )
    before = rented.as_user(state)
    with faults.attempt("user's work on the box: a stash, a branch, edits in nobody's way"):
        commit = repository.commit({"notes.txt": "two\n"})
        rented.run("setup").must(0)
        assert rented.as_user(f"git -C {TREE} rev-parse HEAD").strip() == commit
        assert rented.as_user(state) == before
