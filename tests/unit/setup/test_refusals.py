"""The messages shown when a box refuses a state."""

import pytest

from bootstrap.errors import BoxstrapError, BusyError, NotSafeError, StepFailedError, UsageError
from bootstrap.setup.sync import SyncAnswer, refusal


@pytest.mark.parametrize(
    ("problem", "detail", "kind", "says"),
    [
        ("fresh", "", UsageError, "boxstrap setup --host box"),
        ("alive", "homework/train-2", BusyError, "boxstrap stop --host box --run train-2"),
        ("busy", "setup s1", BusyError, "a setup is at work on this box (setup s1)"),
        ("refused", "no room", BoxstrapError, "did not take what was sent: no room"),
        ("lacks", "", BoxstrapError, "it does not say why"),
        ("failed", "box-edits", NotSafeError, "boxstrap sync --back --host box"),
        ("failed", "box-edits", NotSafeError, "on the box: git checkout HEAD -- FILE"),
        ("failed", "box-commits", NotSafeError, "on the box: git reset --keep ID^"),
        ("failed", "disk-full", StepFailedError, "train.py: no space"),
    ],
)
def test_each_refusal_of_sync_has_its_error_type_and_says_what_to_do(
    problem: str, detail: str, kind: type[BoxstrapError], says: str
) -> None:
    answer = SyncAnswer(False, problem, detail, (), {}, (), (), ("train.py: no space",), {})
    error = refusal(answer, "root@box:22", "box")
    assert type(error) is kind
    assert says in error.text()
