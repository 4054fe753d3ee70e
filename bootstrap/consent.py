"""The only place where a profile is loaded for use: the user agreed to what it takes."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.errors import BoxstrapError, ProfileError
from bootstrap.profile import find
from bootstrap.profile.load import LoadedProfile, load
from bootstrap.profile.schema import taking_keys
from bootstrap.profile.takes import Takes
from bootstrap.profile.takings import Taking, Takings, agree, agreed, find_takings, values_of
from bootstrap.repo.place import repository_root

if TYPE_CHECKING:
    from bootstrap.link.handle import BoxOptions

TO_RENT = frozenset(Takes)
EVERYTHING = TO_RENT - {Takes.ACCOUNT}
"""Everything that a setup may take; a setup rents nothing."""
NO_SECRET = EVERYTHING - {
    *(Takes.SECRET, Takes.DEPENDENCY, Takes.DATA, Takes.BUCKET, Takes.MONEY),
}
"""What may be taken if files travel and no environment is made."""
FOR_THE_BOX = frozenset({Takes.FILE, Takes.PUBLIC_KEY})
"""What may be taken if no work travels: to log in, and to let others log in."""


class ConsentError(ProfileError):
    """The user has not agreed to what the repository takes, by its profile or other files."""

    def __init__(
        self,
        takings: Takings,
        before: Collection[Taking],
        given: str | None,
        where: str,
        whose: str = "profile takes",
    ) -> None:
        self.takings = takings
        other = f"--consent {given} is for another list. " if given else ""
        listed = [f"  {each}{_new(each, before)}" for each in takings.each]
        super().__init__(
            "\n".join([f"this repository's {whose} from you:", *listed]),
            where=where,
            hint=f"{other}The repository's author chose this one. If you agree to it, and to "
            f"nothing else: --consent {takings.digest}",
        )

    def as_dict(self) -> dict[str, object]:
        """The error as `--json` prints it, with the list."""
        takes = [{"key": each.key, "takes": each.what} for each in self.takings.each]
        return {**super().as_dict(), "digest": self.takings.digest, "takes": takes}


def load_profile(options: BoxOptions, *, kinds: Collection[Takes] = EVERYTHING) -> LoadedProfile:
    """Load the profile that `options` means, once the user agreed to what it takes of `kinds`.

    They agreed before, or agree with `--consent`, or are asked now on their terminal.
    Raises ProfileError, ConsentError.
    """
    loaded = load(options.profile, sets=options.sets, repo_root=repository_root(options.place))
    _check_keys(loaded)
    takings = find_takings(loaded, _roots(options), kinds)
    before = agreed(takings.root) if takings else frozenset[Taking]()
    if takings and not before.issuperset(takings.each):
        takings = _without_own_repository(takings, options.place)
        if not before.issuperset(takings.each):
            _ask(takings, before, options.consent, find.label(loaded.layers[0].path))
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


def usable(options: BoxOptions, key: str) -> list[str]:
    """Return what the profile takes with `key`, as far as it was agreed to; nobody is asked."""
    loaded = load(options.profile, sets=options.sets, repo_root=repository_root(options.place))
    takings = find_takings(loaded, _roots(options), {taking_keys()[key]})
    refused = set(takings.each) - agreed(takings.root) if takings else set()
    return [what for what in values_of(loaded.profile, key) if Taking(key, what) not in refused]


def agree_to_addresses(addresses: Collection[str], root: Path, given: str | None) -> None:
    """Get the user's consent to read these git dependencies of the repository at `root` with their
    credentials, and to send them. Raises ConsentError."""
    each = tuple(sorted(Taking("python.private", address) for address in addresses))
    takings = Takings(root, each)
    before = agreed(root)
    if not before.issuperset(each):
        _ask(takings, before, given, "python.private", "requirements take")
        agree(takings)


def _roots(options: BoxOptions) -> list[Path]:
    """Return the repositories at hand: the one that the user named, and the current one."""
    roots = map(repository_root, dict.fromkeys((options.place, Path.cwd())))
    return [root for root in roots if root]


def _without_own_repository(takings: Takings, place: Path) -> Takings:
    """Drop the current repository's own address: naming it takes no other repository."""
    if not any(each.kind is Takes.REPOSITORY for each in takings.each):
        return takings
    from bootstrap.repo.here import read

    try:
        own = read(place).url
    except BoxstrapError:
        return takings
    others = (each for each in takings.each if (each.kind, each.what) != (Takes.REPOSITORY, own))
    return replace(takings, each=tuple(others))


def _ask(
    takings: Takings,
    before: Collection[Taking],
    given: str | None,
    where: str,
    whose: str = "profile takes",
) -> None:
    """Return if the user agrees. Raises ConsentError if they don't, or can't be asked."""
    if given == takings.digest:
        return
    error = ConsentError(takings, before, given, where, whose)
    if given is None and sys.stderr.isatty():
        from bootstrap.link.prompt import Prompt

        if Prompt(print).confirm(f"{error.where}: {error.what}\nDo you agree?"):
            return
    raise error


def _new(taking: Taking, before: Collection[Taking]) -> str:
    return " (new)" if before and taking not in before else ""
