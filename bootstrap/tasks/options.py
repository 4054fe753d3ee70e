"""What can be typed, as data: an option, and those of the program itself."""

import re
from typing import NamedTuple

from bootstrap.providers import NAMES


class Option(NamedTuple):
    """One option: its parameter, what it means, and a short form if it has one."""

    name: str
    help: str
    default: object = None
    short: str = ""
    many: bool = False
    bare: bool = False  # whether a word without an option is a value of this one

    @property
    def flag(self) -> str:
        return flag_of(self.name)

    @property
    def flags(self) -> list[str]:
        return [self.flag, *([f"-{self.short}"] if self.short else [])]


def flag_of(name: str) -> str:
    return f"--{name.rstrip('_').replace('_', '-')}"


ANYWHERE = (
    Option("dry", "Show what a setup would do; changes nothing.", False, "R"),
    Option("help", "Show this help, or that of a command.", False, "h"),
)
"""The program's options that may stand among those of a command, too."""
PROGRAM = (
    Option("directory", "Work as if started in this folder.", short="C"),
    *ANYWHERE,
    Option("list", "List the commands.", False, "l"),
    Option("no_color", "No colours, as NO_COLOR=1.", False),
    Option("version", "Show the version.", False, "V"),
)
"""The program's own options, before the command."""
PROFILE = Option("profile", "A profile: its name, or a path.")
REPO = Option("repo", "The repository; default: that of the current folder.")
REPO_MEANT = REPO._replace(
    help="The repository that is meant; default: that of the current folder."
)
IDENTITY = Option("identity", "The private key to log in with.")
COMMITTED = Option(
    "committed_only", "Take the commit alone; what is not committed stays here.", False
)
OVERWRITE = Option(
    "overwrite_results", "It may overwrite results of earlier runs that are not home.", False
)
WAIT = Option("wait", "Seconds to wait for another setup on this box.", 60)
OF_RENTING = (
    Option(
        "provider",
        f"Whose offers: {', '.join(NAMES)}, or another package's; default: the profile's, or all.",
    ),
    Option("max_price", "Dollars an hour that it may cost; then nobody is asked."),
    Option(
        "limit",
        "Dollars to spend at most on boxes that turn out unusable; default: an hour's price.",
    ),
    Option("wait_offer", "Wait for an offer within the price, as in 2h, with a line a minute."),
)
"""Of a command that rents a box."""
WITH_COMMAND = ("exec", "run")
"""Commands that take a command of the user's, after `--` or their own options."""


def looks_like_a_host(word: str) -> bool:
    """Whether a word is an address, or a user at one."""
    return re.fullmatch(r"\S*@\S*|[\d.]+(:\d+)?", word) is not None
