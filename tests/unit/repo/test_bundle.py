"""Which parts of a dependency's repository, and which tags, go into the bundle to send."""

import base64
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bootstrap.errors import ProfileError, UsageError
from bootstrap.repo import mirror
from bootstrap.repo.local import read_repository
from bootstrap.repo.mirror import mirrored
from bootstrap.repo.objects import Wanted, find_tags, find_wanted, write_bundle
from tests.boxes.git_server import GitServer
from tests.programs import captured
from tests.unit.repo.repositories import SampleRepository


@pytest.fixture
def server(repo: SampleRepository, tmp_path: Path) -> Iterator[GitServer]:
    """Serve a repository whose history was rewritten: the commit `Left` is on no branch."""
    repo.git("branch", "-m", "main")
    repo.commit("Left", lib="1")
    repo.git("clone", "-q", "--bare", ".", str(tmp_path / "served/lib.git"))
    repo.git("-C", str(tmp_path / "served/lib.git"), "config", "uploadpack.allowAnySHA1InWant", "1")
    repo.git("commit", "-q", "--amend", "-m", "Anew")
    repo.git("tag", "v1")
    repo.commit("Later", lib="2")
    repo.git("push", "-q", "-f", "--tags", str(tmp_path / "served/lib.git"), "main")
    started = GitServer("127.0.0.1", tmp_path / "served")
    yield started
    started.close()


def sent(server: GitServer, refs: Sequence[str], file: Path, have: Sequence[str] = ()) -> Wanted:
    with mirrored(server.url("lib.git"), refs) as mirror:
        wanted = find_wanted(mirror, refs)
        write_bundle(mirror, wanted, have, file)
    return wanted


def named(file: Path) -> dict[str, str]:
    """The refs in a bundle."""
    said = captured(["git", "bundle", "list-heads", str(file)])
    return {name: at for at, name in (line.split() for line in said.stdout.splitlines())}


@pytest.mark.slow
def test_a_git_url_ref_may_be_a_branch_a_tag_or_a_commit(
    server: GitServer, repo: SampleRepository, tmp_path: Path
) -> None:
    left = repo.git("rev-parse", "HEAD@{2}").strip()
    first, last = (repo.git("rev-parse", name).strip() for name in ("v1", "HEAD"))
    file = tmp_path / "bundle"
    tags = {"refs/tags/v1": first}
    for ref, commit, head, more in (
        ("", last, "refs/heads/main", tags),
        ("main", last, "refs/heads/main", tags),
        ("v1", first, "refs/tags/v1", tags),
        (last, last, f"refs/boxstrap/{last}", tags),
        (first[:9], first, f"refs/boxstrap/{first}", tags),
        (left, left, f"refs/boxstrap/{left}", {}),
    ):
        found = sent(server, [ref], file)
        assert (found.resolved, found.head) == ({ref: commit}, head)
        assert named(file) == found.refs == {head: commit, **more}
    with pytest.raises(UsageError, match="no branch, tag or commit nowhere"):
        sent(server, ["nowhere"], file)


@pytest.mark.slow
def test_a_bundle_for_a_box_has_only_commits_it_lacks_and_known_refs_ask_no_git_host(
    server: GitServer, repo: SampleRepository, tmp_path: Path
) -> None:
    last, file = repo.git("rev-parse", "HEAD").strip(), tmp_path / "bundle"
    sent(server, [last], file)
    whole, asked = file.stat().st_size, server.asked
    sent(server, [last], file, have=["0" * 40, repo.git("rev-parse", "v1").strip(), "-odd"])
    assert server.asked == asked
    assert file.stat().st_size < whole
    # If nothing in it is new, the bundle is sent whole: git makes no empty one.
    sent(server, [last], file, have=[last])
    assert named(file)[f"refs/boxstrap/{last}"] == last
    sent(server, ["main"], file)
    assert server.asked > asked


@pytest.mark.slow
@pytest.mark.parametrize(("status", "times", "tries"), [(503, 2, 3), (503, 3, 3), (404, 1, 1)])
def test_a_git_host_that_answers_503_is_retried_when_commits_are_fetched(
    server: GitServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    status: int,
    times: int,
    tries: int,
) -> None:
    monkeypatch.setattr(mirror, "_WAITS_S", (0.01, 0.01))
    server.break_with(status, times)
    if times < tries:
        sent(server, ["main"], tmp_path / "bundle")
        assert server.asked > tries
        return
    with pytest.raises(ProfileError, match=r"git\.url"):
        sent(server, ["main"], tmp_path / "bundle")
    assert server.asked == tries


def names(repo: SampleRepository) -> list[str]:
    return [row.split(" ", 2)[2] for row in find_tags(read_repository(repo.root)).rows]


def test_a_repository_without_tags_of_commits_sends_no_tag(repo: SampleRepository) -> None:
    assert find_tags(read_repository(repo.root)) == ((), "")
    repo.git("tag", "blob", repo.git("rev-parse", "HEAD:README"))
    assert names(repo) == []


def test_tags_whose_names_contain_line_ends_or_odd_bytes_are_not_sent(
    repo: SampleRepository,
) -> None:
    """A clone with such a tag ended in an internal error."""
    for name in ("v1", "v2\u2028x", "v3\u0085", os.fsdecode(b"v4\xff"), "$(id)", "@", '"q'):
        repo.git("tag", name)
    assert sorted(names(repo)) == ['"q', "$(id)", "@", "v1"]


def test_tags_of_the_history_are_sent_to_the_box_also_annotated_tags(
    repo: SampleRepository, tmp_path: Path
) -> None:
    repo.git("tag", "-a", "v1.0", "-m", "One")
    repo.git("tag", "light")
    repo.git("checkout", "-q", "-b", "other")
    repo.commit("Elsewhere", a="1")
    repo.git("tag", "elsewhere")
    repo.git("checkout", "-q", "main")
    repo.commit("Here", b="1")
    found = find_tags(read_repository(repo.root))
    assert sorted(names(repo)) == ["light", "v1.0"]
    repo.git("pack-refs", "--all")
    assert find_tags(read_repository(repo.root)) == found
    there = SampleRepository(tmp_path / "there")
    there.root.mkdir()
    there.git("init", "-q")
    there.git("unpack-objects", "-q", stdin=base64.b64decode(found.objects))
    assert "tag v1.0" in there.git("cat-file", "tag", repo.git("rev-parse", "v1.0"))


@pytest.mark.slow
def test_of_thousands_of_tags_at_most_40_are_sent_with_the_one_git_describe_finds(
    repo: SampleRepository,
) -> None:
    repo.git("tag", "-a", "v0.1", "-m", "The only one that is annotated")
    base = repo.git("rev-parse", "HEAD")
    lines = "".join(f"create refs/tags/nightly-{n} {base}\n" for n in range(2000))
    repo.git("update-ref", "--stdin", stdin=lines.encode())
    repo.commit("Next", a="1")
    found = names(repo)
    assert len(found) <= 40
    assert "v0.1" in found
    assert repo.git("describe", "--tags", "--abbrev=0") in found


def test_tags_too_large_for_the_limit_are_not_sent(repo: SampleRepository) -> None:
    import random

    for number in range(4):
        text = "".join(random.Random(number).choices("abcdefghijklmnop0123456789", k=9000))
        repo.git("tag", "-a", f"v{number}", "-m", text)
    found = find_tags(read_repository(repo.root))
    assert 0 < len(found.objects) < 24 * 1024
    assert 0 < len(found.rows) < 4
