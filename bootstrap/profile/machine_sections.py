"""The sections of a profile that say what the machine is, what it may cost, and what ends it."""

# No `from __future__ import annotations`: `Section` reads them as types.
from typing import Annotated, Literal

from bootstrap.profile import values
from bootstrap.profile.fields import Section, field
from bootstrap.profile.takes import Account, Free, Money

EnvName = Annotated[str, values.ENV_NAME]
BoxFile = Annotated[str, values.BOX_FILE]
FreeText = Annotated[str, values.FREE_TEXT]
Workdir = Annotated[str, values.WORKDIR]
CheckName = Annotated[str, values.CHECK]
GpuName = Annotated[str, values.GPU_NAME]
Driver = Annotated[str, values.DRIVER]
Cuda = Annotated[str, values.CUDA]
Time = Annotated[str, values.TIME]
Image = Annotated[str, values.IMAGE]
Volume = Annotated[str, values.VOLUME]
Region = Annotated[str, values.REGION]


class Detect(Section):
    """How a box of this provider shows itself: any one of these is enough."""

    env: Free[list[EnvName]] = field("Variables that only its boxes have.")
    files: Free[list[BoxFile]] = field("Files that only its boxes have.")


class Advice(Section):
    """What only this provider's renters can do."""

    return_box: Free[FreeText | None] = field(
        "How a box that isn't what was ordered is given back."
    )
    shm: Free[FreeText | None] = field("How a box gets more shared memory (/dev/shm).")


class Provider(Section):
    """Who rents the box out."""

    name: Free[FreeText] = field("What people call the provider.", default="this host")
    console: Free[FreeText | None] = field("Where a box is destroyed: an address or a sentence.")
    account: Account[Literal["vast", "runpod", "lambda", "paperspace"] | None] = field(
        "Whose account may have its boxes, and pays for what `up` rents."
    )
    box_id: Free[list[EnvName]] = field(
        "Variables by which a box says its id there; it counts where the account agrees."
    )
    detect: Detect = field("How a box of this provider shows itself.")
    advice: Advice = field("What only this provider's renters can do.")


class BoxSection(Section):
    """The rented machine."""

    workdir: Free[Workdir] = field(
        "Folder on the box for everything; best on its volume.", default="~"
    )
    min_cpus: Free[float | None] = field(
        "CPU cores that the container must be granted.", gt=0, le=100_000
    )
    min_memory_gib: Free[float | None] = field(
        "Memory that it must be granted, judged with 4 % tolerance.", gt=0, le=1_000_000
    )
    min_shm_gib: Free[float | None] = field(
        "Shared memory (/dev/shm) that it must have.", gt=0, le=1_000_000
    )
    min_disk_gib: Free[float | None] = field(
        "Free disk that the working folder must have.", gt=0, le=10_000_000
    )
    price: Free[float | None] = field(
        "Dollars an hour that the box costs, where no account of yours says it.", ge=0, le=100_000
    )
    image: Money[Image | None] = field(
        "The image that `up` rents it with; by default the provider's own for training."
    )
    disk_gb: Money[int | None] = field(
        "Disk that `up` rents with it, in GB; 50 by default.", ge=8, le=100_000
    )
    volume: Money[Volume | None] = field(
        "A volume of the account that `up` mounts at the working folder, by its id."
    )


class Gpu(Section):
    """What was ordered; a box that has less is one to return."""

    require: Free[bool] = field("Whether a box without a GPU is one to return.", default=True)
    count: Free[int | None] = field("How many GPUs were ordered.", ge=1, le=1024)
    name: Free[GpuName | None] = field("A part of the GPU's name, as in A100.")
    min_memory_gib: Free[float | None] = field(
        "Memory of each GPU in GiB, judged with 4 % tolerance.", gt=0, le=100_000
    )
    min_driver: Free[Driver | None] = field("Oldest NVIDIA driver that is accepted.")
    min_cuda: Free[Cuda | None] = field("Oldest CUDA that the driver must support.")
    min_power_watts: Free[float | None] = field(
        "Power that each GPU may draw at the least.", gt=0, le=100_000
    )
    min_pcie_generation: Free[int | None] = field(
        "Generation of PCIe that card and slot can do together.", ge=1, le=100
    )
    min_pcie_width: Free[int | None] = field(
        "Lanes of PCIe that card and slot can do together.", ge=1, le=64
    )
    mig: Free[bool] = field("Whether a slice of a GPU (MIG) was ordered.", default=False)
    nvlink: Free[bool] = field(
        "Whether GPUs joined by NVLink were ordered: all links are up.", default=False
    )
    strict: Free[bool] = field("Whether a warning is a reason to return the box.", default=False)
    checks: Free[dict[CheckName, Literal["return", "warn", "ignore"]]] = field(
        "What a check that fails means, by its name: return, warn or ignore."
    )
    smoke: Free[Literal["quick", "full", "none"]] = field(
        "How hard each GPU is tried once the environment is there.", default="quick"
    )


class Rent(Section):
    """What `up` may rent; `gpu` and `box` say what it must have."""

    provider: Money[Literal["vast", "runpod", "lambda"] | None] = field(
        "Whose offers are taken; by default those of every account that has a key here."
    )
    max_price: Money[float | None] = field(
        "Dollars an hour that it may cost, its disk included.", gt=0, le=10_000
    )
    spot: Money[bool] = field(
        "Whether it is bid for: cheaper, and gone when somebody bids more.", default=False
    )
    region: Free[Region | None] = field("Where it must be, as the provider writes it.")
    loading_minutes: Free[int] = field(
        "How long it may take until it can be reached; then it is given back.",
        default=15,
        ge=1,
        le=240,
    )


class Lease(Section):
    """What ends the box when nobody does; its runs are asked to end before."""

    hours: Money[float | None] = field("How long it may go on.", gt=0, le=100_000)
    dollars: Money[float | None] = field(
        "What it may cost, by its account's price or box.price.", gt=0, le=10_000_000
    )
    idle: Money[Time | None] = field(
        "How long nothing may use it, as in 30m: GPU, processor, log, transfer, terminal, editor."
    )
    stall: Money[Time | None] = field(
        "How long it may compute while neither a log nor results grow, as in 2h."
    )
    then: Money[Literal["stop", "destroy"]] = field(
        "What ends it: `destroy` where nothing on it is unsafe; what is not safe is stopped.",
        default="stop",
    )
