"""render, oneliner: the script for every door other than SSH."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap.tasks.command import CONSENT, JSON, SET, Call, Option, command

if TYPE_CHECKING:
    from pathlib import Path

    from bootstrap.doors import CarriedScript

_PROFILE = Option("profile", "A profile: its name, or a path.")
_REPO = Option("repo", "The repository; default: that of the current folder.")
_OUTPUT = Option("output", "Write it into this file.")
_COMMITTED = Option(
    "committed_only", "Take the commit alone; what is not committed stays here.", False
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
    from bootstrap.doors import render_for_door, render_readable

    door = call.given["for_"]
    if door:
        _show(call, render_for_door(door, call.request(), call.screen))
    else:
        _show(call, render_readable(call.request(), call.screen))


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
    from bootstrap.doors import render_paste
    from bootstrap.errors import UsageError

    given = call.given
    if sum(bool(given[way]) for way in ("small", "url", "uvx")) > 1:
        raise UsageError("--small, --url and --uvx are three ways: choose one.")
    if given["url"]:
        _show_fetched(call)
        return
    small, uvx = bool(given["small"]), given["uvx"] or ""
    _show(call, render_paste(call.request(), call.screen, small=small, uvx=uvx))


def _show_fetched(call: Call) -> None:
    """Write the script into a file for the user to put at the address; show the paste for it."""
    from bootstrap.doors import render_fetched
    from bootstrap.errors import UsageError

    given = call.given
    if not given["output"]:
        raise UsageError(
            "--url needs --output FILE: the script that you then put at that address.",
            hint="boxstrap oneliner --url https://example.org/box.sh --output box.sh",
        )
    made = render_fetched(call.request(), call.screen, given["url"])
    file = _write(given["output"], made.script)
    call.screen.note(
        "put", f"{file} at {given['url']}, byte for byte; a script that differs is not run"
    )
    data = {"edition": made.edition, "sha256": made.sha256, "written": str(file), "text": made.text}
    call.screen.result(data, made.text.rstrip("\n"))


def _show(call: Call, made: CarriedScript) -> None:
    import sys

    size = len(made.text.encode())
    if call.given["output"]:
        file = _write(call.given["output"], made.text)
        call.screen.result({**made.data, "bytes": size, "written": str(file)}, f"written: {file}")
    elif call.is_json:
        call.screen.result({**made.data, "bytes": size, "lines": made.text.splitlines()})
    else:
        # Byte for byte, not through the screen, which limits and sanitizes untrusted text.
        sys.stdout.write(made.text)


def _write(name: str, text: str) -> Path:
    from bootstrap.errors import UsageError
    from bootstrap.paths import expanded, write_users_file

    file = expanded(name)
    try:
        write_users_file(file, text)
    except OSError as error:
        raise UsageError(f"{file} can't be written: {error.strerror}.", where="--output") from error
    return file
