"""The box's own link is gone for half a minute while it fetches something; setup waits for it."""

import time
from dataclasses import dataclass
from pathlib import Path

from tests.boxes import Rig
from tests.boxes.git_server import GitServer
from tests.faults.at_once import at_once
from tests.faults.kills import Eye, Moment
from tests.faults.plugin import Drawn, Faults
from tests.faults.test_network import serve, world_for
from tests.main_job.used import start_used

GONE_S = 30


@dataclass(frozen=True)
class LinkFault:
    """What is being fetched, on which kind of box, and the mark right before it."""

    fetched: str
    kind: str
    step: str
    mark: str
    options: tuple[str, ...] = ()
    tries_itself: bool = False
    """Whether the program that fetches retries long enough on its own."""


ROWS = (
    LinkFault("uv", "vast-nouv", "agent", "preflight start"),
    LinkFault("our own environment", "vast", "agent", "preflight start"),
    LinkFault("apt", "runpod", "tools", "preflight start"),
    LinkFault("git by url", "vast", "repo", "preflight start", ("--set", "git.access=url")),
    LinkFault("environment", "vast", "python", "python start", tries_itself=True),
    LinkFault(
        *("environment, by pip", "vast", "python", "python start"),
        ("--set", "python.installer=pip"),
        tries_itself=True,
    ),
)


def test_setup_finishes_after_the_network_of_the_box_was_gone_for_half_a_minute(
    mirror_rig: Rig, shared_folder: Path, tmp_path: Path, faults: Faults, drawn: Drawn[LinkFault]
) -> None:
    def one(row: LinkFault) -> None:
        if row.step == "python":
            box = start_used(mirror_rig, row.kind, shared_folder)
        else:
            box = mirror_rig.start(row.kind)
        world = world_for(mirror_rig, box, tmp_path / row.fetched)
        server = GitServer(world.rig.mirror.host, world.folder)
        serve(world, server)
        with faults.attempt(f"own link gone for {GONE_S} s", row.fetched) as attempt:
            rented = world.rented
            eye = Eye(rented)
            going = rented.begin("setup", *row.options)
            assert eye.await_moment(Moment(mark=row.mark), 0, going), going.end().text
            box.cut()
            time.sleep(GONE_S)
            assert box.run("ls /workspace/.boxstrap/runs 2>/dev/null || true") == ""
            box.heal()
            done = going.end().must(0)
            assert "step 1 loss" in done.out
            assert rented.runs() == ["train-1"]
            log = rented.run("logs", "--step", row.step).must(0).out
            assert row.tries_itself or "trying again in" in log, log
            attempt.outcome("waited for, then finished")
        box.stop()
        server.close()

    at_once(one, drawn(ROWS))
