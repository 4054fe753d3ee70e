"""The only place where a profile is loaded for use: the user agreed to what it takes."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap import paths
from bootstrap.errors import BoxstrapError, ProfileError
from bootstrap.profile import find
from bootstrap.profile.fields import Permission
from bootstrap.profile.load import LoadedProfile, read_profile
from bootstrap.profile.schema import taking_keys
from bootstrap.profile.takings import Grant, Grants, agree, agreed, find_takings, values_of
from bootstrap.repo.place import repository_root

if TYPE_CHECKING:
    from bootstrap.link.target import BoxOptions

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
    ),
}
"""What may be taken if files travel and no environment is made."""
FOR_THE_BOX = frozenset({Permission.FILE, Permission.PUBLIC_KEY})
"""What may be taken if no work travels: to log in, and to let others log in."""


_REQUIREMENTS = "python.private"


class ConsentError(ProfileError):
    """The user has not agreed to what the repository takes, by its profile or other files."""

    def __init__(
        self,
        takings: Grants,
        before: Collection[Grant],
        given: str | None,
        where: str,
        word: str,
    ) -> None:
        self.takings = takings
        whose = "requirements take" if where == _REQUIREMENTS else "profile takes"
        other = f"--consent {given} is for another list. " if given else ""
        listed = [f"  {each}{_new(each, before)}" for each in takings.each]
        super().__init__(
            "\n".join([f"this repository's {whose} from you:", *listed]),
            where=where,
            hint=f"{other}{word} If you agree to it, and to nothing else: "
            f"--consent {takings.digest}",
        )

    def as_dict(self) -> dict[str, object]:
        """The error as `--json` prints it, with the list."""
        takes = [{"key": each.key, "takes": each.what} for each in self.takings.each]
        return {**super().as_dict(), "digest": self.takings.digest, "takes": takes}


def load_profile(
    options: BoxOptions, *, kinds: Collection[Permission] = EVERYTHING
) -> LoadedProfile:
    """Load the profile that `options` means, once the user agreed to what it takes of `kinds`.

    They agreed before, or agree with `--consent`, or are asked now on their terminal.
    Raises ProfileError, ConsentError.
    """
    loaded = read_profile(
        options.profile, sets=options.sets, repo_root=repository_root(options.place)
    )
    _check_keys(loaded)
    takings = find_takings(loaded, _roots(options), kinds)
    before = agreed(takings.root) if takings else frozenset[Grant]()
    if takings and not before.issuperset(takings.each):
        takings = _without_own_repository(takings, options.place)
        if not before.issuperset(takings.each):
            where, word = find.label(loaded.layers[0].path), _whose_word(loaded, takings.root)
            _ask(takings, before, options.consent, where, word)
            agree(takings)
    return loaded


def _check_keys(loaded: LoadedProfile) -> None:
    """Read the public keys that the profile names, before any box is contacted.

    Raises ProfileError with the file and line that names the wrong one.
    """
    if loaded.profile.ssh.authorized_keys:
        from bootstrap.profile.public_keys import public_keys

        try:
            public_keys(loaded.profile)
        except ProfileError as error:
            origin = loaded.origins.get("ssh.authorized_keys")
            raise ProfileError(error.what, where=str(origin or ""), hint=error.hint) from None


def usable_profile(options: BoxOptions, key: str) -> list[str]:
    """Return what the profile takes with `key`, as far as it was agreed to; nobody is asked."""
    loaded = read_profile(
        options.profile, sets=options.sets, repo_root=repository_root(options.place)
    )
    takings = find_takings(loaded, _roots(options), {taking_keys()[key]})
    refused = set(takings.each) - agreed(takings.root) if takings else set()
    return [what for what in values_of(loaded.profile, key) if Grant(key, what) not in refused]


def agree_to_addresses(addresses: Collection[str], root: Path, given: str | None) -> None:
    """Get the user's consent to read these git dependencies of the repository at `root` with their
    credentials, and to send them. Raises ConsentError."""
    each = tuple(sorted(Grant(_REQUIREMENTS, address) for address in addresses))
    takings = Grants(root, each)
    before = agreed(root)
    if not before.issuperset(each):
        _ask(takings, before, given, _REQUIREMENTS, "The repository's files name them.")
        agree(takings)


def _roots(options: BoxOptions) -> list[Path]:
    """Return the repositories at hand: the one that the user named, and the current one."""
    roots = map(repository_root, dict.fromkeys((options.place, Path.cwd())))
    return [root for root in roots if root]


def _without_own_repository(takings: Grants, place: Path) -> Grants:
    """Drop the current repository's own address: naming it takes no other repository."""
    if not any(each.kind is Permission.REPOSITORY for each in takings.each):
        return takings
    from bootstrap.repo.local import read_repository

    try:
        own = read_repository(place).url
    except BoxstrapError:
        return takings
    others = (
        each for each in takings.each if (each.kind, each.what) != (Permission.REPOSITORY, own)
    )
    return replace(takings, each=tuple(others))


def _whose_word(loaded: LoadedProfile, root: Path) -> str:
    """Say who wrote the files that take it, as far as git can tell."""
    named = [paths.real(path.parent) / path.name for path in loaded.chain]
    files = {path: _is_committed(path, root) for path in named if path.is_relative_to(root)}
    own = [find.label(path) for path, is_committed in files.items() if not is_committed]
    if files and len(own) == len(files):
        listed = ", ".join(own)
        return f"Not committed, so your own unless it came with the repository: {listed}."
    return "The repository's author committed this."


def _is_committed(path: Path, root: Path) -> bool:
    """Whether the current commit has the file as it is now."""
    from bootstrap.repo.git import GitError, run_git
    from bootstrap.repo.local import open_repository

    try:
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        name = path.relative_to(root).as_posix()
        asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"HEAD:{name}")
        repository = open_repository(root)
        said = run_git(repository.folders, *asked, ok=(0, 1)).decode().strip()
    except (BoxstrapError, GitError, OSError, ValueError):
        return False
    digest = hashlib.new("sha256" if len(said) == 64 else "sha1", usedforsecurity=False)
    digest.update(b"blob %d\0%b" % (len(content), content))
    return digest.hexdigest() == said


def _ask(
    takings: Grants, before: Collection[Grant], given: str | None, where: str, word: str
) -> None:
    """Return if the user agrees. Raises ConsentError if they don't, or can't be asked."""
    if given == takings.digest:
        return
    error = ConsentError(takings, before, given, where, word)
    if sys.stderr.isatty():
        from bootstrap.link.prompt import Prompt

        if Prompt(print).confirm(f"{error.where}: {error.what}\n{word} Do you agree?"):
            return
    raise error


def _new(taking: Grant, before: Collection[Grant]) -> str:
    return " (new)" if before and taking not in before else ""
