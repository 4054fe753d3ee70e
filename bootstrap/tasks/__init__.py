"""The tasks, as `inv` and `boxstrap` list them. One module for each family; all are thin.

Nothing heavy is imported here: a task imports what it needs when it runs.
"""

from __future__ import annotations

from itertools import chain

from invoke.collection import Collection

from bootstrap.tasks import (
    boxes,
    clean,
    demo,
    doctor,
    doors,
    editors,
    lease,
    profiles,
    renting,
    run,
    runs,
    setup,
    sync,
    top,
    transfer,
    tunnel,
)
from bootstrap.tasks.program import use_box_program
from bootstrap.tasks.usage import wrong_usage_exits_2

FAMILIES = (
    (profiles.init, setup.setup, runs.logs, runs.status, runs.stop),  # what is needed first
    (setup.plan, setup.verify),
    (run.run, sync.sync, transfer.push, transfer.pull),
    (runs.wait, runs.attach, runs.shell, runs.exec_, top.top, runs.report),
    (editors.code, editors.ssh_config, tunnel.tunnel),
    (renting.up, renting.down, lease.lease, lease.guard),
    (boxes.boxes, clean.clean, boxes.secrets, doctor.doctor, profiles.profiles),
    (doors.render, doors.oneliner),
    (demo.demo,),
)
wrong_usage_exits_2()
use_box_program(FAMILIES)
namespace = Collection(*chain(*FAMILIES))
