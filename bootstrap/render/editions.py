"""The editions of the script (full, compact, minimal), and what the shorter ones leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap.errors import UsageError

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile

FULL, COMPACT, MINIMAL = "full", "compact", "minimal"

MINIMAL_LIMIT = 4048
"""Characters that Vast.ai's API accepts for `onstart`, the narrowest door."""

IN_JSON = {FULL: "whole", COMPACT: "short", MINIMAL: "small"}
"""Their names in JSON documents, whose format must not change."""

LEFT_OUT_TEXTS: dict[str, tuple[str, ...]] = {
    COMPACT: (
        "steps that run at the same time, and live progress",
        "the smoke test; of the GPU check: power, throttling, heat, bus, NVLink, every check of "
        "the machine and the network",
        "repairing a repository or a package manager's state that a kill or a bad disk damaged",
        "shells other than bash; saying before the download that no build of torch fits this GPU",
        "the extra indexes of the box's pip where the profile has python.index",
        "looking for free inodes; saying that another repository has the folder of this name",
        "noting which part of a pipeline ended the training, and what it left running",
        "the queue of runs, and train.at_boot: resume",
        "a limit for the log, its times, and train.grace",
        "python.conda, data, a lease; results in a bucket (train.results_to)",
    ),
    MINIMAL: (
        "what the compact script leaves out, too",
        "of the GPU check: everything but count, name, memory, memory in use and ECC errors",
        "package managers other than apt, the git hosts' known keys, pip's extra indexes",
        "python.installer: pip; skipping steps that are already right",
        "the commands of prepare",
    ),
}
"""What the shorter editions do not do, in sentences for the user."""


def needs_full(profile: Profile, edition: str) -> None:
    """Raise UsageError if the profile needs something that only the full edition does."""
    asked = {
        "python.conda": ("makes no environment of conda's packages", bool(profile.python.conda)),
        "data": ("fetches no data", bool(profile.data)),
        "lease": ("holds no lease", profile.lease is not None),
        "train.results_to": (
            "puts no results into a bucket",
            bool(profile.train and profile.train.results_to),
        ),
    }
    for key, (lacks, is_asked) in asked.items():
        if is_asked:
            raise UsageError(
                f"the {edition} script {lacks}.",
                where=key,
                hint="Let the box fetch the full one: boxstrap oneliner --url https://…",
            )


def left_out(edition: str) -> tuple[str, ...]:
    """Return what an edition does not do, in sentences for the user."""
    whole = LEFT_OUT_TEXTS.get(edition, ())
    return (*LEFT_OUT_TEXTS[COMPACT], *whole[1:]) if edition == MINIMAL else whole
