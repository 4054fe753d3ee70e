from types import SimpleNamespace as Made
from typing import Any

import pytest

from bootstrap.boxes import NodeOf, Run
from bootstrap.tasks.setup_report import next_steps
from bootstrap.ui.layout import still_billing, what_next


def test_setup_ends_with_aligned_next_commands_and_billing():
    commands = [
        ("attach", "boxstrap attach --host vast-5"),
        ("follow", ""),
        ("VS Code", "boxstrap code --host vast-5"),
        ("fetch", "scp -r vast-5:/workspace/hw/out ."),
    ]
    down, console = "boxstrap down --host vast-5", "https://console.example/instances"
    billing = still_billing(down, console, 0.42)
    assert what_next("vast-5: run homework: running", commands, billing) == (
        "vast-5: run homework: running\n"
        "\n"
        "  attach   boxstrap attach --host vast-5\n"
        "  VS Code  boxstrap code --host vast-5\n"
        "  fetch    scp -r vast-5:/workspace/hw/out .\n"
        "\n"
        "still billing $0.42 an hour: give it back with boxstrap down --host vast-5, "
        "or destroy it at https://console.example/instances"
    )


def test_setup_lists_no_next_command_that_does_not_apply():
    assert what_next("local: set up", [], "") == "local: set up"
    assert what_next("b: set up", [("stop", "")], still_billing("boxstrap down")) == (
        "b: set up\n\nstill billing: give it back with boxstrap down, "
        "or destroy it where you rented it"
    )


def run(state: str = "running", **more: Any) -> Run:
    return Run("homework-1", "train-1", state, None, 1, "", "", "train", 0, 0, "x", **more)


LATER = run(node=NodeOf(1, ("a", "b")))


@pytest.mark.parametrize(
    ("of", "profile", "nothing", "offered"),
    [
        pytest.param(run(), {}, False, "pull fetch", id="it runs"),
        pytest.param(run(tree="homework@2"), {}, False, "pull fetch", id="it runs beside"),
        pytest.param(run("finished"), {}, False, "pull fetch", id="it is over"),
        pytest.param(run("finished"), {}, True, "", id="it made none"),
        pytest.param(run("queued"), {}, False, "pull", id="it has not begun"),
        pytest.param(run(), {"results": []}, False, "", id="the profile names none"),
        pytest.param(None, {}, False, "", id="no run"),
        pytest.param(LATER, {}, False, "", id="a later node"),
        pytest.param(LATER, {"results_of": "all"}, False, "pull fetch", id="each node's"),
        pytest.param(run(), {"alias": ""}, False, "pull", id="ssh knows no name for its box"),
        pytest.param(run(), {"is_noisy": True}, False, "pull", id="its shell breaks scp"),
    ],
)
def test_pull_is_offered_as_a_next_command_only_where_a_run_has_results(
    of: Run | None, profile: dict[str, Any], nothing: bool, offered: str
) -> None:
    train = Made(**{"results": ["out/"], "results_of": "rank-0", **profile})
    reached = Made(alias="gpu", hostname="gpu", user="root", port=22)
    known, options = Made(is_billed=False), Made(repo=None)
    login = Made(is_local=False, options=options, known=known, endpoint=reached)
    state = Made(has_tmux=True, home="/w/.boxstrap", is_noisy=profile.get("is_noisy", False))
    run = {"run": of, "waits_for": None, "made_nothing": nothing, "price": None}
    run |= {"box": "gpu", "alias": profile.get("alias", "gpu"), "repo_dir": "/w/homework"}
    own = Made(train=train, provider=Made(console=""))
    result: Any = Made(**run, login=login, box_state=state, profile=own)
    said = next_steps(result)
    assert [word for word in ("pull", "fetch") if f"  {word} " in said] == offered.split()
    assert ("gpu: run train-1 in homework@2: " in said) is bool(of and of.tree)
