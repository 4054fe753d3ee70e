"""`boxstrap help TOPIC`: what is looked up while one works, from the tables of the code.

A topic is a list (`exit-codes`, `hosts`), or one thing by its name: a profile's key or section, the
code with which a step failed, a check of the verdict.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping

Rows = Iterable[tuple[str, str]]

_HOSTS = (
    ("root@203.0.113.7:46769", "an address, as in ssh; without user: root, without port: 22"),
    ("'ssh -p 46769 root@203.0.113.7'", "the ssh command as the provider's page shows it"),
    ("gpu", "an alias of your ssh config, or the name of a box that was set up before"),
    ("vast:12345678", "a box of your account, by its id there"),
    ("'gpu-*'", "each known box of such a name, with a command that takes several"),
    ("local", "this machine"),
)
_VARIABLES = (
    ("BOXSTRAP_MAX_PRICE", "here: dollars an hour that any box may cost"),
    ("BOXSTRAP_MAX_DOLLARS", "here: dollars that all boxes may cost in any 24 hours"),
    ("BOXSTRAP_LET_IN", "here: which addresses a box at EC2 lets in, as in 198.51.100.0/24"),
    ("BOXSTRAP_KEEP_OPEN", "here: how long a connection stays open after a command, as in 30m"),
    ("BOXSTRAP_SSH_CONFIG", "here: the ssh config that gets the boxes' names; off: none"),
    ("BOXSTRAP_JOB_RANK", "in a run on several boxes or GPUs: which one of them it is, from 0"),
    ("BOXSTRAP_NUM_JOBS", "there: how many they are"),
    ("BOXSTRAP_SWEEP", "in a run of a sweep: its name"),
    ("BOXSTRAP_CELL", "there: its cell"),
    ("BOXSTRAP_NODE_RANK", "in a training of several nodes: which node it is, from 0"),
    ("BOXSTRAP_NUM_NODES", "there: how many they are"),
    ("BOXSTRAP_NODE_IPS", "there: their addresses, one a line"),
    ("BOXSTRAP_GPUS_PER_NODE", "there: the GPUs of this node"),
)


def _exit_codes() -> Rows:
    from bootstrap.tasks.effects import NEXT  # what comes after it is said to an agent

    return ((str(code), what) for code, (what, _) in NEXT.items())


def _keys(section: str = "") -> Rows:
    from bootstrap.profile.schema import PROFILE

    for key, field in PROFILE.leaves():
        if f"{key}.".startswith(f"{section}." if section else ""):
            yield key, field.description


def _providers() -> Rows:
    from bootstrap.providers.accounts import PROVIDERS

    return ((name, f"{one.title}; its key: {one.keys}") for name, one in PROVIDERS.items())


def _codes() -> Rows:
    from bootstrap.steps.event_codes import CODES

    return ((name, f"{code.what}; {code.hint}") for name, code in CODES.items())


def _checks() -> Rows:
    from bootstrap.onbox.verdict.judge import BOX_CHECKS, OF_GPUS

    for check in (*OF_GPUS, *BOX_CHECKS):
        yield check.name, (check.judge.__doc__ or "").partition("\n")[0]


TOPICS: Mapping[str, tuple[str, Callable[[], Rows]]] = {
    "exit-codes": ("what each exit code means; what to do then each error says", _exit_codes),
    "hosts": ("what --host takes", lambda: _HOSTS),
    "profile": ("each key of boxstrap.yaml, as for --set", _keys),
    "providers": ("where boxes are rented, and where your account's key is looked for", _providers),
    "failures": ("each reason with which a step of a setup can fail", _codes),
    "checks": ("what the verdict on a box looks at", _checks),
    "variables": ("variables that boxstrap reads here, or sets for a run", lambda: _VARIABLES),
}


def find_topic(name: str) -> tuple[str, list[tuple[str, str]]]:
    """Return title and rows of a topic, also by the start of its name, or the rows of one thing
    by its name; none if unknown."""
    found = [row for rows in (_codes(), _checks()) for row in rows if row[0] == name]
    found = list(_keys(name)) or found
    begun = [topic for topic in TOPICS if topic.startswith(name)]
    if found or len(begun) != 1:
        return "", found
    title, rows = TOPICS[begun[0]]
    return f"{begun[0]}: {title}", list(rows())


def near(name: str, commands: Iterable[str]) -> str:
    """Return the names that may have been meant, for the error of one that is unknown."""
    known = [*commands, *TOPICS, *(key for key, _ in _keys()), *(code for code, _ in _codes())]
    return ", ".join(difflib.get_close_matches(name, known, 3, 0.65))
