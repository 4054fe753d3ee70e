"""The box's answer about what was made there, the list of it, and a run that ends during a look."""

import errno
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes import BoxState, Run
from bootstrap.boxes.trees import parse_made
from bootstrap.errors import BoxstrapError, BusyError, NotSafeError, UnreachableError
from bootstrap.link import BoxOptions, KnownBox, LocalWire, all_boxes, ended_boxes, save_box
from bootstrap.providers import CloudAccount, RefusedKeyError, UndecidedError
from bootstrap.providers.offer import Leftover, RentedBox, RentedState
from bootstrap.renting import OwnBox, Rental, RentalState, loss_check, rental, teardown
from bootstrap.renting.loss_check import Loss, find_unsafe_logs
from bootstrap.renting.teardown import TeardownOptions, TeardownResult, _refusal
from bootstrap.ui.screens import JsonScreen
from bootstrap.value import document


class _Wire(LocalWire):
    label = "box"


FINISHED = Run("k-1", "train-1", "finished", 0, 1, "c" * 40, "w", "train", 2, 9, "python train.py")
TREE = {"kind": "tree", "key": "k", "name": "n", "number": "1"}


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], None),
        ([{"kind": "tree", "name": "no such thing"}], 1),
        ([{"kind": "holds", "what": "magic"}, TREE], 2),
        ([{"kind": "ref", "commit": "none", "name": "refs/heads/x"}, TREE], 2),
        ([{**TREE, "key": "../.."}], 1),
        ([TREE], 2),  # one was left out, as it was too long
    ],
)
def test_down_fails_if_the_list_of_unsafe_files_of_a_box_is_incomplete(
    rows: list[dict[str, str]], told: int | None
) -> None:
    """Ignored lines would mean that nothing is unsafe, and the box would be destroyed."""
    over = [] if told is None else [{"kind": "over", "told": told}]
    said = [{"kind": "home"}, *rows, *over]
    answer = "".join(json.dumps(row) + "\n" for row in said).encode()
    wire = _Wire()
    with pytest.raises(BoxstrapError):
        parse_made(answer, wire)
    wire.close()


def test_a_refused_down_prints_the_command_to_save_each_kind_of_work() -> None:
    error = _refusal(
        "my-box", [Loss("run", "a/train-1", "running"), Loss("edits", "a", "x")], is_dry=False
    )
    assert isinstance(error, NotSafeError)
    assert "a/train-1: running" in error.what
    for words in ("down --host my-box --stop-runs", "sync --back --host my-box", "--discard"):
        assert words in error.hint
    beside = _refusal("my-box", [Loss("files", "a@2", "x")], is_dry=False)
    assert "in its repository: boxstrap clean --host my-box --discard a@2" in beside.hint
    assert "sync --back" not in beside.text()


def test_down_keeps_the_box_if_a_run_ended_while_down_checked_for_losses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results were checked while it was running; at the end it is no longer alive."""
    over, again = FINISHED, replace(FINISHED, started=7)
    live = replace(FINISHED, state="running", rc=None)
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


HOST, MARK = "vast:1", "boxstrap-" + "a" * 12


class Account:
    """An account with one box, which is destroyed after so many requests; looks can fail."""

    name, title = "vast", "Vast.ai"
    is_gone: Any = CloudAccount.is_gone

    def __init__(self, *, after: int = 1, fails: Sequence[Exception | None] = ()) -> None:
        self.asked: list[str] = []
        self._after, self._fails = after, list(fails)
        self.left: list[Leftover] | BoxstrapError = []

    def destroy(self, box_id: str) -> None:
        self.asked.append(box_id)
        if len(self.asked) == 1 and self._fails and isinstance(self._fails[0], UndecidedError):
            raise self._fails.pop(0) or AssertionError

    def box(self, box_id: str) -> RentedBox | None:
        if self._fails and (failure := self._fails.pop(0)):
            raise failure
        is_there = len(self.asked) < self._after
        return RentedBox("vast", box_id, MARK, RentedState.RUNNING, price=2.0) if is_there else None

    def leftovers(self) -> list[Leftover]:
        if isinstance(self.left, BoxstrapError):
            raise self.left
        return self.left


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which passes only where something waits."""
    now = [0.0]
    monkeypatch.setattr(
        teardown,
        "time",
        SimpleNamespace(
            monotonic=lambda: now[0],
            sleep=lambda wait: now.__setitem__(0, now[0] + wait),
            time=lambda: 1_700_000_000.0 + now[0],
        ),
    )
    return now


UNKNOWN = UndecidedError("no answer came.")
SILENT = UnreachableError("it does not answer.")


@pytest.mark.parametrize(
    ("account", "asked", "waited", "says"),
    [
        (Account(), 1, 0, []),
        # It did happen.
        (Account(fails=[UNKNOWN]), 1, 0, ["vast:1: no answer came. Looking what the account has."]),
        (Account(fails=[SILENT, SILENT]), 1, 3, []),
        (Account(after=2), 2, 47, []),  # the first request was lost: repeated once
    ],
    ids=["at once", "no answer", "can't be asked", "a lost request"],
)
def test_down_reports_a_box_as_destroyed_once_the_account_does_not_list_it(
    seconds: list[float], account: Any, asked: int, waited: float, says: list[str]
) -> None:
    said: list[str] = []
    teardown.destroy(account, "1", said.append)
    assert (account.asked, seconds[0], said) == (["1"] * asked, waited, says)


@pytest.mark.parametrize(
    ("account", "asked", "says"),
    [
        (Account(after=3), 2, "it is unknown whether vast:1 is destroyed"),
        (Account(after=3, fails=[UNKNOWN]), 2, r"destroyed \(no answer came"),
        (Account(fails=[SILENT] * 99), 2, r"destroyed \(it does not answer"),
        (Account(fails=[RefusedKeyError("the key is refused.")]), 1, "the key is refused"),
    ],
    ids=["stays listed", "unknown", "can't be asked", "no key any more"],
)
def test_a_box_that_may_still_be_paid_for_is_never_reported_as_destroyed(
    seconds: list[float], account: Any, asked: int, says: str
) -> None:
    with pytest.raises(UnreachableError, match=says):
        teardown.destroy(account, "1", lambda _: None)
    assert account.asked == ["1"] * asked  # the id can't mean another box: twice, and no more
    assert seconds[0] < teardown.PATIENCE_S + 10


class Shown:
    """Keeps what a screen would show."""

    def __init__(self) -> None:
        self.warned: list[str] = []
        self.warn = self.warned.append

    def say(self, text: str) -> None:
        """Nothing is asked here."""

    def result(self, document: object, text: str = "") -> None:
        self.warned.append(text or str(document))


def met(**more: Any) -> KnownBox:
    known = KnownBox("gpu", HOST, created=1.0, **more)
    save_box(known, is_new=True)
    return known


def end(account: Any, known: KnownBox, lost: Sequence[Loss] = (), **more: Any) -> tuple[Any, Shown]:
    shown: Any = Shown()
    rented = RentedBox("vast", "1", MARK, RentedState.RUNNING, **{"price": 2.0, **more})
    return teardown.end_rental(OwnBox(account, rented), known, shown, lost), shown


def rented_here(mark: str = MARK) -> None:
    asked = 1_700_000_000.0 - 7200
    rental.save_rental(Rental(mark, "vast", RentalState.RENTED, asked, "1", price=0.5))


@pytest.mark.usefixtures("seconds")
def test_down_destroys_no_box_whose_id_the_provider_gave_to_another_rental() -> None:
    rented_here("boxstrap-" + "b" * 12)
    account, known = Account(), met()
    with pytest.raises(NotSafeError, match="has given vast:1 to another rental") as found:
        end(account, known)
    assert "boxes --forget gpu" in found.value.hint
    assert (account.asked, all_boxes()) == ([], [known])


@pytest.mark.usefixtures("seconds")
def test_down_prints_what_the_box_cost_and_each_disk_that_is_still_paid_for() -> None:
    account, known = Account(), met()
    account.left = [
        Leftover("vast", "v1", "", "volume", price=0.01),
        Leftover("vast", "2", "d", "disk"),
    ]
    rented_here()
    lost = [Loss("edits", "homework", "a file")]
    done, shown = end(account, known, lost)
    assert shown.warned == ["thrown away: homework: a file"]
    assert done.text().splitlines() == [
        "gpu (vast:1): destroyed, and no longer listed; about $1.00 since it was rented",
        "thrown away with it:",
        "  homework: a file",
        "your account still has and pays for:",
        "  volume v1: $0.01 an hour",
        "  disk d: price unknown",
    ]
    assert all_boxes() == []
    assert [one.spent for one in ended_boxes()] == [1.0]
    assert [one.state for one in rental.all_rentals()] == [RentalState.ENDED]


@pytest.mark.usefixtures("seconds")
def test_down_warns_of_each_failure_after_the_box_was_destroyed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    account, known = Account(), met()
    account.left = SILENT

    def full(_: KnownBox) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(teardown, "retire", full)
    done, shown = end(account, known, since=1_700_000_000.0 - 3600)
    assert (
        done.text()
        == "gpu (vast:1): destroyed, and no longer listed; about $2.00 since its last start"
    )
    assert len(shown.warned) == 2
    assert "could not check what else your account pays for: it does not answer." in shown.warned
    assert "its record is not put aside" in shown.warned[1]
    (still,) = all_boxes()
    assert still.ended  # a later command sees that it was to go


@pytest.mark.usefixtures("seconds")
@pytest.mark.parametrize("price", [None, 0.0])
def test_down_prints_no_cost_of_a_box_of_unknown_price(price: float | None) -> None:
    done, _ = end(Account(), met(), price=price, since=1.0)
    assert (done.spent, "about" in done.text()) == (None, False)


def test_a_second_down_of_a_box_at_the_same_time_does_not_get_its_lock() -> None:
    known = met()
    with teardown.teardown_lock(known) as first, teardown.teardown_lock(known) as second:
        assert (first, second) == (True, False)
    with teardown.teardown_lock(known) as again:
        assert again
    # Where nobody can write, nobody else holds the lock: a full disk stops no teardown.
    with teardown.teardown_lock(KnownBox("nowhere", "vast:2")) as alone:
        assert alone


def test_a_rented_box_that_down_keeps_is_said_to_be_still_billed() -> None:
    kept = TeardownResult("gpu", why_not="no account has it", lost=[Loss("run", "a", "running")])
    assert kept.text().splitlines() == [
        "gpu: nothing on it would be lost, and it keeps running: no account has it",
        "still billing: end it where you rented it",
        "Then, to forget it here: boxstrap boxes --forget gpu",
        "but for this:",
        "  a: running",
    ]
    assert document(kept)["why_not"] == "no account has it"
    assert "why_not" not in document(TeardownResult("gpu", destroyed=True))
    named = ("root@203.0.113.1:22", "vast:1")
    assert [KnownBox("a", host).is_billed for host in named] == [False, True]
    assert KnownBox("a", named[0], console="https://console.example").is_billed
    kept.is_billed = False
    assert kept.text().splitlines()[1] == (
        "if somebody bills you for it: end it where you rented it"
    )
    kept.console, kept.is_rented = "https://console.example", False
    assert "billing" not in kept.text()
    kept.is_rented = True
    assert "end it at https://console.example" in kept.text()


EDITS, UNKNOWN_WORK = Loss("edits", "homework", "a"), Loss("unknown", "gpu", "b")


@pytest.mark.parametrize(
    ("lost", "ready", "discard", "stays"),
    [
        ([], True, False, []),
        ([EDITS], True, False, None),
        ([EDITS], True, True, [EDITS]),
        ([UNKNOWN_WORK], False, False, []),  # no setup ever succeeded on it: it holds no work
        ([UNKNOWN_WORK], True, False, None),
        ([UNKNOWN_WORK], None, False, None),  # not rented from here
        ([EDITS, UNKNOWN_WORK], False, True, [EDITS]),
    ],
)
def test_down_refuses_to_lose_work_without_discard_unless_the_box_was_never_set_up(
    monkeypatch: pytest.MonkeyPatch,
    lost: list[Loss],
    ready: bool | None,
    discard: bool,
    stays: list[Loss] | None,
) -> None:
    if ready is not None:
        rental.save_rental(Rental(MARK, "vast", RentalState.RENTED, 1.0, "1", ready=ready))
    monkeypatch.setattr(teardown, "secure", lambda *_: lost)
    own: Any = OwnBox(Account(), RentedBox("vast", "1", MARK, RentedState.RUNNING))  # type: ignore[arg-type]
    box: Any = SimpleNamespace(name="gpu")
    wish, shown = TeardownOptions(0, discard=discard), Shown()
    if stays is None:
        with pytest.raises(NotSafeError):
            teardown._refuse_unsafe(box, own, shown, wish)  # type: ignore[arg-type]
    else:
        assert teardown._refuse_unsafe(box, own, shown, wish) == stays  # type: ignore[arg-type]
    assert bool(shown.warned) == (stays is None)
    shown.warned.clear()
    teardown._say_safe(shown, "gpu", own, lost, [])  # type: ignore[arg-type]
    teardown._say_safe(shown, "gpu", "nobody's", lost, [])  # type: ignore[arg-type]
    let_go = "; this would be thrown away:" + "".join(f"\n  {one}" for one in lost)
    assert shown.warned == [
        f"gpu would {what}" + (let_go if lost else "")
        for what in ("be destroyed: vast:1", "not be destroyed: nobody's")
    ]


@pytest.mark.parametrize(
    ("wish", "brings"),
    [({}, True), ({"only_look": True}, False), ({"discard": True}, False)],
    ids=["down", "a look", "discard"],
)
def test_down_with_dry_or_discard_ends_no_run_and_pulls_nothing(
    monkeypatch: pytest.MonkeyPatch, wish: dict[str, bool], brings: bool
) -> None:
    done: list[object] = []
    part = SimpleNamespace(
        find_unsafe=lambda most=None: done.append(most) or [],
        bring_home=lambda: done.append("trees") or [],
    )
    for name in ("BoxResultsCheck", "BoxTrees", "read_content"):
        monkeypatch.setattr(teardown, name, lambda *_, **__: part)
    monkeypatch.setattr(teardown, "find_unsafe_logs", lambda *each: done.append(each[2]) or [])
    monkeypatch.setattr(teardown, "_end_runs", lambda *_: done.append("runs"))
    monkeypatch.setattr(teardown, "_look_again", lambda _: None)
    there: Any = SimpleNamespace(state=BoxState(), workdir="", known=KnownBox("a", "a"))
    nobody: Any = None
    assert teardown.secure(there, nobody, TeardownOptions(9, **wish)) == []
    assert done == (["runs", 9, "trees", None, 9] if brings else [None, None, None])


def test_down_dry_for_unpulled_results_of_several_runs_names_one_command_to_pull_all() -> None:
    lost = [loss_check.Loss("results", f"makemore/train-{n}", "never pulled") for n in (1, 2)]
    looked = teardown._refusal("gpu", lost, is_dry=True)
    assert "as far as is known here, this is on the box alone:" in looked.what
    assert looked.hint.splitlines() == [
        "To bring home what can be, and then look again: boxstrap down --host gpu",
        "In their repository: boxstrap pull --host gpu --all",
        "To let go of a result: boxstrap pull --host gpu --run RUN --without PATH",
        "To let all of that go: boxstrap down --host gpu --discard",
    ]
    refused = teardown._refusal("gpu", lost[:1], is_dry=False)
    assert "as far as is known here, this would be lost:" in refused.what
    assert "In its repository: boxstrap pull --host gpu --run train-1" in refused.hint


IN_USE = BusyError("another pull is at work in this folder.")


def raising(error: BoxstrapError) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_down_keeps_a_box_whose_results_can_not_be_pulled_for_any_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the reason, else the box would be destroyed with it; a lost link ends it all."""
    shown: Any = Shown()
    there: Any = SimpleNamespace(
        own="k-1", options=None, known=KnownBox("gpu", HOST), state=BoxState(runs=(FINISHED,))
    )
    monkeypatch.setattr(loss_check, "results_of_profile", lambda _: ())
    monkeypatch.setattr(loss_check.BoxResultsCheck, "_problems", lambda *_: ["a: never pulled"])

    def found(error: BoxstrapError) -> list[Loss]:
        for name in ("pull_run", "bring_home"):
            monkeypatch.setattr(loss_check, name, raising(error))
        results = loss_check.BoxResultsCheck(there, shown).find_unsafe(9)
        return [*results, *find_unsafe_logs(there, shown, 9)]

    assert found(IN_USE) == [
        Loss("results", "k-1/train-1", "a: never pulled"),
        Loss("log", "k-1/train-1", IN_USE.what),
    ]
    assert shown.warned == [IN_USE.text()]
    with pytest.raises(UnreachableError):
        found(SILENT)
    noted: list[str] = []
    shown.note = lambda _kind, text: noted.append(text)
    kept: Any = SimpleNamespace(lines=lambda: ["  its log is at home"])
    monkeypatch.setattr(loss_check, "bring_home", lambda *_: kept)
    assert (find_unsafe_logs(there, shown, 9), noted) == ([], ["k-1/train-1: its log is at home"])
    # Where nothing is to be brought home, nothing is pulled.
    assert loss_check.BoxResultsCheck(there, shown).find_unsafe() == [
        Loss("results", "k-1/train-1", "a: never pulled")
    ]


def test_down_compares_edits_in_a_tree_only_with_what_was_sent_to_that_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree: Any = SimpleNamespace(name="homework", beside=False, repo_key="k-1")
    there: Any = SimpleNamespace()
    edits = [Loss("edits", "homework", "edited (1): a.py")]
    monkeypatch.setattr(loss_check, "_not_home", lambda *_: edits)
    for folder, found in (("/w/homework", edits), ("/w/homework@2", None), ("", None)):
        work = SimpleNamespace(folder=folder) if folder else None
        monkeypatch.setattr(loss_check, "look_at_work", lambda *_, work=work: work)
        assert loss_check.BoxTrees(there, there, there)._compared(tree, there) == found


def test_down_keeps_a_box_with_a_tree_that_git_can_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = SimpleNamespace(name="homework", beside=False, repo_key="k-1")
    there: Any = SimpleNamespace(own="k-1")
    made: Any = SimpleNamespace(trees=[tree])
    screen: Any = Shown()
    monkeypatch.setattr(loss_check.BoxTrees, "_here", lambda *_: there)
    trees = loss_check.BoxTrees(there, made, screen)
    monkeypatch.setattr(loss_check, "bring_from", raising(BoxstrapError("its index is damaged.")))
    assert trees.bring_home() == [Loss("unread", "homework", "its index is damaged.")]
    monkeypatch.setattr(loss_check, "bring_from", raising(SILENT))
    with pytest.raises(UnreachableError):
        trees.bring_home()
    for other in ({"beside": True}, {"repo_key": "k-2"}):  # only its own tree is fetched
        made.trees = [SimpleNamespace(**{**vars(tree), **other})]
        assert trees.bring_home() == []


def test_a_list_of_files_that_down_would_lose_is_cut_after_a_few_names() -> None:
    names = [f"{at}" for at in range(loss_check._NAMED + 1)]
    assert loss_check._few(names[:2]) == "0, 1"
    assert loss_check._few(names) == ", ".join(names[:-1]) + ", …"


def test_down_without_a_host_knows_the_only_box_of_its_repository_also_if_no_login_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a box that its account has no more is told as gone, as with its name."""
    monkeypatch.setattr("bootstrap.repo.local.current", lambda _: ("mine", ""))
    box = KnownBox("gpu", "vast:77", "203.0.113.1").using("mine", workdir="~")
    save_box(box)
    (known,) = all_boxes()
    asked: list[object] = []
    monkeypatch.setattr(teardown, "account_of", asked.append)

    def refuse(*_: object, **__: object) -> None:
        raise UnreachableError("your account has no box 77.")

    monkeypatch.setattr(teardown.BoxLogin, "open", refuse)
    monkeypatch.setattr(teardown, "_end_unseen", lambda _, one, *__: asked.append(one))
    teardown.tear_down(BoxOptions(), JsonScreen(io.StringIO()), TeardownOptions(0))
    assert asked == ["vast:77", known]
