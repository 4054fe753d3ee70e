"""The box's answer about what was made there, the list of it, and a run that ends during a look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.errors import BoxstrapError, NotSafeError
from bootstrap.link.local import LocalWire
from bootstrap.link.record import KnownBox
from bootstrap.protocol.probe import BoxState
from bootstrap.protocol.run import Run
from bootstrap.protocol.trees import parse_made
from bootstrap.renting import teardown
from bootstrap.renting.loss_check import Loss
from bootstrap.renting.teardown import TeardownOptions, _refusal


class _Wire(LocalWire):
    label = "box"


@pytest.mark.parametrize(
    "answer",
    [
        b"home\t/x\n",
        b"home\t/x\ntree\tno such\tthing\nover\tyes\n",
        b"home\t/x\nholds\tedits\ntree\tk\tn\t1\t\nover\tyes\n",
        b"home\t/x\nholds\tmagic\t1\tx\nover\tyes\n",
        b"home\t/x\nref\tnone\trefs/heads/x\nover\tyes\n",
        b"home\t/x\ntree\t../..\thomework\t1\t\nover\tyes\n",
    ],
)
def test_half_an_answer_is_none(answer: bytes) -> None:
    """Ignored lines would mean that nothing is unsafe, and the box would be destroyed."""
    wire = _Wire()
    with pytest.raises(BoxstrapError):
        parse_made(answer, wire)
    wire.close()


def test_the_list_says_what_to_do_about_each() -> None:
    error = _refusal("my-box", [Loss("run", "a/train-1", "running"), Loss("edits", "a", "x")])
    assert isinstance(error, NotSafeError)
    assert "a/train-1: running" in error.what
    for words in ("down --host my-box --stop-runs", "sync --back --host my-box", "--discard"):
        assert words in error.hint


def test_a_run_that_ended_while_this_looked_is_not_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results were checked while it was running; at the end it is no longer alive."""
    over = Run("k-1", "train-1", "finished", 0, 1, "c" * 40, "w", "train", 2, 9, "python train.py")
    live, again = replace(over, state="running", rc=None), replace(over, started=7)
    nothing = SimpleNamespace(find_unsafe=lambda *_: [], bring_home=list)
    for name in ("BoxResultsCheck", "BoxTrees", "read_content"):
        monkeypatch.setattr(teardown, name, lambda *_, **__: nothing)
    monkeypatch.setattr(teardown, "find_unsafe_logs", lambda *_: [])

    def found(before: Sequence[Run], after: Sequence[Run]) -> list[str]:
        looks = [BoxState(runs=tuple(before)), BoxState(runs=tuple(after))]
        monkeypatch.setattr(
            teardown, "_look_again", lambda there: setattr(there, "state", looks.pop(0))
        )
        there: Any = SimpleNamespace(state=looks[0], workdir="", known=KnownBox("a", "a"))
        look: Any = TeardownOptions(most=0, only_look=True)
        nobody: Any = None
        return [one.kind for one in teardown.secure(there, nobody, look)]

    assert found([over], [over]) == []
    assert found([live], [live]) == ["run"]
    assert found([live], [over]) == ["results"]
    assert found([], [over]) == ["results"]
    assert found([over], [again]) == ["results"]
