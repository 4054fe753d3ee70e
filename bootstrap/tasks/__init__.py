"""The tasks, as `inv` and `boxstrap` list them. One module for each family; all are thin.

Nothing heavy is imported here: a task imports what it needs when it runs.
"""

from __future__ import annotations

from invoke.collection import Collection

from bootstrap.tasks import boxes, demo, doctor, doors, editors, profiles, runs, setup, top
from bootstrap.tasks.usage import wrong_usage_exits_2

wrong_usage_exits_2()
namespace = Collection(
    profiles.init,
    setup.setup,
    setup.plan,
    setup.verify,
    runs.status,
    runs.logs,
    runs.attach,
    runs.stop,
    top.top,
    doors.render,
    doors.oneliner,
    profiles.profiles,
    doctor.doctor,
    boxes.boxes,
    editors.code,
    editors.ssh_config,
    demo.demo,
)
