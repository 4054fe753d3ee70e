"""`up` without its setup: which offer is rented, what is given back, and what is never done."""

import dataclasses
import threading
import time

import pytest

from bootstrap.errors import (
    NoOfferError,
    ReturnBoxError,
    StepFailedError,
    UnreachableError,
    UsageError,
)
from bootstrap.link import BoxOptions, KnownBox, record
from bootstrap.providers import PROVIDERS, CloudAccount, RentOrder
from bootstrap.renting import RentalState, rental, teardown
from bootstrap.renting.rent import _all_refused
from bootstrap.renting.rental_check import decide
from tests.providers.accounts import KEY, STARTED, SimulatedBox, SimulatedOffer, simulated
from tests.providers.renting_world import CREATES, RentingWorld
from tests.providers.seeded_run import HeardScreen
from tests.waiting import PATIENCE_S

PROVIDERS_THAT_RENT = tuple(CREATES)
pytestmark = pytest.mark.sampled


@pytest.mark.parametrize("world", PROVIDERS_THAT_RENT, indirect=True)
def test_up_rents_the_cheapest_fitting_offer_and_uses_that_box_again(world: RentingWorld) -> None:
    began = int(time.time())  # an account's times are whole seconds
    box, host = world.up()
    assert world.set_up == [host] == [box.host]
    assert (box.state, box.ready) == (RentalState.RENTED, True)
    assert world.ours[0].price == min(one.price for one in world.simulation.offers)
    assert world.ours[0].label == box.mark
    # `asked` is by this machine's clock, here simulated; `began` is by the account's.
    assert box.asked == pytest.approx(STARTED, abs=60)
    assert began <= box.began <= time.time()
    # Once more: the same box. With `another`: another one.
    assert world.up()[0].host == host
    world.most_at_once = 0
    assert world.up(another=True)[0].host != host
    world.most_at_once = 0
    assert len(world.simulation.rented) == 2
    world.simulation.boxes = [one for one in world.simulation.boxes if one.id in ("71", "72")]
    assert world.up()[0].host not in {host, ""}
    assert [each.state.value for each in rental.all_rentals()].count("ended") == 2


def test_up_records_a_rental_before_it_sends_the_order_to_the_provider(world: RentingWorld) -> None:
    written = list[str]()
    rent = world.simulation.rent

    def seen(*asked: object) -> object:
        written.extend(each.mark for each in rental.all_rentals())
        return rent(*asked)  # type: ignore[arg-type]

    world.simulation.rent = seen  # type: ignore[method-assign,assignment]
    box, _ = world.up()
    assert written == [box.mark]


@pytest.mark.parametrize("fate", ["stuck", "dies"])
@pytest.mark.parametrize("world", PROVIDERS_THAT_RENT, indirect=True)
def test_up_gives_a_box_that_never_comes_up_back_and_rents_the_next_offer(
    world: RentingWorld, fate: str
) -> None:
    world.simulation.offers[0].fate = fate
    box, _ = world.up()
    first, second = world.simulation.rented
    assert world.simulation.destroyed == [first]
    assert box.box_id == second
    (ended,) = [each for each in rental.all_rentals() if each.state is RentalState.ENDED]
    # Paperspace's was never started.
    assert (ended.spent > 0) == (world.simulation.provider != "paperspace")
    assert any(f"{first} is to be given back" in line for line in world.heard.lines)


def test_up_gives_up_after_three_unreachable_boxes_on_three_machines(world: RentingWorld) -> None:
    offers = world.simulation.offers
    for offer in offers:
        offer.fate = "stuck"
    offers.insert(1, SimulatedOffer("20", machine="10", price=0.31, fate="stuck"))
    with pytest.raises(NoOfferError) as refused:
        world.up(limit=100.0, loading_s=300.0)
    assert refused.value.what.count("can't be reached after 5 minutes") == 3
    assert world.simulation.destroyed == world.simulation.rented == ["9001", "9002", "9003"]
    machines = {each.machine for each in rental.all_rentals()}
    assert machines == {"10", "11", "12"}


def test_up_destroys_a_box_that_fails_its_check_only_if_this_same_up_rented_it(
    world: RentingWorld,
) -> None:
    world.ends = [ReturnBoxError]
    box, _ = world.up()
    assert world.simulation.destroyed == ["9001"]
    world.ends = [ReturnBoxError]
    with pytest.raises(ReturnBoxError):
        world.up()
    assert world.simulation.destroyed == ["9001"]
    assert [one.id for one in world.ours] == [box.box_id]


def test_a_box_whose_destruction_by_up_got_no_answer_is_listed_until_down_destroys_that_box(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teardown, "PATIENCE_S", 0.2)
    world.simulation.address = ("127.0.0.1", 1, "root")

    def refuse(host: str) -> str:
        (told,) = rental.unfinished(STARTED + 600)
        assert told.startswith(f"{host} was ordered ")
        world.simulation.is_edgy = True
        raise ReturnBoxError("it has no GPU")

    with pytest.raises(UnreachableError, match="it has no GPU") as error:
        world.renter().run(refuse)
    assert error.value.what.startswith("it was to be given back (it has no GPU), and it is unknown")
    assert "Once its account answers: boxstrap down --host vast:9001;" in error.value.hint
    assert world.heard.lines[-1] == "rented: vast:9001: perhaps not given back, it may cost money"
    here = rental.rented_here({}, STARTED + 600)  # the account doesn't answer
    assert [each.host for each in here.unknown] == ["vast:9001"]
    assert "its account can't be asked whether it is still there" in here.lines()[0]
    world.simulation.is_edgy = False
    assert not rental.rented_here({"vast": []}, STARTED + 600).unknown
    # Nobody can log in to it, and it never held anything: no --discard is needed.
    teardown.tear_down(BoxOptions(host="vast:9001"), HeardScreen(), teardown.TeardownOptions(1))
    assert world.simulation.destroyed == ["9001"]
    assert [each.state for each in rental.all_rentals()] == [RentalState.ENDED]


def test_up_never_gives_back_a_box_that_somebody_logged_in_to(world: RentingWorld) -> None:
    world.ends = [StepFailedError]
    with pytest.raises(StepFailedError):
        world.up()
    assert any("goes on and costs $0.31 an hour" in line for line in world.heard.lines)
    world.ours[0].state = "offline"
    record.save_box(KnownBox("vast-9001", "vast:9001", seen=1.0))
    with pytest.raises(UnreachableError, match="broken") as error:
        world.up()
    assert "may hold results" in error.value.hint
    assert world.simulation.destroyed == []
    # Nobody ever logged in: nothing can be lost.
    record.save_box(KnownBox("vast-9001", "vast:9001"))
    world.up()
    assert world.simulation.destroyed == ["9001"]


def test_the_next_up_rents_on_no_machine_whose_box_never_came_up(world: RentingWorld) -> None:
    world.simulation.offers = [SimulatedOffer(str(n), machine="5", fate="stuck") for n in (1, 2)]
    world.interrupt_at = world.simulation.clock.now + 10
    with pytest.raises(KeyboardInterrupt):
        world.up()
    with pytest.raises(NoOfferError, match="none of the rented boxes is usable"):
        world.up()
    assert world.simulation.rented == world.simulation.destroyed == ["9001"]


def test_up_stops_trying_other_boxes_once_the_limit_of_money_is_spent(world: RentingWorld) -> None:
    for offer in world.simulation.offers:
        offer.fate = "stuck"
    with pytest.raises(NoOfferError, match="none of the rented boxes is usable"):
        world.up(limit=0.1)
    # 15 minutes of the first cost 8 cents; the second had what was left.
    assert len(world.simulation.rented) == 2
    assert sum(each.spent for each in rental.all_rentals()) == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("fault", ["500 after", "cut after", "nonsense after"])
@pytest.mark.parametrize("world", PROVIDERS_THAT_RENT, indirect=True)
def test_up_finds_the_box_of_a_rental_without_answer_by_its_name_and_rents_no_second(
    world: RentingWorld, fault: str
) -> None:
    world.simulation.fault_on = {CREATES[world.simulation.provider]: fault}
    box, _ = world.up()
    assert len(world.simulation.rented) == 1
    assert [one.id for one in world.ours] == [box.box_id]
    assert any("Looking for boxstrap-" in line for line in world.heard.lines)


def test_up_rents_nothing_while_it_is_unknown_whether_an_earlier_rental_exists(
    world: RentingWorld,
) -> None:
    world.simulation.fault_on = {CREATES["vast"]: "cut"}
    with pytest.raises(NoOfferError, match="it is unknown whether a box was rented"):
        world.up()
    assert world.simulation.changed[-1].startswith("PUT /api/v0/asks/")
    (asked,) = rental.all_rentals()
    assert asked.state is RentalState.ASKED
    for changed in ({}, {"another": True}):
        with pytest.raises(NoOfferError, match=f"perhaps rented as {asked.mark}"):
            world.up(**changed)
    assert world.simulation.rented == []
    world.simulation.clock.sleep(rental.NEVER_S)
    world.up()
    assert len(world.simulation.rented) == 1
    assert len(rental.all_rentals()) == 1


def test_a_box_that_its_account_lists_late_is_used_by_the_next_up(world: RentingWorld) -> None:
    world.simulation.fault_on = {CREATES["vast"]: "cut"}
    with pytest.raises(NoOfferError):
        world.up()
    (asked,) = rental.all_rentals()
    world.simulation.rent(world.simulation.offers[0], asked.mark, {})
    box, _ = world.up()
    assert (box.mark, box.box_id) == (asked.mark, "9001")
    assert world.simulation.rented == ["9001"]


@pytest.mark.parametrize("after_s", [0, 30, 55])
def test_ctrl_c_in_up_leaves_a_box_that_the_next_up_uses(world: RentingWorld, after_s: int) -> None:
    world.interrupt_at = world.simulation.clock.now + after_s
    with pytest.raises(KeyboardInterrupt):
        world.up()
    world.check()
    assert len(world.ours) == 1
    box, _ = world.up()
    assert world.simulation.rented == [box.box_id]


def test_up_rents_nothing_while_it_can_not_give_back_an_earlier_box(world: RentingWorld) -> None:
    world.simulation.offers[0].fate = "dies"
    destroy = world.simulation.destroy
    world.simulation.destroy = lambda box_id: True  # type: ignore[method-assign]
    with pytest.raises(UnreachableError, match="9001"):
        world.up()
    assert [each.state for each in rental.all_rentals()] == [RentalState.LEAVING]
    assert len(world.simulation.rented) == 1
    world.simulation.destroy = destroy  # type: ignore[method-assign]
    world.up()
    assert world.simulation.destroyed == ["9001"]
    assert len(world.ours) == 1


def test_up_skips_offers_that_are_gone_and_stops_without_credit(world: RentingWorld) -> None:
    world.simulation.offers[0].fate = "failed bid without contract"
    world.simulation.offers[1].fate = "failed bid"
    box, _ = world.up()
    assert box.machine == "12"
    assert world.simulation.destroyed == ["9001"]
    world.down(box)
    world.simulation.offers = [SimulatedOffer(str(n), fate="no money") for n in (1, 2)]
    before = len(world.simulation.changed)
    world.simulation.credit = 0.07
    with pytest.raises(NoOfferError, match=r"your balance doesn't cover it \(\$0\.07\d? left\)"):
        world.up()
    assert sum("/asks/" in each for each in world.simulation.changed[before:]) == 1
    world.simulation.fault_on = {"GET /api/v0/users/": "nonsense after"}
    with pytest.raises(NoOfferError, match="your balance doesn't cover it"):
        world.up()
    assert [each for each in rental.all_rentals() if each.state is not RentalState.ENDED] == []


@pytest.mark.parametrize(
    ("may_pass", "advice", "is_final"),
    [
        ((True, False), "run the same command again", False),
        ((None, False), "may find one later", False),
        ((False, False), "will be refused again", True),
    ],
)
def test_up_advises_to_try_again_later_only_if_a_refusal_of_an_offer_is_temporary(
    may_pass: tuple[bool | None, ...], advice: str, is_final: bool
) -> None:
    refusals = [NoOfferError("no") for _ in may_pass]
    for one, each in zip(refusals, may_pass, strict=True):
        one.may_pass = each
    error = _all_refused("refused: ", refusals)
    assert advice in error.hint
    assert error.is_final == is_final


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_no_provider_has_a_refusal_marked_as_both_final_and_temporary(
    provider: type[CloudAccount],
) -> None:
    """What is final says why, or the API's own words do; what passes is never final."""
    assert any(each.may_pass for each in provider.refusals.values())
    for word, known in provider.refusals.items():
        assert not (known.is_final and known.may_pass), word
        assert not known.means.endswith("."), word


def test_up_without_max_price_asks_before_each_rental_and_rents_nothing_after_a_no(
    world: RentingWorld,
) -> None:
    for offer in world.simulation.offers[:2]:
        offer.fate = "dies"
    world.up(order=RentOrder())
    assert [round(offer.price, 2) for offer in world.asked] == [0.31, 0.41, 0.51]
    world.down(rental.all_rentals()[0])
    renter = world.renter(order=RentOrder())

    def no(_: object) -> None:
        raise UsageError("nothing was rented.")

    renter._confirm = no
    with pytest.raises(UsageError):
        renter.run(str)
    assert world.ours == []


def test_up_does_not_start_a_box_above_max_price_and_tells_its_cost(world: RentingWorld) -> None:
    box, _ = world.up()
    world.ours[0].state = "stopped"
    with pytest.raises(UnreachableError) as refused:
        world.up(order=RentOrder(max_price=0.1))
    assert refused.value.what.startswith("it is stopped, and costs $0.0030 an hour as it is")
    for choice in (
        "starts it at a terminal, or within --max-price",
        "--another",
        f"down --host {box.host}",
    ):
        assert choice in refused.value.hint
    assert world.simulation.destroyed == []
    world.ours[0].state = "running"
    assert world.up()[0].host == box.host


@pytest.mark.parametrize(
    "world", [each for each in PROVIDERS_THAT_RENT if each not in {"gcp", "azure"}], indirect=True
)
def test_up_gives_a_box_back_at_once_that_is_billed_above_max_price(world: RentingWorld) -> None:
    first, second = world.simulation.offers[:2]
    first.billed, second.billed, second.price = 0.71, 0.55, 0.5
    first.fate = "stuck"  # it isn't waited for
    box, _ = world.up(order=RentOrder(max_price=0.6), limit=5.0)
    assert box.box_id == "9002"
    assert world.simulation.destroyed == ["9001"]
    assert world.simulation.clock.now - STARTED < 180
    said = "\n".join(world.heard.lines)
    assert "it costs $0.71 an hour, and $0.60 was agreed to" in said
    # A higher price within the limit is reported, and counts.
    assert "9002 costs $0.55 an hour, not $0.5" in said
    assert rental.of_host(box.host) == box
    assert box.price == 0.55
    # A price that rises while the box is in use is reported, and ends nothing.
    world.ours[0].price = 0.9
    assert world.up(order=RentOrder(max_price=0.6))[0].box_id == "9002"
    assert "costs $0.90 an hour, not $0.55" in world.heard.lines[-1]
    assert world.simulation.destroyed == ["9001"]


def test_up_rents_nothing_dearer_than_was_agreed_to_on_a_terminal(world: RentingWorld) -> None:
    for offer in world.simulation.offers:
        offer.billed = offer.price + 0.03
    with pytest.raises(NoOfferError, match="was agreed to"):
        world.up(order=RentOrder(), limit=5.0)
    assert len(world.asked) == len(world.simulation.destroyed) == 3
    assert world.ours == []


def test_up_says_for_how_many_hours_a_low_balance_lasts(world: RentingWorld) -> None:
    world.simulation.credit = 0.62
    world.up()
    assert "Vast.ai: $0.62 left, about 2.0 hours of this box" in world.heard.lines


def test_two_up_commands_at_once_rent_one_box(world: RentingWorld) -> None:
    ended = list[str]()
    pair = [threading.Thread(target=lambda: ended.append(world.up()[0].host)) for _ in range(2)]
    for one in pair:
        one.start()
    for one in pair:
        one.join(PATIENCE_S)
    assert ended == ["vast:9001"] * 2
    assert world.simulation.rented == ["9001"]


def test_two_up_commands_that_wait_for_the_same_box_that_never_starts_rent_one_replacement(
    world: RentingWorld,
) -> None:
    """The first gives it back and rents another; the second notices, and rents nothing."""
    world.simulation.offers[0].fate = "stuck"
    sleep, others = world.sleep, list[str]()

    def meanwhile(seconds: float) -> None:
        sleep(seconds)
        if not others and world.simulation.clock.now - rental.all_rentals()[0].asked > 800:
            others.append("")
            others[0] = world.up()[0].host

    world.sleep = meanwhile  # type: ignore[method-assign]
    with pytest.raises(UnreachableError, match="given back meanwhile"):
        world.up()
    assert others == ["vast:9002"]
    assert [box.id for box in world.ours] == ["9002"]


def test_the_rental_record_of_a_box_that_down_destroyed_during_up_says_ended(
    world: RentingWorld,
) -> None:
    """`down` in another terminal, during a setup."""

    def ended(host: str) -> str:
        world.down(rental.all_rentals()[0])
        return host

    world.renter().run(ended)
    assert [each.state for each in rental.all_rentals()] == [RentalState.ENDED]


def test_up_does_not_say_that_a_box_goes_on_and_costs_if_down_destroyed_it_meanwhile(
    world: RentingWorld,
) -> None:
    def ended_meanwhile(host: str) -> str:
        world.down(next(each for each in rental.all_rentals() if each.host == host))
        raise UnreachableError("the connection was lost")

    with pytest.raises(UnreachableError):
        world.renter().run(ended_meanwhile)
    assert not any("goes on and costs" in line for line in world.heard.lines)
    # If `down` is killed before it notes a box's end, the next `up` notes it, and rents.
    box, _ = world.up()
    rental.note_leaving(box.host, time.time())
    world.simulation.destroy(box.box_id)
    assert world.up()[0].box_id == "9003"
    assert [each.state.value for each in rental.all_rentals()].count("ended") == 2


def test_up_uses_a_box_again_that_it_failed_to_destroy_long_ago_and_does_not_destroy_it(
    world: RentingWorld,
) -> None:
    """Its end could not be requested; somebody may have used it since by their own ssh."""
    box, _ = world.up()
    rental.note_leaving(box.host, world.simulation.clock.now)
    world.sleep(rental.LEAVES_S + 1)
    assert world.up()[0].host == box.host
    assert any("somebody may have come since" in line for line in world.heard.lines)
    assert world.simulation.destroyed == []


def test_up_neither_uses_nor_destroys_a_box_whose_id_the_provider_gave_to_another_rental(
    world: RentingWorld,
) -> None:
    box, _ = world.up()
    world.ours[0].label = rental.new_mark()
    with pytest.raises(UnreachableError, match="gave that id to another rental"):
        world.up()
    now = world.simulation.clock.now
    rental.save_rental(dataclasses.replace(box, state=RentalState.LEAVING, ended=now))
    another = dataclasses.replace(box, mark=world.ours[0].label, repo_key="elsewhere", asked=1.0)
    rental.save_rental(another)
    world.most_at_once = 0
    assert world.up()[0].box_id == "9002"
    assert world.simulation.destroyed == []
    world.most_at_once = 0


def test_up_waits_for_a_rented_box_that_its_account_does_not_list_yet(world: RentingWorld) -> None:
    world.interrupt_at = world.simulation.clock.now + 1
    with pytest.raises(KeyboardInterrupt):
        world.up()
    (box,) = world.ours
    world.simulation.boxes.remove(box)
    world.sleep(10)
    sleep = world.sleep

    def listed_now(seconds: float) -> None:
        if box not in world.simulation.boxes:
            world.simulation.boxes.append(box)
        sleep(seconds)

    world.sleep = listed_now  # type: ignore[method-assign]
    assert world.up()[0].box_id == box.id
    assert world.simulation.rented == [box.id]


def test_up_rents_no_second_box_when_the_api_key_of_the_account_of_the_first_is_missing(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.up()
    with simulated("runpod", used_by=monkeypatch) as other:
        other.offers = [SimulatedOffer("10", price=0.3)]
        renter = world.renter()
        renter._accounts = {"runpod": world.account}
        with pytest.raises(UsageError, match="vast:9001 is already rented for this repository"):
            renter.run(str)
        monkeypatch.delenv("VAST_API_KEY")
        with pytest.raises(NoOfferError, match="no key to look"):
            renter.run(str)
        assert other.rented == []


def test_up_keeps_a_box_it_was_to_give_back_if_somebody_used_the_box_since(
    world: RentingWorld,
) -> None:
    left = rental.Rental("boxstrap-0123456789ab", "vast", RentalState.LEAVING, box_id="8000")
    world.simulation.boxes.append(SimulatedBox("8000", label=left.mark))
    rental.save_rental(dataclasses.replace(left, ended=100.0, repo_key="other"))
    record.save_box(KnownBox("vast-8000", "vast:8000", seen=200.0))
    world.up()
    assert "8000" not in world.simulation.destroyed
    assert any("vast:8000 was to be given back, and somebody" in one for one in world.heard.lines)
    assert {each.host for each in rental.all_rentals() if each.ready} >= {"vast:8000"}
    world.most_at_once = 0  # the box of another repository counts as ours too


def test_an_unreadable_rental_record_is_not_deleted_before_every_account_listed_its_boxes(
    world: RentingWorld,
) -> None:
    lost = rental.Rental("boxstrap-0123456789ab", "", asked=0.0)
    rental.save_rental(lost)
    rental.rented_here({"runpod": []}, rental.NEVER_S + 1)
    assert [each.mark for each in rental.all_rentals()] == [lost.mark]
    world.simulation.boxes.append(SimulatedBox("8000", label=lost.mark))
    decide(lost, {}, rental.NEVER_S + 1, print)
    assert [each.host for each in rental.all_rentals()] == ["vast:8000"]


def test_an_unreadable_rental_record_is_restored_from_the_rented_box(world: RentingWorld) -> None:
    box, _ = world.up()
    file = rental._folder() / f"{box.mark}.json"
    text = file.read_text()
    of_nobody, unknown = text.replace('"vast"', "7"), text.replace('"rented"', '"sold"')
    assert text not in (of_nobody, unknown)
    for broken in ("", "[]", '{"mark": 3}', of_nobody, unknown):
        file.write_text(broken)
        (lost,) = rental.all_rentals()
        assert (lost.mark, lost.state) == (box.mark, RentalState.ASKED)
    world.renter()._settle()
    (found,) = rental.all_rentals()
    assert (found.host, found.state) == (box.host, RentalState.RENTED)


def test_rental_records_do_not_contain_the_api_key(world: RentingWorld) -> None:
    world.up()
    texts = [file.read_text() for file in rental._folder().iterdir()]
    assert len(texts) == 2
    assert KEY not in "".join(texts)
