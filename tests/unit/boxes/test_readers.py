"""Every reader of a box's answers, in a table: any input is read or refused with a message."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import bootstrap
from bootstrap.boxes import find_failure, trees
from bootstrap.boxes.answers import BoxDocument
from bootstrap.boxes.at_home import row_of, run_of
from bootstrap.boxes.disk import parse_low_disk
from bootstrap.boxes.follow import CompletionPoller, file_tail, follow_events, watch_beginning
from bootstrap.boxes.probe import BoxState, parse_probe, probe
from bootstrap.boxes.run import STATES, is_name, parse_run
from bootstrap.boxes.run_details import ask_details, parse_details, results_in_the_way
from bootstrap.boxes.run_history import SampleLines, ask_history, ask_record
from bootstrap.boxes.trees import (
    BoxWorkStream,
    RiskyFolder,
    clean_trees,
    find_at_risk,
    read_content,
    risk_in_words,
)
from bootstrap.errors import BoxstrapError
from bootstrap.fleet.jobs import count_gpus
from bootstrap.fleet.nodes import NOT_AN_ANSWER, read_answer
from bootstrap.link import CancelToken, LinkLost
from bootstrap.link.exchange import (
    answer_number,
    answer_rows,
    run_script,
    run_script_checked,
    stream_script,
)
from bootstrap.link.query import LaunchOptions, launch
from bootstrap.profile import Advice
from bootstrap.renting import read_box_id
from bootstrap.repo.objects import parse_report
from bootstrap.runs import editors, jsonc
from bootstrap.runs.editors import EDITORS
from bootstrap.runs.log_reader import LogReader
from bootstrap.runs.notifiers import who_is_told_of
from bootstrap.runs.pull import goes_on
from bootstrap.runs.remote_command import RemoteProject
from bootstrap.runs.run_end import _answer_lines, _await_end, _Listener, what_ended
from bootstrap.runs.status import rows_of, run_lines, status_lines
from bootstrap.runs.top import BoxView, JsonLines, LiveTable, PlainLines
from bootstrap.runs.tunnel import JUPYTER, TENSORBOARD, start_server, stop_server
from bootstrap.runs.upkeep import ask_lease, what_was_wiped
from bootstrap.sanitize import SanitizeStream
from bootstrap.setup.new_run import _begun
from bootstrap.setup.program import Program
from bootstrap.setup.push import targets_there
from bootstrap.setup.result import SetupEnd, fetch_verdict, raise_for
from bootstrap.setup.send import refs_there
from bootstrap.setup.sync import SyncState, SyncStream, refusal
from bootstrap.steps.event_codes import explain
from bootstrap.steps.events import Event
from bootstrap.steps.plan import STEPS, plan_rows
from bootstrap.transfer.frames import BoxFile, BoxResults, GivenFile, Transfer, WantedFile
from bootstrap.transfer.push import push_folder
from bootstrap.transfer.sender import READY, Sender
from bootstrap.ui.screens import JsonScreen
from tests.logins import login_on
from tests.unit.boxes.conftest import text_of, told
from tests.unit.transfer.boxes import pack_frame

pytestmark = pytest.mark.slow

SETUP = "20260101-000000-abcdef"
(RUN,) = parse_probe(told(run="r-1/train-1", started=1)).runs


class Saying:
    """A link on which the box gives the same answer and exit code, whatever it is asked."""

    label = "root@box"

    def __init__(self, said: bytes, code: bytes = b"0") -> None:
        self._said, self._code = said, code

    def start(self, command: str) -> Saying:
        text = text_of(command).encode()
        framed = re.search(rb"echo ([0-9a-f]{32})\+", text)
        plain = re.search(rb"^echo ([0-9a-f]{32})$", text, re.MULTILINE)
        if framed:
            head, tail = framed[1] + b"+\n", framed[1] + b"- " + self._code + b"\n"
            self._errors = self._said + b"\n" + framed[1] + b"\n"
        else:
            head, tail, self._errors = (plain[1] + b"\n" if plain else b""), b"", self._said
        self._left = b"\n" + head + self._said + tail
        return self

    def read(self, n: int) -> bytes:
        piece, self._left = self._left[:n], self._left[n:]
        return piece

    def read_err(self) -> bytes:
        return self._errors

    def alive(self) -> bool:
        return True

    def write(self, b: bytes) -> None: ...
    def close_write(self) -> None: ...
    def close(self) -> None: ...


class LinkMadeOnce(SimpleNamespace):
    """A link that never reconnects."""

    label = "root@box"
    cancel = CancelToken()

    def reconnect(self, lost: BoxstrapError) -> None:
        raise lost

    def ask(self, question: Callable[[Any], Any]) -> Any:
        return question(self.wire)


def all_of(wire: Any) -> bytes:
    """Return the whole output of a streamed command, which has no frame of its own."""
    stream = stream_script(wire, "")
    return b"".join(iter(lambda: stream.read(1000), b""))


def before_ready(wire: Any) -> bytes:
    """Return what a box answers to a sender before it is ready."""
    sender = Sender(wire=wire, workdir="/w", setup=SETUP, failed=str)
    return sender.read(sender.take("data.sent", 4), READY)


def confirmed(wire: Any) -> None:
    sender = Sender(wire=wire, workdir="/w", setup=SETUP, failed=str)
    sender.pass_on(sender.take("uv.whl", 5), [b"wheel"])


def end_of_setup(wire: Any) -> None:
    event = Event(SETUP, 9, 1.0, "setup", "done", {"rc": 7})
    code = explain("package-missing", {})
    end = SetupEnd(*(login_on(wire), SETUP, 60, "python", code, "package-missing", "", Advice()))
    raise_for(event, end, JsonScreen(io.StringIO()))


def looked(wire: Any) -> None:
    for read_state in SampleLines().feed(all_of(wire)):
        view = BoxView("box", sample=read_state, state="live")
        for screen in (PlainLines(io.StringIO(), str), JsonLines(io.StringIO(), str)):
            screen.show([view], view)
        assert LiveTable.table(SimpleNamespace(_redact=str), [view])  # type: ignore[arg-type]


def edited(wire: Any) -> None:
    found = editors.read_editor_state(wire, next(iter(EDITORS.values())), "/w/.venv/bin/python")
    editors.lacks(found.facts, forwards=True)
    try:
        editors.merged_settings(found, editors.wanted_settings("/w/.venv", "/w"), {})
    except jsonc.JsoncError:
        return


def worked(wire: Any) -> None:
    values = {"workdir": "/w", "key": "k", "folder": "", "object_format": "sha1"}
    stream = BoxWorkStream(wire, **values, most_file_mib=1, seconds=20)
    try:
        work = stream.read_work()
        if work:
            list(stream.pack(work.commits, work.sent))
    finally:
        stream.close()


def synced(wire: Any) -> None:
    state = SyncState("a" * 40, "b" * 40, "c" * 40, "main")
    for stream in (SyncStream(wire, {}), SyncStream(wire, {}, state, b"few")):
        answer = stream.answer()
        if not answer.placed:
            assert refusal(answer, "box", "gpu").text().isprintable() or answer.log


def awaited(wire: Any) -> None:
    assert RUN
    box = login_on(wire)
    box._link = LinkMadeOnce(wire=wire)  # type: ignore[assignment]
    listener = _Listener(box, {}, JsonScreen(io.StringIO()))
    assert (
        _await_end(box, RUN, JsonScreen(io.StringIO()), lambda *_: None, listener, 1).state
        in STATES
    )


def met(wire: Any) -> None:
    """What a node says before a run of several begins."""
    for line in (all_of(wire)[:100_000], b'{"facts": {"same": [], "packages": 1}}', b"[" * 99_999):
        with contextlib.suppress(*NOT_AN_ANSWER):
            read_answer(line, "facts")


def resumed(wire: Any) -> None:
    box = login_on(wire)
    box._link = LinkMadeOnce(wire=wire)  # type: ignore[assignment]
    assert RUN
    assert is_name(_begun(box, RUN, 1).name)


def detailed(wire: Any) -> None:
    said = run_script(wire, "x")
    text = said.decode("utf-8", "replace")[:5000]
    of_run = {"run": "r-1/train-1", "text": text, "overwritten_by": [text], "files": text}
    kinds = ("log", "metric", "results", "disk", "untold", "tree")
    rows = [told(kind, key=text, name=text, **of_run) for kind in kinds]
    rows += [told("risk", run=run, tree=text, path=text, bytes=text) for run in ("train-1", text)]
    details = parse_details(b"".join([said, b"\n", *rows, told("gpus", gpus=[{"uuid": text}])]))
    failed = dataclasses.replace(RUN, state="finished", rc=137)
    failure = find_failure(failed, details.log_ends["r-1/train-1"])
    assert failure
    assert "\x1b" not in "".join(str(one) for tree in details.at_risk for one in tree)
    rows = rows_of(BoxState(runs=(failed, RUN)), details)
    assert "\x1b" not in "".join(run_lines(rows, 9))
    ask_details(wire, workdir="/w", repo_key="k", repo_root="", redact=["A"])


def shown_status(wire: Any) -> None:
    state = parse_probe(run_script(wire, "x"))
    status_lines("box", state, rows_of(state))


def remembered(wire: Any) -> None:
    assert RUN
    history = ask_history(login_on(wire, redact=["A"]), RUN)
    assert history.read_samples()[1] == []


def cleaned(wire: Any) -> None:
    for tree in clean_trees(login_on(wire), repo_key="k", discard=["h@2"], look=True).trees:
        assert all(str(one).isprintable() for one in tree.holds)


def read_log(wire: Any) -> None:
    reader = LogReader(login_on(wire), "log", RUN)  # type: ignore[arg-type]
    assert reader.find_start(1) in (True, False)
    assert 0 <= reader.at < 10**18


def pushed(wire: Any) -> None:
    """Only files that the box was asked about count, each once."""
    source = Path(__file__).parents[1] / "secrets"
    found = push_folder(wire, source, "data", exclude=["__pycache__"])
    assert found.had + found.files + len(found.kept) + len(found.failed) == 3
    found.check("box")


def pulled(wire: Any) -> None:
    """Files have valid names, types and sizes; a requested file ends with one final result."""
    with Transfer(wire, "/w") as transfer:
        results = BoxResults(transfer, "root@box", "r-1/train-1", "/w", ["out/"])
        look = results.look(live=True)
        assert all(file.size >= 0 and len(file.state) == 5 for file in look.files.values())
        assert all(isinstance(path, str) for path in (*look.left, *results.paths))
        assert all(isinstance(file.to, str) for file in look.files.values())
        file = BoxFile("out/a", "", "", (1, 2, 3, 4, 5))
        given = [item for _, item in results.get([WantedFile(file, 0)])]
        assert isinstance(given[-1], GivenFile)


def served(wire: Any) -> None:
    """An address on this machine is made from what the box says about a server."""
    project = RemoteProject("/w/homework", "/w/homework/.venv")
    stop_server(wire, TENSORBOARD, home="/w/.boxstrap", project=project)
    doing: list[str] = []
    found = start_server(wire, JUPYTER, home="/w/.boxstrap", project=project, doing=doing.append)
    assert 1 <= found.port <= 65535
    assert re.fullmatch(r"/lab\?token=[A-Za-z0-9_-]+", found.path)
    assert "\x1b" not in "".join(doing)


def made(wire: Any) -> None:
    """Names of what was made in trees are safe to show, and refs are valid ids."""
    found = read_content(login_on(wire))
    said = [str(one) for tree in found.trees for one in (*tree.holds, tree.name, tree.refs)]
    assert "\x1b" not in "".join(said)
    assert all(re.fullmatch("[0-9a-f]{40,64}", id_) for tree in found.trees for id_, _ in tree.refs)


def named(wire: Any) -> None:
    """The id of a box becomes part of a URL of the provider account."""
    assert re.fullmatch(r"[A-Za-z0-9_-]{0,64}", read_box_id(wire, ["CONTAINER_ID"]))


def leased(wire: Any) -> None:
    _, found = ask_lease(login_on(wire), "look", 0, "a")
    said = found.lines() if found else []
    assert all(line.isprintable() for line in said)


def brought(wire: Any) -> None:
    """The record of a run, and all of its log that the box says there is."""
    record = ask_record(login_on(wire), RUN, at=0, most=10**6)  # type: ignore[arg-type]
    assert record.begin >= 0
    assert sum(map(len, record.pieces())) == record.length


READERS: dict[str, Callable[[Any], object]] = {
    "boxes/login.py": lambda wire: login_on(wire).ask_word("end", run="r/train-1"),
    "runs/remote_command.py": lambda wire: SanitizeStream().feed(all_of(wire)),
    "runs/bring_home.py": lambda wire: answer_number(run_script(wire, "x")[:100].strip()),
    "runs/upkeep.py, secrets": lambda wire: what_was_wiped(run_script(wire, "x"), login_on(wire)),
    "runs/upkeep.py, lease": leased,
    "runs/log_reader.py": lambda wire: SanitizeStream().feed(all_of(wire)),
    "runs/log_reader.py, where it is kept": read_log,
    "runs/pull.py": lambda wire: goes_on(login_on(wire), RUN),  # type: ignore[arg-type]
    "setup/new_run.py": resumed,
    "runs/tunnel.py": served,
    "runs/status.py": shown_status,
    "runs/run_end.py, stop": lambda wire: what_ended(run_script(wire, "x")),
    "runs/notifiers.py": lambda wire: who_is_told_of(run_script(wire, "x")),
    "runs/top.py": looked,
    "runs/run_end.py": awaited,
    "fleet/nodes.py": met,
    "fleet/jobs.py": lambda wire: count_gpus(login_on(wire)),
    "runs/editors.py": edited,
    "link/exchange.py": lambda wire: run_script_checked(wire, "x"),
    "setup/sequence.py": lambda wire: plan_rows(STEPS, parse_probe(run_script(wire, "x")).plan),
    "setup/result.py, the end": end_of_setup,
    "boxes/run_history.py, records": brought,
    "boxes/follow.py, first lines": lambda wire: watch_beginning(login_on(wire), RUN),  # type: ignore[arg-type]
    "setup/result.py, the verdict": lambda wire: fetch_verdict(login_on(wire), Advice()),
    "boxes/follow.py": lambda wire: list(
        follow_events(LinkMadeOnce(wire=wire), SETUP, workdir="/w")
    ),  # type: ignore[arg-type]
    "boxes/follow.py: its tail": lambda wire: file_tail(wire, "x", "/w", 100),
    "boxes/follow.py: its end": lambda wire: CompletionPoller._is_over(
        SimpleNamespace(_wire=wire, _query="x", seen=0, _has_told=True)  # type: ignore[arg-type]
    ),
    "boxes/probe.py": probe,
    "transfer/sender.py": confirmed,
    "boxes/run_details.py": detailed,
    "boxes/run_history.py": remembered,
    "boxes/trees.py, unsent work": worked,
    "boxes/trees.py, content": made,
    "renting/ownership.py": named,
    "boxes/trees.py": cleaned,
    "setup/sync.py": synced,
    "link/query.py": lambda wire: launch(wire, LaunchOptions("x", Program(""), SETUP, "/w")),
    "setup/send.py, dependencies": lambda wire: refs_there(before_ready(wire)),
    "setup/push.py": lambda wire: targets_there(before_ready(wire)),
    "transfer/frames.py": pushed,
    "transfer/frames.py, results": pulled,
    "setup/send.py": lambda wire: parse_report(all_of(wire), all_of(wire)),
}
"""Module (and which, if it has several) -> its reader of a box's answer. Every module that asks
a box is listed here."""

ASKS = re.compile(
    r"^from bootstrap\.link\.exchange import.*\b(run_script|run_script_checked|stream_script)\b"
    r"|^from bootstrap\.boxes\.follow import.*\b(file_tail|follow_file)\b"
    r"|\bwire\.start\(|box\.(query|tail)\(",
    re.MULTILINE,
)


def test_each_module_that_asks_a_box_is_in_the_tests_of_hostile_answers() -> None:
    top = Path(bootstrap.__file__).parent
    asking = {
        str(path.relative_to(top))
        for path in top.rglob("*.py")
        if ASKS.search(path.read_text(encoding="utf-8"))
    }
    assert asking <= {name.partition(",")[0] for name in READERS}
    assert len(asking) > 10


DIGITS = "9" * 5000
TOP = {"v": 1, "t": 1.0, "host": {"memory_used": 1}, "gpus": [{"index": 0}], "run": {"name": "x"}}
WORDS = st.sampled_from(
    [
        *("run", "plan", "last", "time", "bash", "system", "holder", "working", "free", "libc"),
        *("tree\tk\th@2", "holds\tfiles", "holds", "tree", "size", "unknown", "busy"),
        *("answered\tssh", "digest\tssh\tA", "not\tssh", "set\tA", "shell"),
        *("failed", "placed", "over\t\n", "M", "have", "warn", "ref", "edits", "ready\t\n", "left"),
        "ready\n",
        *("home", "over", "results\t1\tx", "ref\taaaa", "said\tX\tC.1"),
        *("kernel", "stopped", "lacks", "launched", "running", "finished", "tool", "sum", "work"),
    ]
)
VALUES = st.text(
    st.sampled_from("\t \"'[]{}:,019²٣e.-+abctrain\x1b[31m\x9b\u202e\r\0é")
) | st.sampled_from(
    [
        *(DIGITS, "²", "٣", "-1", "1e999", "NaN", "", "\t"),
        *(f"finished {DIGITS}", f"r\tn\trunning {DIGITS}"),
    ]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["tree", "holds", "ref", "risk", "results", "sent", "left"])},
        optional=dict.fromkeys(
            ("key", "name", "what", "commit", "base", "names", "count", "path", "commits"),
            VALUES | st.sampled_from(["k", "edits", "a" * 40]) | st.lists(VALUES, max_size=2),
        ),
    ),
    max_size=5,
)
MADE = st.tuples(ROWS, st.sampled_from([{"kind": "ready"}, {"kind": "over", "told": 1}])).map(
    lambda said: "".join(json.dumps(row) + "\n" for row in (*said[0], said[1])).encode()
)
HISTORIES = st.fixed_dictionaries(
    {},
    optional={
        "events": st.lists(VALUES, max_size=2) | VALUES,
        "verdict": VALUES,
        "samples": st.lists(VALUES | st.just('{"gpus": [{"index": 0}]}'), max_size=3),
        "curves": st.lists(st.fixed_dictionaries({"name": VALUES}), max_size=2),
        "changes": st.lists(VALUES, max_size=2),
        "read": st.sampled_from([0, -1, 10**30]),
        "python": st.booleans(),
    },
).map(lambda said: json.dumps(said).encode())
LINES = st.lists(st.tuples(WORDS, st.sampled_from("\t \n"), VALUES).map("".join), max_size=8).map(
    lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass")
)
LOOKS = st.lists(st.sampled_from(sorted(TOP))).map(
    lambda keys: json.dumps({key: TOP[key] for key in keys}).encode() + b"\n"
)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            *("v", "free", "states", "begun", "i", "state", "problem", "end"),
            *("files", "gone", "left", "looked", "tree", "given", "sha256"),
        ]
    ),
    st.sampled_from(
        [
            *([["out/a", "", "", 1, 2, 3, 4, 5]], [["out/a", "", "", 1, 2, -3, 4, 5]]),
            *([["out/a", "", "", "own", 1, 2, 3, 4, 5, "out/b"]], [["out/a", "", "", "own", "b"]]),
            *([["", "a" * 64, 2]], [["changed", "", -1]], [["", "", 10**30]]),
            *([["out/a", "outside"]], [["\x1b[31m", [], None]], [[]], ["x"]),
            *(
                0, 1, 2, -1, 10**30, True, None, "", "h", "a", "s", "hhh", "aaa", "has", "full",
                "\x1b[31m",
            ),
        ]
    )
    | st.dictionaries(st.sampled_from(["0", "²", DIGITS, "-1"]), st.sampled_from([1, -1, "x", {}])),
    max_size=3,
)  # fmt: skip
# The first request gets a valid answer, the rest random ones.
FRAMES = st.tuples(
    st.sampled_from(["", "hhh", "aaa", "ssr", "aff"]), st.lists(HEADERS, max_size=6)
).map(
    lambda said: b"".join(
        pack_frame(header)
        for header in [
            *([{"states": said[0], "free": 10**12}, {"end": 1}] if said[0] else []),
            *said[1],
        ]
    )
)
CODES = st.sampled_from([b"0", b"1", DIGITS.encode(), b"\xb2", "²".encode(), b"", b"-1", b"256"])


@pytest.mark.parametrize("module", sorted(READERS))
@settings(
    max_examples=settings().max_examples // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(said=st.binary(max_size=3000) | LINES | LOOKS | HISTORIES | FRAMES, code=CODES)
@example(said=b"x", code=DIGITS.encode())
@example(said="free\t²\n".encode(), code=b"0")
@example(said=b"{}\n", code=b"0")
@example(said=b'{"gpus":[{"index":0}]}\n', code=b"0")
@example(said=f"bash\t{DIGITS}.1\nsystem\tLinux\ntime\t{DIGITS}\n".encode(), code=b"0")
@example(said=f'last\t{{"setup":"x","state":"over","exit":{DIGITS}}}\n'.encode(), code=b"0")
@example(said=f"running\t{DIGITS}\n".encode(), code=b"0")
@example(said=f'{{"v":1,"setup":"{SETUP}","seq":{DIGITS}}}\n'.encode(), code=b"0")
@example(said=b"finished \xc2\xb2\nlog", code=b"0")
@example(said=b"stopped\n", code=b"0")
@example(said=b"\xff\xff\xff\xff0000", code=b"0")
def test_any_answer_of_a_box_gives_no_error_with_escape_codes(
    module: str, said: bytes, code: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bootstrap.link.reconnecting.PAUSES_S", (0,))
    words = ""
    try:
        READERS[module](Saying(said, code))
    except BoxstrapError as error:
        words = error.text()
    assert "\x1b" not in words


FORGED = b"x\rwarning: log in at evil.example\xe2\x80\xa8\x85\r\ny"


def test_a_value_sent_by_a_box_with_line_breaks_in_it_is_shown_on_a_single_line() -> None:
    pieces = [b"news\t" + FORGED.partition(b"\n")[0] + b"\n", b""]
    stream: Any = SimpleNamespace(read=lambda _: pieces.pop(0))
    facts = {"same": {"a\rb": "c\rd"}, "packages": ["e\rf"], "addresses": [], "public": []}
    heard = [
        *_answer_lines(stream),
        *(value for _, value in answer_rows(b"word\t" + FORGED)),
        str(parse_low_disk(b"1 2 3\n4 " + FORGED.partition(b"\r\n")[0])),
        str(read_answer(json.dumps({"facts": {**facts, "ports": [1, 2], "gpus": 0}}).encode(),
                        "facts")),
        read_answer(b'{"written": "a\\rb"}', "written"),
    ]  # fmt: skip
    assert heard
    assert not [one for one in heard if len(one.splitlines()) != 1 or "\\n" in one]


@pytest.mark.parametrize("seconds", [10**18, 99999999999, -1, 1e3, "1", True])
def test_an_impossible_time_of_a_run_sent_by_a_box_is_replaced_by_0(seconds: object) -> None:
    (found,) = parse_probe(told(started=seconds, begun=seconds, over=seconds)).runs
    kept = run_of({**row_of(found), "begun": 10**18, "over": 10**18, "started": 10**18})
    for one in (found, kept):
        assert one
        assert (one.started, one.begun, one.over) == (0, 0, 0)


@pytest.mark.parametrize("text", ["x command=aWQ=", "x beside", "../x", "a;b", "x\u00a0y", "*", ""])
def test_a_hostile_session_or_gpu_list_of_a_run_adds_no_word_to_run_resume(text: str) -> None:
    """`run --resume` and `guard --resume` take session and GPUs of a run to another box."""
    said = {"run": "x-1/train-1", "state": "died", "session": text, "gpus": text}
    told = parse_run(BoxDocument(said))
    kept = run_of({"repo_key": "x-1", "name": "train-1", **said})
    for run in (told, kept):
        assert run
        assert (run.session, run.gpus) == ("", "")
    said |= {"session": "train-2", "gpus": "0,1"}
    told = parse_run(BoxDocument(said))
    assert told
    assert (told.session, told.gpus) == ("train-2", "0,1")


@pytest.mark.parametrize("count", ["9" * 5000, "9" * 4000, "\u0661"])
def test_the_error_on_overwritten_results_lists_no_row_with_a_nonsense_count_from_the_box(
    count: str,
) -> None:
    said = results_in_the_way([f"a-1 1 {count} large", f"a-2 {count} 1 large"], "box", "box")
    assert said.what.endswith("would be overwritten:")


def test_what_would_go_with_the_box_is_told_once_for_all_trees_in_which_the_same_is() -> None:
    one, two, other = (
        (RiskyFolder(run, 1, 7, path),)
        for run, path in (("train-4", "models/"), ("train-2", "models/"), ("train-3", "logs/"))
    )
    head, *lines = risk_in_words("gpu", [one, other, two])
    assert head == "this would go with the box:"
    assert [line[-19:] for line in lines[:3]] == [f"the tree of train-{at}" for at in (4, 3, 2)]
    assert lines[3:] == [
        f"{what}: boxstrap pull --host gpu {of}"
        for runs, path in (("--run train-4 --run train-2", "models/"), ("--run train-3", "logs/"))
        for what, of in (
            ("To bring what git ignores", f"{runs} --also {path}"),
            ("To let go of it", f"{runs} --without {path}"),
        )
    ]
    assert risk_in_words("gpu", [one])[1].endswith("no run's result")
    assert risk_in_words("gpu", []) == []


def test_down_asks_a_box_again_which_files_would_be_lost_if_the_link_broke(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    risk = {"kind": "risk", "run": "train-1", "path": "models/", "files": 1, "bytes": 7}
    tree = {"kind": "tree", "key": "work-1", "name": "work", "number": "1", "root": "/w/work"}
    rows = ({"kind": "home"}, risk, tree, {"kind": "over", "told": 2})
    answer = "".join(f"{json.dumps(row)}\n" for row in rows).encode()

    def lost() -> bytes:
        raise LinkLost("box")

    monkeypatch.setattr(trees, "ask_content", lambda _: SimpleNamespace(whole=lambda: answer))
    box = SimpleNamespace(wire=SimpleNamespace(label="box"))
    for whole in (lost, lambda: answer):
        ((found,),) = find_at_risk(box, "work-1", SimpleNamespace(whole=whole))
        assert (found.path, found.bytes) == ("models/", 7)
