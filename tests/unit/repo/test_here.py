"""What is read from the current repository, in every state that it may be in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import BoxstrapError, UsageError, exit_code
from bootstrap.repo.local import is_boxstrap_checkout, read_repository
from bootstrap.repo.snapshot import take_snapshot
from tests.unit.repo.repositories import SampleRepository

New = Callable[..., SampleRepository]


def test_a_plain_repository(repo: SampleRepository, untouched: Callable[[], None]) -> None:
    repo.git("remote", "add", "origin", "https://me:s3cret@github.com/me/homework.git")
    untouched()
    here = read_repository(repo.root)
    assert here.root == repo.root
    assert here.commit == repo.git("rev-parse", "HEAD")
    assert (here.name, here.subject, here.branch) == ("homework", "Train a little", "main")
    assert here.url == "https://github.com/me/homework.git"
    assert (here.identity_name, here.identity_email) == ("Me Myself", "me@example.org")
    assert (here.shallow, here.bare, here.asked) == (False, False, None)
    assert here.object_format == "sha1"
    assert here.key.startswith("homework-")
    assert len(here.key) == len("homework-") + 8


def test_from_a_subdirectory_and_from_a_file(repo: SampleRepository) -> None:
    repo.commit(**{"deep/er/a.py": "1\n"})
    assert read_repository(repo.root / "deep" / "er") == read_repository(repo.root)
    assert read_repository(repo.root / "deep" / "er" / "a.py") == read_repository(repo.root)


def test_through_a_link_it_is_the_same_repository(repo: SampleRepository, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(repo.root)
    assert read_repository(tmp_path / "link") == read_repository(repo.root)


def test_no_upstream_no_remote(repo: SampleRepository) -> None:
    here = read_repository(repo.root)
    assert here.url is None
    assert here.key == read_repository(repo.root).key
    assert here.name == "homework"


def test_detached(repo: SampleRepository) -> None:
    repo.git("checkout", "-q", "--detach")
    assert read_repository(repo.root).branch is None


def test_a_worktree_shares_its_repository(repo: SampleRepository, tmp_path: Path) -> None:
    repo.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    here = read_repository(tmp_path / "tree")
    assert here.root == tmp_path / "tree"
    assert here.git_dir == repo.root / ".git"
    assert here.branch == "side"


def test_a_git_file_instead_of_a_folder(new: New, tmp_path: Path) -> None:
    repo = new("homework", "--separate-git-dir", str(tmp_path / "elsewhere"))
    commit = repo.commit(a="1")
    here = read_repository(repo.root)
    assert (here.commit, here.root) == (commit, repo.root)
    assert here.git_dir == tmp_path / "elsewhere"


def test_a_bare_repository(repo: SampleRepository, tmp_path: Path) -> None:
    repo.git("clone", "-q", "--bare", ".", str(tmp_path / "work.git"))
    here = read_repository(tmp_path / "work.git")
    assert here.bare
    assert (here.name, here.commit) == ("work", repo.git("rev-parse", "HEAD"))


def test_a_shallow_clone(repo: SampleRepository, tmp_path: Path) -> None:
    repo.commit("Second", a="1")
    repo.git("clone", "-q", "--depth=1", f"file://{repo.root}", str(tmp_path / "shallow"))
    assert read_repository(tmp_path / "shallow").shallow
    assert not read_repository(repo.root).shallow


def test_sha256(new: New) -> None:
    repo = new("homework", "--object-format=sha256")
    commit = repo.commit(a="1")
    here = read_repository(repo.root)
    assert len(here.commit) == 64
    assert (here.commit, here.object_format) == (commit, "sha256")


def test_a_sparse_checkout(repo: SampleRepository) -> None:
    repo.commit(**{"big/a": "1", "small/b": "2"})
    repo.git("sparse-checkout", "set", "small")
    assert read_repository(repo.root / "small").commit == repo.git("rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda root: None, "not a git repository"),
        (lambda root: root.rmdir(), "no such folder"),
        (lambda root: (root / ".git").mkdir(), "not a git repository"),
        (lambda root: (root / ".git").write_text("gitdir: gone"), "not a git repository"),
    ],
)
def test_no_repository(tmp_path: Path, make: Callable[[Path], object], why: str) -> None:
    root = tmp_path / "nothing"
    root.mkdir()
    make(root)
    with pytest.raises(UsageError, match=why):
        read_repository(root)


def test_no_commit_yet(new: New) -> None:
    with pytest.raises(UsageError, match="no commit yet") as caught:
        read_repository(new().root)
    assert "Commit" in caught.value.hint


def test_an_orphan_branch_has_no_commit_but_others_do(repo: SampleRepository) -> None:
    commit = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "-q", "--orphan", "empty")
    with pytest.raises(UsageError, match="no commit yet"):
        read_repository(repo.root)
    assert read_repository(repo.root, "main").commit == commit


def test_a_damaged_repository_is_not_the_users_mistake(repo: SampleRepository) -> None:
    commit = repo.git("rev-parse", "HEAD")
    (repo.root / ".git" / "objects" / commit[:2] / commit[2:]).unlink()
    with pytest.raises(BoxstrapError) as caught:
        read_repository(repo.root)
    assert exit_code(caught.value) == 1
    assert "fsck" in caught.value.hint


def test_without_git(
    repo: SampleRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="git is not installed"):
        read_repository(repo.root)


def test_without_git_from_the_start(repo: SampleRepository, tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from bootstrap.errors import UsageError
from bootstrap.repo.local import read_repository
from bootstrap.errors import exit_code
try:
    read_repository(Path(sys.argv[1]))
except UsageError as error:
    print(error.what)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(repo.root)],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "git is not installed" in done.stdout
    assert done.stderr == ""


# Refs


def test_a_ref_that_was_asked_for(repo: SampleRepository) -> None:
    first = repo.git("rev-parse", "HEAD")
    repo.git("tag", "-a", "-m", "one", "v1")
    repo.git("branch", "größe")
    repo.commit("Second", a="1")
    for ref in ["v1", "größe", "HEAD~1", "@^", first, first[:9], "main~1", "v1^{commit}"]:
        here = read_repository(repo.root, ref)
        assert (here.commit, here.subject) == (first, "Train a little"), ref
        assert (here.branch, here.asked) == (None, ref)


def test_a_branch_that_only_origin_has(repo: SampleRepository, tmp_path: Path) -> None:
    repo.git("branch", "remote-only")
    repo.git("clone", "-q", ".", str(tmp_path / "clone"))
    assert read_repository(tmp_path / "clone", "remote-only").commit == repo.git(
        "rev-parse", "HEAD"
    )


@pytest.mark.parametrize("ref", ["nope", "0" * 40, "a" * 40, "HEAD~99", "HEAD^{tree}", "origin/x"])
def test_an_unknown_ref(repo: SampleRepository, ref: str) -> None:
    with pytest.raises(UsageError, match="no branch, tag or commit"):
        read_repository(repo.root, ref)


@pytest.mark.parametrize(
    "ref",
    ["", "-1", "--output=x", "a..b", "HEAD...x", ":/Train", "HEAD:a", "a b", "a\nb", "$(id)", "a;b",
     "^HEAD", "HEAD^@", "HEAD^!", "HEAD^-", "x" * 300, "a\u202eb"],
)  # fmt: skip
def test_what_names_no_one_commit(repo: SampleRepository, ref: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_repository(repo.root, ref)
    assert "does not name one commit" in caught.value.what or "no branch" in caught.value.what
    assert caught.value.what.isprintable()


def test_a_subject_cannot_move_the_cursor(repo: SampleRepository) -> None:
    repo.commit("Nice\x1b[2J \u202edne\r and é")
    assert read_repository(repo.root).subject == "Nice\\x1b[2J \\u202edne\\x0d and é"


def test_a_subject_in_another_encoding(repo: SampleRepository) -> None:
    repo.git("config", "i18n.commitEncoding", "latin1")
    repo.git("commit", "-q", "--allow-empty", "-F", "-", stdin="Größe".encode("latin1"))
    assert read_repository(repo.root).subject == "Größe"


# Identity, address, key


def test_the_repositorys_identity_wins(repo: SampleRepository) -> None:
    repo.git("config", "user.email", "work@example.org")
    here = read_repository(repo.root)
    assert (here.identity_name, here.identity_email) == ("Me Myself", "work@example.org")


def test_no_identity(repo: SampleRepository, home: Path) -> None:
    (home / ".gitconfig").unlink()
    here = read_repository(repo.root)
    assert (here.identity_name, here.identity_email) == (None, None)


@pytest.mark.parametrize("url", ["/srv/git/x.git", "../x", "file:///srv/x", "ext::sh -c id"])
def test_an_address_only_for_this_machine_is_none(repo: SampleRepository, url: str) -> None:
    repo.git("remote", "add", "origin", url)
    here = read_repository(repo.root)
    assert (here.url, here.name) == (None, "homework")


def test_the_only_remote_serves_as_origin(repo: SampleRepository) -> None:
    repo.git("remote", "add", "upstream", "git@host:me/x.git")
    assert read_repository(repo.root).url == "git@host:me/x.git"
    repo.git("remote", "add", "other", "git@host:me/y.git")
    assert read_repository(repo.root).url is None


def test_instead_of_is_spelled_out(repo: SampleRepository) -> None:
    repo.git("config", "--global", "url.git@github.com:.insteadOf", "gh:")
    repo.git("config", "--global", "url.https://s3cret@github.com/Me/.insteadOf", "gh:me/")
    repo.git("remote", "add", "origin", "gh:me/x")
    assert read_repository(repo.root).url == "https://github.com/Me/x"


def test_the_usual_key_follows_the_repository_not_the_clone(
    repo: SampleRepository, new: New
) -> None:
    other = new("copy")
    other.commit(a="1")
    repo.git("remote", "add", "origin", "git@github.com:me/x.git")
    other.git("remote", "add", "origin", "https://github.com/me/x")
    assert (
        read_repository(repo.root).key
        == read_repository(repo.root).usual_key
        == read_repository(other.root).usual_key
    )
    other.git("remote", "set-url", "origin", "https://github.com/you/x")
    assert read_repository(repo.root).usual_key != read_repository(other.root).usual_key


def test_a_key_is_a_plain_folder_name(new: New) -> None:
    repo = new("-… mein Größtes $(id)")
    repo.commit(a="1")
    assert read_repository(repo.root).key.startswith("mein-Gro")
    assert all(c.isascii() and (c.isalnum() or c in "-._") for c in read_repository(repo.root).key)


def test_a_hook_of_git_that_runs_us_does_not_mislead(
    repo: SampleRepository, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new("other")
    other.commit(a="1")
    for name in ("GIT_DIR", "GIT_COMMON_DIR"):
        monkeypatch.setenv(name, str(other.root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.root / ".git" / "index"))
    commit = read_repository(repo.root).commit
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_COMMON_DIR")
    assert commit == repo.git("rev-parse", "HEAD")


def test_ctrl_c_leaves_nothing_of_the_folder_that_git_sees(
    repo: SampleRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = read_repository(repo.root).repository.view
    folder, unlink, removed = view.git_dir.parent, os.unlink, []

    def interrupted(*given: Any, **named: Any) -> None:
        removed.append(given)
        if len(removed) == 2:
            raise KeyboardInterrupt
        unlink(*given, **named)

    monkeypatch.setattr(os, "unlink", interrupted)
    with pytest.raises(KeyboardInterrupt):
        view.remove()
    assert not folder.exists()


def test_no_program_of_the_repository_runs(repo: SampleRepository, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    repo.git("config", "core.fsmonitor", str(trap))
    repo.git("config", "core.pager", str(trap))
    repo.git("config", "log.showSignature", "true")
    repo.git("config", "gpg.program", str(trap))
    shutil.copy(trap, repo.root / ".git" / "hooks" / "post-index-change")
    read_repository(repo.root)
    assert not (tmp_path / "sprung").exists()


def test_settings_that_name_no_program_still_count(repo: SampleRepository, home: Path) -> None:
    """Settings of the repository and of the user, with the files that they include."""
    repo.git("config", "--global", f"includeIf.gitdir:{repo.root.parent}/.path", str(home / "work"))
    (home / "work").write_text("[user]\n\temail = work@example.org\n")
    assert read_repository(repo.root).identity_email == "work@example.org"
    repo.commit("Second", a="1")
    repo.git("branch", "upstream", "HEAD~1")
    repo.git("config", "branch.main.remote", ".")
    repo.git("config", "branch.main.merge", "refs/heads/upstream")
    assert read_repository(repo.root, "@{u}").commit == repo.git("rev-parse", "HEAD~1")
    assert read_repository(repo.root, "HEAD@{1}").commit == repo.git("rev-parse", "HEAD~1")


def test_what_is_read_is_one_line_that_can_be_shown(repo: SampleRepository) -> None:
    """Values that are read go into scripts and onto terminals."""
    repo.git("config", "user.name", "Me\nEND_OF_WHOLE_SCRIPT\x1b[2J")
    repo.git("checkout", "-q", "-b", "a\u202eb")
    here = read_repository(repo.root)
    assert here.identity_name == "MeEND_OF_WHOLE_SCRIPT[2J"
    assert here.branch is None


def test_boxstraps_own_checkout(repo: SampleRepository) -> None:
    assert not is_boxstrap_checkout(read_repository(repo.root))
    repo.write("pyproject.toml", '[project]\nname = "boxstrap"\n')
    assert not is_boxstrap_checkout(read_repository(repo.root)), (
        "someone's project of the same name"
    )
    repo.write("bootstrap/__init__.py", "")
    assert is_boxstrap_checkout(read_repository(repo.root))
    repo.write("pyproject.toml", '[project]\nname = "homework"\ndependencies = ["boxstrap"]\n')
    assert not is_boxstrap_checkout(read_repository(repo.root))


def test_relative_and_home_paths(
    repo: SampleRepository, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo.root)
    assert read_repository(Path()) == read_repository(repo.root)
    (home / "work").symlink_to(repo.root)
    assert read_repository(Path("~/work")) == read_repository(repo.root)
    monkeypatch.setenv("WORK", str(repo.root))
    with pytest.raises(UsageError):
        read_repository(Path("$WORK"))


def test_of_a_commit_that_was_asked_for_nothing_else_travels(repo: SampleRepository) -> None:
    repo.write("train.py", "edited\n")
    assert take_snapshot(read_repository(repo.root)).id != read_repository(repo.root).commit
    asked = read_repository(repo.root, ref="HEAD")
    assert take_snapshot(asked).id == asked.commit
