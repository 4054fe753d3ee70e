"""The doors: every other way in for the same script, as a table.

A door has a limit and a wrapper (`templates/doors/<template>`). It carries the
longest edition that fits: the whole script, the short one, the small one.
Limits and their sources: docs/doors.md.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bootstrap import __version__
from bootstrap.errors import UsageError
from bootstrap.render.pack import encoded, folded, paste
from bootstrap.render.quote import harmless
from bootstrap.render.script import render_text

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile
    from bootstrap.render.variables import Work

KIB = 1024
ARGUMENT = 128 * KIB - 1
"""Linux takes this for one argument of a program (execve(2), MAX_ARG_STRLEN)."""

WHOLE, SHORT, SMALL = "whole", "short", "small"


@dataclass(frozen=True)
class Door:
    """One door.

    `limit` is in bytes, None where none is known; `source` says who sets it.
    `use` tells a person what to do with what is rendered. `user` is who the box
    belongs to where the hook runs as root: a name, `first` for the first
    ordinary account. `wait`: the machine ends with the command, so the command
    lasts as long as the training. `bakes`: the environment is built where no GPU is,
    so the driver can't choose torch. `file` is the name that the rendering goes by.
    """

    name: str
    template: str
    use: str
    limit: int | None = None
    source: str = ""
    profile: str = "ssh"
    user: str = ""
    wait: bool = False
    editions: tuple[str, ...] = (WHOLE,)
    leave: tuple[str, ...] = ()
    every_boot: bool = False
    bakes: bool = False
    file: str = ""


_CLOUD_INIT = "It runs once, at the first boot; its output is in /var/log/cloud-init-output.log."

DOORS: dict[str, Door] = {
    door.name: door
    for door in (
        Door(
            "vast",
            "paste.j2",
            "Paste it as the On-start Script of a template, or: vastai create instance … "
            "--onstart FILE. It runs at every start of the container.",
            limit=4048,
            source="`onstart` of Vast.ai's API",
            profile="vast",
            editions=(SHORT, SMALL),
            every_boot=True,
            file="onstart.sh",
        ),
        Door(
            "runpod",
            "runpod.j2",
            "Paste it as the Container Start Command (`dockerArgs`) of a pod. It goes on to the "
            "image's own /start.sh, which brings sshd up. Its output: /var/log/boxstrap.log. "
            "It runs at every start of the pod.",
            limit=ARGUMENT,
            source="one argument of a program, execve(2); RunPod names none",
            profile="runpod",
            every_boot=True,
            file="start-command.txt",
        ),
        Door(
            "lambda",
            "cloud-init.j2",
            "Give it as `user_data` when you launch the instance. " + _CLOUD_INIT,
            limit=1_000_000,
            source="`user_data` of Lambda's API",
            profile="lambda",
            user="ubuntu",
            file="user-data.yaml",
        ),
        Door(
            "ec2",
            "cloud-init.j2",
            "Give it as User data when you launch the instance (--user-data file://FILE). "
            + _CLOUD_INIT,
            limit=16 * KIB,
            source="UserData of EC2, before base64",
            user="first",
            editions=(WHOLE, SHORT),
            file="user-data.yaml",
        ),
        Door(
            "azure",
            "cloud-init.j2",
            "Give it as custom data when you make the machine (--custom-data FILE). " + _CLOUD_INIT,
            limit=65_535,
            source="customData of Azure, decoded",
            user="first",
            editions=(WHOLE, SHORT),
            file="custom-data.yaml",
        ),
        Door(
            "gcp",
            "startup-script.j2",
            "Give it as the metadata `startup-script` (--metadata-from-file startup-script=FILE). "
            "It runs at every boot; its output is in the journal: "
            "journalctl -u google-startup-scripts",
            limit=256 * KIB,
            source="a metadata value of Compute Engine",
            user="first",
            every_boot=True,
            file="startup-script.sh",
        ),
        Door(
            "paperspace",
            "startup-script.j2",
            "Add it as a startup script of your team, and choose it when you make the machine.",
            limit=None,
            source="Paperspace names none",
            profile="paperspace",
            user="paperspace",
            file="startup-script.sh",
        ),
        Door(
            "hf-jobs",
            "hf-jobs.j2",
            "Run it where the hf program is logged in; put a flavor and a timeout to it. Secrets "
            "go with --secrets NAME. The job lasts as long as the training; its disk does not.",
            limit=ARGUMENT,
            source="one argument of a program, execve(2); Hugging Face names none",
            wait=True,
            file="job.sh",
        ),
        Door(
            "colab",
            "notebook.j2",
            "Upload it (File, Upload notebook) with a GPU runtime, and run its cell. "
            "It ends with the runtime.",
            wait=True,
            file="boxstrap.ipynb",
        ),
        Door(
            "gradient",
            "notebook.j2",
            "Upload it into a Paperspace Gradient notebook, and run its cell.",
            wait=True,
            file="boxstrap.ipynb",
        ),
        Door(
            "docker",
            "dockerfile.j2",
            "docker build -t NAME -f FILE . && docker run --gpus all NAME. The environment is "
            "in the image; the GPU is checked, and the training begun, when a container starts.",
            limit=ARGUMENT,
            source="one argument of a program, execve(2)",
            wait=True,
            bakes=True,
            file="Dockerfile",
        ),
        Door(
            "devcontainer",
            "devcontainer.j2",
            "Save it as .devcontainer/devcontainer.json of the repository. The container gets the "
            "tools, the environment and the GPU's verdict; the code is your own folder, and "
            "nothing is trained.",
            limit=ARGUMENT,
            source="one argument of a program, execve(2)",
            leave=("repo", "train"),
            file="devcontainer.json",
        ),
        Door(
            "terminal",
            "terminal.j2",
            "Run it in a terminal of the box: bash FILE.",
            profile="vast",
            file="box.sh",
        ),
        Door(
            "skypilot",
            "skypilot.j2",
            "sky launch FILE. SkyPilot rents the machine and ends it; secrets: --secret NAME.",
            wait=True,
            file="task.yaml",
        ),
        Door(
            "dstack",
            "dstack.j2",
            "dstack apply -f FILE. dstack rents the machine and ends it.",
            wait=True,
            file="task.dstack.yml",
        ),
    )
}


@dataclass(frozen=True)
class Rendering:
    """What a door gets, in which edition."""

    door: Door
    edition: str
    text: str

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.text.encode())


def edition_of(name: str, door: Door, profile: Profile, work: Work) -> str:
    """The script in that edition."""
    from bootstrap.render.carrier import render_carrier
    from bootstrap.render.short import render_short
    from bootstrap.render.small import render_small

    if door.bakes and profile.python.torch_backend == "auto":
        python = profile.python.model_copy(update={"torch_backend": "none"})
        profile = profile.model_copy(update={"python": python})
    makers: dict[str, Callable[[], str]] = {
        WHOLE: lambda: render_carrier(profile, work, leave=door.leave),
        SHORT: lambda: render_short(profile, work),
        SMALL: lambda: render_small(profile, work),
    }
    return makers[name]()


def render_door(name: str, profile: Profile, work: Work) -> Rendering:
    """What that door gets: its longest edition that fits.

    Raises UsageError for a door that isn't one, and where no edition fits: with the
    sizes, and what could be dropped.
    """
    door = door_named(name)
    tried = []
    for edition in door.editions:
        script = edition_of(edition, door, profile, work)
        text = render_text(f"doors/{door.template}", _values(door, edition, script, profile, work))
        made = Rendering(door, edition, text)
        if door.limit is None or made.size <= door.limit:
            return made
        tried.append(made)
    raise too_long(tried, profile)


def door_named(name: str) -> Door:
    """The door of that name. Raises UsageError, naming those that there are."""
    if name not in DOORS:
        raise UsageError(
            f"there is no door {harmless(name)}.", next_=f"There are: {', '.join(DOORS)}."
        )
    return DOORS[name]


def too_long(tried: list[Rendering], profile: Profile) -> UsageError:
    """The error where nothing fits."""
    last = tried[-1]
    return UsageError(
        f"{last.door.name} takes {last.door.limit:,} bytes ({last.door.source}), and "
        + ", ".join(f"the {made.edition} script needs {made.size:,}" for made in tried)
        + ".",
        next_=f"What could go: {', '.join(droppable(profile))}.\n"
        "Or let the box fetch it: boxstrap oneliner --url https://…",
    )


def droppable(profile: Profile) -> list[str]:
    """The parts of a profile that take the most room, the largest first."""
    sizes = {
        "env": sum(len(name) + len(value) for name, value in profile.env.items()),
        "packages": sum(map(len, profile.packages)),
        "ssh.authorized_keys": 120 * len(profile.ssh.authorized_keys),
        "train.command": len(profile.train.command) if profile.train else 0,
        "secrets": sum(map(len, profile.secrets)),
    }
    found = [f"{key} ({size:,} bytes)" for key, size in _largest(sizes) if size]
    return found or ["nothing of the profile: it is small already"]


def _largest(sizes: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(sizes.items(), key=lambda item: item[1], reverse=True)


LEFT_OUT: dict[str, tuple[str, ...]] = {
    SHORT: (
        "steps that run at the same time, live progress, and stamps of single steps",
        "the smoke test; of the GPU check: power, throttling, heat, bus, NVLink, and all of the "
        "box around it; what gpu.checks says of each",
        "shells other than bash, python.installer: pip",
    ),
    SMALL: (
        "what the short script leaves out, too",
        "of the GPU check: everything but count, name, memory, memory in use and ECC errors",
        "package managers other than apt, the git hosts' known keys, pip's extra indexes",
        "asking no step that is right already; knowing a finished training after `boxstrap setup`",
    ),
}
"""What the shorter editions do not do, for people."""


def left_out(edition: str) -> tuple[str, ...]:
    """What an edition does not do, for people."""
    return {SMALL: (*LEFT_OUT[SHORT], *LEFT_OUT[SMALL][1:])}.get(edition, LEFT_OUT.get(edition, ()))


def as_user(user: str) -> str:
    """A line of shell that hands over to the box's own user; root where there is none."""
    if not user:
        return "exec bash /var/lib/boxstrap/door.sh"
    named = f"u={user};" if user != "first" else ""
    first = "u=$(getent passwd|awk -F: '$3>=1000&&$3<60000{print $1;exit}')"
    known = f'{named}id "$u" >/dev/null 2>&1||{first}' if named else first
    return f"{known};exec runuser -l \"${{u:-root}}\" -c 'bash /var/lib/boxstrap/door.sh'"


def _values(
    door: Door, edition: str, script: str, profile: Profile, work: Work
) -> dict[str, object]:
    gpu, python = profile.gpu, profile.python
    folder = posixpath.join(_absolute(profile.box.workdir), work.name)
    values: dict[str, object] = {
        "version": __version__,
        "profile_name": harmless(profile.name),
        "edition": edition,
        "use": door.use,
        "packed": encoded(script),
        "lines": folded(encoded(script)).splitlines(),
        "script": script,
        "paste": paste(script),
        "as_user": as_user(profile.ssh.user or door.user),
        "name": work.name,
        "run_name": re.sub(r"[^a-z0-9-]+", "-", f"box-{work.name}".lower()).strip("-")[:40],
        "secrets": profile.secrets,
        "folder": folder,
        "needs_gpu": gpu.require,
        "remote_env": dict(profile.env),
        "interpreter": posixpath.join(folder, python.venv, "bin", "python"),
        "accelerators": f"{gpu.name}:{gpu.count or 1}" if gpu.name else "",
        "dstack_gpu": dstack_gpu(profile),
    }
    if door.template == "notebook.j2":
        values["cell"] = render_text("doors/cell.py.j2", values)
    return values


def _absolute(workdir: str) -> str:
    return "/root" + workdir[1:] if workdir.startswith("~") else workdir


def dstack_gpu(profile: Profile) -> dict[str, object]:
    """What dstack should look for; empty where no GPU is asked for."""
    gpu = profile.gpu
    if not gpu.require:
        return {}
    found: dict[str, object] = {"count": gpu.count or 1}
    if gpu.name:
        found["name"] = gpu.name
    if gpu.min_memory_gib:
        found["memory"] = f"{gpu.min_memory_gib:g}GB.."
    return found
