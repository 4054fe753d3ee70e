"""render, oneliner: the same script through every other door."""

from __future__ import annotations

from bootstrap.tasks.command import CONSENT, JSON, SET, Call, Option, command

_PROFILE = Option("profile", "A profile: its name, or a path.")
_REPO = Option("repo", "The repository; default: the one you stand in.")
_OUTPUT = Option("output", "Write it into this file.")
_COMMITTED = Option(
    "committed_only", "Take the commit alone; what is not committed stays behind.", False
)


@command(
    _PROFILE,
    SET,
    JSON,
    _REPO,
    CONSENT,
    _COMMITTED,
    Option("for_", "The door it is for, as in ec2; without it, the script itself, readable."),
    _OUTPUT,
    changes=("output",),
)
def render(call: Call) -> None:
    """Show the script that sets a box up; or pack it for a provider's start-up hook.

    Example: boxstrap render --for ec2 --output user-data.yaml
    """
    from bootstrap.setup.through import show_rendering

    show_rendering(call.options(), call.screen, call.given)


@command(
    _PROFILE,
    SET,
    JSON,
    _REPO,
    CONSENT,
    _COMMITTED,
    Option("small", "At most 4,048 characters; it says what that leaves out.", False),
    Option("url", "Fetch the script from this address, against its SHA-256; see --output."),
    Option("uvx", "Let uvx make the script on the box: what to install boxstrap from."),
    _OUTPUT,
    changes=("output",),
)
def oneliner(call: Call) -> None:
    """Print one paste for the terminal of a fresh box: keys, code, environment, GPU, training.

    Example: boxstrap oneliner --profile vast
    """
    from bootstrap.setup.through import show_paste

    show_paste(call.options(), call.screen, call.given)
