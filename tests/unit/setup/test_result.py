"""How a setup's end becomes an exit code, and what is said about a run."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from bootstrap.boxes import BoxState, Run
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.probe import Holder
from bootstrap.errors import BoxstrapError, exit_code
from bootstrap.link import LocalWire
from bootstrap.profile import Advice, Profile
from bootstrap.repo.snapshot_store import ChangeCount
from bootstrap.setup.result import SetupEnd, SetupResult, raise_for, run_of_work
from bootstrap.steps.event_codes import explain, named_in
from bootstrap.steps.events import Event
from bootstrap.ui.screens import JsonScreen
from tests.logins import login_on


def done(**fields: float | str) -> Event:
    return Event("20260101-000000-abcdef", 9, 1.0, "setup", "done", fields)


def end(
    code: str = "command-failed", unsent: BoxstrapError | None = None, step: str = "python"
) -> SetupEnd:
    return SetupEnd(
        box=login_on(LocalWire(), "/nowhere", name="my-box"),
        setup="20260101-000000-abcdef",
        wait_s=60,
        step=step,
        code=explain(code, {}),
        code_name=code,
        holder=Holder("20260101-000000-000000", 12, "other 1234"),
        advice=Advice(),
        unsent=unsent,
    )


def outcome_of(
    event: Event, monkeypatch: pytest.MonkeyPatch
) -> tuple[BoxstrapError, Mapping[str, object]]:
    monkeypatch.setattr(BoxLogin, "tail", lambda *_, **__: b"first\n\x1b[31mlast\n")
    out = io.StringIO()
    screen = JsonScreen(out)
    with pytest.raises(BoxstrapError) as caught:
        raise_for(event, end(), screen)
    screen.close()
    return caught.value, json.loads(out.getvalue())


@pytest.mark.parametrize(
    ("step", "code", "said"),
    [
        ("repo", "commit-missing", "/here: git failed"),
        ("repo", "disk-full", "the box's disk"),
        ("python", "no-dns", "/here: git failed"),
        ("python", "package-missing", "the index has no package"),
        ("agent", "no-dns", "the box can't look up host names"),
    ],
)
def test_setup_shows_the_error_of_a_failed_send_and_not_the_failed_step_that_it_caused(
    step: str, code: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoxLogin, "tail", lambda *_, **__: b"")
    unsent = BoxstrapError("git failed", where="/here", hint="git fetch --refetch")
    with pytest.raises(BoxstrapError, match=said) as caught:
        raise_for(done(rc=5, code="over"), end(code, unsent, step), JsonScreen(io.StringIO()))
    assert ("--refetch" in caught.value.hint) == said.startswith("/here")


@pytest.mark.parametrize("again", ["trying again in 8 s", "https://a/x: refused; again in 8 s"])
def test_a_step_that_tried_several_times_says_once_why_it_failed(
    again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = f"cause: refused\n{again}\ncause: refused\n{again}\ncause: refused by all\n"
    screen = JsonScreen(io.StringIO())
    for said, shown in ((log, ["cause: refused by all"]), (f"x\n{again}\n", ["x", again])):
        monkeypatch.setattr(BoxLogin, "tail", lambda *_, said=said, **__: said.encode())
        with pytest.raises(BoxstrapError):
            raise_for(done(rc=7), end(), screen)
        assert screen._logs == {"python": shown}


def test_a_setup_that_ends_with_exit_code_0_or_none_raises_no_error() -> None:
    raise_for(done(rc=0, code="over"), end(), JsonScreen(io.StringIO()))
    raise_for(done(), end(), JsonScreen(io.StringIO()))


@pytest.mark.parametrize(
    ("rc", "code", "left_with"),
    [(5, "over", 5), (7.9, "over", 7), (8, "busy", 8), (7, "cancelled", 7), (99, "over", 7)],
)
def test_each_way_a_setup_ends_has_its_exit_code(
    rc: float, code: str, left_with: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, _ = outcome_of(done(rc=rc, code=code), monkeypatch)
    assert exit_code(error) == left_with
    assert error.hint
    assert ("of other 1234, at work for 1 min 12 s." in error.what) == (code == "busy")


def test_a_failed_setup_step_shows_its_last_log_lines_and_how_to_read_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error, document = outcome_of(done(rc=7, code="over"), monkeypatch)
    assert document["logs"] == {"python": ["first", "last"]}
    assert "python" in error.what
    assert "boxstrap logs --step python --host my-box" in error.hint


@pytest.mark.parametrize("code", ["{", "{0}", "{a.b.c}", "{!r}", ""])
def test_an_unknown_error_code_of_a_box_is_printed_unchanged_as_the_error(code: str) -> None:
    assert explain(code, {}).what == code


def run(name: str, **changes: object) -> Run:
    made = Run("k-1", name, "finished", 0, 1, "a" * 40, "w1", "train", 1, 1, "x", begun=2)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_of_several_runs_of_the_same_work_setup_shows_the_newest() -> None:
    runs = (run("train-3"), run("train-2", work="w2"), run("train-1", work="w2"))
    box_state = BoxState(facts={"work": "w2", "key": "k-1"}, runs=runs)
    found = run_of_work(box_state, "a" * 40)
    assert found is not None
    assert found.name == "train-2"
    # Work includes its folder, so the same work is the same run, also under another key or commit.
    assert run_of_work(replace(box_state, facts={"work": "w2", "key": "other"}), "c" * 40) == found
    assert run_of_work(replace(box_state, facts={"work": "w9", "key": "other"}), "a" * 40) is None


def test_setup_shows_the_run_of_its_commit_if_the_box_does_not_say_the_work_of_a_run() -> None:
    box_state = BoxState(
        facts={"key": "k-1"}, runs=(run("train-2", commit="b" * 40), run("train-1"))
    )
    found = run_of_work(box_state, "a" * 40)
    assert found is not None
    assert found.name == "train-1"
    assert run_of_work(box_state, "c" * 40) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "finished"),
        ({"rc": 3}, "ended with exit code 3"),
        ({"rc": None}, "ended, but its exit code could not be written: the disk was full"),
        ({"rc": 143}, "was stopped"),
        ({"rc": 143, "ended": "stop", "begun": 0}, "was stopped before it began"),
        ({"rc": 143, "ended": "stop"}, "was stopped"),
        ({"rc": 0, "ended": "stop"}, "was stopped, with exit code 0"),
        ({"rc": 137, "ended": "stop"}, "was stopped, with exit code 137 (SIGKILL)"),
        ({"rc": 143, "ended": "exit 143"}, "ended with exit code 143 (SIGTERM)"),
        ({"rc": 137, "ended": "exit 137"}, "ended with exit code 137 (SIGKILL)"),
        ({"rc": 1, "ended": "pipeline 1 0"}, "ended with exit code 1 (part 1 of its pipeline)"),
        (
            {"rc": 141, "ended": "pipeline 1 141 0"},
            "ended with exit code 141 (part 2 of its pipeline, SIGPIPE)",
        ),
        ({"rc": 0, "ended": "pipeline 141 0"}, "finished"),
        ({"rc": 7, "ended": "pipeline 0"}, "ended with exit code 7"),
        ({"state": "died", "rc": None}, "died with the box"),
        ({"state": "running", "rc": None}, "running"),
        ({"state": "waiting", "rc": None}, "was created, but never started"),
    ],
)
def test_each_way_a_run_can_end_has_its_own_short_phrase(
    changes: dict[str, object], words: str
) -> None:
    assert run("train-1", **changes).outcome() == words


UV = (
    b"  \xc3\x97 No solution found when resolving dependencies:\n"
    b"  \xe2\x95\xb0\xe2\x94\x80\xe2\x96\xb6 Because no-such.pkg was not found in the package"
    b" registry and you\n      require no-such.pkg>=2, we can conclude that your requirements"
)
PIP = (
    b"ERROR: Could not find a version that satisfies the requirement no-such.pkg>=2"
    b" (from versions: none)\nERROR: No matching distribution found for no-such.pkg>=2\n"
)


APT = b"Reading package lists...\nE: Unable to locate package no-such.pkg\n"
APT_OLD = b"E: Package 'no-such.pkg' has no installation candidate\n"


@pytest.mark.parametrize("log", [UV, PIP, APT, APT_OLD, b"trying again in 2 s\n" + UV])
def test_setup_names_the_package_that_no_index_has_as_its_log_says(log: bytes) -> None:
    assert named_in("package-missing", log) == "no-such.pkg"
    assert named_in("resolve-failed", log) == ""
    wheels = b"Because torch==2.0.1 has no wheels with a matching Python ABI tag (e.g., `cp313`)"
    assert named_in("wheel-missing", wheels) == "torch"
    assert named_in("package-missing", log.replace(b"no-such.pkg", b"\x1b[31mx")) == ""
    assert named_in("package-missing", log.replace(b"no-such.pkg", b"a" * 200)) == ""


@pytest.mark.parametrize(
    "log",
    [
        b"fatal: unable to access 'https://no-such.org/': Could not resolve host: no-such.org",
        b"ssh: Could not resolve hostname no-such.org: Temporary failure in name resolution\n",
        b"  Temporary failure resolving 'no-such.org'\n",
        b"HTTPSConnectionPool(host='no-such.org', port=443): Max (Caused by NameResolutionError(",
        b"error sending request for url (https://no-such.org/simple/torch/)\n"
        b"  cause: client error (Connect)\n  cause: dns error\n",
    ],
)
def test_setup_names_a_host_that_dns_does_not_find_without_credentials(log: bytes) -> None:
    assert named_in("no-dns", log) == "no-such.org"
    assert named_in("no-dns", log.replace(b"//", b"//me:token@")) in ("no-such.org", "")


RESULT = SetupResult(
    box="my-box", setup="", alias="", commit="", snapshot="", changes=ChangeCount(),
    repo_dir="", run=None, first_lines=None, last_lines=(), waits_for=None, differs=(),
    seconds=0, own_folder=False, login=end().box, profile=Profile(), box_state=BoxState(),
)  # fmt: skip


@pytest.mark.parametrize("state", ["running", "queued"])
def test_setup_beside_a_run_of_other_work_says_whether_that_one_runs_or_is_queued(
    state: str,
) -> None:
    with pytest.raises(BoxstrapError, match=rf"train-1 is {state} \(commit a+\); not started"):
        replace(RESULT, waits_for=run("train-1", state=state)).raise_for_status()


@pytest.mark.parametrize("first_lines", [None, ("no data",)], ids=["before", "just now"])
def test_setup_after_a_failed_training_lists_the_changes_after_which_it_trains_again(
    first_lines: tuple[str, ...] | None,
) -> None:
    """Data that was pushed leaves the work the same: the same command would only say so again."""
    failed = replace(RESULT, run=run("train-1", rc=1), first_lines=first_lines)
    with pytest.raises(BoxstrapError) as caught:
        failed.raise_for_status()
    assert "profile's command, python, env or data, the same command" in caught.value.hint
    assert "anything else, such as data that you pushed or other packages" in caught.value.hint
    assert caught.value.hint.endswith("boxstrap setup --restart --host my-box")
