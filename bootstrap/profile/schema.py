"""The schema of a profile: one class per section, with attributes named as the YAML's keys.

Rules of values are in `values.py`, reading in `reading.py`, merging in `merge.py`, checking in
`check.py`. Every key says what it takes from the user (`Free`: nothing).
"""

# No `from __future__ import annotations`: `Section` reads them as types.
from functools import lru_cache
from typing import Annotated, Literal

from bootstrap.profile import values
from bootstrap.profile.data_items import DataItem
from bootstrap.profile.fields import Field, Section, field
from bootstrap.profile.machine_sections import (
    BoxSection,
    EnvName,
    Gpu,
    Lease,
    Provider,
    Rent,
)
from bootstrap.profile.takes import (
    Buckets,
    Data,
    Dependencies,
    File,
    Free,
    PublicKeys,
    Repository,
    Secrets,
    Takes,
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
    name: str = ""
    """Set by the loader; not a key of the YAML."""
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
        "Commands that run in the environment before training, once for the same files."
    )
    shared: Free[list[SharedFolder]] = field(
        "Folders that git does not track, as data/: trees beside the main one link to its own."
    )
    data: Data[list[DataItem]] = field(
        "What to train on: each item from your machine or an address to its place on the box."
    )
    train: Train | None = field("What runs once the box is ready; without it, set up only.")
    lease: Lease | None = field("What ends the box when nobody does; without it, nothing.")


PROFILE = Field("section", section=Profile)
"""The whole file, as a field."""


@lru_cache(maxsize=1)
def taking_keys() -> dict[str, Takes]:
    """Return the keys of a profile that take something from the user, and what they take."""
    marks = ((key, field.takes) for key, field in PROFILE.leaves())
    return {key: mark for key, mark in marks if mark and mark is not Takes.NOTHING}
