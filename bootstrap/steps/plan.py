"""The plan: which steps there are, what each needs, and why each would run on this box."""

from operator import attrgetter

from bootstrap.value import Document, dataclass


@dataclass(frozen=True)
class Step:
    """A named unit of a setup. `onbox/steps/<name>.py` says how it is checked and applied."""

    name: str
    needs: tuple[str, ...]
    does: str  # what it brings, for the plan
    doing: str  # what is shown while it runs for the first time
    on_local: bool = True
    """Whether it runs if the box is this machine: not if it changes `~/.ssh` or ends the box."""
    per_repo: bool = False
    """Whether its stamp belongs to one repository, so that two can share a box."""
    asked: str = ""
    """What of a profile asks for it, such as `gpu.has_smoke_test`; "" if every profile does."""
    always_listed: bool = True
    """Whether a plan has a row for it even if the profile does not ask for it."""

    def is_asked(self, profile: object) -> bool:
        return not self.asked or bool(attrgetter(self.asked)(profile))


STEPS = (
    Step(
        "preflight", (), "can this box be set up at all?", "checking whether this box can be set up"
    ),
    Step(
        "shell",
        ("preflight",),
        "environment file of sessions, automatic tmux off",
        "writing the environment file",
    ),
    Step(
        "ssh",
        ("preflight",),
        "your public keys, the git hosts' keys",
        "adding keys",
        on_local=False,
    ),
    Step(
        "tools", ("preflight",), "git, tmux, the profile's packages", "installing what is missing"
    ),
    Step("agent", ("tools",), "uv, and an environment of boxstrap's", "fetching our own tools"),
    Step(
        "lease",
        ("agent",),
        "what ends the box when nobody does",
        "asking the account that pays for this box",
        on_local=False,
        asked="lease",
        always_listed=False,
    ),
    Step("gpu", ("agent",), "the GPU: as ordered, healthy by NVML", "asking the GPU"),
    Step("repo", ("tools",), "your commit, with edits", "checking out your commit", per_repo=True),
    Step(
        "python", ("repo", "gpu"), "your Python packages", "making the environment", per_repo=True
    ),
    Step(
        "smoke",
        ("python", "gpu"),
        "each GPU computes right, and as fast as its model",
        "trying each GPU",
        asked="gpu.has_smoke_test",
    ),
    Step(
        "data",
        ("repo", "agent", "shell"),
        "your data, at its places",
        "fetching your data",
        per_repo=True,
        asked="data",
        always_listed=False,
    ),
    Step(
        "prepare",
        ("python", "smoke", "data", "shell"),
        "your commands before training",
        "running your commands before training",
        per_repo=True,
        asked="prepare",
        always_listed=False,
    ),
    Step(
        "train",
        ("python", "smoke", "data", "prepare", "shell", "ssh"),
        "your command, in a session of tmux",
        "starting your command",
        per_repo=True,
        asked="train",
    ),
)
NAMES = tuple(step.name for step in STEPS)
DOING = {step.name: step.doing for step in STEPS}


@dataclass(frozen=True)
class PlanRow(Document):
    """One line of a plan: a step, and why it runs, or why it does not."""

    KEYS = "step=step.name, runs, why"

    step: Step
    why: str

    @property
    def runs(self) -> bool:
        """Whether the step would do anything."""
        return self.why not in {"done", "alive", "died", "failed", "local", "not-asked"}


def steps_for(profile: object, *, local: bool, repo: bool = True) -> tuple[Step, ...]:
    """Return the steps of a `Profile`, each of them after those that it needs."""
    return tuple(
        step
        for step in STEPS
        if (step.on_local or not local) and (repo or not step.per_repo) and step.is_asked(profile)
    )


def closure(name: str) -> set[str]:
    """Return the names of a step and of all steps that it needs, directly or not."""
    step = next(step for step in STEPS if step.name == name)
    return {name}.union(*(closure(need) for need in step.needs))


def plan_rows(chosen: tuple[Step, ...], answers: dict[str, str]) -> list[PlanRow]:
    """Return the steps with their reasons; `answers` are the box's reasons by step."""
    taking_part = {step.name for step in chosen}
    absent = {step.name: "not-asked" if step.on_local else "local" for step in STEPS}
    why = {**absent, **{name: answers.get(name, "new") for name in taking_part}}
    return [
        PlanRow(step, why[step.name])
        for step in STEPS
        if step.always_listed or step.name in taking_part
    ]
