"""The secrets that a profile names: read on this machine, sent only over the login's input.

Their values come from the environment, a `.env` or a command of the user's. A `.env` is read
strictly: what programs read differently is refused, and nothing is expanded.

The names of those that a box was given are kept in its record. Their values are redacted in what it
says from then on: on this machine, or on the box itself if this machine lacks the value.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.onbox.env_files import KEY_MARK
from bootstrap.onbox.redact import SHORTEST, Redactor, TooShortError
from bootstrap.paths import (
    config_dir,
    is_foreign_owned,
    open_regular,
    real,
    state_dir,
    write_private,
)
from bootstrap.repo.place import repository_root
from bootstrap.value import dataclass, field, replace

if TYPE_CHECKING:
    from bootstrap.boxes.probe import BoxState
    from bootstrap.link.record import KnownBox
    from bootstrap.link.target import BoxOptions
    from bootstrap.profile.load import LoadedProfile

ENVIRONMENT, DOTENV, COMMAND = "environment", ".env", "command"
"""The sources, in the order in which they are tried."""
BYTES = ("utf-8", "surrogateescape")  # how Python decodes the environment's bytes (PEP 383)
_LARGEST = 64 * 1024  # most bytes of a `.env`, and of what a command prints
_COMMAND_S = 180
"""How long a command may take, in seconds: it may ask for a fingerprint or a passphrase."""


@dataclass(frozen=True)
class SecretSource:
    """Where one secret comes from; a command for its value is run later, if at all."""

    name: str
    origin: str
    value: str = ""
    command: str = ""


def find_sources(
    names: Sequence[str], folder: Path | None, environment: Mapping[str, str] | None = None
) -> list[SecretSource]:
    """Return the source of each of `names` that has one; a `.env` may be in `folder`. Raises
    UsageError for a `.env` or a file of commands that can't be used."""
    environment = os.environ if environment is None else environment
    left = [name for name in names if not environment.get(name)]
    written = _dotenv(folder, left) if left and folder else {}
    left = [name for name in left if not written.get(name)]
    commands = _commands() if left else {}
    found = []
    for name in names:
        if environment.get(name):
            found.append(SecretSource(name, ENVIRONMENT, environment[name]))
        elif written.get(name):
            found.append(SecretSource(name, DOTENV, written[name]))
        elif name in commands:
            found.append(SecretSource(name, COMMAND, command=commands[name]))
    return found


def folder_of(loaded: LoadedProfile, root: Path | None) -> Path | None:
    """Return where a `.env` may be: next to the profile, or at the repository's root if shipped."""
    from bootstrap.profile.load import is_shipped

    own = [path for path in loaded.chain[:1] if not is_shipped(path)]
    return own[0].parent if own else root


def commands_file() -> Path:
    """Return the file with the user's commands, one line each: `NAME: command`."""
    return config_dir() / "secrets" / "commands.yaml"


def ask_command(source: SecretSource) -> str:
    """Return what the source's command prints, without trailing newlines.

    It runs in the home folder, so that no file of a repository affects it. Raises UsageError if
    it fails, takes too long, or prints nothing, too much, or a NUL.
    """
    from bootstrap.profile.load import profile_label

    where = f"{profile_label(commands_file())}: {source.name}"
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", source.command],
            stdin=None if sys.stdin and sys.stdin.isatty() else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=Path.home(),
            timeout=_COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"it gave no answer within {_COMMAND_S} s.", where=where) from None
    value = done.stdout.rstrip(b"\r\n")
    if done.returncode:
        raise UsageError(
            f"it ended with {done.returncode}.",
            where=where,
            hint="Run the command on its own; its output is above.",
        )
    if not value or len(value) > _LARGEST or b"\0" in value:
        what = "nothing" if not value else "more than a secret has, or bytes that none has"
        raise UsageError(f"it printed {what}.", where=where)
    return value.decode(*BYTES)


def _dotenv(folder: Path, wanted: Collection[str]) -> dict[str, str]:
    """Return what a `.env` in `folder` has of `wanted`. Raises UsageError if it can't be used."""
    from bootstrap.profile.load import profile_label

    file = folder / DOTENV
    if not os.path.lexists(file) or file.is_dir():  # some virtual environments are called .env
        return {}
    where = profile_label(file)
    text = _own_text(file, where).decode(*BYTES)
    if "\0" in text:
        raise UsageError("this is no text: it has a NUL.", where=where)
    values = read_dotenv(text, wanted, where)
    if values and not _is_ignored(file):
        raise UsageError(
            "git does not ignore this file, so its secrets may be committed. None was taken.",
            where=where,
            hint="Add the line `.env` to .gitignore; if it was committed before, also: "
            "git rm --cached .env, and give its secrets new values.",
        )
    return values


def _own_text(file: Path, where: str) -> bytes:
    """Read a file. Raises UsageError if it isn't a plain file of this user's."""
    try:
        opened = open_regular(file, os.O_NOFOLLOW)
    except OSError as error:
        if file.is_symlink():
            raise UsageError("this is a link; put the file itself there.", where=where) from None
        raise UsageError(f"can't be read: {error.strerror}.", where=where) from None
    with opened:
        if is_foreign_owned(file):
            raise UsageError("this file belongs to another user; it was not read.", where=where)
        text = opened.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise UsageError(f"a file of secrets has {_LARGEST // 1024} KiB at most.", where=where)
    return text


def _is_ignored(file: Path) -> bool:
    """Whether git ignores it, or it is in no repository. A tracked file is not ignored."""
    from bootstrap.repo.git import run_git
    from bootstrap.repo.local import open_repository

    if repository_root(file.parent) is None:
        return True
    repository = open_repository(file.parent)
    path = (real(file.parent) / file.name).relative_to(real(repository.place.root))
    return bool(run_git(repository.folders, "check-ignore", "--", str(path), ok=(0, 1)))


def _commands() -> dict[str, str]:
    """Return the user's commands by the names of their secrets. Raises UsageError."""
    from bootstrap.profile.load import read_commands

    return read_commands(commands_file(), "op read …")


_ASSIGNMENT = re.compile(
    r"""[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*
    (?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<bare>[^'"\n][^\n]*)?)
    (?:[ \t]+\#[^\n]*|[ \t]*)(?=\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_NOTHING = re.compile(r"[ \t]*(?:#[^\n]*)?(?=\n|\Z)")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "$": "$", "\n": ""}
_FILLED_IN = r"(?<!\\)(\$[({A-Za-z_]|`)"
_COMMENT = re.compile(r"[ \t]#")
_SPLIT = r"[\s'\"\\]|^#"


def read_dotenv(text: str, wanted: Collection[str], where: str) -> dict[str, str]:
    """Return those values of `wanted` that the text of a `.env` has.

    Raises UsageError with the line number if a line isn't `NAME=VALUE`, or a wanted value is given
    twice or is one that programs read differently. No message contains a value.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    values: dict[str, str] = {}
    at, number = 0, 1
    while at < len(text):
        line = f"{where}:{number}"
        if not (found := _NOTHING.match(text, at)):
            found = _ASSIGNMENT.match(text, at)
            if not found:
                raise UsageError(
                    "this line is not NAME=VALUE.",
                    where=line,
                    hint="Put a value with a quote or a newline in quotes: NAME='…'",
                )
            if found["name"] in wanted:
                name = found["name"]
                if name in values:
                    raise UsageError(f"{name} is given twice.", where=line, hint="Keep one line.")
                values[name] = _value(found, line)
        number += found[0].count("\n") + 1
        at = found.end() + 1
    return values


def _value(found: re.Match[str], where: str) -> str:
    if found["single"] is not None:
        return found["single"]
    given = found["double"]
    if given is None:
        given = _COMMENT.split(found["bare"] or "", 1)[0].rstrip(" \t")
    if re.search(_FILLED_IN, given) or (found["double"] is None and re.search(_SPLIT, given)):
        raise UsageError(
            f"programs read the value of {found['name']} differently.",
            where=where,
            hint=f"In single quotes it is taken as it is: {found['name']}='…'",
        )
    if found["double"] is None:
        return given
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[0]), given)


_COMMANDS_MARK = "\0"  # no value contains a NUL


@dataclass(frozen=True)
class SecretSet:
    """The secrets of one setup; those from a command have no value until it is run."""

    sources: tuple[SecretSource, ...] = ()
    values: dict[str, str] = field(default_factory=dict)  # the values known so far

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(source.name for source in self.sources)

    @property
    def ids(self) -> list[str]:
        """For each an id that changes with its value; if from a command, with the command."""
        return [identity_of(source) for source in self.sources]

    @property
    def id(self) -> str:
        """One such id for all of them."""
        return fingerprint({source.name: _what_changes(source) for source in self.sources})

    def ask_commands(self, held: Mapping[str, str]) -> bool:
        """Run the commands for what the box lacks; `held` has the names and ids that it has.
        Returns whether any was run. Raises UsageError if one gives no value."""
        asked = [
            source
            for source, identity in zip(self.sources, self.ids, strict=True)
            if source.name not in self.values and held.get(source.name) != identity
        ]
        self.values.update({source.name: ask_command(source) for source in asked})
        return bool(asked)

    def describe(self, held: Mapping[str, str]) -> str:
        """Return each name, its value's source, and whether the box has another value."""
        return ", ".join(
            source.name + _remark(source, held.get(source.name), source.name in self.values)
            for source in self.sources
        )


def identity_of(source: SecretSource) -> str:
    """Return an id that changes with the secret, and reveals nothing about it."""
    return fingerprint({source.name: _what_changes(source)})


def is_same(source: SecretSource, held: str) -> bool | None:
    """Whether a box has this value, by the id it has; None if another machine gave it that."""
    own = identity_of(source)
    return held == own if held[:KEY_MARK] == own[:KEY_MARK] else None


def _what_changes(source: SecretSource) -> str:
    return _COMMANDS_MARK + source.command if source.origin == COMMAND else source.value


def _remark(source: SecretSource, held: str | None, has_value: bool) -> str:
    if not has_value:
        return " (the box has it; its command is not asked)"
    words = [f"from {source.origin}"] if source.origin != ENVIRONMENT else []
    if held and is_same(source, held) is False:
        words.append("changed")
    return f" ({', '.join(words)})" if words else ""


def take_secrets(
    names: Sequence[str], folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> SecretSet:
    """Return the secrets of `names`; a `.env` may be in `folder`. No command is run yet. Raises
    UsageError naming those that have no source."""
    sources = find_sources(names, folder, environment)
    if missing := [name for name in names if name not in {source.name for source in sources}]:
        raise UsageError(
            f"the profile names secrets that are not in your environment: {', '.join(missing)}.",
            where="secrets",
            hint=f"Set them first: export {missing[0]}=…; or put {missing[0]}=… into a .env beside "
            f"the profile, which git ignores, or a command for it into {commands_file()}.",
        )
    values = {each.name: each.value for each in sources if each.origin != COMMAND}
    return SecretSet(tuple(sources), values)


def own_addresses() -> dict[str, str]:
    """Return the addresses of the user's `notify.yaml`, by name: whoever has one can use it."""
    file = config_dir() / "notify.yaml"
    if not file.exists():
        return {}
    from bootstrap.profile.load import read_commands

    try:
        found = read_commands(file, "")
    except UsageError:  # `wait` says so
        return {}
    texts = ((name, text.strip()) for name, text in found.items())
    return {name: text for name, text in texts if re.match(r"(ntfy\+)?https?://\S+$", text)}


def redactor_of(
    boxes: Iterable[KnownBox],
    more: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Redactor:
    """Return a redactor for `more`, for these boxes' secrets that are in the environment, and for
    the user's own addresses. Raises UsageError for one of `more` that is too short."""
    environment = os.environ if environment is None else environment
    values = {name: environment.get(name, "") for box in boxes for name in box.secrets or ()}
    can = {name: value for name, value in values.items() if len(value.strip()) >= SHORTEST}
    try:
        return Redactor({**own_addresses(), **can, **(more or {})})
    except TooShortError as short:
        raise UsageError(
            f"the secret {short} has fewer than {SHORTEST} characters: too short to redact",
            hint=f"set {short} to its whole value, or take it out of the profile's secrets",
        ) from None


def redactor_for(box: KnownBox, options: BoxOptions) -> Redactor:
    """Redact the secrets the box was given or, if that is not recorded, those of the profile."""
    if box.secrets is not None:
        return redactor_of([box], environment={**_written_in(options.place, box), **os.environ})
    from bootstrap.profile.consent import usable_profile  # late: most boxes need no profile here

    try:
        names = tuple(usable_profile(options, "secrets"))
    except BoxstrapError:
        names = ()
    return redactor_of([replace(box, secrets=names)])


def _written_in(place: Path, box: KnownBox) -> dict[str, str]:
    """Return what the `.env` of the repository around `place` has of the secrets of a box. Here it
    is only redacted: a file that setup would refuse is no reason to show one."""
    root, names = repository_root(place), box.secrets
    with contextlib.suppress(UsageError):
        if root and names and os.path.lexists(root / DOTENV):
            return read_dotenv(_own_text(root / DOTENV, DOTENV).decode(*BYTES), names, DOTENV)
    return {}


def redactor_of_all(options: BoxOptions) -> Redactor:
    """Redact the secrets of every box, for use before it is clear which boxes are meant."""
    from bootstrap.link.record import KnownBox, all_boxes, ended_boxes

    boxes = [*all_boxes(), *ended_boxes()]
    here = redactor_for(KnownBox("", ""), options)
    return Redactor({**redactor_of(boxes).secrets, **here.secrets})


def redacted_by_box(box: KnownBox, box_state: BoxState, values: Mapping[str, str]) -> list[str]:
    """Return the secrets that the box itself must redact, because `values` are not what it has. If
    a run may have been started with earlier ones, these are all that it was ever given."""
    if not box_state.can_redact:
        return []
    if box_state.had_other_secrets:
        return [*dict.fromkeys((*(box.secrets or ()), *box_state.secrets))]
    return [
        name
        for name, identity in box_state.secrets.items()
        if not values.get(name) or fingerprint({name: values[name]}) != identity
    ]


def unredacted(box: KnownBox, box_state: BoxState, values: Mapping[str, str]) -> list[str]:
    """Return the secrets that can't be redacted: neither this machine nor the box has the value."""
    there = box_state.secrets if box_state.can_redact else ()
    return [
        name
        for name in box.secrets or ()
        if name not in there and len(values.get(name, "").strip()) < SHORTEST
    ]


def packed(values: Mapping[str, str]) -> bytes:
    """Return them as the box reads them: NAME=VALUE, each ended by a NUL."""
    # A value from the environment may be any bytes, and is sent unchanged.
    return b"".join(f"{name}={value}\0".encode(*BYTES) for name, value in values.items())


def fingerprint(values: Mapping[str, str]) -> str:
    """Return a hash of the values, keyed with this machine's key so that it reveals nothing. It
    begins with what tells whose key that is."""
    if not values:
        return ""
    import hmac  # late: of a box with secrets

    key = machine_key()
    mark = hashlib.sha256(key).hexdigest()[:KEY_MARK]
    return (mark + hmac.new(key, packed(values), hashlib.sha256).hexdigest())[:32]


_KEY_BYTES = 32
_ONE_KEY = threading.Lock()


def machine_key() -> bytes:
    """Return this machine's key for fingerprints and receipts, made if needed. Raises OSError."""
    with _ONE_KEY:  # two setups in one program must not make two keys
        file = state_dir() / "secrets.key"
        with contextlib.suppress(FileNotFoundError):
            key = file.read_bytes()
            if len(key) == _KEY_BYTES:  # a power cut may leave an empty file, which is no key
                return key
        key = os.urandom(_KEY_BYTES)
        write_private(file, key)
        return key
