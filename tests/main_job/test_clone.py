"""`git.access: url`: the box itself fetches the commit from a real git server."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.boxes.git_server import GitServer
from tests.main_job.rented import Rented

STORE = "/workspace/.boxstrap/store/*.git"


@pytest.fixture
def server(mirror_rig: Rig, tmp_path: Path) -> Iterator[GitServer]:
    started = GitServer(mirror_rig.mirror.host, tmp_path)
    yield started
    started.close()


@pytest.mark.parametrize("bare_commits", [True, False], ids=["any commit", "tips alone"])
def test_a_box_with_git_access_url_fetches_any_named_commit_from_the_git_server(
    rented: Rented, server: GitServer, tmp_path: Path, bare_commits: bool
) -> None:
    """Neither commit is the tip of a branch; from a server of tips only, branches are fetched."""
    repository = rented.user.repository()
    commits = [repository.head]
    commits += [repository.commit({"n.txt": f"{n}"}, f"{n}") for n in range(2)]
    bare = tmp_path / "homework.git"
    argv = ["git", "clone", "--quiet", "--bare", str(repository.root), str(bare)]
    subprocess.run(argv, check=True, env=rented.user.env)
    url = server.url(bare.name)
    if not bare_commits:
        server.refuse_bare_commits()
    # The first commit's work ran already when it is gone back to: its run is named, not begun.
    for round_, commit, run in ((1, commits[0], 1), (2, commits[1], 2), (3, commits[0], 1)):
        keys = {"access": "url", "url": url, "ref": commit}
        options = [word for key, value in keys.items() for word in ("--set", f"git.{key}={value}")]
        # In round 3 the first commit's objects are in the store: without a ref they don't count.
        rented.as_user(f"! cd {STORE} || git update-ref -d refs/boxstrap/{commit}")
        done = rented.run("setup", *options).must(0)
        ran_before = "train-1 finished; to start it again: --restart"
        assert ("step 1 loss" in done.out) == (round_ < 3)
        assert (ran_before in done.out) == (round_ == 3)
        assert f"run train-{run}: " in done.out
        assert rented.as_user(f"git -C {rented.tree} rev-parse HEAD").strip() == commit
        assert "nothing to do" in rented.run("setup", *options).must(0).out
    assert rented.runs() == ["train-1", "train-2"]
    assert rented.as_user(f"git -C {rented.tree} remote get-url origin").strip() == url
