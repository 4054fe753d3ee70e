"""Which boxes several hosts, a pattern or a group mean."""

import pytest

from bootstrap.errors import UsageError
from bootstrap.fleet import hosts
from bootstrap.link import KnownBox, record


@pytest.fixture(autouse=True)
def known() -> None:
    for at, name in enumerate(("gpu-10", "gpu-2", "cpu-1"), 1):
        box = KnownBox(name, f"root@203.0.113.{at}:22", f"203.0.113.{at}", user="root", created=at)
        record.save_box(box)


def group(text: str) -> None:
    file = hosts.groups_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_box_named_twice_or_in_two_ways_among_hosts_is_taken_once_at_its_first_place() -> None:
    named = ["gpu-2", "root@198.51.100.1:22", "root@203.0.113.2:22", "gpu-2"]
    assert hosts.choose(named) == ["gpu-2", "root@198.51.100.1:22"]
    for known, new in (
        ("root@203.0.113.2", "root@198.51.100.1"),
        ("ssh root@203.0.113.2 -p 22", "ssh root@198.51.100.1"),
        ("ssh://203.0.113.2", "198.51.100.1"),
    ):
        assert hosts.choose(["root@198.51.100.1:22", known, new, "gpu-2"]) == [
            "root@198.51.100.1:22",
            "gpu-2",
        ]
    assert len(hosts.choose(["root@198.51.100.1:22", "root@198.51.100.1:2200"])) == 2


def test_a_host_pattern_chooses_all_known_boxes_it_matches_and_is_refused_without_a_match() -> None:
    assert hosts.choose(["gpu-*", "gpu-2"]) == ["gpu-10", "gpu-2"]
    assert hosts.choose(["?pu-?"]) == ["cpu-1", "gpu-2"]
    with pytest.raises(UsageError, match=r"no known box has a name like 'tpu-\*'"):
        hosts.choose(["gpu-2", "tpu-*"])


def test_a_group_in_the_groups_file_chooses_its_boxes_and_all_that_match_its_patterns() -> None:
    group("seeds: [cpu-1, 'gpu-*', vast:123]\nlone: [gpu-2]\n")
    assert hosts.choose([], "seeds") == ["cpu-1", "gpu-10", "gpu-2", "vast:123"]
    assert hosts.choose(["gpu-2"], "lone") == ["gpu-2"]
    with pytest.raises(UsageError, match="there is no group 'seed'") as refused:
        hosts.choose([], "seed")
    assert "There are: lone, seeds" in refused.value.hint


@pytest.mark.parametrize(
    "text", ["seeds: gpu-2\n", "seeds: []\n", "seeds: [[a]]\n", "seeds: {a: b}\n"]
)
def test_a_group_that_is_not_a_list_of_boxes_is_refused_with_its_line(text: str) -> None:
    group(f"fine: [gpu-2]\n{text}")
    with pytest.raises(UsageError, match="line 2: a list of boxes is expected"):
        hosts.choose([], "fine")


def test_a_group_without_a_groups_file_is_refused_with_how_to_write_the_file() -> None:
    with pytest.raises(UsageError, match="there is no group 'seeds'") as refused:
        hosts.choose([], "seeds")
    assert "Write it as a line of" in refused.value.hint
