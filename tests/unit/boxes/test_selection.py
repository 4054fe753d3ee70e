"""Which runs are selected: another repository's runs are never taken for the user's."""

import pytest

from bootstrap.boxes.run import Run, repository_names, select_runs
from bootstrap.errors import UsageError

MINE, THEIRS = "mine-0123abcd", "theirs-89abcdef"


def run(key: str, name: str) -> Run:
    return Run(key, name, "running", None, 0, "c" * 40, "w", "train", 0, 0, "python train.py")


HERS = run(THEIRS, "train-1")
OLD, NEW = run(MINE, "train-1"), run(MINE, "train-2")
ALL = [HERS, NEW, OLD]


@pytest.mark.parametrize(
    ("own", "name", "every", "found"),
    [
        (MINE, None, False, [NEW, OLD]),
        (THEIRS, None, False, [HERS]),
        (MINE, None, True, ALL),
        ("", None, True, ALL),
        (MINE, "train-1", False, [OLD]),
        (MINE, "theirs/train-1", False, [HERS]),
        ("", "mine/train-1", False, [OLD]),
        ("", "train-2", False, [NEW]),
        (THEIRS, "train-2", False, [NEW]),
    ],
)
def test_commands_select_runs_of_the_current_repository_unless_a_name_or_all_is_given(
    own: str, name: str | None, every: bool, found: list[Run]
) -> None:
    assert select_runs(ALL, own, name, every=every) == found


@pytest.mark.parametrize(
    ("own", "name", "every"),
    [
        ("", None, False),
        ("", "train-1", False),
        (MINE, "train-1", True),
        ("other-00000000", None, False),
        ("other-00000000", "train-1", False),
        (MINE, "train-9", False),
    ],
)
def test_a_run_name_or_repository_that_is_ambiguous_is_refused_with_the_list_of_runs(
    own: str, name: str | None, every: bool
) -> None:
    with pytest.raises(UsageError) as refused:
        select_runs(ALL, own, name, every=every)
    assert "theirs/train-1" in refused.value.what
    assert "mine/train-1" in refused.value.what
    assert "?:" not in refused.value.what


def test_a_command_outside_any_repository_takes_the_runs_of_the_boxs_only_repository() -> None:
    assert select_runs([NEW, OLD], "", None) == [NEW, OLD]


def test_the_id_is_added_to_a_repository_name_that_two_repositories_on_a_box_share() -> None:
    names = repository_names(["homework-00000001", "homework-00000002", MINE])
    assert names == {
        "homework-00000001": "homework-00000001",
        "homework-00000002": "homework-00000002",
        MINE: "mine",
    }


def test_selecting_runs_on_a_box_without_runs_says_that_no_run_was_started() -> None:
    with pytest.raises(UsageError, match="no run was started on this box"):
        select_runs([], MINE, None)


def test_the_only_run_of_another_repository_is_not_selected_without_a_name() -> None:
    with pytest.raises(UsageError, match="no run of mine is on this box"):
        select_runs([HERS], MINE, None)
