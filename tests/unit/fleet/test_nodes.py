"""What is judged of nodes before they train together, and what a stranger's box may say."""

import json
import threading

import pytest

from bootstrap.errors import BoxLacksError, BoxstrapError, ReturnBoxError, StepFailedError
from bootstrap.fleet.nodes import (
    NOT_AN_ANSWER,
    Meeting,
    Way,
    announced,
    differences,
    judge,
    read_answer,
    wrong_number,
)

NAMES = [f"gpu-{number}" for number in range(8)]
FAST, SLOW = Way(0.0, 0.1, 9000.0), Way(0.0, 0.2, 900.0)


def node(*, packages: tuple[str, ...] = ("torch-2.6.0",), **same: str) -> dict[str, object]:
    """Return the facts of a node."""
    facts = {"commit": "1a2b", "torch": "2.6.0", "environment": str(hash(packages)), **same}
    return {"same": facts, "packages": [*packages], "addresses": [["10.0.0.1", 9]], "public": []}


def all_reach(count: int = 8, way: Way = FAST) -> list[dict[int, dict[str, Way]]]:
    """Return links of nodes that reach each other by one address each."""
    ranks = range(count)
    return [{to: {f"10.0.0.{to}": way} for to in ranks if to != own} for own in ranks]


def test_an_error_on_unequal_nodes_names_the_odd_nodes_value_and_that_of_the_others() -> None:
    odd = node(packages=("torch-2.5.1", "numpy-2"), torch="2.5.1")
    facts = {name: node() for name in NAMES}
    assert differences(facts) == []
    assert differences({**facts, "gpu-3": odd}) == [
        "gpu-3: torch 2.5.1 (the others: 2.6.0)",
        "gpu-3: environment numpy-2, torch-2.5.1 (the others: torch-2.6.0)",
    ]


def test_a_node_with_public_addresses_only_is_refused_with_the_reason() -> None:
    public = {**node(), "addresses": [], "public": ["203.0.113.7"]}
    (said,) = differences({"a": node(), "b": public})
    assert said.startswith(
        "b has no private address (only 203.0.113.7): torch's c10d knows no auth"
    )


def test_an_unreachable_pair_among_eight_nodes_is_named_in_the_error() -> None:
    links = all_reach()
    links[5][2] = {}
    with pytest.raises(BoxLacksError, match=r"^gpu-5 does not reach gpu-2\.\n"):
        judge(NAMES, links)


def test_nodes_use_the_fastest_address_that_all_other_nodes_reach() -> None:
    links = all_reach(3)
    for own, link in enumerate(links):
        for to, ways in link.items():
            ways[f"192.168.0.{to}"] = SLOW if (own, to) == (0, 1) else Way(0.0, 0.1, 90000.0)
            ways["172.17.0.1"] = Way(0.0, 0.1, 99999.0)
            if (own, to) in ((2, 0), (2, 1), (0, 2)):  # a bridge that only some reach
                del ways["172.17.0.1"]
    found = judge(NAMES[:3], links)
    assert found.addresses == ["192.168.0.0", "10.0.0.1", "192.168.0.2"]
    assert found.sentence(NAMES).startswith("8 reach each other: 9.0 Gbit/s at the least")
    assert found.slow(NAMES[:3]) == ""


def test_no_node_is_addressed_by_an_address_that_only_other_nodes_announced_for_it() -> None:
    links = all_reach(3)
    for own in (0, 1):  # all who are asked say it
        links[own][2]["203.0.113.7"] = links[own][2]["10.9.9.9"] = Way(0.0, 0.1, 99999.0)
        links[own][9] = {"10.0.0.9": FAST}
    peers = [[[f"10.0.0.{rank}", 9], ["10.9.9.9", 9]][: 1 + (rank == 0)] for rank in range(3)]
    found = judge(NAMES[:3], announced(links, peers))
    assert found.addresses == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]


def test_a_node_whose_network_is_much_slower_in_both_directions_gets_a_warning() -> None:
    links = all_reach(3)
    links[2] = {to: {f"10.0.0.{to}": SLOW} for to in (0, 1)}
    assert judge(NAMES[:3], links).slow(NAMES[:3]) == ""  # only in one direction
    for own in (0, 1):
        links[own][2] = {"10.0.0.2": SLOW}
    said = judge(NAMES[:3], links).slow(NAMES[:3])
    assert said.startswith("gpu-2 has 900 Mbit/s to the others at the most, which have up to 9000")


def test_a_node_with_a_clock_a_day_behind_is_refused_by_name() -> None:
    links = all_reach(3)
    for own in (0, 1):
        links[own][2] = {"10.0.0.2": Way(-86400.0, 0.1, 9000.0)}
    links[2] = {to: {f"10.0.0.{to}": Way(86400.0, 0.1, 9000.0)} for to in (0, 1)}
    with pytest.raises(BoxLacksError, match="the clock of gpu-2 is 86400 s behind the others'"):
        judge(NAMES[:3], links)


@pytest.mark.parametrize(
    "line",
    [
        "", "[]", "{}", '{"facts": 1}', '{"links": [{"to": 1, "by": [{"address": "x"}]}]}',
        '{"facts": {"same": {}, "packages": [], "addresses": [["10.0.0.1 ; rm", 1]], '
        '"public": [], "ports": [1], "gpus": 0}}',
        '{"facts": {"same": {}, "packages": [], "addresses": [["10.0.0.1", 99999]], '
        '"public": [], "ports": [1], "gpus": 0}}',
        *(
            f'{{"facts": {{"same": {{}}, "packages": [], "addresses": [["{address}", 1]], '
            f'"public": [], "ports": {ports}, "gpus": {gpus}}}}}'
            for address, ports, gpus in (
                *(("203.0.113.7", "[1, 2]", 0), ("169.254.169.254", "[1, 2]", 0)),
                *(("127.0.0.1", "[1, 2]", 0), ("10.0.0.1", "[1]", 0)),
                *(("10.0.0.1", "[1, 2]", "Infinity"), ("10.0.0.1", "[1, 2]", "1e999")),
                *(("10.0.0.1", "[1, true]", "NaN"), ("10.0.0.256", "[1, 2]", 0)),
            )
        ),
        *(
            f'{{"links": [{{"to": {to}, "by": [{{"address": "10.0.0.1", "ahead": {ahead}, '
            '"ms": 1, "mbps": 1}]}]}'
            for to, ahead in (("Infinity", 0), (1, "1e999"), (1, "NaN"), (1, '"nan"'), (1, "null"))
        ),
    ],
)  # fmt: skip
def test_run_on_nodes_refuses_a_malformed_answer_of_a_node(line: str) -> None:
    for what in ("facts", "links"):
        with pytest.raises(NOT_AN_ANSWER):
            read_answer(line.encode(), what)


def test_escape_codes_and_absurd_gpu_counts_in_answers_of_a_node_are_removed() -> None:
    said = {"same": {"torch": "\x1b[31m2.6"}, "packages": ["a\x1b"], "addresses": [["10.0.0.1", 9]]}
    facts = read_answer(
        json.dumps(
            {"facts": {**said, "public": [], "ports": [29500, 29501], "gpus": 10**9}}
        ).encode(),
        "facts",
    )
    assert facts["same"] == {"torch": "2.6"}
    assert facts["gpus"] == 1024


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("torchrun --standalone train.py", "--standalone"),
        ("torchrun --nnodes=1 --nproc_per_node 8 train.py", "--nnodes=1"),
        ("python -m torch.distributed.run --nnodes 3 train.py", "--nnodes 3"),
        ("torchrun --nnodes 3:4 train.py", "--nnodes 3:4"),
        ("accelerate launch --num_machines 1 train.py", "--num_machines 1"),
        ("deepspeed --num_nodes=1 train.py", "--num_nodes=1"),
        ("torchrun train.py", ""),
        ("torchrun --nnodes=2 train.py", ""),
        ("torchrun --nnodes 1:4 train.py", ""),
        ("torchrun --nnodes=$NNODES train.py --standalone-eval", ""),
        ("accelerate launch --num_machines 2 train.py --num_nodes 700", ""),
        ("python train.py --num_nodes 700", ""),
    ],
)
def test_a_train_command_whose_torchrun_nnodes_is_not_the_number_of_boxes_gives_an_error(
    command: str, said: str
) -> None:
    assert wrong_number(command, 2) == said


@pytest.mark.slow
def test_setup_starts_no_training_on_any_node_and_names_the_failed_node_if_one_fails() -> None:
    hosts = ["a", failing := "ssh -i key -p 22 b", "c"]
    meeting, raised = Meeting(hosts), dict[str, BoxstrapError]()

    def attend(host: str) -> None:
        try:
            with meeting.attended_by(host) as rank:
                if host == failing:
                    raise BoxLacksError("no room.", where="b", hint="Make some.")
                meeting.gather("ready", rank, host)
        except BoxstrapError as error:
            raised[host] = error

    threads = [threading.Thread(target=attend, args=(host,)) for host in meeting.hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert raised[failing].text() == "b: no room.\nMake some."
    for host in "ac":
        assert type(raised[host]) is BoxLacksError
        assert raised[host].text() == "not started: b:22 failed, and all begin or none."


def test_a_node_whose_gpu_check_says_return_makes_setup_of_the_other_nodes_fail_naming_it() -> None:
    meeting = Meeting(["a", "b"])
    with pytest.raises(ReturnBoxError), meeting.attended_by("a"):
        raise ReturnBoxError("return it.")
    with pytest.raises(StepFailedError, match="a failed"), meeting.attended_by("b") as rank:
        meeting.gather("ready", rank, None)
