"""The doors: a table of all ways to get the script onto a box other than SSH.

A door has a size limit and a wrapper (`templates/doors/<template>`), in which it carries the
script; one that is too narrow for it lets the box fetch the program.
`bootstrap/setup/doors.py` renders it. Limits and their sources: docs/doors.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from bootstrap.errors import UsageError
from bootstrap.steps.shell import harmless

KIB = 1024
NARROWEST = 4048  # bytes that Vast.ai's API accepts for `onstart`, the narrowest door
TWO_ARGUMENTS = 2 * (128 * KIB - 1)
"""Twice Linux's limit for one argument of a program, in bytes (execve(2), MAX_ARG_STRLEN)."""


@dataclass(frozen=True)
class Door:
    """One door.

    `limit` is in bytes, None if unknown; `source` says where it comes from.
    `use` tells the user what to do with the rendered file. `user` is the box's
    own user if the hook runs as root: a name, or `first` for the first ordinary
    account. `wait`: the machine ends with the command, so the command must last
    as long as the training. `bakes`: the environment is built without a GPU, so
    the driver can't decide which torch to use. `file` is the rendered file's name.
    """

    name: str
    template: str
    use: str
    limit: int | None = None
    source: str = ""
    profile: str = "ssh"
    user: str = ""
    wait: bool = False
    leave: tuple[str, ...] = ()
    every_boot: bool = False
    bakes: bool = False
    file: str = ""
    nodes: bool = False
    """Whether what takes it begins a training on several nodes, and ends it there."""

    @property
    def takes_bare(self) -> bool:
        """Whether the script fits only without comments and indentation."""
        return self.limit is not None and self.limit <= 256 * KIB


_CLOUD_INIT = "It runs once, at the first boot; its output is in /var/log/cloud-init-output.log."

DOORS: dict[str, Door] = {
    door.name: door
    for door in (
        Door(
            "vast",
            "paste.j2",
            "Paste it as the On-start Script of a template, or: vastai create instance … "
            "--onstart FILE. It runs at every start of the container.",
            limit=NARROWEST,
            source="`onstart` of Vast.ai's API",
            profile="vast",
            every_boot=True,
            file="onstart.sh",
        ),
        Door(
            "runpod",
            "runpod.j2",
            "Paste it as the Container Start Command (`dockerArgs`) of a pod. It goes on to the "
            "image's own /start.sh, which brings sshd up. Its output: /var/log/boxstrap.log. "
            "It runs at every start of the pod.",
            limit=TWO_ARGUMENTS,
            source="two arguments of a program, execve(2); RunPod names none",
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
            file="user-data.yaml",
        ),
        Door(
            "azure",
            "cloud-init.j2",
            "Give it as custom data when you make the machine (--custom-data FILE). " + _CLOUD_INIT,
            limit=65_535,
            source="customData of Azure, decoded",
            user="first",
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
            limit=TWO_ARGUMENTS,
            source="two arguments of a program, execve(2); Hugging Face names none",
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
            limit=TWO_ARGUMENTS,
            source="by choice: it is a file of the build",
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
            limit=TWO_ARGUMENTS,
            source="two arguments of a program, execve(2)",
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
            nodes=True,
        ),
        Door(
            "dstack",
            "dstack.j2",
            "dstack apply -f FILE. dstack rents the machine and ends it.",
            wait=True,
            file="task.dstack.yml",
            nodes=True,
        ),
    )
}


def door_named(name: str, others: Iterable[str] = ()) -> Door:
    """Return the door with that name. Raises UsageError, which lists all names, and `others`."""
    if name not in DOORS:
        names = ", ".join((*DOORS, *others))
        raise UsageError(f"there is no door {harmless(name)}.", hint=f"There are: {names}.")
    return DOORS[name]
