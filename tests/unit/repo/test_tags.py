"""Which tags travel with a commit."""

import base64
import os
from pathlib import Path

import pytest

from bootstrap.repo.local import read_repository
from bootstrap.repo.objects import find_tags
from tests.unit.repo.repositories import SampleRepository


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
