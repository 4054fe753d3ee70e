"""What is known of each box, in a folder of its own below the state folder.

    boxes/NAME/box.json      how it is reached, its last profile, the repositories set up on it
    boxes/NAME/known_hosts   its host keys, for both boxstrap and OpenSSH

The two files of a new box are created together: if one is missing or unreadable, the box's host key
can't be checked any more, and the box is refused (docs/adr/0004). Missing fields get their
defaults, and keys that a newer program added are kept (docs/adr/0027).
Records of boxes that were given back are kept apart, with their receipts and what they cost.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import fnmatch
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bootstrap import paths
from bootstrap.errors import UsageError
from bootstrap.link.public_key import PublicKey
from bootstrap.paths import make_private, write_private
from bootstrap.providers import end_does
from bootstrap.sizes import duration
from bootstrap.value import dataclass, field, names, replace

if TYPE_CHECKING:
    from bootstrap.link.endpoint import Endpoint
    from bootstrap.link.target import Target

_KINDS = ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa")
_DEFAULT_KEYS = frozenset(f"id_{kind}" for kind in _KINDS)
"""The key files that ssh tries by default (ssh_config(5), IdentityFile)."""


@dataclass(frozen=True)
class Route:
    """The route that a login took; the box's ssh config entry is made from it later."""

    identity: str = ""  # the key file that was named for the box, by `--identity` or the profile
    identities: tuple[str, ...] = ()
    """The key files that are offered; empty if they are ssh's defaults."""
    identities_only: bool = False
    jump: str = ""
    proxy: str = ""
    known_hosts: tuple[str, ...] = ()  # the user's own known_hosts files


def route_of(endpoint: Endpoint, ours: Path) -> Route:
    """Return the route to `endpoint`; known_hosts files below `ours` are not the user's."""
    chosen = endpoint.chosen_identity
    named = endpoint.identity_files
    if all(path.name in _DEFAULT_KEYS for path in named):
        named = ()
    files = (chosen,) if chosen else named
    theirs = [path for path in endpoint.user_known_hosts_files if not path.is_relative_to(ours)]
    return Route(
        identity=str(chosen or ""),
        identities=tuple(map(str, files)),
        identities_only=bool(files) and (chosen is not None or endpoint.identities_only),
        jump=endpoint.proxy_jump or "",
        proxy="" if endpoint.proxy_jump else endpoint.proxy_command or "",
        known_hosts=tuple(map(str, theirs)),
    )


@dataclass(frozen=True)
class ListedKeys:
    """The keys that known_hosts files list for one host."""

    keys: frozenset[PublicKey]
    revoked: frozenset[PublicKey]


def read_known_hosts(files: Iterable[Path], host: str) -> ListedKeys:
    """Read the keys of `host` from the files (`name`, or `[name]:port` for other ports than 22).

    Supports plain, wildcard, negated and hashed names and `@revoked`. `@cert-authority`
    is ignored: a key counts as it is, certified or not.
    """
    keys: set[PublicKey] = set()
    revoked: set[PublicKey] = set()
    for path in files:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for marker, hosts, key in key_lines(text):
            if marker != "@cert-authority" and _names_match(hosts, host):
                (revoked if marker == "@revoked" else keys).add(key)
    return ListedKeys(frozenset(keys - revoked), frozenset(revoked))


def key_lines(text: str) -> Iterator[tuple[str, str, PublicKey]]:
    """Yield marker, names and key of each line that has them; other lines are skipped."""
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0) if words[0].startswith("@") else ""
        if len(words) < 3:
            continue
        try:
            blob = base64.b64decode(words[2], validate=True)
        except (binascii.Error, ValueError):
            continue
        yield marker, words[0], PublicKey(words[1], blob)


def _names_match(names: str, host: str) -> bool:
    """OpenSSH's rule: any pattern matches and no negated one does."""
    found = False
    for pattern in names.split(","):
        bare = pattern.removeprefix("!")
        if _name_matches(bare, host):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _name_matches(pattern: str, host: str) -> bool:
    if not pattern.startswith("|1|"):
        # Brackets belong to `[host]:port`; only * and ? are wildcards here.
        literal = pattern.lower().replace("[", "[[]")
        return fnmatch.fnmatchcase(host.lower(), literal)
    import hmac  # late: few files hash their names

    try:
        _, _, salt, digest = pattern.split("|")
        wanted = base64.b64decode(digest)
        made = hmac.new(base64.b64decode(salt), host.encode(), "sha1").digest()
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(made, wanted)


_FINGERPRINT = re.compile(r"-([0-9a-f]{8}|unread)$")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
LOCAL = "local"  # the host, and the box, that is this machine
GUARD = "guard.json"  # next to `box.json`: what `guard` counted of the box's lease
VERSION = 1
"""Version of `box.json`. Raise it only if an earlier program would misread the record: new keys
need no new version, since programs keep unknown keys."""


@dataclass(frozen=True)
class BoxRepository:
    key: str  # its id, under which the box has its tree and its runs
    stood_in: str = ""
    """The id of the repository whose profile names it by `git.url`; "" if that is itself."""
    root: str = ""  # its first commit
    workdir: str = ""
    left: tuple[str, ...] = ()
    """The working folders that it had before: what was made there may be there still."""
    venv: str = ""
    script: str = ""  # the id of its last setup's script
    snapshot: str = ""  # the snapshot placed last in its tree on the box, as far as known here
    sent: tuple[str, ...] = ()  # the snapshots that went there from here, the last one first
    place: str = ""
    """The folder on this machine, a clone or worktree, from which it was sent last."""
    used: float = 0.0
    """When work of it was last sent from here, seconds since 1970; 0 if that it is there is only
    what the box says."""

    @property
    def name(self) -> str:
        """Its name as the user knows it: the key without the fingerprint."""
        return name_of_key(self.stood_in or self.key)


NO_REPOSITORY = BoxRepository("")
_MOST_SENT = 300


@dataclass(frozen=True)
class KnownBox:
    """A box as this machine knows it. Contains no secrets."""

    name: str
    host_text: str
    address: str = ""
    port: int = 22
    user: str = ""
    profile: str = ""  # the profile used last on it
    key: str = ""  # fingerprint of the key that logged in last, which is tried first
    own_pin: bool = False
    """~/.ssh/known_hosts has an earlier box's key for its address: `--new-box`, or a new rental."""
    created: float = 0.0  # when it was first met, seconds since 1970
    seen: float = 0.0  # when it was last logged in to, seconds since 1970
    folder_name: str = ""
    """The name that it was met under, if it was renamed since; else empty. It leads there too."""
    former: tuple[str, ...] = ()  # the names that it had before
    route: Route = field(default_factory=Route)
    provider: str = ""  # the provider that was recognised
    workdir: str = ""  # the working folder used last on it
    console: str = ""  # the provider's page where the box is managed and paid for
    price: float = 0.0  # dollars an hour that it costs; 0 if unknown
    since: float = 0.0
    """When it was started, according to its account, seconds since 1970; 0 if unknown."""
    ends: float = 0.0
    """When its provider ends it, by a limit that nothing moves, seconds since 1970; 0: never."""
    repositories: tuple[BoxRepository, ...] = ()
    """Those that were set up on it from here, the one used last first."""
    secrets: tuple[str, ...] | None = None
    """Names of all secrets that it was ever given; None if that was not recorded."""
    held_secrets: tuple[str, ...] | None = None
    """Names of those that it holds after the last setup or wipe; None if not recorded."""
    editor_settings: Mapping[str, object] = field(default_factory=dict)
    """The values that were written last to an editor's settings on the box."""
    keep_open: float = 600.0
    """How many seconds its connection stays open after its last use, as its profile says; 0: not
    at all."""
    ended: float = 0.0  # when it was destroyed, or found to be gone, seconds since 1970
    spent: float = 0.0
    """Dollars that it cost since its last start, according to its account; 0 if unknown."""
    lease: Mapping[str, object] = field(default_factory=dict)
    """The lease that the last setup set: its terms, see `onbox/lease/rules.py`; when it was `set`,
    by how much a user `extended` it, and whether the box itself has it `held`."""
    before: float = 0.0  # dollars that other boxes cost before, of a run that goes on on this one
    resumes: str = ""  # that run, by its id at home
    group: str = ""  # the group of `up --count` with which it was rented; "" for none
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The record as it was read; keys that this program doesn't know are written back."""

    @property
    def last(self) -> BoxRepository:
        """The repository used last on it; one with an empty key if there is none."""
        return self.repositories[0] if self.repositories else NO_REPOSITORY

    def of(self, key: str) -> BoxRepository | None:
        """Return what is known of this repository, or of the one that its profile names."""
        own = (each for each in self.repositories if key and each.key == key)
        named = (each for each in self.repositories if key and each.stood_in == key)
        return next(own, None) or next(named, None)

    def sent_from(self, key: str, root: str, workdir: str) -> str:
        """Return the clone or worktree that sent its files last to the folder on the box, which
        all of one first commit share; "" if that is unknown, or was moved or removed."""
        last = (
            each.place
            for each in self.repositories
            if each.place and each.workdir == workdir and (each.key == key or root == each.root)
        )
        return next((place for place in last if Path(place).is_dir()), "")

    def others_words(self, place: str, key: str, root: str, workdir: str) -> str:
        """Say whose files in the folder on the box go if `place` sends its own; "" if nobody's."""
        other = self.sent_from(key, root, workdir)
        if not place or other in {"", place}:
            return ""
        return (
            f"{other} is a clone or worktree of this repository and has the same folder on the "
            "box: what is sent from one replaces the other's files. A clone has one of its own "
            "with --set box.workdir='~/NAME' at each setup and run"
        )

    def left_words(self, key: str, workdir: str) -> str:
        """Say what is left behind if the repository is in this working folder from now on; "" if it
        was there before."""
        before = self.of(key) or NO_REPOSITORY
        if workdir in {before.workdir, *before.left} or not before.workdir:
            return ""
        return (
            f"{before.name} was in {before.workdir} until now. Its runs and results there stay, "
            "and of all commands down alone looks at them; to go back to them: --set "
            f"box.workdir={before.workdir}"
        )

    def workdir_of(self, key: str) -> str:
        """Return the working folder of this repository; if it was never set up, the last one."""
        return (self.of(key) or self.last).workdir or self.workdir

    def using(self, key: str, **known: str) -> KnownBox:
        """Return the box with the repository as the one used last, and what is now known of it."""
        before = next((each for each in self.repositories if each.key == key), BoxRepository(key))
        used = max(time.time(), self.last.used + 0.001)  # also if the clock was wrong once
        ids = dict.fromkeys(filter(None, (known.get("snapshot", ""), *before.sent)))
        folder = known.get("workdir", before.workdir)
        left = [*dict.fromkeys((*before.left, before.workdir))]
        left = [one for one in left if one not in {"", folder}]
        now = replace(before, used=used, sent=(*ids,)[:_MOST_SENT], left=(*left,), **known)
        others = (each for each in self.repositories if each.key != key)
        return replace(self, repositories=(now, *others))

    def found_on(self, key: str, *, root: str = "", workdir: str = "") -> KnownBox:
        """Return the box with a repository of which it has runs, as it says: used last of all."""
        found = BoxRepository(key, root=root, workdir=workdir)
        return replace(self, repositories=(*self.repositories, found))

    def of_lease(self, name: str) -> float | None:
        """Return a number of its lease; None if that has none of this name."""
        value = self.lease.get(name)
        return float(value) if isinstance(value, int | float) else None

    @property
    def is_billed(self) -> bool:
        """Whether somebody is known to bill it: a provider that was recognised, or a price."""
        return self.target.is_rented or bool(self.price or self.console)

    @property
    def is_local(self) -> bool:
        return self.host_text == LOCAL

    @property
    def target(self) -> Target:
        from bootstrap.link.target import parse_host  # here, since most starts need only names

        return parse_host(self.host_text)

    @property
    def costs_since(self) -> float:
        """Since when it costs money; if unknown, since it was first met, which is later."""
        return self.since or self.created

    @property
    def folder(self) -> Path:
        return boxes_folder() / self.host_key_alias

    @property
    def host_key_alias(self) -> str:
        return self.folder_name or self.name

    def end_words(self, now: float) -> str:
        """Say when its provider ends it, if that is soon; "" if it isn't."""
        left = self.ends - now
        is_of_now = -_END_IS_OVER_S < left < _END_IS_NEAR_S  # else of an earlier start
        if not self.ends or not is_of_now:
            return ""
        when = f"in {duration(left)}" if left > 0 else "now"
        return (
            f"it ends {when} by its own limit, which nothing moves, and "
            f"{end_does(self.host_text.partition(':')[0])}. To bring home what it has: boxstrap "
            f"down --host {self.name}"
        )

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"


_END_IS_NEAR_S = 3600.0
_END_IS_OVER_S = 600.0
_DEFAULT = KnownBox("", "")
_ROUTE = tuple(names(Route))
_TOP = (
    "name", "host_text", "address", "port", "user", "profile", "key", "own_pin", "created",
    "seen", "folder_name",
)  # fmt: skip
"""Fields at the file's top level; if one has the wrong type, the record counts as damaged."""
_NO_FACTS = (*_TOP, "route", "raw", "repositories")
_FACTS = tuple(name for name in names(KnownBox) if name not in _NO_FACTS)
"""All other fields; they and the route are in `extra`."""
_OF_REPOSITORY = tuple(names(BoxRepository))


def name_of_key(key: str) -> str:
    return _FINGERPRINT.sub("", key)


def boxes_folder() -> Path:
    return paths.state_dir() / "boxes"


def all_boxes() -> list[KnownBox]:
    """List every known box, newest first. A folder that can't be read is left out."""
    boxes = [load_box(folder) for folder in boxes_folder().glob("*/")]
    return sorted((b for b in boxes if b), key=lambda box: (-box.created, box.name))


def unreadable_record() -> list[KnownBox]:
    """List boxes whose record can't be read, so that only the name is known."""
    folders = (folder for folder in boxes_folder().glob("*/") if NAME.fullmatch(folder.name))
    lost = (folder.name for folder in folders if any(folder.iterdir()) and not load_box(folder))
    return [KnownBox(name, name) for name in sorted(lost)]


def is_newer(folder: Path) -> bool:
    """Whether a newer boxstrap wrote the record in `folder`, so that this one can't read it."""
    version = paths.kept_record(folder / "box.json").get("v")
    return type(version) is int and version > VERSION


def refuse_newer(folder: Path) -> None:
    """Raise UsageError if `is_newer`."""
    if is_newer(folder):
        raise UsageError(
            "a newer boxstrap wrote what is known of this box, so this one leaves it alone: "
            "update boxstrap.",
            where=str(folder / "box.json"),
        )


def save_box(box: KnownBox, *, is_new: bool = True) -> KnownBox:
    """Write the record atomically; return the box with what others recorded meanwhile. Raises
    OSError, FileNotFoundError if it is not new and was moved aside, and as `refuse_newer`."""
    refuse_newer(box.folder)
    now = _with_others(box)
    text = _text(now)
    write_private(box.folder / "box.json", text, make_folder=is_new)
    return replace(now, repositories=box.repositories, raw=json.loads(text))


def _with_others(box: KnownBox) -> KnownBox:
    """Add what other commands recorded meanwhile: a command may have read the record hours ago. Of
    each fact that this command did not change since, the record's own counts."""
    kept = read_box(box.folder)
    if kept is None or kept.created != box.created:
        return box
    read = box_of(dict(box.raw)) or _DEFAULT
    facts = {
        name: _merged(*(getattr(each, name) for each in (read, box, kept)))
        for name in ("name", "folder_name", *_FACTS)
    }
    if box.secrets is not None and kept.secrets is not None:  # all that it was ever given
        facts["secrets"] = tuple(sorted({*box.secrets, *kept.secrets}))
    box = replace(box, **facts)
    newest = {each.key: each for each in sorted(
        (*kept.repositories, *box.repositories), key=lambda each: each.used
    )}  # fmt: skip
    found = sorted(newest.values(), key=lambda each: each.used, reverse=True)
    return replace(box, repositories=tuple(found))


def _merged(read: Any, ours: Any, theirs: Any) -> Any:  # noqa: ANN401 - of the fact's type
    """Return the fact after two commands, which both had `read`, changed it."""
    if ours == read:
        return theirs
    if not (isinstance(ours, Mapping) and read and ours and theirs):
        return ours
    changed = {name for name in {*read, *ours} if read.get(name) != ours.get(name)}
    kept = {name: value for name, value in theirs.items() if name not in changed}
    return {**kept, **{name: ours[name] for name in ours if name in changed}}


def save_with_pin(box: KnownBox, pins: str, *, is_new: bool) -> bool:
    """Write record and known_hosts; for a new box both or neither. Returns False, writing nothing,
    if another command was first. Raises as `save`."""
    folder = box.folder
    if not is_new:
        save_box(box, is_new=False)  # first, because a pin without a record is never looked up
        write_private(box.known_hosts, pins, make_folder=False)
        return True
    import shutil  # late: once for each box
    import tempfile

    make_private(folder.parent)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        write_private(made / "box.json", _text(box))
        write_private(made / "known_hosts", pins)
        made.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return True


def pins_of(box: KnownBox) -> list[tuple[str, PublicKey]]:
    """List the names and keys that are pinned for the box; empty if they can't be read."""
    try:
        text = box.known_hosts.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [(names, key) for marker, names, key in key_lines(text) if not marker]


def _text(box: KnownBox) -> str:
    values = vars(box)
    extra = {**vars(box.route), **{name: values[name] for name in _FACTS}}
    for name in ("secrets", "held_secrets"):
        if values[name] is None:
            del extra[name]
    extra["repositories"] = [vars(each) for each in box.repositories]
    own = {name: values[name] for name in _TOP}
    whole = {**box.raw, **own, "v": VERSION, "extra": {**box.raw.get("extra", {}), **extra}}
    return json.dumps(whole, indent=1, sort_keys=True) + "\n"


def read_box(folder: Path) -> KnownBox | None:
    """Read the record in this folder; None if it is damaged, or a newer boxstrap's."""
    return box_of(paths.kept_record(folder / "box.json"))


_NOTED_S = 60.0  # how old what is noted of a box's presence may be, in seconds


def note_reached(folder: Path) -> None:
    """Note that a box was there until now, unless another command gave it up: so is counted what it
    cost, if nobody can ask it any more."""
    now = read_box(folder)
    if now and not now.ended and time.time() - now.seen > _NOTED_S:
        with contextlib.suppress(OSError):
            save_box(replace(now, seen=time.time()), is_new=False)


def load_box(folder: Path) -> KnownBox | None:
    """Read the box whose folder this is, under the name that it has today."""
    box = read_box(folder)
    return box if box and box.host_key_alias == folder.name else None


def box_of(record: dict[str, Any]) -> KnownBox | None:
    """Return None for a record that is damaged, or a newer boxstrap's."""
    extra, version = record.get("extra", {}), record.get("v", VERSION)
    own = {name: record[name] for name in _TOP if name in record}
    if not {"name", "host_text"} <= own.keys() or type(extra) is not dict or version != VERSION:
        return None
    if not all(paths.is_sound(value, getattr(_DEFAULT, name)) for name, value in own.items()):
        return None
    return KnownBox(
        **own,
        repositories=_repositories(extra),
        **{name: _like(extra.get(name), getattr(_DEFAULT, name)) for name in _FACTS},
        route=Route(**{name: _like(extra.get(name), getattr(Route(), name)) for name in _ROUTE}),
        raw=record,
    )


def _repositories(extra: dict[str, Any]) -> tuple[BoxRepository, ...]:
    """Read the repositories, the one used last first."""
    listed = extra.get("repositories")
    found = []
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict) and isinstance(each.get("key"), str) and each["key"]:
            known = {name: _like(each.get(name), getattr(NO_REPOSITORY, name))
                     for name in _OF_REPOSITORY}  # fmt: skip
            found.append(BoxRepository(**known))
    return tuple(sorted(found, key=lambda each: each.used, reverse=True))


def _like(value: object, default: object) -> Any:  # noqa: ANN401 - of the field's type
    """Return the value for a field; `default` if it is missing or has another type."""
    if isinstance(value, list) and (default is None or isinstance(default, tuple)):
        return tuple(item for item in value if isinstance(item, str))
    return value if paths.is_sound(value, default) else default


def retire(box: KnownBox) -> Path | None:
    """Move record and receipts of a box that is gone aside, without its pin, which frees its name.
    Returns the new folder; None if another command did it. Raises OSError, and as
    `refuse_newer`."""
    kept = read_box(box.folder)
    if kept is None or (kept.host_text, kept.created) != (box.host_text, box.created):
        return None
    aside = ended_folder() / f"{box.folder.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    make_private(aside.parent)
    try:
        save_box(box, is_new=False)
        box.folder.rename(aside)
    except FileNotFoundError:
        return None
    (aside / "known_hosts").unlink(missing_ok=True)
    return aside


def ended_folder() -> Path:
    return paths.state_dir() / "ended"


def ended_boxes() -> list[KnownBox]:
    """List the boxes that were given back, the last one first."""
    boxes = [read_box(folder) for folder in ended_folder().glob("*/")]
    return sorted((box for box in boxes if box), key=lambda box: box.ended, reverse=True)
