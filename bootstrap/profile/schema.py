"""The schema of a profile: one class per section, with attributes named as the YAML's keys.

Every key says what it takes from the user (`Free`: nothing). Rules of values are in `values.py`.
"""

# No `from __future__ import annotations`: `Section` reads them as types.
import posixpath
import re
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

from bootstrap.profile import values
from bootstrap.profile.values import (
    REPO_PATH,
    WORKDIR,
    Access,
    Account,
    Buckets,
    Data,
    Dependencies,
    Field,
    File,
    Free,
    Money,
    Permission,
    PublicKeys,
    Repository,
    Rule,
    Secrets,
    Section,
    field,
    ordinary,
    shown_value,
)

Place = Literal["local", "address", "hub", "bucket"]
_SCHEMES: dict[str, Place] = {
    "https": "address",
    "hf": "hub",
    "s3": "bucket",
    "gs": "bucket",
    "az": "bucket",
}
_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]*):"
_ADDRESS = r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[!-~]*"
_BUCKET = r"(s3|gs|az)://[A-Za-z0-9._-]+(/[^\\\"]*)?"
_HUB = re.compile(
    r"hf:(?P<kind>datasets|models)/(?P<name>[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)?)"
    r"@(?P<revision>[A-Za-z0-9._%-]+)(/(?P<path>[^\\\"]+))?"
)
_EXPECTED: dict[Place, tuple[str, str]] = {
    "address": (_ADDRESS, "https://host/path without a name or password"),
    "hub": (
        _HUB.pattern,
        "hf:datasets/OWNER/NAME@REVISION or hf:models/…, and perhaps /path after it",
    ),
    "bucket": (_BUCKET, "s3://bucket/path, gs://… or az://…"),
}


def place_of(source: str) -> Place:
    """Return what kind of source this is. Raises ValueError for a scheme that is not supported."""
    scheme = re.match(_SCHEME, source)
    if not scheme:
        return "local"
    if scheme[1] not in _SCHEMES:
        raise ValueError(
            f"{shown_value(source)}: nothing is fetched by {scheme[1]}:; there are "
            f"{', '.join(f'{name}:' for name in _SCHEMES)} and paths on this machine"
        )
    return _SCHEMES[scheme[1]]


def _source(text: str) -> str:
    place = place_of(text)
    if place == "local":
        return ordinary(text)
    pattern, expected = _EXPECTED[place]
    if not re.fullmatch(pattern, text):
        raise ValueError(f"expected {expected}, got {shown_value(text)}")
    if place != "address" and ".." in text.split("/"):
        raise ValueError(f"{shown_value(text)} leaves its folder with '..'")
    return text


def _target(path: str) -> str:
    """Normalize the path, and keep a trailing slash: it means a folder."""
    if not set(path.split("/")) - {"", ".", "~"}:
        raise ValueError(f"{shown_value(path)} is not a path of its own")
    if path.startswith(("/", "~")):
        WORKDIR(path)
    else:
        REPO_PATH(path)
    return posixpath.normpath(path) + ("/" if path.endswith("/") else "")


SOURCE = Rule(
    "a path on this machine, or an address: https:, hf:, s3:, gs:, az:", r"(?s).+", finish=_source
)
TARGET = Rule(
    "a path in the repository, or on the box if it starts with / or ~/ "
    "(letters, digits, . _ + @ = -)",
    r"(?s).+",
    stays=True,
    finish=_target,
)
SHA256 = Rule("a SHA-256 (64 digits 0-9 a-f)", r"[0-9a-f]{64}")
PATTERN = Rule("a pattern, as a line of .gitignore", r"(?s).+")


class DataItem(Section):
    """One thing to train on: a file, a folder or an archive, and its place on the box."""

    from_: Free[Annotated[str, SOURCE]] = field(
        "A path here, https://…, hf:datasets/OWNER/NAME@REVISION, s3://, gs:// or az://."
    )
    to: Free[Annotated[str, TARGET]] = field(
        "Its path in the repository's folder on the box, or in its working folder; "
        "with a / at the end it goes into that folder by its own name."
    )
    sha256: Free[Annotated[str, SHA256] | None] = field(
        "The SHA-256 that the file at an address must have."
    )
    unpack: Free[bool] = field(
        "Whether the file is an archive (zip, tar, tar.gz, tar.bz2, tar.xz) to unpack into `to`.",
        default=False,
    )
    exclude: Free[list[Annotated[str, PATTERN]]] = field(
        "What of a folder, of a hub's repository or of a bucket stays away, as in .gitignore."
    )

    @property
    def source(self) -> str:
        found: str = self.from_
        return found

    def exclude_rules(self) -> list[tuple[str, bool]]:
        """Return `exclude` as regular expressions, each with whether a match is left out."""
        if not self.exclude:
            return []
        from pathspec import GitIgnoreSpec

        patterns = GitIgnoreSpec.from_lines(self.exclude).patterns
        return [(p.regex.pattern, bool(p.include)) for p in patterns if p.regex]

    @property
    def place(self) -> Place:
        """What kind of source it comes from."""
        return place_of(self.source)


class SentItem(NamedTuple):
    """An item of `data:` that is sent: its path on the box, and a digest of its content now."""

    to: str
    digest: str


def misfits(items: list[DataItem]) -> list[tuple[int, str, str]]:
    """Return keys that contradict one another: the item's number, the key, and why."""
    wrong: list[tuple[int, str, str]] = []
    seen: dict[str, int] = {}
    for number, item in enumerate(items):
        if item.sha256 and item.place in ("local", "hub"):
            why = "is checked for a file at an address; here each file has its own"
            wrong.append((number, "sha256", why))
        if item.unpack and item.place in ("local", "hub"):
            wrong.append((number, "unpack", "takes an archive at an address or in a bucket"))
        if item.exclude and (item.place == "address" or item.unpack):
            wrong.append(
                (number, "exclude", "chooses among several files, but this source is a single one")
            )
        if item.to in seen and not item.to.endswith("/"):
            wrong.append((number, "to", f"data[{seen[item.to]}] goes there too"))
        seen.setdefault(item.to, number)
    return wrong


ProviderName = Annotated[str, values.PROVIDER]
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
    account: Account[ProviderName | None] = field(
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
    arch: Free[Literal["amd64", "arm64"]] = field(
        "Processors that `up` rents it with.", default="amd64"
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
    name: Free[GpuName | None] = field(
        "The GPU's model, by any of its names; or several, of which `up` takes the first it gets.",
        joins=True,
    )
    min_memory_gib: Free[float | None] = field(
        "Memory of each GPU, as it is sold, judged with 4 % tolerance.", gt=0, le=100_000
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
    mig: Free[bool] = field(
        "Whether slices of GPUs (MIG) were ordered; count, name and memory are theirs then.",
        default=False,
    )
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

    @property
    def has_smoke_test(self) -> bool:
        return self.require and self.smoke != "none"

    @property
    def names(self) -> tuple[str, ...]:
        """The names in `name`, in its order."""
        return tuple(one.strip() for one in (self.name or "").split(",") if one.strip())


class Rent(Section):
    """What `up` may rent; `gpu` and `box` say what it must have."""

    provider: Money[ProviderName | None] = field(
        "Whose offers are taken; by default those of every account that has a key here."
    )
    max_price: Money[float | None] = field(
        "Dollars an hour that it may cost, its disk included.", gt=0, le=10_000
    )
    spot: Money[bool] = field(
        "Whether it is bid for: cheaper, and gone when somebody bids more.", default=False
    )
    region: Free[Region | None] = field("Where it must be, as the provider writes it.")
    secure_only: Free[bool] = field(
        "Whether it must be in the provider's data centers, not at somebody else's.", default=False
    )
    min_reliability: Free[float | None] = field(
        "Share of the time that its host was up, as in 0.99, where the provider says it.",
        gt=0,
        le=1,
    )
    min_down_mbps: Free[float | None] = field(
        "Mbit/s that it must load, where the provider says it.", gt=0, le=1_000_000
    )
    min_hours: Free[float | None] = field(
        "How long it must be for rent: at Vast.ai a host's contract has an end.", gt=0, le=100_000
    )
    loading_minutes: Free[int | None] = field(
        "How long it may take to be reached, else it is given back; 15 to 30, by the provider.",
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


EnvValue = Annotated[str, values.ENV_VALUE]
Parent = Annotated[str, values.PARENT]
User = Annotated[str, values.USER]
LocalPath = Annotated[str, values.LOCAL_PATH]
PublicKey = Annotated[str, values.PUBLIC_KEY]
GitUrl = Annotated[str, values.GIT_URL]
GitRef = Annotated[str, values.GIT_REF]
Person = Annotated[str, values.PERSON]
Email = Annotated[str, values.EMAIL]
PythonVersion = Annotated[str, values.PYTHON]
Day = Annotated[str, values.DAY]
Venv = Annotated[str, values.VENV]
Torch = Annotated[str, values.TORCH]
RepoPath = Annotated[str, values.REPO_PATH]
SharedFolder = Annotated[str, values.SHARED]
Extra = Annotated[str, values.EXTRA]
Requirement = Annotated[str, values.REQUIREMENT]
Group = Annotated[str, values.GROUP]
IndexUrl = Annotated[str, values.INDEX_URL]
Distribution = Annotated[str, values.DISTRIBUTION]
Package = Annotated[str, values.PACKAGE]
Command = Annotated[str, values.COMMAND]
MetricLine = Annotated[str, values.METRIC]
SessionName = Annotated[str, values.SESSION]
BucketFolder = Annotated[str, values.BUCKET_FOLDER]


class Ssh(Section):
    """How to log in."""

    user: Free[User | None] = field(
        "Login name on the box; a name in --host or the ssh config wins."
    )
    identity: File[LocalPath | None] = field(
        "Private key to log in with; by default those that ssh would try."
    )
    authorized_keys: PublicKeys[list[PublicKey]] = field(
        "Public keys that may log in to the box as well."
    )
    first_contact: Free[Literal["pin", "ask", "strict"]] = field(
        "An unknown host key is pinned, asked about, or refused (give --host-key).", default="pin"
    )
    keep_open: Access[Annotated[str, values.TIME_OR_0]] = field(
        "How long a connection stays open after its last use, for later commands; 0: not at all.",
        default="10m",
    )


class GitUser(Section):
    """Who commits, set in that one repository on the box."""

    name: Free[Person | None] = field("Name for commits made on the box.")
    email: Free[Email | None] = field("E-mail address for commits made on the box.")


class Git(Section):
    """What is checked out on the box."""

    url: Repository[GitUrl | None] = field(
        "URL of the repository; by default that of the current folder."
    )
    ref: Free[GitRef | None] = field("Branch, tag or commit; by default the commit you stand on.")
    access: Free[Literal["over-ssh", "url"]] = field(
        "over-ssh sends your objects over the login; url lets the box clone by itself.",
        default="over-ssh",
    )
    include: Free[Literal["all", "tracked", "commit"]] = field(
        "What travels with the commit: all changes and new files, those of tracked files, nothing.",
        default="all",
    )
    max_file_mib: Free[float] = field(
        "Size of the largest new file that travels, in MiB; files of LFS aside.",
        default=100,
        gt=0,
        le=1_000_000,
    )
    user: GitUser = field("Who commits on the box.")


class Python(Section):
    """The environment that training runs in."""

    version: Free[PythonVersion | None] = field(
        "Version of Python, in quotes; by default what the repository asks for."
    )
    as_of: Free[Day | None] = field(
        "Packages as they were on this day, in quotes: none that was uploaded later."
    )
    venv: Free[Venv] = field(
        "The environment's folder; an existing one, as /venv/main, is adopted.", default=".venv"
    )
    installer: Free[Literal["uv", "pip"]] = field("What installs packages.", default="uv")
    torch_backend: Free[Torch] = field(
        "Build of torch: auto goes by the driver; or cpu, cu126, rocm6.3, xpu.", default="auto"
    )
    reuse: Free[Literal["auto", "never"]] = field(
        "auto copies what the image brings and satisfies them, where that is quicker.",
        default="auto",
    )
    requirements: Free[list[RepoPath] | None] = field(
        "Requirements files; by default what the repository has; [] for none."
    )
    conda: Free[RepoPath | None] = field(
        "An environment.yml to build by conda's packages, its pip section by the installer."
    )
    lock: Free[RepoPath | None] = field("A uv.lock to install from, to the letter.")
    extras: Free[list[Extra]] = field("Extras of the project to install with it.")
    groups: Free[list[Group]] = field("Dependency groups of pyproject.toml to install with it.")
    packages: Free[list[Requirement]] = field("Requirements beside the files, as in torch>=2.4.")
    index: Free[list[IndexUrl]] = field("Package indexes to ask before those of the box.")
    no_build_isolation: Free[list[Requirement]] = field(
        "Requirements installed last, built with what is installed then, as flash-attn is."
    )
    only_binary: Free[list[Distribution]] = field(
        "Packages that come as wheels or not at all: none is built on the box."
    )
    private: Dependencies[list[GitUrl] | None] = field(
        "Git dependencies that are fetched here and sent, or where they lie; by default all by ssh."
    )


class Train(Section):
    """What runs once the box is ready."""

    command: Free[Command] = field("The command, run in the repository on the box.")
    nodes: Free[int] = field(
        "How many boxes of one private network train together, by torchrun or its like; they are "
        "named by --host.",
        default=1,
        ge=1,
        le=64,
    )
    results_of: Free[Literal["rank-0", "all"]] = field(
        "With nodes: the results of which ones are results; the others' are left.", default="rank-0"
    )
    session: Free[SessionName] = field("Name of the tmux session and of the run.", default="train")
    results: Free[list[RepoPath]] = field(
        "What training writes and you will want back; `out/` is made first."
    )
    metrics: Free[list[MetricLine]] = field(
        "Lines of the log that have metrics, with a {name} where each number stands, as in "
        "'score is {score}'; by default usual names, as in loss 0.42 or val_loss=0.42."
    )
    results_to: Buckets[BucketFolder | None] = field(
        "A folder of an S3 bucket that the box puts complete results into, with the secret "
        "RESULTS_KEY: s3://BUCKET/PATH."
    )
    resume: Free[Command | None] = field(
        "The command that goes on from what a run left that died, as in python train.py --resume."
    )
    on_notice: Free[Command | None] = field(
        "The command that makes it save its work when its box is about to be taken away; without "
        "it, it is asked to end (SIGTERM)."
    )
    at_boot: Free[Literal["leave", "restart", "resume"]] = field(
        "What a start-up hook does with runs that died with the box: restart the last one from its "
        "beginning, or let all go on by train.resume.",
        default="leave",
    )
    grace: Free[int] = field(
        "Seconds from `stop` asking it to end (SIGTERM) until it is killed.",
        default=values.GRACE_S,
        ge=0,
        le=values.LONGEST_GRACE_S,
    )
    log_max_mib: Free[int] = field(
        "How large a log may be on the box's disk, in MiB: above it the oldest part is let go.",
        default=values.LOG_MAX_MIB,
        ge=8,
        le=1024 * 1024,
    )


class Profile(Section):
    """What a box should become."""

    version: Free[Literal[1]] = field("Version of this format.", default=1)
    extends: File[Parent | None] = field(
        "Profile to start from: a shipped one's name, or a path beside this file."
    )
    name: str = ""  # set by the loader; not a key of the YAML
    provider: Provider = field("Who rents the box out.")
    box: BoxSection = field("The rented machine.")
    ssh: Ssh = field("How to log in.")
    git: Git = field("What is checked out on the box.")
    python: Python = field("The environment that training runs in.")
    packages: Free[list[Package]] = field("Packages of the box's own package manager.")
    gpu: Gpu = field("What was ordered; a box that has less is one to return.")
    rent: Rent = field("What `up` may rent; `gpu` and `box` say what it must have.")
    env: Free[dict[EnvName, EnvValue]] = field(
        "Variables for training and for your shells on the box."
    )
    secrets: Secrets[list[EnvName]] = field(
        "Names of secrets; values come from your environment, a .env, or a command of yours."
    )
    prepare: Free[list[Command]] = field(
        "Commands that run in the environment before training, once for the same files and data."
    )
    shared: Free[list[SharedFolder]] = field(
        "Folders and files that git ignores, as data/: trees beside the main one link to its own."
    )
    data: Data[list[DataItem]] = field(
        "What to train on: each item from your machine or an address to its place on the box."
    )
    train: Train | None = field("What runs once the box is ready; without it, set up only.")
    lease: Lease | None = field("What ends the box when nobody does; without it, nothing.")
    notify: Free[list[Literal["loss", "stall", "disk", "lease", "end"]]] = field(
        "What the box tells NOTIFY_URL of runs: first metric, stall, low disk, lease's end, end."
    )


PROFILE = Field("section", section=Profile)  # the whole file, as a field


@lru_cache(maxsize=1)
def taking_keys() -> dict[str, Permission]:
    """Return the keys of a profile that take something from the user, and what they take."""
    marks = ((key, field.takes) for key, field in PROFILE.leaves())
    return {key: mark for key, mark in marks if mark and mark is not Permission.NOTHING}


def as_row(pattern: str) -> str:
    """Return the pattern for `onbox/metrics.py`: names, a TAB, an expression with a group for each.

    The expression means the same to Python and to `grep -E`.
    """
    from bootstrap.onbox.metrics import NUMBER  # late: few profiles have patterns

    parts = re.split(r"\{([^{}]+)\}", pattern)
    return f"{','.join(parts[1::2])}\t{NUMBER.join(map(_literal, parts[::2]))}"


def _literal(text: str) -> str:
    """Escape a text; a run of spaces in it matches one or more."""
    escaped = re.sub(r"([\\.*^$+?()|[])", r"\\\1", text)
    return re.sub(" +", " +", escaped)
