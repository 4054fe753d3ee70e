"""`down`: by a box's exact id, done once its account no longer lists it, and never another box."""

import contextlib
import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.errors import NotSafeError, UnreachableError, UsageError
from bootstrap.link import BoxOptions, Endpoint, KnownBox, all_boxes, retire, save_box
from bootstrap.providers import NAMES, PROVIDERS, ApiKey, RentedBox, RentedState
from bootstrap.renting import OwnBox, Rental, RentalState, TeardownOptions, ownership, teardown
from bootstrap.value import document
from tests.boxes.loopback import LoopbackBox
from tests.cli import Running, User
from tests.logins import login_to
from tests.providers.accounts import (
    FAULTS,
    KEY,
    SimulatedAccount,
    SimulatedBox,
    SimulatedCluster,
    simulated,
)
from tests.providers.azure_account import azure_id

ACCOUNTS = ("vast", "runpod")


@pytest.fixture
def there(there: LoopbackBox) -> LoopbackBox:
    """It has boxstrap's folder, and nothing to lose."""
    Path(there.home, ".boxstrap").mkdir()
    return there


def pod(box: LoopbackBox, box_id: str = "pod-a") -> SimulatedBox:
    return SimulatedBox(box_id, port=box.port, user=box.user)


def listed(account: SimulatedAccount) -> list[str]:
    return [box.id for box in account.boxes]


def test_down_destroys_the_box_and_saves_what_it_cost_in_its_record(
    user: User, accounts: dict[str, SimulatedAccount], there: LoopbackBox
) -> None:
    pods = accounts["runpod"]
    # All have the same name: the id decides.
    pods.boxes = [pod(there), SimulatedBox("pod-b"), SimulatedBox("pod-c")]
    key = ("--identity", str(there.identity))
    user.run("status", "--host", "runpod:pod-a", *key).must(0)
    look = user.run("--dry", "down", "--host", "runpod:pod-a").must(0)
    assert "would be destroyed: runpod:pod-a" in look.out
    assert listed(pods) == ["pod-a", "pod-b", "pod-c"]
    done = user.run("down", "--host", "runpod:pod-a").must(0)
    assert "destroyed, and no longer listed; about $" in done.out
    assert (pods.destroyed, listed(pods)) == (["pod-a"], ["pod-b", "pod-c"])
    known = user.run("boxes").must(0).out
    assert "no box is known yet" in known
    assert "runpod-pod-a  given back" in known
    assert "cost about $" in known
    ended = user.run("boxes", "--json").must(0).json()["ended"]
    assert [(box["name"], box["spent"] > 1000) for box in ended] == [("runpod-pod-a", True)]
    assert not [*user.state.glob("boxes/*")]
    assert not [*user.state.rglob("known_hosts")]
    (record,) = user.state.glob("ended/runpod-pod-a-*/box.json")
    kept = json.loads(record.read_text())["extra"]
    assert kept["spent"] > 1000
    assert kept["ended"] > 1_700_000_000
    assert "has no box pod-a" in user.run("down", "--host", "runpod:pod-a", *key).must(2).err
    assert pods.destroyed == ["pod-a"]


@dataclass
class Pair:
    """RunPod with a cluster of two boxes, pod-a and pod-b, and a pod by itself."""

    user: User
    pods: SimulatedAccount
    boxes: dict[str, LoopbackBox]

    def down(self, box_id: str, *more: str, rc: int = 0) -> str:
        """Give one back; return what is said."""
        key = str(self.boxes["pod-a"].identity)
        words = ("down", "--host", f"runpod:{box_id}", "--identity", key, *more)
        return self.user.run(*words).must(rc).text

    def down_all(self, *more: str, rc: int = 0) -> str:
        """Give both back by one command; return what is said."""
        return self.begin_down_all(*more).end().must(rc).text

    def begin_down_all(self, *more: str) -> Running:
        """Begin to."""
        hosts = [word for box_id in self.boxes for word in ("--host", f"runpod:{box_id}")]
        key = str(self.boxes["pod-a"].identity)
        return self.user.begin("down", *hosts, "--identity", key, *more)


@pytest.fixture
def pair(user: User, there: LoopbackBox, accounts: dict[str, SimulatedAccount]) -> Iterator[Pair]:
    other = LoopbackBox()
    Path(other.home, ".boxstrap").mkdir()
    shutil.copy(f"{there.home}/.ssh/authorized_keys", f"{other.home}/.ssh/authorized_keys")
    pods = accounts["runpod"]
    pods.boxes = [pod(there), pod(other, "pod-b"), SimulatedBox("pod-c")]
    pods.boxes[0].cluster = pods.boxes[1].cluster = "c1"
    yield Pair(user, pods, {"pod-a": there, "pod-b": other})
    other.stop()


def test_down_destroys_a_cluster_only_when_all_its_boxes_are_named(pair: Pair) -> None:
    look = pair.down("pod-a", "--dry")
    assert "would be destroyed: runpod:pod-a, together with runpod:pod-b" in look
    alone = pair.down("pod-a", rc=9)
    assert "has not found that nothing would be lost on runpod:pod-b" in alone
    assert "boxstrap down --host runpod-pod-a --host runpod:pod-b" in alone
    assert "holds" not in alone  # before anything on it is looked at
    pair.down("pod-a", "--discard", rc=9)
    assert (pair.pods.destroyed, pair.pods.changed) == ([], [])
    said = pair.down_all()
    for each in ("pod-a", "pod-b"):
        assert f"runpod-{each} (runpod:{each}): destroyed, and no longer listed; about $" in said
    assert sorted(pair.pods.destroyed) == ["pod-a", "pod-b"]
    assert pair.pods.changed == ["DELETE /v2/clusters/c1"]
    known = pair.user.run("boxes", "--json").must(0).json()
    assert known["boxes"] == []
    assert {one["name"] for one in known["ended"]} == {"runpod-pod-a", "runpod-pod-b"}
    assert [*pair.user.state.rglob("boxes/*/known_hosts")] == []


def test_down_keeps_a_cluster_when_one_of_its_boxes_has_something_to_lose(pair: Pair) -> None:
    Path(pair.boxes["pod-b"].home, ".boxstrap").rmdir()
    said = pair.down_all(rc=9)
    assert "it was not destroyed; as far as is known here, this would be lost" in said
    assert "has not found that nothing would be lost on runpod:pod-b" in said
    assert pair.pods.changed == []
    pair.down_all("--discard")
    assert pair.pods.changed == ["DELETE /v2/clusters/c1"]


def test_down_keeps_a_cluster_with_an_unreachable_box_unless_discard_is_given(pair: Pair) -> None:
    pair.down("pod-a", rc=9)
    pair.boxes["pod-a"].kill_sshd()
    assert "has not found that nothing would be lost on" in pair.down_all(rc=7)
    pair.down("pod-a", "--discard", rc=9)
    assert pair.pods.changed == []
    # Where that of another one is not even taken for it, the first one stays, too.
    pair.boxes["pod-b"].new_host_key()
    pair.down_all("--discard", rc=7)
    assert pair.pods.changed == []
    pair.boxes["pod-b"].kill_sshd()
    assert "whatever is on it: nobody could look" in pair.down_all("--discard")
    assert pair.pods.changed == ["DELETE /v2/clusters/c1"]


def test_down_keeps_a_cluster_if_a_checked_box_got_new_work_meanwhile(pair: Pair) -> None:
    """Its first box is looked at once more: fetching what the others have may take hours."""
    slow = pair.boxes["pod-b"]
    Path(slow.home, ".ssh/rc").write_text(
        f"until [ -e {slow.home}/go ]; do sleep 0.1; done\n", encoding="utf-8"
    )
    going = pair.begin_down_all()
    with contextlib.closing(going):
        going.await_said("no repository's work")  # on pod-a
        Path(pair.boxes["pod-a"].home, ".boxstrap").rmdir()
        Path(slow.home, "go").touch()
        said = going.end().must(9).text
    assert "runpod-pod-a: boxstrap has no folder there" in said
    assert pair.pods.changed == []


def test_down_keeps_a_cluster_when_another_of_its_pods_appears_late(pair: Pair) -> None:
    late = pair.pods.boxes.pop(1)
    answer = pair.pods.answer

    def answering(method: str, target: str, body: bytes, **more: Any) -> tuple[int, object]:
        found = answer(method, target, body, **more)
        if target.startswith("/v2/pods?") and late not in pair.pods.boxes:
            pair.pods.boxes.append(late)
        return found

    pair.pods.answer = answering  # type: ignore[method-assign]
    assert "nothing would be lost on runpod:pod-b" in pair.down("pod-a", rc=9)
    assert pair.pods.changed == []


def test_down_of_a_cluster_box_and_an_unknown_box_is_refused_before_any_check(pair: Pair) -> None:
    hosts = ("--host", "runpod:pod-a", "--host", "vast:1")
    key = str(pair.boxes["pod-a"].identity)
    said = pair.user.run("down", *hosts, "--stop-runs", "--identity", key)
    assert said.rc != 0
    assert "holds" not in said.text
    assert pair.pods.changed == []


def test_down_of_a_cluster_also_ends_its_box_that_was_never_used(pair: Pair) -> None:
    mark = "boxstrap-0123456789ab"
    never = Rental(mark, "runpod", RentalState.RENTED, box_id="pod-b", price=0.5, cluster="c1")
    record = {**document(never), "v": 1}
    (pair.user.state / "rentals").mkdir(parents=True)
    (pair.user.state / f"rentals/{mark}.json").write_text(json.dumps(record))
    pair.down("pod-a")
    assert sorted(pair.pods.destroyed) == ["pod-a", "pod-b"]
    kept = json.loads((pair.user.state / f"rentals/{mark}.json").read_text())
    assert kept["state"] == "ended"


def test_down_with_the_id_of_a_runpod_cluster_without_pods_deletes_that_cluster(pair: Pair) -> None:
    pair.pods.boxes = pair.pods.boxes[2:]
    pair.pods.clusters = [SimulatedCluster("c7", "boxstrap-0123456789ab")]
    listed_too = pair.user.run("boxes", "--all").must(0).out
    assert "runpod:c7" in listed_too
    words = ("down", "--host", "runpod:c7", "--discard", "--identity")
    pair.user.run(*words, str(pair.boxes["pod-a"].identity)).must(0)
    assert pair.pods.changed == ["DELETE /v2/clusters/c7"]


def test_down_of_the_last_box_of_a_cluster_deletes_the_cluster(pair: Pair) -> None:
    del pair.pods.boxes[1]
    pair.down("pod-a")
    assert (pair.pods.destroyed, pair.pods.changed) == (["pod-a"], ["DELETE /v2/clusters/c1"])


@pytest.mark.parametrize("ready", [True, False])
def test_down_of_a_box_rented_from_here_notes_its_end_and_cost_in_the_rental_record(
    user: User, accounts: dict[str, SimulatedAccount], there: LoopbackBox, *, ready: bool
) -> None:
    """A box on which no setup ever succeeded holds no work."""
    Path(there.home, ".boxstrap").rmdir()
    accounts["runpod"].boxes = [pod(there)]
    mark = f"boxstrap-{'a' * 12}"
    made = Rental(mark, "runpod", asked=time.time() - 7200, box_id="pod-a", price=0.5, ready=ready)
    file = user.state / "rentals" / f"{mark}.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({**document(made), "state": "rented", "v": 1}))
    words = ("down", "--host", "runpod:pod-a", "--identity", str(there.identity))
    if ready:
        user.run(*words).must(9)
        words = (*words, "--discard")
    said = user.run(*words).must(0).out
    assert re.search(r"about \$1\.0\d since it was rented", said)
    kept = json.loads(file.read_text())
    assert (kept["state"], kept["spent"]) == ("ended", pytest.approx(1.0, abs=0.1))


def test_down_by_ssh_address_destroys_a_box_only_if_its_account_has_that_box_id_at_that_address(
    user: User, accounts: dict[str, SimulatedAccount], there: LoopbackBox
) -> None:
    pods = accounts["runpod"]
    pods.boxes = [pod(there), SimulatedBox("victim", address="10.9.8.7", port=2222)]
    host = ("--host", there.host_string, "--identity", str(there.identity))
    down = ("down", *host, "--profile", "runpod")
    # The box doesn't say which one it is.
    said = user.run(*down).must(0).out
    assert "it doesn't say which box of your account at RunPod it is" in said
    assert "end it at the Pods page" in user.run(*down).must(0).out or "end it where" in said
    # It names another box of the same account.
    there.tell(RUNPOD_POD_ID="victim")
    refused = user.run(*down, "--discard").must(9).err
    assert "has runpod:victim at 10.9.8.7:2222" in refused
    assert "it may be another box" in refused
    pods.boxes[1].state = "stopped"
    assert "has runpod:victim at no address, and" in user.run(*down, "--discard").must(9).err
    # It names a box that the account doesn't have.
    there.tell(RUNPOD_POD_ID="none")
    assert "has no box none, as it calls itself" in user.run(*down).must(0).out
    there.tell(RUNPOD_POD_ID="x;rm", CONTAINER_ID="victim")
    assert "doesn't say which box" in user.run(*down).must(0).out
    assert listed(pods) == ["pod-a", "victim"]
    # It gives its own id, but another known box has that.
    there.tell(RUNPOD_POD_ID="pod-a")
    user.run("status", "--host", "runpod:pod-a", *host[2:], "--new-box", "--name", "first")
    accounts["runpod"].boxes[0].port = there.port
    (record,) = user.state.glob("boxes/127*/box.json")
    other = record.parent.with_name("other")
    other.mkdir()
    text = json.loads(record.read_text()) | {
        "name": "other",
        "host_text": "runpod:pod-a",
        "address": "10.1.1.1",
    }
    (other / "box.json").write_text(json.dumps(text))
    assert "that is the box other" in user.run(*down).must(9).err
    (other / "box.json").unlink()
    other.rmdir()
    assert pods.destroyed == []
    done = user.run(*down).must(0)
    assert "(runpod:pod-a): destroyed, and no longer listed" in done.out
    assert (pods.destroyed, listed(pods)) == (["pod-a"], ["victim"])


def test_down_exits_with_2_without_an_api_key_and_leaves_a_box_of_no_provider_running(
    user: User, accounts: dict[str, SimulatedAccount], there: LoopbackBox
) -> None:
    accounts["runpod"].boxes = [pod(there)]
    key = ("--identity", str(there.identity))
    user.run("status", "--host", "runpod:pod-a", *key).must(0)
    del user.env["RUNPOD_API_KEY"]
    assert (
        "there is no key of your account" in user.run("down", "--host", "runpod:pod-a").must(2).err
    )
    host = ("--host", there.host_string, *key)
    user.run("boxes", "--forget", "runpod-pod-a").must(0)
    said = user.run("down", *host, "--profile", "ssh").must(0).out
    assert "nothing on it would be lost, and it keeps running" in said
    assert "if somebody bills you for it: end it where you rented it" in said
    assert "boxes --forget" in said


def test_down_of_an_unreachable_box_needs_discard_and_says_if_the_box_is_gone(
    user: User, accounts: dict[str, SimulatedAccount], there: LoopbackBox
) -> None:
    pods = accounts["runpod"]
    pods.boxes = [pod(there)]
    host = ("--host", "runpod:pod-a", "--identity", str(there.identity))
    user.run("status", *host).must(0)
    there.kill_sshd()
    pods.boxes[0].state = "stopped"
    refused = user.run("down", *host).must(3).err
    assert "it is stopped" in refused
    assert "down --host runpod-pod-a --discard" in refused
    user.run("--dry", "down", *host, "--discard").must(3)
    assert listed(pods) == ["pod-a"]
    gone = user.run("down", *host, "--discard", "--json").must(0).json()
    assert (gone["destroyed"], gone["was_gone"], listed(pods)) == (True, False, [])
    assert [one["kind"] for one in gone["discarded"]] == ["unseen"]
    # Gone already: somebody ended it on the provider's page.
    pods.boxes = [pod(there)]
    there.start_sshd()
    user.run("status", *host).must(0)
    there.kill_sshd()
    pods.boxes = []
    assert "was gone already" in user.run("down", *host).must(0).out
    assert pods.destroyed == ["pod-a"]


def test_two_downs_of_one_box_at_once_destroy_it_once_and_save_one_record_of_its_end(
    user: User, accounts: dict[str, SimulatedAccount], there: LoopbackBox
) -> None:
    pods = accounts["runpod"]
    pods.boxes = [pod(there), SimulatedBox("pod-b")]
    user.run("status", "--host", "runpod:pod-a", "--identity", str(there.identity)).must(0)
    both = [user.begin("down", "--host", "runpod:pod-a") for _ in range(2)]
    ends = [one.end() for one in both]
    assert {done.rc for done in ends} <= {0, 2}, [done.text for done in ends]
    assert 0 in {done.rc for done in ends}
    assert (pods.destroyed, listed(pods)) == (["pod-a"], ["pod-b"])
    assert len([*user.state.glob("ended/*/box.json")]) == 1
    assert not [*user.state.glob("boxes/*")]


def test_down_says_that_another_command_gave_the_box_back_since_the_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may answer for some seconds after its account has destroyed it."""
    known = KnownBox("pod", "runpod:pod-a", created=5.0)
    box: Any = SimpleNamespace(is_local=False, known=known, name="pod")

    def gone(_: object) -> None:
        raise NotSafeError("your account has no box pod-a, and something answers where it was.")

    monkeypatch.setattr(teardown, "find_own", gone)
    save_box(known)
    with pytest.raises(NotSafeError, match="something answers"):
        teardown._find_own(box)
    # Another command has asked for its end, and then forgets it.
    save_box(replace(known, ended=9.0), is_new=False)
    with pytest.raises(UsageError, match="another command has given it back"):
        teardown._find_own(box)
    retire(known)
    with pytest.raises(UsageError, match="another command has given it back"):
        teardown._find_own(box)


@pytest.mark.usefixtures("hurried")
def test_a_second_down_destroys_a_box_that_was_safe_before_it_became_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was safe when its end was requested, and nobody has logged in since."""
    said: list[dict[str, Any]] = []
    screen: Any = SimpleNamespace(
        say=lambda _: None, warn=lambda _: None, result=lambda data, *_: said.append(document(data))
    )
    unreachable = UnreachableError("nothing answers")
    wish = TeardownOptions(1)
    with simulated("runpod", used_by=monkeypatch) as account:
        account.boxes = [SimulatedBox("pod-a")]
        known = KnownBox("pod", "runpod:pod-a", created=5.0, seen=time.time())
        save_box(known)
        with monkeypatch.context() as late:
            late.setattr(account, "destroy", lambda _: True)
            box = PROVIDERS["runpod"](ApiKey(KEY, "x")).box("pod-a")
            assert box
            client = PROVIDERS["runpod"](ApiKey(KEY, "x"))
            with pytest.raises(UnreachableError, match="it is unknown whether"):
                teardown.end_rental(OwnBox(client, box), known, screen, [])
        (leaving,) = all_boxes()
        # If somebody logged in since, or it is long ago, it is looked at again.
        for other in (replace(leaving, seen=time.time() + 1), replace(leaving, ended=9.0)):
            with pytest.raises(UnreachableError, match="nothing answers"):
                teardown._end_unseen(BoxOptions(), other, screen, wish, unreachable)
        assert listed(account) == ["pod-a"]
        teardown._end_unseen(BoxOptions(), leaving, screen, wish, unreachable)
        assert account.destroyed == ["pod-a"]
        # Another command read its record right before it was put aside.
        account.boxes = [SimulatedBox("pod-a")]
        monkeypatch.setattr(teardown, "has_record", lambda _: True)
        teardown.end_rental(OwnBox(client, box), leaving, screen, [])
    assert (said[-1]["destroyed"], said[-1]["discarded"]) == (True, [])
    assert retire(leaving) is None  # already put aside, as if by another command
    assert all_boxes() == []


def test_down_discard_destroys_a_box_never_logged_in_to_only_by_its_exact_id(
    user: User, accounts: dict[str, SimulatedAccount]
) -> None:
    """A box in `boxes --all` that this machine never logged in to, and can't log in to."""
    pods, vast = accounts["runpod"], accounts["vast"]
    pods.boxes = [SimulatedBox("pod-a", port=1, label="old\x1b[2J"), SimulatedBox("pod-ab")]
    vast.boxes = [SimulatedBox("77", port=1), SimulatedBox("78", state="stopped")]
    refused = user.run("down", "--host", "runpod:pod-a").must(3).err
    assert "down --host runpod:pod-a --discard" in refused
    user.run("--dry", "down", "--host", "runpod:pod-a", "--discard").must(3)
    # Only a box that this account lists, by its full id.
    for host in ("runpod:77", "runpod:pod-", "runpod:POD-A", "vast:7", "vast:079"):
        assert "has no box" in user.run("down", "--host", host, "--discard").must(2).err
    assert pods.changed == vast.changed == []
    done = user.run("down", "--host", "runpod:pod-a", "--discard").must(0)
    assert "runpod:pod-a (old" in done.err
    assert "this machine never logged in to it" in done.err
    assert "\x1b" not in done.text
    assert "destroyed, and no longer listed" in done.out
    told = user.run("down", "--host", "vast:78", "--discard", "--json").must(0).json()
    assert (told["destroyed"], [one["kind"] for one in told["discarded"]]) == (True, ["unseen"])
    assert (pods.destroyed, listed(pods)) == (["pod-a"], ["pod-ab"])
    assert (vast.destroyed, listed(vast)) == (["78"], ["77"])
    assert not [*user.state.glob("boxes/*")]


def test_down_on_a_terminal_asks_before_it_destroys_a_box_never_logged_in_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    screen: Any = SimpleNamespace(say=asked.append, warn=asked.append)
    unseen = teardown.Loss("unseen", "vast:7", "whatever is on it")
    box = RentedBox("vast", "7", "\x1b[2Jold", RentedState.RUNNING)
    for answer in (True, False):
        prompt = SimpleNamespace(
            has_terminal=lambda: True, confirm=lambda what, yes=answer: asked.append(what) or yes
        )
        monkeypatch.setattr(teardown, "Prompt", lambda _, made=prompt: made)
        with contextlib.nullcontext() if answer else pytest.raises(UsageError, match="nothing was"):
            teardown._confirm_unmet(box, unseen, screen)
    assert asked[-1] == "vast:7: whatever is on it. Destroy it?"
    assert "\x1b" not in "".join(asked)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which waiting takes no time."""
    now = [0.0]
    monkeypatch.setattr(teardown.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        teardown.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds)
    )


@pytest.mark.sampled
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fault", FAULTS)
def test_down_never_reports_a_box_as_destroyed_that_is_not_whichever_api_request_fails(
    fault: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault at each of the first calls: only this box may go, and no success is false."""
    marks = ("boxstrap-000000000077", "boxstrap-000000000078")
    one, other = map(azure_id, marks) if name == "azure" else ("77", "78")
    with simulated(name, used_by=monkeypatch) as account:
        for at in range(3):
            account.asked.clear()
            account.boxes = [SimulatedBox(one, label=marks[0]), SimulatedBox(other, label=marks[1])]
            account.faults_at = {at: fault}
            client = PROVIDERS[name](ApiKey(KEY, "the test"))
            with contextlib.suppress(UnreachableError):
                teardown.destroy(client, one, lambda _: None)
                assert listed(account) == [other], (at, fault)
            assert len(account.asked) > at, "the fault came"
            # Whatever happened, the same command again ends the box.
            account.faults_at = {}
            teardown.destroy(client, one, lambda _: None)
            assert listed(account) == [other]
        assert not [change for change in account.changed if "78" in change]


def test_down_does_not_report_a_box_as_gone_that_its_account_still_lists(
    user: User, accounts: dict[str, SimulatedAccount], there: LoopbackBox
) -> None:
    """An account may briefly not find a box by its id: the box's record must stay."""
    pods = accounts["runpod"]
    pods.boxes = [pod(there)]
    key = ("--identity", str(there.identity))
    user.run("status", "--host", "runpod:pod-a", *key).must(0)
    there.kill_sshd()
    none = {"title": "Not Found", "status": 404, "detail": "no such pod"}
    pods.faults_at = {len(pods.asked) + at: (404, none) for at in (0, 3, 6)}  # its list has it
    assert "--discard" in user.run("down", "--host", "runpod:pod-a", *key).must(3).err
    assert [*user.state.glob("boxes/*")]
    assert listed(pods) == ["pod-a"]


def test_down_refuses_when_the_account_answers_with_another_box() -> None:
    other = RentedBox("runpod", "pod-b", "", RentedState.RUNNING, address="1.2.3.4", port=22)
    account: Any = SimpleNamespace(name="runpod", title="RunPod", box=lambda _: other)
    here = login_to(KnownBox("box", "runpod:pod-a"), Endpoint("1.2.3.4", "1.2.3.4", "root", 22))
    assert ownership._checked(account, "pod-b", here) == other
    with pytest.raises(NotSafeError, match="has no box pod-a"):
        ownership._checked(account, "pod-a", here)


def test_down_refuses_a_login_that_belongs_to_another_hugging_face_job() -> None:
    job = RentedBox("hf", "a1", "", RentedState.RUNNING, "", 1, "ssh.hf.jobs", 22, "a1")
    account: Any = SimpleNamespace(name="hf", title="Hugging Face Jobs", box=lambda _: job)
    for user, is_it in (("a1", True), ("b2", False)):
        end = Endpoint("ssh.hf.jobs", "ssh.hf.jobs", user, 22)
        with contextlib.nullcontext() if is_it else pytest.raises(NotSafeError, match="another"):
            assert ownership._checked(account, "a1", login_to(KnownBox("x", "hf:a1"), end)) == job
