"""What is read from the current repository, in every state that it may be in."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import BoxstrapError, UsageError, exit_code
from bootstrap.repo.local import is_boxstrap_checkout, read_repository
from bootstrap.repo.snapshot import take_snapshot
from tests.programs import captured
from tests.unit.repo.repositories import SampleRepository

New = Callable[..., SampleRepository]


def test_reading_a_repository_gives_commit_branch_remote_without_password_and_git_user(
    repo: SampleRepository, untouched: Callable[[], None]
) -> None:
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


def test_a_repository_is_found_from_a_subdirectory_or_a_file_in_it(repo: SampleRepository) -> None:
    repo.commit(**{"deep/er/a.py": "1\n"})
    assert read_repository(repo.root / "deep" / "er") == read_repository(repo.root)
    assert read_repository(repo.root / "deep" / "er" / "a.py") == read_repository(repo.root)


def test_a_repository_with_detached_head_has_no_branch(repo: SampleRepository) -> None:
    repo.git("checkout", "-q", "--detach")
    assert read_repository(repo.root).branch is None


def test_a_git_worktree_shares_the_git_folder_of_its_repository(
    repo: SampleRepository, tmp_path: Path
) -> None:
    repo.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    here = read_repository(tmp_path / "tree")
    assert here.root == tmp_path / "tree"
    assert here.git_dir == repo.root / ".git"
    assert here.branch == "side"


def test_a_repository_with_a_separate_git_folder_is_read(new: New, tmp_path: Path) -> None:
    repo = new("homework", "--separate-git-dir", str(tmp_path / "elsewhere"))
    commit = repo.commit(a="1")
    here = read_repository(repo.root)
    assert (here.commit, here.root) == (commit, repo.root)
    assert here.git_dir == tmp_path / "elsewhere"


def test_a_bare_repository_is_read_with_its_name_and_its_snapshot_is_its_commit(
    repo: SampleRepository, tmp_path: Path
) -> None:
    repo.git("clone", "-q", "--bare", ".", str(tmp_path / "work.git"))
    here = read_repository(tmp_path / "work.git")
    assert here.bare
    assert (here.name, here.commit) == ("work", repo.git("rev-parse", "HEAD"))
    assert take_snapshot(here).id == here.commit


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda root: None, "not a git repository"),
        (lambda root: root.rmdir(), "no such folder"),
        (lambda root: (root / ".git").mkdir(), "not a git repository"),
        (lambda root: (root / ".git").write_text("gitdir: gone"), "not a git repository"),
    ],
)
def test_a_folder_that_is_no_git_repository_is_a_usage_error(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    root = tmp_path / "nothing"
    root.mkdir()
    make(root)
    with pytest.raises(UsageError, match=why):
        read_repository(root)


def test_setup_on_a_branch_without_a_commit_is_wrong_usage_unless_git_ref_names_another(
    repo: SampleRepository,
) -> None:
    commit = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "-q", "--orphan", "empty")
    with pytest.raises(UsageError, match="no commit yet") as caught:
        read_repository(repo.root)
    assert "Commit" in caught.value.hint
    assert read_repository(repo.root, "main").commit == commit


def test_a_damaged_repository_exits_with_1_and_suggests_git_fsck(repo: SampleRepository) -> None:
    commit = repo.git("rev-parse", "HEAD")
    (repo.root / ".git" / "objects" / commit[:2] / commit[2:]).unlink()
    with pytest.raises(BoxstrapError) as caught:
        read_repository(repo.root)
    assert exit_code(caught.value) == 1
    assert "fsck" in caught.value.hint


def test_without_git_installed_reading_a_repository_is_a_usage_error(
    repo: SampleRepository, tmp_path: Path
) -> None:
    code = """
import sys
from pathlib import Path
from bootstrap.errors import UsageError
from bootstrap.repo.local import read_repository
try:
    read_repository(Path(sys.argv[1]))
except UsageError as error:
    print(error.what)
"""
    done = captured([sys.executable, "-c", code, str(repo.root)], env={"PATH": str(tmp_path)})
    assert "git is not installed" in done.stdout
    assert done.stderr == ""


# Refs


def test_a_git_ref_may_be_a_branch_a_tag_or_a_commit_or_relative(repo: SampleRepository) -> None:
    first = repo.git("rev-parse", "HEAD")
    repo.git("tag", "-a", "-m", "one", "v1")
    repo.git("branch", "größe")
    repo.commit("Second", a="1")
    for ref in ["v1", "größe", "HEAD~1", "@^", first, first[:9], "main~1", "v1^{commit}"]:
        here = read_repository(repo.root, ref)
        assert (here.commit, here.subject) == (first, "Train a little"), ref
        assert (here.branch, here.asked) == (None, ref)


def test_git_ref_can_name_a_branch_that_only_origin_has(
    repo: SampleRepository, tmp_path: Path
) -> None:
    repo.git("branch", "remote-only")
    repo.git("clone", "-q", ".", str(tmp_path / "clone"))
    assert read_repository(tmp_path / "clone", "remote-only").commit == repo.git(
        "rev-parse", "HEAD"
    )


@pytest.mark.parametrize("ref", ["nope", "0" * 40, "a" * 40, "HEAD~99", "HEAD^{tree}", "origin/x"])
def test_an_unknown_git_ref_is_a_usage_error(repo: SampleRepository, ref: str) -> None:
    with pytest.raises(UsageError, match="no branch, tag or commit"):
        read_repository(repo.root, ref)


@pytest.mark.parametrize(
    "ref",
    ["", "-1", "--output=x", "a..b", "HEAD...x", ":/Train", "HEAD:a", "a b", "a\nb", "$(id)", "a;b",
     "^HEAD", "HEAD^@", "HEAD^!", "HEAD^-", "x" * 300, "a\u202eb"],
)  # fmt: skip
def test_a_ref_that_does_not_name_one_commit_is_a_usage_error(
    repo: SampleRepository, ref: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_repository(repo.root, ref)
    assert "does not name one commit" in caught.value.what or "no branch" in caught.value.what
    assert caught.value.what.isprintable()


def test_control_characters_in_a_commit_subject_are_escaped(repo: SampleRepository) -> None:
    repo.commit("Nice\x1b[2J \u202edne\r and é")
    assert read_repository(repo.root).subject == "Nice\\x1b[2J \\u202edne\\x0d and é"


def test_a_commit_subject_in_latin1_is_decoded(repo: SampleRepository) -> None:
    repo.git("config", "i18n.commitEncoding", "latin1")
    repo.git("commit", "-q", "--allow-empty", "-F", "-", stdin="Größe".encode("latin1"))
    assert read_repository(repo.root).subject == "Größe"


# Identity, address, key


def test_without_a_git_user_name_none_is_sent_to_the_box(
    repo: SampleRepository, home: Path
) -> None:
    (home / ".gitconfig").unlink()
    here = read_repository(repo.root)
    assert (here.identity_name, here.identity_email) == (None, None)


@pytest.mark.parametrize("url", [None, "/srv/git/x.git", "../x", "file:///srv/x", "ext::sh -c id"])
def test_a_repository_without_a_remote_a_box_can_reach_has_no_git_url(
    repo: SampleRepository, url: str | None
) -> None:
    if url:
        repo.git("remote", "add", "origin", url)
    here = read_repository(repo.root)
    assert (here.url, here.name) == (None, "homework")


def test_a_repository_without_origin_uses_its_only_remote_instead(repo: SampleRepository) -> None:
    repo.git("remote", "add", "upstream", "git@host:me/x.git")
    assert read_repository(repo.root).url == "git@host:me/x.git"
    repo.git("remote", "add", "other", "git@host:me/y.git")
    assert read_repository(repo.root).url is None


def test_a_remote_url_shortened_by_insteadof_is_written_out(repo: SampleRepository) -> None:
    repo.git("config", "--global", "url.git@github.com:.insteadOf", "gh:")
    repo.git("config", "--global", "url.https://s3cret@github.com/Me/.insteadOf", "gh:me/")
    repo.git("remote", "add", "origin", "gh:me/x")
    assert read_repository(repo.root).url == "https://github.com/Me/x"


def test_two_clones_get_the_same_usual_id_by_https_or_ssh_address_of_one_remote(
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


def test_the_id_of_a_repository_is_a_plain_folder_name_whatever_its_name(new: New) -> None:
    repo = new("-… mein Größtes $(id)")
    repo.commit(a="1")
    assert read_repository(repo.root).key.startswith("mein-Gro")
    assert all(c.isascii() and (c.isalnum() or c in "-._") for c in read_repository(repo.root).key)


def test_ctrl_c_during_cleanup_still_removes_the_temporary_git_folder(
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


def test_git_email_and_upstream_come_also_from_files_that_the_git_config_includes(
    repo: SampleRepository, home: Path
) -> None:
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


def test_control_characters_in_a_git_user_name_or_branch_are_removed(
    repo: SampleRepository,
) -> None:
    """Values that are read go into scripts and onto terminals."""
    repo.git("config", "user.name", "Me\nEND_OF_WHOLE_SCRIPT\x1b[2J")
    repo.git("checkout", "-q", "-b", "a\u202eb")
    here = read_repository(repo.root)
    assert here.identity_name == "MeEND_OF_WHOLE_SCRIPT[2J"
    assert here.branch is None


def test_only_a_folder_with_boxstraps_project_name_and_package_counts_as_its_checkout(
    repo: SampleRepository,
) -> None:
    assert not is_boxstrap_checkout(read_repository(repo.root))
    repo.write("pyproject.toml", '[project]\nname = "boxstrap"\n')
    assert not is_boxstrap_checkout(read_repository(repo.root)), (
        "someone's project of the same name"
    )
    repo.write("bootstrap/__init__.py", "")
    assert is_boxstrap_checkout(read_repository(repo.root))
    repo.write("pyproject.toml", '[project]\nname = "homework"\ndependencies = ["boxstrap"]\n')
    assert not is_boxstrap_checkout(read_repository(repo.root))


def test_a_repository_path_may_be_relative_or_start_with_a_tilde(
    repo: SampleRepository, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo.root)
    assert read_repository(Path()) == read_repository(repo.root)
    (home / "work").symlink_to(repo.root)
    assert read_repository(Path("~/work")) == read_repository(repo.root)
    monkeypatch.setenv("WORK", str(repo.root))
    with pytest.raises(UsageError):
        read_repository(Path("$WORK"))


def test_a_requested_commit_is_sent_without_the_uncommitted_edits(repo: SampleRepository) -> None:
    repo.write("train.py", "edited\n")
    assert take_snapshot(read_repository(repo.root)).id != read_repository(repo.root).commit
    asked = read_repository(repo.root, ref="HEAD")
    assert take_snapshot(asked).id == asked.commit
