"""`sync`: local work goes to its tree on a box; what was made there stays, or is brought back.

The box is this machine. All tests share it and one user; each leaves the tree as it is here.
"""

import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli import OWN_MACHINE, Running, User, UserRepository
from tests.faults.plugin import Faults
from tests.run_states import identity
from tests.unit.repo.repositories import listing
from tests.used_here import seem_set_up
from tests.waiting import wait_until

pytestmark = pytest.mark.sampled(of="module")

TO_LOCAL = ("--host", "local")


@dataclass
class Twin:
    """A repository, and its tree on the box."""

    user: User
    repository: UserRepository
    tree: Path

    def sync(self, *more: str, rc: int = 0) -> str:
        """Sync, and return what was printed."""
        return self.user.run("sync", *TO_LOCAL, *more).must(rc).text

    def read(self, name: str) -> str:
        return (self.tree / name).read_text()

    def write(self, name: str, text: str) -> None:
        path = self.repository.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    @property
    def box_home(self) -> Path:
        return self.tree.parent / ".boxstrap"


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    user = seem_set_up(User(tmp_path_factory.mktemp("sync") / "home"))
    files = {"keep.txt": "kept\n", "gone.txt": "x\n", ".gitignore": "out/\n*.log\n"}
    repository = user.repository(boxstrap__yaml=OWN_MACHINE, **{"a": "a\n"})
    repository.commit(files)
    user.run("setup", *TO_LOCAL).must(0)
    return Twin(user, repository, user.home / "work/homework")


@pytest.fixture
def watch(twin: Twin) -> Iterator[Running]:
    twin.sync()
    running = twin.user.begin("sync", "--watch", *TO_LOCAL)
    running.await_said("watching")
    yield running
    running.close()


def test_sync_sends_the_local_files_and_keeps_files_made_on_the_box(twin: Twin) -> None:
    (twin.tree / "out").mkdir()
    (twin.tree / "out/model").write_text("made\n")
    (twin.tree / "result").write_text("made\n")
    (twin.repository.root / "gone.txt").unlink()
    twin.write("train.py", "print('again')\n")
    twin.write("new/module.py", "1\n")
    twin.write("caf\u00e9 \t1", "odd\n")
    told = json.loads(twin.sync("--json"))
    assert "new/module.py: not in git yet" in told["notes"]["new"]
    assert (told["updated"], told["new"], told["removed"]) == (
        ["train.py"],
        ["caf\u00e9 \\x091", "new/module.py"],
        ["gone.txt"],
    )
    assert told["commit"] == twin.repository.head
    assert twin.read("train.py") == "print('again')\n"
    assert twin.read("new/module.py") == "1\n"
    assert not (twin.tree / "gone.txt").exists()
    assert (twin.read("result"), twin.read("out/model")) == ("made\n", "made\n")
    assert "already as here" in twin.sync()
    # The next setup finds the tree right, before and after the changes are committed.
    assert " repo       start" not in twin.user.run("setup", *TO_LOCAL).must(0).text
    (twin.tree / "result").unlink()
    twin.repository.git("add", "-A")
    twin.repository.git("commit", "-qm", "All of it")
    assert "already as here" in twin.sync()
    done = twin.user.run("setup", *TO_LOCAL).must(0)
    assert " repo       start" not in done.text


@pytest.mark.parametrize("how", ["sync", "setup"])
def test_sync_and_setup_put_a_file_back_that_was_removed_on_the_box(twin: Twin, how: str) -> None:
    """But not where git there was told to remove it: that is work of somebody's."""
    (twin.tree / "keep.txt").unlink()
    (twin.tree / "a").unlink()
    subprocess.run(["git", "-C", twin.tree, "rm", "-q", "--cached", "a"], check=True)
    said = twin.sync() if how == "sync" else twin.user.run("setup", *TO_LOCAL).must(0).text
    assert "files of the commit were removed on the box: they are restored" in said
    assert twin.read("keep.txt") == "kept\n"
    assert not (twin.tree / "a").exists()
    subprocess.run(["git", "-C", twin.tree, "checkout", "-q", "HEAD", "--", "a"], check=True)
    assert "restored" not in twin.sync() + twin.user.run("setup", *TO_LOCAL).must(0).text


def test_sync_exits_with_9_if_a_file_was_edited_here_and_on_the_box_and_sync_back_fetches_that_edit(
    twin: Twin,
) -> None:
    twin.write("keep.txt", "here\n")
    (twin.tree / "keep.txt").write_text("on the box\n")
    (twin.tree / "new file").write_text("new\n")
    (twin.tree / "tool").symlink_to("train.py")
    refused = twin.sync(rc=9)
    assert "edited on the box" in refused
    assert "keep.txt" in refused
    assert "sync --back" in refused
    assert twin.read("keep.txt") == "on the box\n"
    before = listing(twin.repository.root)
    ref = "refs/boxstrap/local/edits"
    done = twin.user.run("sync", "--back", *TO_LOCAL).must(0)
    assert "1 updated, 2 new" in done.out
    assert f"git merge {ref}" in done.out
    git = twin.repository.git
    assert git("show", f"{ref}:keep.txt") == "on the box"
    assert git("diff", "--name-only", f"{ref}^", ref).split("\n") == [
        "keep.txt",
        "new file",
        "tool",
    ]
    # Only a pack and a ref arrived, and nothing was checked out.
    after = listing(twin.repository.root)
    changed = {
        Path(name) for name, (digest, *_) in after.items() if before.get(name, ("",))[0] != digest
    }
    assert not before.keys() - after.keys()
    assert {path.parent.name for path in changed} == {"pack", "local"}
    again = twin.user.run("sync", "--back", *TO_LOCAL, "--json").must(0).json()
    assert (again["refs"], again["new"]) == ({ref: git("rev-parse", ref)}, [])
    assert again["commands"] == [f"git diff {ref}^ {ref}", f"git merge {ref}"]
    # Edits that the user discards there no longer block it.
    for name in ("new file", "tool"):
        (twin.tree / name).unlink()
    subprocess.run(["git", "-C", twin.tree, "checkout", "HEAD", "--", "keep.txt"], check=True)
    twin.sync()
    assert twin.read("keep.txt") == "here\n"


def test_sync_plan_setup_and_run_name_a_file_that_was_edited_on_the_box(twin: Twin) -> None:
    """And by the record of a run that began with it."""
    run, page = twin.user.run, twin.user.home / "page.html"
    said = "edited on the box: keep.txt. To see and take it: boxstrap sync --back --host local"
    (twin.tree / "keep.txt").write_text("on the box\n")
    twin.write("other.txt", "so that the next setup has something to do\n")
    told = json.loads(twin.sync("--json"))
    assert (told["edited"], told["new"], told["updated"]) == (["keep.txt"], ["other.txt"], [])
    # Of a setup that does something, events have no names.
    assert "edited on the box (1), and stay so: " in run("setup", *TO_LOCAL).must(0).err
    for task in ("sync", "plan", "setup"):
        assert said in run(task, *TO_LOCAL).must(0).err, task
    done = run("run", *TO_LOCAL, "--", "cat", "keep.txt").must(0)
    assert said in done.err
    assert "on the box" in done.out
    run("report", *TO_LOCAL, "--out", str(page)).must(0)
    assert "edited on the box before it began: keep.txt" in page.read_text()
    (twin.tree / "keep.txt").write_text((twin.repository.root / "keep.txt").read_text())
    (twin.repository.root / "other.txt").unlink()
    assert "edited" not in twin.sync() + run("plan", *TO_LOCAL).must(0).text


def test_sync_back_brings_commits_made_on_the_box_home_as_refs(twin: Twin) -> None:
    there = ("git", "-C", str(twin.tree), "-c", "user.name=Box", "-c", "user.email=b@example.org")
    subprocess.run([*there, "checkout", "-q", "-b", "try/one"], check=True)
    (twin.tree / "train.py").write_text("print('committed there')\n")
    subprocess.run([*there, "commit", "-q", "-am", "Try \x1b[31mone"], check=True)
    before = twin.repository.head
    done = twin.user.run("sync", "--back", *TO_LOCAL).must(0)
    ref = "refs/boxstrap/local/heads/try/one"
    assert "1 commit made on the box" in done.out
    assert f"git diff HEAD...{ref}" in done.out
    assert twin.repository.git("show", f"{ref}:train.py") == "print('committed there')"
    assert twin.repository.head == before
    assert "edits made on the box" not in done.out
    # Uncommitted edits on top of them are reported as edits.
    (twin.tree / "keep.txt").write_text("edited there\n")
    done = twin.user.run("sync", "--back", *TO_LOCAL).must(0)
    assert "edits made on the box: 1 updated (keep.txt)" in done.out
    merges = [line for line in done.out.splitlines() if "git merge" in line]
    assert merges == ["  git merge refs/boxstrap/local/edits"]  # with the commit below them
    subprocess.run([*there, "checkout", "-q", "HEAD", "--", "keep.txt"], check=True)
    subprocess.run([*there, "checkout", "-q", "main"], check=True)
    twin.sync()


@pytest.fixture(scope="module")
def with_submodule(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    """One whose submodule `my lib` has a name that a shell splits, and one inside it."""
    user = seem_set_up(User(tmp_path_factory.mktemp("submodules") / "home"))
    repository = user.repository(boxstrap__yaml=OWN_MACHINE, a="a\n")
    inner, deep = user.repository("inner", b="b\n"), user.repository("deep", c="c\n")
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    inner.git(*add, str(deep.root), "deep")
    inner.commit({})
    repository.git(*add, str(inner.root), "my lib")
    repository.git("-c", "protocol.file.allow=always", *("submodule", "update", "-q"), *RECURSIVE)
    repository.commit({"my library/x": "x\n"})
    user.place = repository.root
    user.run("setup", *TO_LOCAL).must(0)
    return Twin(user, repository, user.home / "work/homework")


RECURSIVE = ("--init", "--recursive")
OUTSIDE = {"a": "edited there\n", "my library/x": "edited there\n"}
INSIDE = {"my lib/b": "edited there\n", "my lib/deep/c": "edited there\n", "my lib/new": "new\n"}


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("edited", [OUTSIDE, INSIDE, {**OUTSIDE, **INSIDE}])
def test_commands_printed_by_sync_back_apply_edits_of_the_box_here_and_keep_a_submodule(
    with_submodule: Twin, edited: dict[str, str], commits: bool
) -> None:
    """Edits inside it too, on their own, and with a commit made on the box below them."""
    twin, git = with_submodule, with_submodule.repository.git
    there = ("git", "-C", str(twin.tree), "-c", "user.name=Box", "-c", "user.email=b@example.org")
    before, links = twin.repository.head, git("ls-files", "-s", "my lib")
    places = {twin.repository.root / name: text for name, text in edited.items()}
    kept = {name: (twin.tree / name).read_bytes() for name in edited if (twin.tree / name).exists()}
    if commits:
        (twin.tree / "t").write_text("committed there\n")
        subprocess.run([*there, "add", "t"], check=True)
        subprocess.run([*there, "commit", "-qm", "There"], check=True)
    for name, text in edited.items():
        (twin.tree / name).write_text(text)
    try:
        told = twin.user.run("sync", "--back", *TO_LOCAL, "--json").must(0).json()
        for command in told["commands"]:
            subprocess.run(["bash", "-ec", command], cwd=twin.repository.root, check=True)
        assert {path: path.read_text() for path in places} == dict(places)
        assert (twin.repository.root / "t").exists() == commits
        assert git("ls-files", "-s", "my lib") == links
        assert git("status", "--porcelain", "--ignore-submodules=all") == ""
        assert not git("log", "--format=%h", "HEAD", "--", "my lib/b")
        said = twin.user.run("sync", "--back", *TO_LOCAL).must(0).out
        assert ("nothing was made on the box that is not here" in said) == (edited is OUTSIDE)
        assert ("edits made on the box in submodules: 'my lib'" in said) == (edited is not OUTSIDE)
    finally:
        git("reset", "-q", "--hard", before)
        git("submodule", "foreach", "-q", "--recursive", "git reset -q --hard; git clean -qfd")
        subprocess.run([*there, "reset", "-q", "--soft", before], check=True)
        subprocess.run([*there, "rm", "-qf", "--ignore-unmatch", "t"], check=True)
        for name in edited:
            (twin.tree / name).unlink()
        for name, content in kept.items():
            (twin.tree / name).write_bytes(content)


def test_sync_is_refused_while_a_run_is_alive_and_names_it(twin: Twin) -> None:
    key = next(path.name for path in twin.box_home.glob("steps/homework-*") if path.is_dir())
    run = twin.box_home / "runs" / key / "train-7"
    run.mkdir(parents=True)
    twin.write("train.py", "print('beside a run')\n")
    with subprocess.Popen(["sleep", "60"]) as training:
        (run / "pid").write_text(f"{identity(training.pid)}\n")
        (run / "dir").write_text(f"{twin.tree}\n")
        (run / "command").write_text("sleep 60\n")
        before = twin.read("train.py")
        refused = twin.sync(rc=8)
        training.kill()
    assert "train-7 is running" in refused
    assert twin.read("train.py") == before
    twin.sync()
    assert twin.read("train.py") == "print('beside a run')\n"


@pytest.mark.parametrize(
    ("words", "said"), [(["sync"], "1 updated"), (["run", "--", "true"], "train-")]
)
def test_sync_and_run_during_a_setup_of_the_box_say_that_they_wait(
    twin: Twin, words: list[str], said: str
) -> None:
    twin.write("train.py", f"print('{words[0]} after a setup')\n")
    with (twin.box_home / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        going = twin.user.begin(words[0], *TO_LOCAL, *words[1:])
        going.await_said("waiting for another setup of this box, at most 60 s (--wait)")
        fcntl.flock(lock, fcntl.LOCK_UN)
    assert said in going.end().must(0).text


def test_sync_during_the_repositorys_first_setup_waits_for_it_wherever_that_is(
    user: User, twin: Twin
) -> None:
    repository = seem_set_up(user).repository(boxstrap__yaml=OWN_MACHINE)
    slow = f"prepare=[\"until test -e '{user.home}/go'; do sleep 0.1; done\"]"
    setup = user.begin("setup", "--restart", *TO_LOCAL, "--set", slow)
    setup.await_said(" prepare    start")
    for words in ("clean --yes", "secrets --host local --wipe"):
        refused = user.run(*words.split()).must(8).err
        assert "cancel it: boxstrap stop --setup --host local" in refused
    refused = user.run("setup", "--wait", "0").must(8).err
    assert "See what it does: boxstrap status --host local. Wait longer" in refused
    shown = user.run("status").must(0).out
    assert re.match(r"local: a setup \S+ of homework \w+, at work for \d+ s: prepare\n", shown)
    assert ", at work for " in user.run("plan").must(0).err
    setup.interrupt()
    again = (
        f"setup {' '.join(TO_LOCAL)} --set {shlex.quote(slow)}; to cancel it: boxstrap stop --setup"
    )
    assert again in setup.end().must(130).err  # said again, --restart would end what it began
    repository.write({"new.txt": "1\n"})
    sync = user.begin("sync")
    sync.await_said("waiting for another setup of this box")
    (user.home / "go").touch()
    assert "1 new (new.txt)" in sync.end().must(0).out
    # Before it is placed there.
    placed = next(twin.box_home.glob("steps/homework-*/repo.placed"))
    placed.rename(user.home / "later")
    with (twin.box_home / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sync = twin.user.begin("sync", *TO_LOCAL)
        sync.await_said("waiting for another setup of this box")
        (user.home / "later").rename(placed)
    sync.end().must(0)


def test_sync_watch_sends_the_next_save_after_its_process_on_the_box_was_killed(
    twin: Twin, faults: Faults
) -> None:
    """The command on the box is killed, or ends by itself where TMOUT is exported."""
    watch = twin.user.begin("sync", "--watch", *TO_LOCAL, TMOUT="1")
    try:
        watch.await_said("watching")
        for number in range(3):
            with faults.attempt("the box's side of a watch killed, its login up") as attempt:
                for pid in commands_of(watch):
                    os.kill(pid, signal.SIGKILL)
                twin.write("train.py", f"print('save {number}')\n")
                await_text(twin.tree / "train.py", f"print('save {number}')\n", watch)
                attempt.outcome("the next save arrives")
        with faults.attempt("TMOUT exported on the box") as attempt:
            before = commands_of(watch)
            time.sleep(1.5)
            assert commands_of(watch) == before != []
            attempt.outcome("ignored")
    finally:
        watch.interrupt()
        watch.end()


def test_sync_watch_says_at_each_save_that_the_saved_file_was_edited_on_the_box_and_sends_nothing(
    twin: Twin, watch: Running, faults: Faults
) -> None:
    with faults.attempt("edited on the box, while watched") as attempt:
        twin.write("keep.txt", "here 0\n")
        await_text(twin.tree / "keep.txt", "here 0\n", watch)
        (twin.tree / "keep.txt").write_text("there\n")
        for number in range(1, 4):
            twin.write("keep.txt", f"here {number}\n")
            edited = lambda at=number: watch.said().count("edited on the box") >= at  # noqa: E731
            wait_until(edited, watch.said)
        attempt.outcome("said at each save")
    (twin.tree / "keep.txt").write_text("here 0\n")
    twin.write("keep.txt", "here 4\n")
    await_text(twin.tree / "keep.txt", "here 4\n", watch)
    assert next(twin.box_home.glob("steps/homework-*/placed"))


def test_sync_watch_names_a_file_edited_on_the_box_only_once(twin: Twin) -> None:
    before = (twin.tree / "keep.txt").read_text()
    (twin.tree / "keep.txt").write_text("edited there\n")
    watch = twin.user.begin("sync", "--watch", *TO_LOCAL)
    try:
        watch.await_said("watching")
        for number in range(3):
            twin.write("other.txt", f"here {number}\n")
            await_text(twin.tree / "other.txt", f"here {number}\n", watch)
        assert watch.said().count("edited on the box: keep.txt") == 1
    finally:
        (twin.tree / "keep.txt").write_text(before)
        watch.interrupt()
        watch.end()


def test_sync_watch_sends_a_file_whose_name_is_not_utf_8_and_also_the_next_save(
    twin: Twin, watch: Running, faults: Faults
) -> None:
    root = twin.repository.root
    (root / "out").mkdir(exist_ok=True)
    for place in (b"out/\xff.bin", b"\xfe.txt"):
        with faults.attempt("a file name that is not UTF-8, while watched") as attempt:
            (root / os.fsdecode(place)).write_text("odd\n")
            twin.write("train.py", f"print({place!r})\n")
            await_text(twin.tree / "train.py", f"print({place!r})\n", watch)
            attempt.outcome("the next save arrives")
    await_text(twin.tree / os.fsdecode(b"\xfe.txt"), "odd\n", watch)
    (root / os.fsdecode(b"\xfe.txt")).unlink()


def commands_of(program: Running) -> list[int]:
    """The programs that it started on the box, which is this machine."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = process.joinpath("stat").read_text().rpartition(") ")[2].split()[1]
            words = process.joinpath("cmdline").read_bytes().split(b"\0")
            if int(parent) == program.process.pid and b"work.sync" in words:
                found.append(int(process.name))
    return found


def await_text(path: Path, text: str, watch: Running) -> None:
    wait_until(lambda: path.exists() and path.read_text() == text, watch.said)


@pytest.mark.parametrize("kind", ["clone", "worktree"])
def test_sync_warns_when_another_clone_or_worktree_uses_the_same_folder_on_the_box(
    twin: Twin, kind: str
) -> None:
    user, first = twin.user, twin.repository.root
    other = user.home / f"{kind}s"
    made = ("clone", "-q", str(first)) if kind == "clone" else ("worktree", "add", "-q")
    twin.repository.git(*made, str(other))
    in_other = ("--repo", str(other))
    warned = f"{first} is a clone or worktree of this repository"
    executed = ("exec", *TO_LOCAL, "--json", *in_other, "--", "true")
    twin.sync()
    assert f"were sent last from {first}" in user.run(*executed).must(0).text
    assert warned in user.run("setup", *TO_LOCAL, *in_other).must(0).text
    assert "were sent last" not in user.run(*executed).must(0).text
    assert warned not in user.run("sync", *TO_LOCAL, *in_other).must(0).text
    assert f"{other} is a clone or worktree" in twin.sync()
    assert warned in user.run("sync", *TO_LOCAL, *in_other).must(0).text
    if kind == "clone":
        own = ("--set", "box.workdir=~/own")
        assert warned not in user.run("setup", *TO_LOCAL, *in_other, *own).must(0).text
        assert "is a clone" not in twin.sync()
        (other / "mine").write_text("mine\n")
        assert "is a clone" not in user.run("sync", *TO_LOCAL, *in_other).must(0).text
        assert (user.home / "own/clones/mine").read_text() == "mine\n"
    shutil.rmtree(other)
    assert "is a clone" not in twin.sync()


def test_sync_is_refused_on_a_box_where_this_repository_is_not_set_up(twin: Twin) -> None:
    other = twin.user.home / "other"
    twin.repository.git("clone", "-q", str(twin.repository.root), str(other))
    twin.repository.git("-C", str(other), "checkout", "-q", "--orphan", "alone")
    twin.repository.git(
        "-C", str(other), "-c", "user.name=M", "-c", "user.email=m@e", "commit", "-qm", "A"
    )
    for task in (("sync",), ("sync", "--back"), ("sync", "--watch")):
        refused = twin.user.run(*task, *TO_LOCAL, "--repo", str(other)).must(2)
        assert "not set up on this box" in refused.err
        assert "boxstrap setup --host local" in refused.err
    refused = twin.user.run("sync", "--host", "root@203.0.113.9:2222").must(2)
    assert "not set up on this box" in refused.err


def test_sync_sends_a_commit_again_that_the_box_lost_despite_its_record(twin: Twin) -> None:
    """The box lacks what its record claims: it reports so, and gets another pack."""
    twin.write("train.py", "print('never sent')\n")
    twin.sync()
    record = twin.user.state / "boxes/local/box.json"
    known = json.loads(record.read_text())
    stores = list(twin.box_home.glob("store/*.git"))
    sent = known["extra"]["repositories"][0]["snapshot"]
    for store in stores:
        subprocess.run(
            ["git", "--git-dir", store, "update-ref", "-d", f"refs/boxstrap/{sent}"], check=True
        )
        subprocess.run(["git", "--git-dir", store, "prune", "--expire=now"], check=True)
    twin.write("train.py", "print('after it was lost')\n")
    twin.sync()
    assert twin.read("train.py") == "print('after it was lost')\n"


def test_sync_watch_sends_each_save_until_ctrl_c(twin: Twin, watch: Running) -> None:
    assert "already as here" in watch.line()
    twin.write("noise.log", "git ignores it")
    time.sleep(0.2)
    twin.write("train.py", "print('saved')\n")
    assert "1 updated (train.py)" in watch.line()
    assert twin.read("train.py") == "print('saved')\n"
    # As editors save: to a temporary file, which is then renamed.
    twin.write(".train.py.tmp", "print('renamed')\n")
    (twin.repository.root / ".train.py.tmp").rename(twin.repository.root / "train.py")
    await_text(twin.tree / "train.py", "print('renamed')\n", watch)
    twin.write("deep/er/new.py", "new\n")
    await_text(twin.tree / "deep/er/new.py", "new\n", watch)
    twin.write("deep/er/new.py", "newer\n")
    await_text(twin.tree / "deep/er/new.py", "newer\n", watch)
    twin.repository.git("add", "-A")
    twin.repository.git("commit", "-qm", "All of it")
    head = twin.repository.head
    ask = ["git", "-C", twin.tree, "rev-parse", "HEAD"]
    wait_until(lambda: subprocess.check_output(ask, text=True).strip() == head)
    watch.interrupt()
    ended = watch.end().must(0)
    assert "Traceback" not in ended.text
    assert "1 new (deep/er/new.py)" in ended.out
    assert not (twin.tree / "noise.log").exists()


def test_push_sends_a_git_ignored_folder_and_overwrites_only_with_replace(twin: Twin) -> None:
    data = twin.repository.root / "out/data"
    data.mkdir(parents=True)
    (data / "a\x1b[31m").write_text("1")
    (data / "b.tmp").write_text("1")
    told = json.loads(
        twin.user.run("push", "out/data", *TO_LOCAL, "--exclude", "*.tmp", "--json").must(0).out
    )
    assert (told["to"], told["files"], told["bytes"]) == (f"{twin.tree}/out/data", 1, 1)
    assert [path.name for path in (twin.tree / "out/data").iterdir()] == ["a\x1b[31m"]
    assert (
        "1 file already there" in twin.user.run("push", "out/data/a\x1b[31m", *TO_LOCAL).must(0).out
    )

    # A file that the training changed stays, unless --replace is given.
    (twin.tree / "out/data/a\x1b[31m").write_text("created there")
    refused = twin.user.run("push", "out/data", *TO_LOCAL).must(9)
    assert "1 file on the box" in refused.err
    assert "  out/data" not in refused.err
    assert "\x1b" not in refused.err
    assert "1 file, 1 B" in twin.user.run("push", "out/data", *TO_LOCAL, "--replace").must(0).out

    outside = twin.user.home / "elsewhere"
    outside.mkdir()
    assert "--to data/corpus" in twin.user.run("push", str(outside), *TO_LOCAL).must(2).err
    assert "no such file" in twin.user.run("push", "nowhere", *TO_LOCAL).must(2).err
    assert (
        "working folder" in twin.user.run("push", "out/data", *TO_LOCAL, "--to", "/etc").must(2).err
    )
    # Without a path, the profile's own local data is pushed.
    (outside / "c").write_text("12")
    top = twin.user.run("push", str(outside / "c"), *TO_LOCAL).must(0).out
    assert top.endswith("other trees get links to these files\n")
    (twin.tree / "c").unlink()
    beside = twin.user.run("push", str(outside / "c"), *TO_LOCAL, "--to", "../beside").must(0).out
    assert "other trees" not in beside
    own = twin.user.home / "own.yaml"
    own.write_text(
        "version: 1\ndata:\n- {from: ~/elsewhere, to: out/whole}\n"
        "- {from: ~/elsewhere/c, to: out/}\n- {from: https://example.org/x, to: out/}\n"
    )
    told = json.loads(twin.user.run("push", *TO_LOCAL, "--profile", str(own), "--json").must(0).out)
    assert [(item["to"], item["files"]) for item in told["items"]] == [
        (f"{twin.tree}/out/whole", 1),
        (f"{twin.tree}/out/c", 1),
    ]
    assert {path.read_text() for path in (twin.tree / "out").glob("**/c")} == {"12"}
    (twin.tree / "out/c").write_text("created there")
    assert (
        "1 file on the box" in twin.user.run("push", *TO_LOCAL, "--profile", str(own)).must(9).err
    )
    assert "names none on this machine" in twin.user.run("push", *TO_LOCAL).must(2).err
    # Of a repository that was not set up there, nobody knows where its tree will be.
    subprocess.run(["git", "init", "-q", outside], check=True)
    to_other = (*TO_LOCAL, "--repo", str(outside))
    assert "was not set up" in twin.user.run("push", str(outside / "c"), *to_other).must(2).err
    shutil.rmtree(twin.tree / "out")
    shutil.rmtree(twin.repository.root / "out")
