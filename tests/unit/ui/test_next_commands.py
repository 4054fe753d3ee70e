from types import SimpleNamespace as Made
from typing import Any

import pytest

from bootstrap.protocol.run import NodeOf, Run
from bootstrap.tasks.setup_report import next_steps
from bootstrap.ui.layout import NextCommands, what_next


def test_everything_is_aligned():
    following = NextCommands(
        box="vast-5",
        run="homework",
        attach="boxstrap attach --host vast-5",
        follow="boxstrap logs -f --host vast-5",
        code="boxstrap code --host vast-5",
        fetch=["scp -r vast-5:/workspace/hw/out .", "scp vast-5:/workspace/hw/log ."],
        down="boxstrap down --host vast-5",
        destroy_at="https://console.example/instances",
        price=0.42,
    )
    assert what_next(following) == (
        "vast-5: run homework: running\n"
        "\n"
        "  attach   boxstrap attach --host vast-5\n"
        "  follow   boxstrap logs -f --host vast-5\n"
        "  VS Code  boxstrap code --host vast-5\n"
        "  fetch    scp -r vast-5:/workspace/hw/out .\n"
        "  fetch    scp vast-5:/workspace/hw/log .\n"
        "\n"
        "still billing $0.42 an hour: give it back with boxstrap down --host vast-5, "
        "or destroy it at https://console.example/instances"
    )


def test_what_is_not_there_is_left_out():
    assert what_next(NextCommands(box="local")) == "local: set up"
    assert what_next(NextCommands(box="b", down="boxstrap down")) == (
        "b: set up\n\nstill billing: give it back with boxstrap down, "
        "or destroy it where you rented it"
    )
    short = NextCommands(
        box="b",
        run="r",
        state="failed (exit 1)",
        down="boxstrap down",
        destroy_at="the provider's page",
    )
    assert what_next(short) == (
        "b: run r: failed (exit 1)\n\nstill billing: give it back with boxstrap down, "
        "or destroy it at the provider's page"
    )


def run(state: str = "running", **more: Any) -> Run:
    return Run("homework-1", "train-1", state, None, 1, "", "", "train", 0, 0, "x", **more)


LATER = run(node=NodeOf(1, ("a", "b")))


@pytest.mark.parametrize(
    ("of", "profile", "nothing", "offered"),
    [
        pytest.param(run(), {}, False, "pull fetch", id="it runs"),
        pytest.param(run("finished"), {}, False, "pull fetch", id="it is over"),
        pytest.param(run("finished"), {}, True, "", id="it made none"),
        pytest.param(run("queued"), {}, False, "pull", id="it has not begun"),
        pytest.param(run(), {"results": []}, False, "", id="the profile names none"),
        pytest.param(None, {}, False, "", id="no run"),
        pytest.param(LATER, {}, False, "", id="a later node"),
        pytest.param(LATER, {"results_of": "all"}, False, "pull fetch", id="each node's"),
    ],
)
def test_results_are_offered_where_a_run_has_some(
    of: Run | None, profile: dict[str, Any], nothing: bool, offered: str
) -> None:
    train = Made(**{"results": ["out/"], "results_of": "rank-0", **profile})
    login = Made(
        is_local=False,
        options=Made(repo=None),
        known=Made(is_billed=False),
        endpoint=Made(alias="gpu", hostname="gpu", user="root", port=22),
    )
    result: Any = Made(
        **{"run": of, "waits_for": None, "login": login, "box": "gpu", "alias": "gpu"},
        **{"box_state": Made(has_tmux=True, home="/w/.boxstrap"), "repo_dir": "/w/homework"},
        **{"profile": Made(train=train, provider=Made(console="")), "price": None},
        made_nothing=nothing,
    )
    said = next_steps(result)
    assert [word for word in ("pull", "fetch") if f"  {word} " in said] == offered.split()
