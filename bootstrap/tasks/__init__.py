"""The tasks, as `inv` and `boxstrap` list them. One module for each family; all are thin.

Nothing heavy is imported here: a task imports what it needs when it runs.
"""

from __future__ import annotations

from itertools import chain

from invoke.collection import Collection

from bootstrap.tasks import (
    boxes,
    completion,
    estimate,
    files,
    profiles,
    programs,
    renting,
    runs,
    setup,
)
from bootstrap.tasks.program import use_box_program
from bootstrap.tasks.usage import wrong_usage_exits_2

FAMILIES = {
    "First steps": (profiles.init, setup.setup, runs.logs, runs.status, runs.stop),
    "Before anything is built": (setup.plan, setup.verify),
    "Runs and files": (runs.run, files.sync, files.push, files.pull),
    "A run at work": (runs.wait, runs.attach, runs.shell, runs.exec_, runs.top, runs.report),
    "In your editor and browser": (boxes.code, boxes.ssh_config, boxes.tunnel),
    "Renting": (estimate.estimate, renting.up, renting.down, boxes.lease, boxes.guard),
    "What is there": (
        *(runs.runs, boxes.boxes, boxes.clean),
        *(boxes.secrets, setup.doctor, profiles.profiles, completion.completion),
    ),
    "Without SSH": (profiles.render, profiles.oneliner),
    "For programs and agents": (programs.skill, programs.mcp, programs.schema),
    "To see it once": (setup.demo,),
}
wrong_usage_exits_2()
use_box_program(FAMILIES)
namespace = Collection(*chain(*FAMILIES.values()))
