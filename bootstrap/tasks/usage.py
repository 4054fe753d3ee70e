"""Wrong usage in our own words, with what was meant: misspelt names, words of other tools."""

import sys

from bootstrap.errors import UsageError, exit_code
from bootstrap.link.target import looks_like_unquoted_ssh
from bootstrap.profile.values import nearest
from bootstrap.tasks import NAMES
from bootstrap.tasks.command import Command
from bootstrap.tasks.options import ANYWHERE, PROGRAM, looks_like_a_host
from bootstrap.tasks.streams import End, tell

_HINT = "See what there is: boxstrap --list. What a command takes: boxstrap COMMAND --help"
_CALLED = {
    "status": "ps inspect describe",
    "boxes": "ls list instances",
    "shell": "ssh connect login",
    "setup": "start provision deploy bootstrap apply install",
    "setup --restart": "restart",
    "run -- COMMAND": "train",
    "run --resume": "resume",
    "up": "rent create new",
    "setup (a box that you have) or up (rents one)": "launch",
    "report RUN RUN": "compare",
    "down": "destroy terminate delete rm",
    "stop": "kill cancel",
    "run --queue -- COMMAND": "queue submit",
    "logs -f": "tail",
    "logs": "log",
    "top": "watch nvidia-smi gpus",
    "push": "upload",
    "pull": "download results",
    "push or pull": "cp scp",
    "sync": "rsync",
    "verify": "check test",
    "code": "vscode",
    "code --editor cursor": "cursor",
    "tunnel --jupyter": "jupyter notebook",
    "tunnel --tensorboard": "tensorboard",
    "tunnel": "forward port-forward",
    "attach": "tmux",
    "up --dry-run": "offers search price",
    "lease": "autostop",
    "estimate": "cost",
    "profiles": "config",
    "plan": "dryrun diff",
    "setup --name NEW": "rename",
}
"""A command here, and what people call it in other tools of this field."""
OTHERS_WORDS = {word: here for here, words in _CALLED.items() for word in words.split()}
OTHERS_OPTIONS = {
    **dict.fromkeys(("--gpu", "--gpu-name", "--gpu-type"), "gpu.name"),
    **dict.fromkeys(("--gpus", "--gpu-count", "--num-gpus"), "gpu.count"),
    **dict.fromkeys(("--hours", "--max-hours"), "lease.hours"),
    **dict.fromkeys(("--idle", "--idle-minutes-to-autostop"), "lease.idle"),
    **dict.fromkeys(("--disk", "--disk-size"), "box.disk_gb"),
    "--image": "box.image",
    "--region": "rent.region",
    "--spot": "rent.spot",
    "--env": "env.NAME",
    **dict.fromkeys(("--no-browser", "--no-launch"), "--no-open"),
    "--once": "--looks 1",
    "--lines": "--tail",
    "--rename": "setup --name NEW",
}
"""What is an option in other tools, and here a key of the profile, or another option."""
_NEAR = 0.7  # least similarity (0 to 1) for which a word is taken for a misspelt name


def wrong_usage(text: str, command: Command | None, meant: str = "") -> UsageError:
    """Return the error of a command line that can't be understood; `meant` may be what it was."""
    if quoted := looks_like_unquoted_ssh(sys.argv[1:]):
        return UsageError(text, hint=f"Put the ssh command in quotes: {quoted}")
    takes = f"What it takes: boxstrap {command.name} --help" if command else _HINT
    return UsageError(text, hint=f"Did you mean {meant}?\n{takes}" if meant else takes)


def unknown_command(word: str) -> UsageError:
    if word.startswith("-"):
        flags = [each for option in PROGRAM for each in option.flags]
        return wrong_usage(f"there is no option {word!r}.", None, nearest(word, flags, _NEAR))
    named = OTHERS_WORDS.get(word) or nearest(word, NAMES, _NEAR)
    meant = f"setup --host {word}" if looks_like_a_host(word) else named
    return wrong_usage(f"there is no command {word!r}.", None, meant)


def unknown_word(word: str, command: Command, *, has_host: bool, meant: str = "") -> UsageError:
    """Return the error of a word after a command, which it doesn't take."""
    flags = [each for option in (*command.options, *ANYWHERE) for each in option.flags]
    if word.startswith("-"):
        ours = OTHERS_OPTIONS.get(word.partition("=")[0], "")
        is_ours = ours.split(" ")[0] in {*flags, *NAMES}
        meant = ours if is_ours else nearest(word, flags, _NEAR)
        if meant == "--dry" and command.changes is None:
            meant = "plan"
        if "." in ours and "--set" in flags:
            meant = f"--set {ours}=…"
        return wrong_usage(f"there is no option {word!r} of {command.name}.", command, meant)
    if not meant:
        meant = "" if looks_like_a_host(word) else nearest(word, NAMES, _NEAR)
        if not meant and "--host" in flags and not has_host:
            meant = f"--host {word}"
    return wrong_usage(f"{command.name} takes no {word!r}.", command, meant)


def refuse(wrong: UsageError) -> int:
    """Say what is wrong with the command line, by a document if it asks for one; return 2."""
    typed = sys.argv[1:]
    if "--json" in typed[: typed.index("--") if "--" in typed else None]:
        from bootstrap.ui.screens import make_screen

        screen = make_screen(json=True)
        screen.failed(wrong, exit_code(wrong))
        screen.close()
    return tell(End(exit_code(wrong), wrong.text()))
