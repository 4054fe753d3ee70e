"""What a profile is: one class a section, attributes named as the keys of the YAML.

The models check values; reading, merging and `--set` lie beside this module.
They are frozen, and strict: nothing is converted on the way in. Every key says
what it takes from the person (`Free`: nothing).
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from bootstrap.profile import values
from bootstrap.profile.takes import File, Free, PublicKeys, Repository, Secrets

EnvName = Annotated[str, values.ENV_NAME]
EnvValue = Annotated[str, values.ENV_VALUE]
BoxFile = Annotated[str, values.BOX_FILE]
FreeText = Annotated[str, values.FREE_TEXT]
Parent = Annotated[str, values.PARENT]
Workdir = Annotated[str, values.WORKDIR]
User = Annotated[str, values.USER]
LocalPath = Annotated[str, values.LOCAL_PATH]
PublicKey = Annotated[str, values.PUBLIC_KEY]
GitUrl = Annotated[str, values.GIT_URL]
GitRef = Annotated[str, values.GIT_REF]
Person = Annotated[str, values.PERSON]
Email = Annotated[str, values.EMAIL]
PythonVersion = Annotated[str, values.PYTHON]
Venv = Annotated[str, values.VENV]
Torch = Annotated[str, values.TORCH]
RepoPath = Annotated[str, values.REPO_PATH]
Extra = Annotated[str, values.EXTRA]
Package = Annotated[str, values.PACKAGE]
CheckName = Annotated[str, values.CHECK]
GpuName = Annotated[str, values.GPU_NAME]
Driver = Annotated[str, values.DRIVER]
Cuda = Annotated[str, values.CUDA]
Command = Annotated[str, values.COMMAND]
SessionName = Annotated[str, values.SESSION]

MOST = values.LONGEST_LIST


class Section(BaseModel):
    """What all sections of a profile share."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, defer_build=True, allow_inf_nan=False
    )


class Detect(Section):
    """How a box of this provider shows itself: any one of these is enough."""

    env: Free[list[EnvName]] = Field(
        default_factory=list, max_length=MOST, description="Variables that only its boxes have."
    )
    files: Free[list[BoxFile]] = Field(
        default_factory=list, max_length=MOST, description="Files that only its boxes have."
    )


class Advice(Section):
    """What only this provider's renters can do."""

    return_box: Free[FreeText | None] = Field(
        default=None, description="How a box that isn't what was ordered is given back."
    )
    shm: Free[FreeText | None] = Field(
        default=None, description="How a box gets more shared memory (/dev/shm)."
    )


class Provider(Section):
    """Who rents the box out."""

    name: Free[FreeText] = Field(default="this host", description="What people call the provider.")
    console: Free[FreeText | None] = Field(
        default=None, description="Where a box is destroyed: an address or a sentence."
    )
    detect: Detect = Field(
        default_factory=Detect, description="How a box of this provider shows itself."
    )
    advice: Advice = Field(
        default_factory=Advice, description="What only this provider's renters can do."
    )


class Box(Section):
    """The rented machine."""

    workdir: Free[Workdir] = Field(
        default="~", description="Folder on the box for everything; best on its volume."
    )
    min_cpus: Free[Annotated[float, Field(gt=0, le=100_000)] | None] = Field(
        default=None, description="CPU cores that the container must be granted."
    )
    min_memory_gib: Free[Annotated[float, Field(gt=0, le=1_000_000)] | None] = Field(
        default=None, description="Memory that it must be granted, judged with 4 % tolerance."
    )
    min_shm_gib: Free[Annotated[float, Field(gt=0, le=1_000_000)] | None] = Field(
        default=None, description="Shared memory (/dev/shm) that it must have."
    )
    min_disk_gib: Free[Annotated[float, Field(gt=0, le=10_000_000)] | None] = Field(
        default=None, description="Free disk that the working folder must have."
    )


class Ssh(Section):
    """How to log in."""

    user: Free[User | None] = Field(
        default=None, description="Login name on the box; a name in --host or the ssh config wins."
    )
    identity: File[LocalPath | None] = Field(
        default=None, description="Private key to log in with; by default those that ssh would try."
    )
    authorized_keys: PublicKeys[list[PublicKey]] = Field(
        default_factory=list,
        max_length=MOST,
        description="Public keys that may log in to the box as well.",
    )
    first_contact: Free[Literal["pin", "ask", "strict"]] = Field(
        default="pin",
        description="An unknown host key is pinned, asked about, or refused (give --host-key).",
    )


class GitUser(Section):
    """Who commits, set in that one repository on the box."""

    name: Free[Person | None] = Field(default=None, description="Name for commits made on the box.")
    email: Free[Email | None] = Field(
        default=None, description="E-mail address for commits made on the box."
    )


class Git(Section):
    """What is checked out on the box."""

    url: Repository[GitUrl | None] = Field(
        default=None, description="URL of the repository; by default the one you stand in."
    )
    ref: Free[GitRef | None] = Field(
        default=None, description="Branch, tag or commit; by default the commit you stand on."
    )
    access: Free[Literal["over-ssh", "url"]] = Field(
        default="over-ssh",
        description="over-ssh sends your objects over the login; url lets the box clone by itself.",
    )
    user: GitUser = Field(default_factory=GitUser, description="Who commits on the box.")


class Python(Section):
    """The environment that training runs in."""

    version: Free[PythonVersion | None] = Field(
        default=None,
        description="Version of Python, in quotes; by default what the repository asks for.",
    )
    venv: Free[Venv] = Field(
        default=".venv",
        description="The environment's folder; an existing one, as /venv/main, is adopted.",
    )
    installer: Free[Literal["uv", "pip"]] = Field(
        default="uv", description="What installs packages."
    )
    torch_backend: Free[Torch] = Field(
        default="auto",
        description="Build of torch: auto goes by the driver; or cpu, cu126, rocm6.3, xpu.",
    )
    requirements: Free[list[RepoPath] | None] = Field(
        default=None,
        max_length=MOST,
        description="Requirements files; by default what the repository has; [] for none.",
    )
    lock: Free[RepoPath | None] = Field(
        default=None, description="A uv.lock to install from, to the letter."
    )
    extras: Free[list[Extra]] = Field(
        default_factory=list,
        max_length=MOST,
        description="Extras of the project to install with it.",
    )


class Gpu(Section):
    """What was ordered; a box that has less is one to return."""

    require: Free[bool] = Field(
        default=True, description="Whether a box without a GPU is one to return."
    )
    count: Free[Annotated[int, Field(ge=1, le=1024)] | None] = Field(
        default=None, description="How many GPUs were ordered."
    )
    name: Free[GpuName | None] = Field(
        default=None, description="A part of the GPU's name, as in A100."
    )
    min_memory_gib: Free[Annotated[float, Field(gt=0, le=100_000)] | None] = Field(
        default=None, description="Memory of each GPU in GiB, judged with 4 % tolerance."
    )
    min_driver: Free[Driver | None] = Field(
        default=None, description="Oldest NVIDIA driver that will do."
    )
    min_cuda: Free[Cuda | None] = Field(
        default=None, description="Oldest CUDA that the driver must support."
    )
    min_power_watts: Free[Annotated[float, Field(gt=0, le=100_000)] | None] = Field(
        default=None, description="Power that each GPU may draw at the least."
    )
    min_pcie_generation: Free[Annotated[int, Field(ge=1, le=100)] | None] = Field(
        default=None, description="Generation of PCIe that card and slot can do together."
    )
    min_pcie_width: Free[Annotated[int, Field(ge=1, le=64)] | None] = Field(
        default=None, description="Lanes of PCIe that card and slot can do together."
    )
    mig: Free[bool] = Field(
        default=False, description="Whether a slice of a GPU (MIG) was ordered."
    )
    nvlink: Free[bool] = Field(
        default=False, description="Whether GPUs joined by NVLink were ordered: all links are up."
    )
    strict: Free[bool] = Field(
        default=False, description="Whether a warning is a reason to return the box."
    )
    checks: Free[dict[CheckName, Literal["return", "warn", "ignore"]]] = Field(
        default_factory=dict,
        max_length=MOST,
        description="What a check that fails means, by its name: return, warn or ignore.",
    )
    smoke: Free[Literal["quick", "full", "none"]] = Field(
        default="quick",
        description="How hard each GPU is tried once the environment is there.",
    )


class Train(Section):
    """What runs once the box is ready."""

    command: Free[Command] = Field(description="The command, run in the repository on the box.")
    session: Free[SessionName] = Field(
        default="train", description="Name of the tmux session and of the run."
    )
    results: Free[list[RepoPath]] = Field(
        default_factory=list,
        max_length=MOST,
        description="What training writes and you will want back; `out/` is made first.",
    )
    at_boot: Free[Literal["leave", "restart"]] = Field(
        default="leave",
        description="Where a start-up hook runs again, and the run died with the box: restart it?",
    )


class Profile(Section):
    """What a box should become."""

    version: Free[Literal[1]] = Field(default=1, description="Version of this format.")
    extends: File[Parent | None] = Field(
        default=None,
        description="Profile to start from: a shipped one's name, or a path beside this file.",
    )
    name: str = Field(default="", description="Set by the loader; no key of the YAML.")
    provider: Provider = Field(default_factory=Provider, description="Who rents the box out.")
    box: Box = Field(default_factory=Box, description="The rented machine.")
    ssh: Ssh = Field(default_factory=Ssh, description="How to log in.")
    git: Git = Field(default_factory=Git, description="What is checked out on the box.")
    python: Python = Field(
        default_factory=Python, description="The environment that training runs in."
    )
    packages: Free[list[Package]] = Field(
        default_factory=list,
        max_length=MOST,
        description="Packages of the box's own package manager.",
    )
    gpu: Gpu = Field(
        default_factory=Gpu, description="What was ordered; a box that has less is one to return."
    )
    env: Free[dict[EnvName, EnvValue]] = Field(
        default_factory=dict,
        max_length=MOST,
        description="Variables for training and for your shells on the box.",
    )
    secrets: Secrets[list[EnvName]] = Field(
        default_factory=list,
        max_length=MOST,
        description="Names of secrets; values come from your environment, never from a file.",
    )
    train: Train | None = Field(
        default=None, description="What runs once the box is ready; without it, set up only."
    )
