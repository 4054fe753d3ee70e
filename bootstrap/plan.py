"""The plan: which steps there are, what each needs, and why each would run on this box."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A named unit of set-up. `templates/steps/<name>.sh` says how it is checked and applied."""

    name: str
    needs: tuple[str, ...]
    does: str
    on_local: bool = True
    """Whether it runs where the box is this machine: what changes the person's own `~/.ssh`
    does not."""
    per_repo: bool = False
    """Whether its stamp belongs to one repository, so that two share a box."""


STEPS = (
    Step("preflight", (), "can this box be set up at all?"),
    Step("shell", ("preflight",), "environment file, automatic tmux off"),
    Step("ssh", ("preflight",), "your public keys, the git hosts' keys", on_local=False),
    Step("tools", ("preflight",), "git, tmux, rsync, the profile's packages"),
    Step("agent", ("tools",), "uv, and a small environment of our own"),
    Step("gpu", ("agent",), "the GPU that was ordered, asked through NVML"),
    Step("repo", ("tools",), "your commit, checked out", per_repo=True),
    Step("python", ("repo", "gpu"), "the environment", per_repo=True),
    Step("smoke", ("python", "gpu"), "each GPU computes right, and as fast as its model"),
    Step("train", ("python", "smoke", "shell", "ssh"), "your command, in a session", per_repo=True),
)
NAMES = tuple(step.name for step in STEPS)
DOING = {
    "preflight": "checking whether this box can be set up",
    "shell": "writing the environment file",
    "ssh": "adding keys",
    "tools": "installing what is missing",
    "agent": "fetching our own tools",
    "gpu": "asking the GPU",
    "repo": "checking out your commit",
    "python": "making the environment",
    "smoke": "trying each GPU",
    "train": "starting your command",
}
"""What is shown of a step that runs for the first time."""


@dataclass(frozen=True)
class PlanRow:
    """One line of a plan: a step, and why it runs, or why it does not."""

    step: Step
    why: str

    @property
    def runs(self) -> bool:
        """Whether the step would do anything."""
        return self.why not in {"done", "alive", "died", "local", "not-asked"}


def steps_for(
    *, local: bool, train: bool, repo: bool = True, smoke: bool = False
) -> tuple[Step, ...]:
    """The steps of a profile, in an order in which each comes after what it needs."""
    return tuple(
        step
        for step in STEPS
        if (step.on_local or not local)
        and (train or step.name != "train")
        and (smoke or step.name != "smoke")
        and (repo or not step.per_repo)
    )


def needs_among(step: Step, chosen: Iterable[Step]) -> tuple[str, ...]:
    """What `step` needs of the steps that take part."""
    names = {other.name for other in chosen}
    return tuple(name for name in step.needs if name in names)


def closure(name: str) -> set[str]:
    """A step's name, and those of all that it needs."""
    step = next(step for step in STEPS if step.name == name)
    return {name}.union(*(closure(need) for need in step.needs))


def rows(chosen: tuple[Step, ...], answers: dict[str, str]) -> list[PlanRow]:
    """Every step there is with its reason; `answers` are the box's own words."""
    taking_part = {step.name for step in chosen}
    return [
        PlanRow(step, answers.get(step.name, "new") if step.name in taking_part else _absent(step))
        for step in STEPS
    ]


def _absent(step: Step) -> str:
    return "not-asked" if step.on_local else "local"
