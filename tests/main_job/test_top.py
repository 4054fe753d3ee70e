"""`top`: live boxes, two at once, one that drops and comes back, one that was never set up."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.main_job.conftest import Card, Rent
from tests.main_job.rented import Rented
from tests.nvml import scenarios
from tests.waiting import wait_until

PROFILE = "version: 1\ngpu: {smoke: none}\ntrain: {command: python train.py}\n"
TRAIN = "import time\nprint('step 7 \\x1b[2J loss 0.5', flush=True)\ntime.sleep(600)\n"


def looks(told: str) -> Iterator[dict[str, Any]]:
    for line in told.splitlines():
        yield json.loads(line)


def test_top_shows_the_gpu_of_a_box_over_a_single_login(rented: Rented, card: Card) -> None:
    card(rented, scenarios.A100)
    rented.box.run("rm -r /workspace/.boxstrap/box")
    rented.user.repository(boxstrap__yaml=PROFILE, train__py=TRAIN)
    missing = rented.run("top", "--looks", "1").must(5)
    assert "boxstrap verify --host" in missing.err
    rented.run("setup").must(0)
    logins = int(rented.box.run("grep -c 'Accepted publickey' /var/log/sshd.log || :") or 0)
    told = rented.run("top", "--looks", "3", "--every", "1", "--json").must(0)
    found = list(looks(told.out))
    assert [(line["v"], line["state"]) for line in found] == [(1, "live")] * 3
    assert found[0]["gpus"][0]["name"] == "NVIDIA A100-SXM4-80GB"
    assert found[0]["run"]["last"] == "step 7 loss 0.5"
    assert found[0]["run"]["metric"] == "step 7 loss 0.5"
    assert found[0]["run"]["state"] == "running"
    after = int(rented.box.run("grep -c 'Accepted publickey' /var/log/sshd.log || :") or 0)
    assert after - logins in (0, 1)
    # The sampler on the box ends when nobody reads it any more.
    wait_until(lambda: not rented.box.run("pgrep -f runs[.]top_stream || :").strip(), pause=0.2)
    # `status` takes one sample, in the exchange that it makes anyway.
    run = rented.status()["runs"][0]
    assert run["metric"] == "step 7 loss 0.5"
    use = run["gpu_use"]
    assert [(one["index"], one["memory_total"]) for one in use] == [(0, 80 * 2**30)]
    shown = rented.run("status").must(0).out
    assert re.search(r"running +started .+ ago +GPU 0: \d+ %, \d+\.\d of 80\.0 GiB", shown), shown
    assert "\n      step 7 loss 0.5\n" in shown
    # The run started the monitor automatically.
    samples = "until [ $(cat samples | wc -l) -ge 2 ]; do sleep 0.2; done; cat samples"
    noted = rented.box.run(f"cd /workspace/.boxstrap/runs/*/train-1; {samples}", timeout=120)
    head, first, *_ = map(json.loads, noted.splitlines())
    assert head["gpus"][0]["name"] == "NVIDIA A100-SXM4-80GB"
    assert first[3] == [[0, 4 * 2**20, None, 31]]
    place = rented.run("report", "--json").must(0).json()["report"]
    page = Path(place).read_text()
    for part in (
        "train-1 running",
        "<dt>loss</dt><dd>0.5 at ",
        "1 NVIDIA A100-SXM4-80GB: 0 % busy",
    ):
        assert part in page, part
    assert len(re.findall(r'<path d="M[^"]+" class="line', page)) >= 4
    assert page.count('class="bar ok"') >= 5
    # The report that was written here is never sent to the box.
    assert "nothing to do" in rented.run("setup").must(0).out


def test_top_of_two_boxes_shows_a_box_as_lost_while_its_link_is_down(
    rent: Rent, rented: Rented, card: Card
) -> None:
    other = rent("vast", used=True)
    card(rented, scenarios.A100)
    rented.run("verify").must(0)
    other.run("verify").must(6)  # no GPU, but the sampler is placed anyway
    words = ("--every", "1", "--looks", "8", "--json", "--host", other.box.host_string)
    states: dict[str, list[str]] = {}

    def take(told: str) -> None:
        for line in looks(told):
            states.setdefault(line["box"], []).append(line["state"])

    def read_until(is_so: Callable[[], bool]) -> None:
        while not is_so():
            line = going.line()
            assert line, going.end().text
            take(line)

    with closing(rented.begin("top", *words)) as going:
        read_until(lambda: sum("live" in seen for seen in states.values()) == 2)
        other.box.kill_sshd()
        read_until(lambda: any("lost" in seen for seen in states.values()))
        other.box.start_sshd()
        take(going.end().must(0).out)
    steady, dropped = states.values()
    if "lost" in steady:
        steady, dropped = dropped, steady
    assert set(steady) == {"live"}
    assert len(steady) <= 8, "looked at oftener than asked, while the other was lost"
    assert dropped[0] == dropped[-1] == "live"
    assert "lost" in dropped


def test_top_says_nothing_of_nvml_when_the_profile_requires_no_gpu(rented: Rented) -> None:
    rented.user.repository()
    rented.run("setup").must(0)
    told = rented.run("top", "--looks", "2", "--every", "1").must(0)
    assert "NVML" not in told.text
    assert "cpu" in told.out
    rented.run("verify", "--set", "gpu.require=true").must(6)
    assert "NVML error" in rented.run("top", "--looks", "1").must(0).out
