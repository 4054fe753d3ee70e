"""The only place where a profile is loaded for use: the user agreed to what it takes from them.

A profile in the current repository was written by the repository's author, and so was what it
extends, and a link in it. Options, and profiles elsewhere, are the user's own choice.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bootstrap import paths
from bootstrap.errors import BoxstrapError, ProfileError, UsageError
from bootstrap.link.target import BoxOptions
from bootstrap.profile.load import (
    LoadedProfile,
    check_public_keys,
    profile_label,
    public_key,
    read_profile,
)
from bootstrap.profile.schema import DataItem, Profile, place_of, taking_keys
from bootstrap.profile.values import Permission, ordinary
from bootstrap.repo.git import GitError, run_git
from bootstrap.repo.local import lasting_name, name_and_key, open_repository, read_repository
from bootstrap.repo.names import is_gits, shown
from bootstrap.repo.place import locate, repository_root
from bootstrap.repo.urls import without_user_info
from bootstrap.repo.working_files import credential_by_name
from bootstrap.sizes import seconds_of
from bootstrap.value import Document, dataclass, replace

TO_RENT = frozenset(Permission)
EVERYTHING = TO_RENT - {Permission.ACCOUNT}
"""Everything that a setup may take; a setup rents nothing."""
NO_SECRET = EVERYTHING - {
    *(
        Permission.SECRET,
        Permission.DEPENDENCY,
        Permission.DATA,
        Permission.BUCKET,
        Permission.MONEY,
    )
}
"""What may be taken if files travel and no environment is made."""
FOR_THE_BOX = frozenset({Permission.FILE, Permission.PUBLIC_KEY})
"""What may be taken if no work travels: to log in, and to let others log in."""
_REQUIREMENTS = "python.private"
_DOT_GIT = ".git"


class ConsentError(ProfileError, keys="**grants"):
    """The user has not agreed to what the repository takes, by its profile or other files."""

    def __init__(
        self, grants: Grants, before: Collection[Grant], given: str | None, where: str, word: str
    ) -> None:
        self.grants = grants
        words = {_REQUIREMENTS: "requirements take", _DOT_GIT: ".git takes"}
        whose = words.get(where, "profile takes")
        other = f"--consent {given} is for another list. " if given else ""
        new = {each for each in grants.each if before and each not in before}
        listed = [f"  {each}{' (new)' if each in new else ''}" for each in grants.each]
        super().__init__(
            "\n".join([f"this repository's {whose} from you:", *listed]),
            where=where,
            hint=f"{other}{word} If you agree to it, and to nothing else: "
            f"--consent {grants.digest}",
        )
        self.answered_by = ("--consent", grants.digest)


def load_profile(
    options: BoxOptions, *, kinds: Collection[Permission] = EVERYTHING
) -> LoadedProfile:
    """Load the profile that `options` means, once the user agreed to what it takes of `kinds`.

    They agreed before, or agree with `--consent`, or are asked now on their terminal.
    Raises ProfileError, ConsentError.
    """
    key = ("profile", options.profile, options.sets, frozenset(kinds))
    return options.once.get(key, lambda: _loaded(options, kinds))


def _loaded(options: BoxOptions, kinds: Collection[Permission]) -> LoadedProfile:
    loaded = read_profile(
        options.profile, sets=options.sets, repo_root=repository_root(options.place)
    )
    check_public_keys(loaded)
    if grants := not_agreed(loaded, options, kinds):
        if {each.takes for each in grants.each} <= {*_others(grants.root)}:
            where, word = _DOT_GIT, "It leads to another repository, whose history would be sent."
        else:
            where, word = loaded.layers[0].label, _whose_word(loaded, grants.root)
        _ask(grants, agreed(grants.whose), options.consent, where, word)
        agree(grants)
    return loaded


def not_agreed(
    loaded: LoadedProfile, options: BoxOptions, kinds: Collection[Permission]
) -> Grants | None:
    """Return all that the profile takes of `kinds`, unless the user agreed to it before."""
    grants = find_grants(loaded, _roots(options), kinds)
    before = agreed(grants.whose) if grants else frozenset[Grant]()
    if grants and not before.issuperset(grants.each):
        grants = _without_own_repository(grants, options.place)
        if not before.issuperset(grants.each):
            return grants
    return None


def usable_profile(options: BoxOptions, key: str) -> list[str]:
    """Return what the profile takes with `key`, as far as it was agreed to; nobody is asked."""
    loaded = read_profile(
        options.profile, sets=options.sets, repo_root=repository_root(options.place)
    )
    grants = find_grants(loaded, _roots(options), {taking_keys()[key]})
    refused = set(grants.each) - agreed(grants.whose) if grants else set()
    return [what for what in values_of(loaded.profile, key) if Grant(key, what) not in refused]


def named_repository(options: BoxOptions) -> str:
    """Return the key of the repository at the profile's `git.url`; "" if it has none."""
    try:
        url = "".join(usable_profile(options, "git.url"))
    except BoxstrapError:
        return ""
    return name_and_key(url, options.place)[1] if url else ""


def agree_to_addresses(addresses: Collection[str], root: Path, given: str | None) -> None:
    """Get the user's consent to read these git dependencies of the repository at `root` with their
    credentials, and to send them. Raises ConsentError."""
    each = tuple(sorted(Grant(_REQUIREMENTS, address) for address in addresses))
    grants = Grants(root, lasting_name(root), each)
    before = agreed(grants.whose)
    if not before.issuperset(each):
        _ask(grants, before, given, _REQUIREMENTS, "The repository's files name them.")
        agree(grants)


def _roots(options: BoxOptions) -> list[Path]:
    """Return the repositories at hand: the one that the user named, and the current one."""
    roots = map(repository_root, dict.fromkeys((options.place, Path.cwd())))
    return [root for root in roots if root]


def _without_own_repository(grants: Grants, place: Path) -> Grants:
    """Drop the current repository's own address: naming it takes no other repository."""
    if not any(each.kind is Permission.REPOSITORY for each in grants.each):
        return grants
    try:
        own = read_repository(place).url
    except BoxstrapError:
        return grants
    others = (
        each for each in grants.each if (each.kind, each.takes) != (Permission.REPOSITORY, own)
    )
    return replace(grants, each=tuple(others))


def _whose_word(loaded: LoadedProfile, root: Path) -> str:
    """Say who wrote the files that take it, as far as git can tell."""
    named = [paths.real(path.parent) / path.name for path in loaded.chain]
    files = {path: _is_committed(path, root) for path in named if path.is_relative_to(root)}
    own = [profile_label(path) for path, is_committed in files.items() if not is_committed]
    if files and len(own) == len(files):
        return f"Not committed, so your own unless it came with the repository: {', '.join(own)}."
    return "The repository's author committed this."


def _is_committed(path: Path, root: Path) -> bool:
    """Whether the current commit has the file as it is now."""
    try:
        content = os.fsencode(path.readlink()) if path.is_symlink() else paths.read_regular(path)
        name = path.relative_to(root).as_posix()
        asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"HEAD:{name}")
        repository = open_repository(root)  # its folders are there as long as it is
        said = run_git(repository.folders, *asked).decode().strip()
    except (BoxstrapError, GitError, OSError, ValueError):
        return False
    digest = hashlib.new("sha256" if len(said) == 64 else "sha1", usedforsecurity=False)
    digest.update(b"blob %d\0%b" % (len(content), content))
    return digest.hexdigest() == said


def _ask(
    grants: Grants, before: Collection[Grant], given: str | None, where: str, word: str
) -> None:
    """Return if the user agrees. Raises ConsentError if they don't, or can't be asked."""
    if given == grants.digest:
        return
    error = ConsentError(grants, before, given, where, word)
    if sys.stderr.isatty():
        from bootstrap.link.prompt import Prompt

        if Prompt(print).confirm(f"{error.where}: {error.what}\n{word} Do you agree?"):
            return
    raise error


_FILE_OF_THE_CHAIN = "extends"


class Grant(NamedTuple):
    """One thing that is taken: by which key, and what it is."""

    key: str
    takes: str

    @property
    def kind(self) -> Permission:
        return taking_keys()[self.key]

    def __str__(self) -> str:
        says_little = self.kind in (Permission.MONEY, Permission.ACCESS)  # a number
        named = f"{self.key}: " if says_little else ""
        return f"{self.kind.value:<11} {named}{self.takes}"


@dataclass(frozen=True)
class Grants(Document):
    """What the repository at `root` takes, sorted and without duplicates.

    `whose` it is says its `lasting_name`, so that another one at its place has no consent.
    """

    KEYS = "digest, takes=each"

    root: Path
    whose: str
    each: tuple[Grant, ...]

    @property
    def digest(self) -> str:
        """Identifies this list of this repository, and no other."""
        text = json.dumps([self.whose or str(self.root), self.each])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def find_grants(
    loaded: LoadedProfile, roots: Iterable[Path], kinds: Collection[Permission]
) -> Grants | None:
    """Return what a repository at one of `roots` takes of `kinds`: because it says so in `loaded`,
    and with its `.git`, whoever wrote the profile."""
    roots = [root.resolve() for root in roots]
    root, found = _by_profile(loaded, roots, kinds)
    for each in roots if Permission.REPOSITORY in kinds else ():
        if others := [Grant("git.url", other) for other in _others(each)]:
            found += others
            root = root or each
    if root is None or not found:
        return None
    return Grants(root, lasting_name(root), tuple(sorted(set(found))))


def _by_profile(
    loaded: LoadedProfile, roots: Iterable[Path], kinds: Collection[Permission]
) -> tuple[Path | None, list[Grant]]:
    """Return the repository of which `loaded` has layers, and what it takes by these."""
    root, labels, found = None, set[str](), list[Grant]()
    shipped = set[str]()
    for layer in loaded.layers:
        if layer.is_shipped:
            shipped.add(layer.label)
            continue
        root = root or next((each for each in roots if _is_inside(layer.path, each)), None)
        if root is None:
            continue
        labels.add(layer.label)
        real = paths.real(layer.path)
        if Permission.FILE in kinds and not real.is_relative_to(root):
            found.append(Grant(_FILE_OF_THE_CHAIN, str(real)))
    if root is None:
        return None, []
    for key, kind in taking_keys().items():
        origin = loaded.origins.get(key)
        asked = kind in kinds and key != _FILE_OF_THE_CHAIN
        # A repository that extends a provider's profile chooses that account.
        theirs = labels | shipped if kind is Permission.ACCOUNT else labels
        if asked and origin is not None and origin.file in theirs:
            found += [
                Grant(key, what)
                for what in values_of(loaded.profile, key)
                if kind not in _PATHS or not is_part_of(root, Path(what))
            ]
    return root, found


_PATHS = (Permission.FILE, Permission.DATA)


def is_part_of(root: Path, path: Path) -> bool:
    """Whether this real path belongs to the repository, so that its author may name it freely.

    Not what is the user's own even in there: a repository of theirs with git's settings, and what
    looks like a credential, at any depth.
    """
    if path == root or not path.is_relative_to(root):
        return False
    inside = path.relative_to(root)
    if _is_private(inside.as_posix()) or any(
        os.path.lexists(root.joinpath(*inside.parts[:deep], ".git"))
        for deep in range(1, len(inside.parts) + 1)
    ):
        return False
    return not any(
        _is_private(f"{below}/{name}")
        for folder, folders, files in os.walk(path)
        for below in [os.path.relpath(folder, root)]
        for name in (*folders, *files)
    )


def _is_private(path: str) -> bool:
    """Whether this path is git's own or looks like a credential, as any file system reads it."""
    spelled = path.casefold()
    if credential_by_name(spelled):
        return True
    may_be = not spelled.isascii() or "git" in spelled or ".env" in spelled
    return may_be and any(is_gits(one) or one == ".env" for one in spelled.split("/"))


def _others(root: Path) -> Iterator[str]:
    """Yield other repositories' folders that `.git` points to: their objects would be sent too."""
    with contextlib.suppress(UsageError):  # no repository: reported if one is needed
        yield from (shown(str(other)) for other in locate(root).others())


def _is_inside(path: Path, root: Path) -> bool:
    """Whether `path`, as written or with its links resolved, is in `root`."""
    written = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() follows links
    if paths.real(paths.config_dir()) == paths.real(written.parent):
        # The user's config folder, even if it is in a repository of theirs (a home under git).
        inside = (each.is_relative_to(root) for each in map(paths.real, (path, written.parent)))
        return tuple(inside) == (True, False)
    ways = {*map(paths.real, (path, *written.parents))}
    folders = {folder for way in ways for folder in (way, *way.parents)}
    return any(_same(folder, root) for folder in folders)


def _same(one: Path, other: Path) -> bool:
    """Whether both are the same folder, even if its name can be written in several ways."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def values_of(profile: Profile, key: str) -> Iterator[str]:
    """Yield what a profile takes with a key, as the list names it."""
    value: object = profile
    for step in key.split("."):
        value = getattr(value, step)
    for each in value if isinstance(value, list) else [value]:
        source = each.source if isinstance(each, DataItem) else each
        if source is not None and (what := _SHOWN.get(taking_keys()[key], str)(str(source))):
            yield what


def _real(path: str) -> str:
    try:
        return ordinary(str(paths.real(paths.expanded(path))))
    except ValueError as error:
        raise ProfileError(f"{path}: {error}") from None


def _key(path: str) -> str:
    """Add the fingerprint: the file may be the repository's, and have another key tomorrow."""
    from bootstrap.link.public_key import PublicKey

    kind, blob, *_ = public_key(path).split()
    return f"{_real(path)} {PublicKey(kind, base64.b64decode(blob)).fingerprint}"


def _data(source: str) -> str:
    """Return a local path or a bucket, read with the user's rights; public sources take nothing."""
    place = place_of(source)
    return _real(source) if place == "local" else source if place == "bucket" else ""


def _kept_open(time: str) -> str:
    """Return how long a login stays open to others; up to the default takes nothing."""
    from bootstrap.link.record import KnownBox

    return time if (seconds_of(time) or 0) > KnownBox.keep_open else ""


_SHOWN = {
    Permission.ACCESS: _kept_open,
    Permission.DATA: _data,
    Permission.FILE: _real,
    Permission.PUBLIC_KEY: _key,
    Permission.REPOSITORY: without_user_info,
    Permission.DEPENDENCY: without_user_info,
}


def agreed(whose: str) -> frozenset[Grant]:
    """Return what the user agreed to for this repository; nothing if it can't be read."""
    kept = paths.kept_record(_record(whose))
    if kept.get("repository") != whose:
        return frozenset()
    try:
        return frozenset(Grant(str(key), str(what)) for key, what in kept["takes"])
    except (ValueError, TypeError, KeyError):
        return frozenset()


def agree(grants: Grants) -> None:
    """Record that the user agreed to these, in addition to what they agreed to before. Of a
    repository that nothing tells from another one nothing is recorded."""
    if not grants.whose:
        return
    each = sorted({*agreed(grants.whose), *grants.each})
    kept = {"v": 1, "repository": grants.whose, "takes": each}
    paths.write_private(_record(grants.whose), json.dumps(kept, indent=1))


def _record(whose: str) -> Path:
    name = hashlib.sha256(os.fsencode(whose)).hexdigest()[:32]
    return paths.state_dir() / "consent" / f"{name}.json"
