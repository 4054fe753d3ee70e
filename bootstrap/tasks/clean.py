"""clean: remove trees that are no longer needed from a box."""

from __future__ import annotations

from bootstrap.tasks.command import HOST, JSON, Call, Option, command


@command(
    HOST,
    JSON,
    Option("identity", "The private key to log in with."),
    Option("repo", "The repository that is meant; default: that of the current folder."),
    Option(
        "discard", "A tree that goes with all it holds, as in homework@2. Repeatable.", many=True
    ),
    changes=(),
)
def clean(call: Call) -> None:
    """Remove the trees beside the main one whose runs are over, and that hold nothing of their own.

    Example: boxstrap clean --host my-box
    """
    from bootstrap.runs.clean import clean_box

    clean_box(call.options(), call.screen, discard=tuple(call.given["discard"]), look=call.dry)
