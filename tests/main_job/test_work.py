"""Local work: byte for byte on the box, its tags too, and the same work however it is committed."""

import random
import subprocess

import pytest

from tests.cli import OWN_MACHINE, User
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.programs import captured
from tests.unit.repo.repositories import SampleRepository, listing
from tests.unit.repo.standing import placed, standing
from tests.unit.repo.states import FILES, STATES, put_into
from tests.used_here import seem_set_up

PROFILE = OWN_MACHINE + "python: {requirements: []}\n"


@pytest.fixture
def rented(rent: Rent) -> Rented:
    """A box, and a repository that it doesn't know."""
    rented = rent("vast", used=True)
    rented.user.repository()
    return rented


def test_setup_sends_uncommitted_changes_and_does_not_train_again_once_they_are_committed(
    rented: Rented,
) -> None:
    place = rented.user.place
    (place / "train.py").write_text("print('step 7')\n")
    (place / "new.py").write_text("print('untracked')\n")
    planned = rented.run("plan", "--json").must(0).json()
    assert planned["changes"] == {"modified": 1, "new": 1, "deleted": 0}
    done = rented.run("setup").must(0)
    assert "step 7" in done.out
    assert "with your changes (1 modified, 1 new)" in done.text
    assert "new.py: not in git yet" in done.text
    assert rented.box.read(f"{rented.tree}/new.py") == "print('untracked')\n"
    # As docs/runs.md says how to see the code of a run.
    (run,) = rented.user.run("runs", "--json").must(0).json()["runs"]
    store = f"--git-dir ~/.boxstrap/store/{run['repository']}.git"
    shown = rented.run("exec", "--", f"git {store} show {run['snapshot']}").must(0).out
    assert "+print('untracked')" in shown
    git = f"git -C {rented.tree}"
    commit = captured(["git", "rev-parse", "HEAD"], cwd=place).stdout.strip()
    assert rented.as_user(f"{git} rev-parse HEAD").strip() == commit
    assert rented.as_user(f"{git} status --porcelain").split() == ["M", "train.py", "??", "new.py"]
    again = rented.run("setup").must(0)
    assert "nothing to do" in again.out
    assert "not in git yet" not in again.text
    for words in (("add", "-A"), ("commit", "-qm", "All of it")):
        subprocess.run(["git", *words], cwd=place, check=True)
    rented.run("setup").must(0)
    assert rented.runs() == ["train-1"]
    assert rented.as_user(f"{git} status --porcelain") == ""
    (place / "boxstrap.yaml").write_text((place / "boxstrap.yaml").read_text() + "# edited\n")
    rented.run("setup").must(0)
    assert rented.runs() == ["train-1"]
    (place / "new.py").unlink()
    rented.run("setup").must(0)
    assert rented.runs() == ["train-1", "train-2"]
    assert not rented.box.exists(f"{rented.tree}/new.py")
    subprocess.run(["git", "checkout", "-q", "new.py"], cwd=place, check=True)
    assert "warning" not in rented.run("setup").must(0).text


def test_sync_makes_the_tree_equal_to_the_local_files_byte_for_byte(
    user: User, seeded: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The box is this machine, so that the placed files can be compared directly."""
    monkeypatch.setenv("HOME", str(user.home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user.home / ".config"))
    (user.home / ".gitconfig").write_text(
        '[user]\n\tname = Me\n\temail = me@example.org\n[protocol "file"]\n\tallow = always\n'
    )
    repo = SampleRepository(seem_set_up(user).repository(boxstrap__yaml=PROFILE).root)
    for name, content in FILES.items():
        repo.write(name, content)
    repo.git("add", "-f", ".")
    repo.git("commit", "-qm", "Files")
    base = repo.git("rev-parse", "HEAD")
    user.run("setup", "--host", "local").must(0)
    for state in sorted(seeded.sample([*STATES], len(STATES)), key="sparse".__eq__):
        repo.git("reset", "-q", "--hard", base)
        repo.git("clean", "-qffdx")
        put_into(repo, state, seeded)
        stands = standing(repo.root)
        before = listing(repo.root)
        done = user.run("sync", "--host", "local")
        assert done.rc == 0, f"{state}: {done.text}"
        assert listing(repo.root) == before, state
        there = placed(user.home / "work/homework")
        there = {path: entry for path, entry in there.items() if not path.startswith(b".venv/")}
        assert there == stands, state


TAGGED = "version: 1\ngpu: {require: false}\npython: {requirements: []}\n"
WAYS = (("describe", "--tags", "--long", "--dirty"), ("describe", "--match=v1*"))


def test_git_describe_on_the_box_gives_the_same_version_as_here(rent: Rent) -> None:
    rented = rent("vast", used=True)
    repository = rented.user.repository(boxstrap__yaml=TAGGED)
    repository.git("tag", "-a", "v1.2.2", "-m", "One")
    repository.git("tag", "nightly")
    repository.commit({"a.txt": "1"})
    repository.write({"a.txt": "2"})

    def there(*words: str) -> str:
        return rented.box.run(f"git -C {rented.tree} {' '.join(words)}").strip()

    rented.run("setup").must(0)
    for way in WAYS:
        assert there(*way) == repository.git(*way)
    assert repository.git(*WAYS[0]).startswith("v1.2.2-1-g")
    assert "already right" in rented.run("plan").must(0).out
    # A tag that was made on the box stays; one that was moved here moves there.
    there("-c", "user.name=x", "-c", "user.email=x@example.org", "tag", "-a", "v2.0", "-m", "There")
    made = there("rev-parse", "v2.0")
    repository.git("tag", "v2.0")
    repository.git("tag", "-f", "nightly")
    rented.run("setup").must(0)
    assert there("rev-parse", "v2.0") == made
    assert there("rev-parse", "nightly") == repository.head
