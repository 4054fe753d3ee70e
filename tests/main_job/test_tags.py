"""Tools that derive a version from git find the same on the box as here."""

import pytest

from tests.main_job.conftest import Rent

pytestmark = pytest.mark.boxes

PROFILE = "version: 1\ngpu: {require: false}\npython: {requirements: []}\n"
WAYS = (("describe", "--tags", "--long", "--dirty"), ("describe", "--match=v1*"))


def test_git_describe_on_the_box_gives_the_same_version_as_here(rent: Rent) -> None:
    rented = rent("vast", used=True)
    repository = rented.user.repository(boxstrap__yaml=PROFILE)
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
