"""One command on many boxes that are as they should be, compared with as many logins at once.

The peers check three things that are right: packages, a folder, a line of a file; boxstrap all of a
setup's steps. Then the least that each can do, one command. Of 64 boxes: memory and processor here.
"""

from __future__ import annotations

import os
import shlex
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tools.bench import clock
from tools.bench.clock import TimedCall
from tools.bench.stage import PEERS, Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

GROUP = "{} boxes, nothing to do"
MANY = 64
_TRUE = "ssh true, all at once"
_SETUP, _STATUS = "boxstrap setup", "boxstrap status"
_FACTOR, _MORE_S = 1.2, 0.5
_MOST_MB, _MOST_CPU_S = 300.0, 0.1
_DEPLOY, _PLAYBOOK = PEERS / "few_operations.py", PEERS / "few_tasks.yml"
_STATE = "several"
_PROFILE = "version: 1\nextends: vast\ngpu: {require: false}\n"


def measure(stage: Stage, runs: int, count: int) -> list[BenchRow]:
    """Measure all in turn, so that each gets the same load of this machine."""
    repository = stage.repository("several", {"train.py": "", "boxstrap.yaml": _PROFILE})
    first = stage.box("vast")
    tell("a box, set up, and others with what it wrote")
    words = ("--host", first.host, "--identity", str(first.box.identity))
    once = stage.boxstrap("setup", *words, state=_STATE, repository=repository)
    clock.run(once, stage.file("several.out"))
    layer = stage.file("several.layer")
    first.box.keep(layer)
    places = [stage.box("vast", on=layer) for _ in range(count)]
    setup = _on_all(stage, places, repository, "setup")
    clock.run(setup, stage.file("several.out"))  # first contact with each
    calls = {
        _TRUE: _logins(stage, places),
        _SETUP: setup,
        _STATUS: _on_all(stage, places, repository, "status"),
        "Ansible, three tasks": _ansible(stage, places, "playbook"),
        "pyinfra, three operations": _pyinfra(stage, places, str(_DEPLOY)),
        "boxstrap exec true": _on_all(stage, places, repository, "exec", "--", "true"),
        "Ansible, raw true": _ansible(stage, places),
        "pyinfra, exec true": _pyinfra(stage, places, "exec", "--", "true"),
    }
    if count >= MANY:
        calls = {name: calls[name] for name in (_TRUE, _SETUP)}
    found: dict[str, list[float]] = defaultdict(list)
    used: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for turn in range(runs + 1):
        for name, call in calls.items():
            took, cpu, memory = _measured(stage, call)
            if turn:
                found[name].append(took)
                used[name].append((cpu / count, memory))
        tell(f"{count} boxes: turn {turn}")
    _check(stage, setup, count)
    return _rows(found, used, count)


def _rows(
    found: dict[str, list[float]], used: dict[str, list[tuple[float, float]]], count: int
) -> list[BenchRow]:
    group = GROUP.format(count)
    if count >= MANY:
        cpu, memory = ([one[at] for one in used[_SETUP]] for at in (0, 1))
        return [
            BenchRow(group, "memory here", memory, "MB", Bar(_MOST_MB), digits=0),
            BenchRow(group, "processor here, a box", cpu, "s", Bar(_MOST_CPU_S), digits=3),
            *(BenchRow(group, name, values) for name, values in found.items()),
        ]
    limit = _FACTOR * median(found[_TRUE]) + _MORE_S
    bar = Bar(limit, f"{_FACTOR} of {_TRUE} + {_MORE_S} s")
    bars = {_SETUP: bar}
    return [BenchRow(group, name, values, bar=bars.get(name)) for name, values in found.items()]


def _measured(stage: Stage, call: TimedCall) -> tuple[float, float, float]:
    """Return seconds, seconds of processor, and MB of memory at the most of the process itself."""
    with stage.file("several.out").open("wb") as said:
        began = time.perf_counter()
        files = [(os.POSIX_SPAWN_DUP2, said.fileno(), 1), (os.POSIX_SPAWN_DUP2, said.fileno(), 2)]
        words = ["/usr/bin/env", "-C", str(call.cwd), *call.argv]
        child = os.posix_spawn(words[0], words, dict(call.env), file_actions=files)
        _, status, usage = os.wait4(child, 0)
        took = time.perf_counter() - began
    if status:
        text = stage.file("several.out").read_text(errors="replace")
        raise clock.BenchError(f"{' '.join(call.argv)[:200]}: {status}\n{text[-3000:]}")
    return took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def _check(stage: Stage, call: TimedCall, count: int) -> None:
    """Check that there was nothing to do on each. Raises BenchError."""
    clock.run(call, stage.file("several.out"))
    said = stage.file("several.out").read_text()
    if said.count("nothing to do") != count:
        raise clock.BenchError(f"not all {count} had nothing to do:\n{said[-3000:]}")


def _on_all(
    stage: Stage, places: Sequence[StagePlace], repository: Path, task: str, *words: str
) -> TimedCall:
    hosts = [word for place in places for word in ("--host", place.host)]
    identity = ("--identity", str(places[0].box.identity))
    return stage.boxstrap(task, *hosts, *identity, *words, state=_STATE, repository=repository)


def _logins(stage: Stage, places: Sequence[StagePlace]) -> TimedCall:
    each = [shlex.join(["ssh", "-F", str(place.ssh_config), "box", "true"]) for place in places]
    script = "".join(f"{line} & " for line in each) + "wait"
    return TimedCall(["/bin/sh", "-c", script], stage.environment(), stage.folder)


def _ansible(stage: Stage, places: Sequence[StagePlace], what: str = "raw") -> TimedCall:
    inventory = stage.file("several.inventory")
    inventory.write_text(
        "".join(
            f"box{at} ansible_host=box ansible_ssh_common_args='-F {place.ssh_config} "
            "-o ControlMaster=no -o ControlPath=none'\n"
            for at, place in enumerate(places)
        )
    )
    config = stage.file("several.ansible.cfg")
    config.write_text(
        "[defaults]\nforks = 64\ngathering = explicit\ninterpreter_python = /usr/bin/python3\n"
        "[ssh_connection]\npipelining = True\n"
    )
    env = stage.environment(ANSIBLE_CONFIG=str(config), ANSIBLE_HOME=str(stage.file("ansible")))
    if what == "playbook":
        words = ["ansible-playbook", "-i", str(inventory), str(_PLAYBOOK)]
    else:
        words = ["ansible", "-i", str(inventory), "all", "-m", "raw", "-a", "true"]
    return TimedCall([str(stage.peers_bin / words[0]), *words[1:]], env, stage.folder)


def _pyinfra(stage: Stage, places: Sequence[StagePlace], *words: str) -> TimedCall:
    known = stage.file("several.known_hosts")
    known.write_text("".join(f"{place.address} {place.box.host_key}\n" for place in places))
    data = {
        "ssh_user": places[0].box.user,
        "ssh_key": str(places[0].box.identity),
        "ssh_known_hosts_file": str(known),
        "ssh_strict_host_key_checking": "yes",
    }
    inventory = stage.file("several_inventory.py")
    hosts = [(place.address, data) for place in places]
    inventory.write_text(f"boxes = {hosts!r}\n")
    yes = () if "exec" in words else ("-y",)
    argv = [str(stage.peers_bin / "pyinfra"), str(inventory), *words, *yes]
    return TimedCall(argv, stage.environment(), stage.folder)
