"""What a commit would leave behind, in the states that a working tree gets into."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.repo.here import read
from bootstrap.repo.left_behind import Changes, left_behind
from tests.unit.repo.repositories import SampleRepository

New = Callable[..., SampleRepository]
Remember = Callable[[], None]


def changes(root: Path, ref: str | None = None) -> Changes:
    return left_behind(read(root, ref))


def touch_all(repo: SampleRepository) -> None:
    """Make every file stat-stale, as a copied or synced working tree is."""
    for place in repo.root.iterdir():
        if place.is_file():
            os.utime(place, (1, 1))


def test_nothing(repo: SampleRepository, untouched: Remember) -> None:
    touch_all(repo)
    untouched()
    found = changes(repo.root)
    assert not found
    assert found == Changes()
    assert found.lines() == []


def test_staged_unstaged_untracked_ignored(repo: SampleRepository, untouched: Remember) -> None:
    repo.commit(**{".gitignore": "*.pt\n", "both": "1\n", "gone": "1\n", "unlinked": "1\n"})
    repo.write("train.py", "print(2)\n")
    repo.write("staged.py")
    repo.write("README", "new\n")
    repo.git("add", "staged.py", "README")
    repo.write("both", "2\n")
    repo.git("add", "both")
    repo.write("both", "3\n")
    repo.git("rm", "-q", "gone")
    (repo.root / "unlinked").unlink()
    repo.write("notes.txt")
    repo.write("data/a")
    repo.write("data/b")
    repo.write("model.pt")
    touch_all(repo)
    untouched()
    found = changes(repo.root)
    assert found.modified == ("README", "both", "gone", "staged.py", "train.py", "unlinked")
    assert found.untracked == ("data/", "notes.txt")
    assert (found.submodules, found.lfs) == ((), ())


def test_staged_and_put_back_in_the_tree_is_still_not_the_commit(repo: SampleRepository) -> None:
    repo.write("train.py", "print(2)\n")
    repo.git("add", "train.py")
    repo.write("train.py", "print(1)\n")
    assert changes(repo.root).modified == ("train.py",)


def test_a_rename_is_both_names(repo: SampleRepository, untouched: Remember) -> None:
    repo.git("config", "status.renames", "copies")
    repo.git("mv", "train.py", "fit.py")
    untouched()
    assert changes(repo.root).modified == ("fit.py", "train.py")


def test_a_type_change_and_a_mode_change(repo: SampleRepository, untouched: Remember) -> None:
    (repo.root / "train.py").chmod(0o755)
    (repo.root / "README").unlink()
    (repo.root / "README").symlink_to("train.py")
    untouched()
    assert changes(repo.root).modified == ("README", "train.py")


def test_intent_to_add(repo: SampleRepository) -> None:
    repo.write("later")
    repo.git("add", "-N", "later")
    assert changes(repo.root).modified == ("later",)


def test_a_conflict(repo: SampleRepository, untouched: Remember) -> None:
    repo.git("checkout", "-q", "-b", "other")
    repo.commit(train_py="print(2)\n")
    repo.git("checkout", "-q", "main")
    repo.commit(train_py="print(3)\n")
    repo.git("merge", "other", check=False)
    untouched()
    assert changes(repo.root).modified == ("train.py",)


def test_detached_with_a_change(repo: SampleRepository) -> None:
    repo.git("checkout", "-q", "--detach")
    repo.write("train.py", "print(2)\n")
    assert changes(repo.root).modified == ("train.py",)


def test_a_worktree_has_its_own_changes(repo: SampleRepository, tmp_path: Path) -> None:
    repo.git("worktree", "add", "-q", str(tmp_path / "tree"))
    repo.write("train.py", "print(2)\n")
    (tmp_path / "tree" / "new").write_text("x")
    assert changes(tmp_path / "tree") == Changes(untracked=("new",))
    assert changes(repo.root) == Changes(modified=("train.py",))


def test_from_a_subdirectory_all_of_the_repository_counts(repo: SampleRepository) -> None:
    repo.commit(**{"deep/a": "1"})
    repo.write("train.py", "print(2)\n")
    repo.write("deep/b")
    found = changes(repo.root / "deep")
    assert (found.modified, found.untracked) == (("train.py",), ("deep/b",))


def test_a_bare_repository_has_no_changes(repo: SampleRepository, tmp_path: Path) -> None:
    repo.commit(**{".gitattributes": "*.pt filter=lfs\n", "a.pt": "pointer"})
    repo.git("clone", "-q", "--bare", ".", str(tmp_path / "work.git"))
    assert changes(tmp_path / "work.git") == Changes(lfs=("a.pt",))


def test_a_shallow_clone(repo: SampleRepository, tmp_path: Path) -> None:
    repo.commit("Second", a="1")
    repo.git("clone", "-q", "--depth=1", f"file://{repo.root}", str(tmp_path / "shallow"))
    (tmp_path / "shallow" / "a").write_text("2")
    assert changes(tmp_path / "shallow").modified == ("a",)


def test_alternates(repo: SampleRepository, tmp_path: Path) -> None:
    repo.git("clone", "-q", "--shared", ".", str(tmp_path / "shared"))
    assert not changes(tmp_path / "shared")
    (tmp_path / "shared" / "train.py").write_text("2")
    assert changes(tmp_path / "shared").modified == ("train.py",)


def test_an_empty_commit_and_a_new_file(new: New) -> None:
    repo = new()
    repo.commit("Nothing yet")
    repo.write("first")
    assert changes(repo.root) == Changes(untracked=("first",))


def test_an_explicit_ref_still_tells_of_the_tree(repo: SampleRepository) -> None:
    repo.commit(a="1")
    repo.write("train.py", "print(2)\n")
    assert changes(repo.root, "HEAD~1").modified == ("train.py",)


# Names


def test_names_that_are_no_utf8_survive_and_can_be_shown(repo: SampleRepository) -> None:
    repo.commit(**{"plain": "1"})
    names = [b"caf\xe9.py", b"a b", b"new\nline", b"\x1b[2Jx", "größe \u202e".encode(), b"-dash"]
    for name in names:
        repo.write(name, "1")
    found = changes(repo.root)
    assert sorted(os.fsencode(name) for name in found.untracked) == sorted(names)
    shown = found.lines()
    assert "untracked  caf\\xe9.py" in shown
    assert "untracked  \\x1b[2Jx" in shown
    assert "untracked  größe \\u202e" in shown
    assert all(line.isprintable() for line in shown)
    assert all(name.isprintable() for name in found.as_dict()["untracked"])
    repo.git("add", "-A")
    assert sorted(os.fsencode(name) for name in changes(repo.root).modified) == sorted(names)


def test_lines_are_limited_by_kind() -> None:
    found = Changes(modified=("a", "b", "c"), untracked=("d",))
    assert found.lines(2) == [
        "modified   a",
        "modified   b",
        "modified   and 1 more",
        "untracked  d",
    ]


# What git was told not to look at


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_hidden_changes_are_found(repo: SampleRepository, untouched: Remember, flag: str) -> None:
    repo.commit(**{"same": "1", b"caf\xe9".decode("latin1"): "1", "link": "1"})
    repo.git("update-index", flag, "train.py", "same", "café", "link")
    repo.write("train.py", "print(2)\n")
    repo.write("café", "2")
    (repo.root / "link").unlink()
    (repo.root / "link").symlink_to("nowhere")
    touch_all(repo)
    assert not repo.git("status", "--porcelain"), "the flag hides nothing: no test"
    untouched()
    assert changes(repo.root).modified == ("café", "link", "train.py")


def test_an_absent_file_is_gone_or_sparse(repo: SampleRepository) -> None:
    for flag, name in (("--assume-unchanged", "train.py"), ("--skip-worktree", "README")):
        repo.git("update-index", flag, name)
        (repo.root / name).unlink()
    assert changes(repo.root).modified == ("train.py",)


@pytest.mark.parametrize("sparse_index", ["--sparse-index", "--no-sparse-index"])
def test_a_sparse_checkout_is_no_change(repo: SampleRepository, sparse_index: str) -> None:
    repo.commit(**{"big/a": "1", "small/b": "2"})
    repo.git("sparse-checkout", "set", "--cone", sparse_index, "small")
    assert not (repo.root / "big").exists()
    assert not changes(repo.root)
    repo.write("small/b", "3")
    assert changes(repo.root).modified == ("small/b",)


def test_a_split_index(repo: SampleRepository) -> None:
    repo.git("update-index", "--split-index")
    repo.git("update-index", "--assume-unchanged", "train.py")
    repo.write("train.py", "print(2)\n")
    assert changes(repo.root).modified == ("train.py",)


# Line ends, filters, monitors


def test_line_ends_are_no_change(new: New, untouched_root: Callable[[Path], None]) -> None:
    repo = new()
    repo.commit(**{".gitattributes": "* text=auto\n", "a.txt": "1\n"})
    repo.git("config", "core.autocrlf", "true")
    (repo.root / "a.txt").unlink()
    repo.git("checkout", "a.txt")
    assert (repo.root / "a.txt").read_bytes() == b"1\r\n"
    touch_all(repo)
    untouched_root(repo.root)
    assert not changes(repo.root)


def test_the_executable_bit_where_the_file_system_has_none(repo: SampleRepository) -> None:
    repo.git("config", "core.fileMode", "false")
    (repo.root / "train.py").chmod(0o755)
    assert not changes(repo.root)


def test_nothing_of_the_users_runs_or_is_refreshed(
    repo: SampleRepository, untouched: Remember, tmp_path: Path
) -> None:
    repo.commit(**{".gitattributes": "train.py filter=lfs\n"})
    trap = repo.root / ".git" / "hooks" / "post-index-change"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    repo.git("config", "core.fsmonitor", str(trap))
    repo.git("config", "core.untrackedCache", "true")
    repo.git("config", "diff.external", str(trap))
    repo.git("update-index", "--assume-unchanged", "README")
    (tmp_path / "sprung").unlink(missing_ok=True)
    touch_all(repo)
    untouched()
    assert changes(repo.root).lfs == ("train.py",)
    assert not (tmp_path / "sprung").exists()


@pytest.fixture
def crypt(new: New, home: Path, tmp_path: Path) -> SampleRepository:
    """A fresh clone with a filter of the user's own, as git-crypt's: it is run by git alone."""
    (home / "ran").touch()
    for way, turn in (("clean", "a-z A-Z"), ("smudge", "A-Z a-z")):
        program = home / way
        program.write_text(f"#!/bin/sh\necho {way} >>{home}/ran\nexec tr {turn}\n")
        program.chmod(0o755)
    source = new("source")
    source.git("config", "--global", "filter.crypt.clean", str(home / "clean"))
    source.git("config", "--global", "filter.crypt.smudge", str(home / "smudge"))
    source.git("config", "--global", "filter.crypt.required", "true")
    source.commit(**{".gitattributes": "*.key filter=crypt\n", "a.key": "secret\n", "b": "1\n"})
    assert source.git("show", "HEAD:a.key") == "SECRET"
    source.git("clone", "-q", ".", str(tmp_path / "clone"))
    (home / "ran").write_text("")
    return SampleRepository(tmp_path / "clone")


def test_a_filtered_file_that_git_wrote_is_no_change(crypt: SampleRepository, home: Path) -> None:
    assert (crypt.root / "a.key").read_text() == "secret\n"
    os.utime(crypt.root / "b", (1, 1))
    assert not changes(crypt.root)
    assert not (home / "ran").read_text(), "a filter ran"


def test_a_filtered_file_that_was_touched_is_a_change(crypt: SampleRepository, home: Path) -> None:
    (crypt.root / "a.key").write_text("others\n")
    assert changes(crypt.root).modified == ("a.key",)
    crypt.git("checkout", "a.key")
    assert not changes(crypt.root)
    (home / "ran").write_text("")
    os.utime(crypt.root / "a.key", (1, 1))
    assert changes(crypt.root).modified == ("a.key",)
    (crypt.root / "a.key").unlink()
    assert changes(crypt.root).modified == ("a.key",)
    crypt.git("add", "a.key")
    assert changes(crypt.root).modified == ("a.key",)
    assert not (home / "ran").read_text(), "a filter ran"


def test_a_file_of_lfs_is_told_of_once(repo: SampleRepository) -> None:
    """It lies there whole, where a pointer is committed; git-lfs isn't asked."""
    repo.commit(**{".gitattributes": "*.pt filter=lfs\n", "a.pt": "pointer"})
    repo.git("config", "filter.lfs.clean", "false")
    repo.git("config", "filter.lfs.required", "true")
    repo.write("a.pt", "the whole of it")
    assert changes(repo.root) == Changes(lfs=("a.pt",))


def test_an_encoding_of_the_working_tree_is_gits_own(repo: SampleRepository) -> None:
    repo.commit(**{".gitattributes": "*.txt working-tree-encoding=UTF-16LE\n"})
    repo.write("a.txt", "größe\n".encode("utf-16le"))
    repo.commit()
    touch_all(repo)
    assert not changes(repo.root)


# Submodules


@pytest.fixture
def with_submodule(repo: SampleRepository, new: New) -> SampleRepository:
    inner = new("inner")
    inner.commit(a="1")
    repo.git("submodule", "--quiet", "add", str(inner.root), "vendor/inner")
    repo.commit("Add a submodule")
    return repo


def test_a_submodule_stays_behind(with_submodule: SampleRepository, untouched: Remember) -> None:
    untouched()
    assert changes(with_submodule.root) == Changes(submodules=("vendor/inner",))
    assert changes(with_submodule.root, "HEAD~1") == Changes()


def test_a_submodule_that_moved_or_is_dirty_is_named_once(with_submodule: SampleRepository) -> None:
    inner = SampleRepository(with_submodule.root / "vendor" / "inner")
    inner.write("dirty")
    inner.commit("Second")
    assert changes(with_submodule.root) == Changes(submodules=("vendor/inner",))


def test_a_submodule_that_is_not_committed(repo: SampleRepository, new: New) -> None:
    inner = new("inner")
    inner.commit(a="1")
    repo.git("submodule", "--quiet", "add", str(inner.root), "inner")
    found = changes(repo.root)
    assert found.submodules == ("inner",)
    assert found.modified == (".gitmodules",)


def test_a_repository_inside_is_untracked(repo: SampleRepository) -> None:
    inner = SampleRepository(repo.root / "inner")
    inner.root.mkdir()
    inner.git("init", "-q")
    inner.commit(a="1")
    assert changes(repo.root).untracked == ("inner/",)


# LFS


def test_lfs_files_of_the_commit(repo: SampleRepository, untouched: Remember) -> None:
    repo.commit(
        **{
            ".gitattributes": "*.pt filter=lfs diff=lfs merge=lfs -text\n",
            "a.pt": "pointer",
            "deep/.gitattributes": "b* filter=lfs\nb2 -filter\n",
            "deep/b1": "pointer",
            "deep/b2": "whole",
            "deep/c": "whole",
        }
    )
    repo.write(b"caf\xe9.pt", "pointer")
    repo.commit()
    untouched()
    assert changes(repo.root) == Changes(lfs=("a.pt", "caf\udce9.pt", "deep/b1"))
    assert changes(repo.root, "HEAD~2") == Changes()


def test_the_commits_own_attributes_count(repo: SampleRepository) -> None:
    repo.commit(**{".gitattributes": "*.pt filter=lfs\n", "a.pt": "pointer"})
    repo.write(".gitattributes", "\n")
    assert changes(repo.root) == Changes(modified=(".gitattributes",), lfs=("a.pt",))


def test_attributes_of_this_clone_alone(repo: SampleRepository) -> None:
    repo.write(".git/info/attributes", "README filter=lfs\n")
    assert changes(repo.root).lfs == ("README",)


def test_other_attributes_are_no_lfs(repo: SampleRepository) -> None:
    repo.commit(**{".gitattributes": "*.py diff=python\n# no lfs here\n*.x filter=other\n"})
    assert not changes(repo.root)
