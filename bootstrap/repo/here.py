"""The repository you stand in: which commit, of which repository, by whom."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import BoxstrapError, UsageError
from .git import AT_ONCE_S, Folders, GitError, broken, run
from .identity import identify
from .names import decoded, shown, slug
from .place import head, text
from .repository import Repository, open_repository
from .urls import as_https, check_url, name_of, without_user_info
from .view import Settings

# The characters of branch, tag and commit names and of `~2`, `^`, `@{u}`; ranges
# (`a..b`), paths (`a:b`), searches (`:/x`) and options name no one commit.
_REF = re.compile(r"(?![-^])(?!.*\.\.)[\w./@{}~^+#%=,-]{1,255}")

_ON_A_BRANCH = re.compile(r"ref: refs/heads/(\S+)\n")

_LONGEST_PROJECT = 1024 * 1024

_REMOTE_URL = re.compile(r"remote\.(.*)\.url", re.DOTALL)
_INSTEAD_OF = re.compile(r"url\.(.*)\.insteadof", re.DOTALL)


@dataclass(frozen=True)
class LocalRepository:
    """The repository that a command is about, as it was when it was read.

    `tree` is the id of the commit's tree, `committed` the second in which it was made.
    `url` is the address of `origin` (else of the only remote) where another machine
    can use it, with no credential in it. `git_dir` is what all worktrees share.
    `repository` is what git is asked about it.
    `asked` is the ref that was asked for, None for the commit you stand on.
    `key` is its id (`identity`), `usual_key` what its address or place alone gives,
    `root_commit` the first of its main line, "" where the history is cut off.
    """

    root: Path
    name: str
    commit: str
    tree: str
    committed: str
    subject: str
    branch: str | None
    url: str | None
    identity_name: str | None
    identity_email: str | None
    shallow: bool
    key: str
    git_dir: Path
    repository: Repository = field(compare=False, repr=False)
    bare: bool = False
    asked: str | None = None
    usual_key: str = ""
    root_commit: str = ""

    @property
    def folders(self) -> Folders:
        """The folders that git reads for this repository."""
        return self.repository.folders

    @property
    def partial(self) -> bool:
        """Whether it was cloned without all of its objects."""
        return self.repository.partial

    @property
    def object_format(self) -> str:
        """How the repository names its objects: `sha1` or `sha256`."""
        return "sha256" if len(self.commit) == 64 else "sha1"


def read(path: Path, ref: str | None = None, *, exactly: bool = False) -> LocalRepository:
    """The repository around `path`, at `ref` (a branch, tag or commit) or where it stands.

    `exactly`: `path` is a bare repository of ours, whatever lies around it.

    Raises UsageError where there is no repository, no commit yet, no such ref, or it
    belongs to another user.
    """
    repository = open_repository(path, exactly=exactly)
    place, settings = repository.place, repository.settings
    root = place.root
    commit, tree, committed, parents, subject = _commit(repository, ref)
    url = _url(settings)
    name, usual = name_and_key(url, root)
    shallow = (place.common_dir / "shallow").is_file()
    first = commit if ref is None and not parents else None
    known = identify(repository.folders, place.common_dir, usual, shallow=shallow, first=first)
    return LocalRepository(
        root=root,
        name=name,
        commit=commit,
        tree=tree,
        committed=committed or "0",  # as a stranger may have written it
        subject=subject,
        branch=_branch(repository) if ref is None else None,
        url=url,
        identity_name=_last(settings, "user.name"),
        identity_email=_last(settings, "user.email"),
        shallow=shallow,
        key=known.id,
        git_dir=place.common_dir,
        repository=repository,
        bare=place.bare,
        asked=ref,
        usual_key=usual,
        root_commit=known.root,
    )


def is_boxstrap_checkout(here: LocalRepository) -> bool:
    """Whether `here` is boxstrap's own source, which is no training to set a box up for."""
    project = text(here.root / "pyproject.toml", _LONGEST_PROJECT)
    named = re.search(r"""^name\s*=\s*["']boxstrap["']\s*$""", project, re.MULTILINE)
    return named is not None and (here.root / "bootstrap" / "__init__.py").is_file()


def _commit(repository: Repository, ref: str | None) -> list[str]:
    """Of the commit that `ref` (default: HEAD) names: its full id, its tree, the second in which
    it was made, its parents, its subject."""
    root = repository.place.root
    for candidate in ("HEAD",) if ref is None else _candidates(ref):
        try:
            printed = run(
                repository.folders,
                *("rev-list", "--max-count=1", "--encoding=UTF-8", "--format=%H%n%T%n%ct%n%P%n%s"),
                *("--end-of-options", f"{candidate}^{{commit}}", "--"),
                timeout=AT_ONCE_S,
            )
        except GitError as failure:
            if not re.search(r"bad revision|unknown revision|ambiguous argument", failure.said):
                raise broken(root, failure) from failure
            continue
        _, *facts, subject = decoded(printed).split("\n", 5)
        return [*facts, shown(subject.partition("\n")[0])]
    raise _no_such(repository, ref)


def _candidates(ref: str) -> tuple[str, ...]:
    """How `ref` may be meant: as git reads it, else a branch that only origin has here."""
    if not _REF.fullmatch(ref):
        raise UsageError(
            f"`{shown(ref[:80])}` does not name one commit.",
            where="git.ref",
            hint="Give a branch, a tag or a commit's id.",
        )
    return ref, f"refs/remotes/origin/{ref}"


def _no_such(repository: Repository, ref: str | None) -> BoxstrapError:
    root = repository.place.root
    where = shown(str(root))
    if ref is None and run(
        repository.folders, "rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1)
    ):
        return broken(root, GitError(128, "the commit of HEAD is missing"))
    if ref is None:
        return UsageError(
            "this repository has no commit yet.", where=where, hint="Commit your work first."
        )
    return UsageError(
        f"no branch, tag or commit `{shown(ref)}` is here.",
        where=where,
        hint="If it is on the host: git fetch origin",
    )


def _branch(repository: Repository) -> str | None:
    """The branch that HEAD is on; None where it is detached, or has a name that can't be shown."""
    usual = _ON_A_BRANCH.fullmatch(head(repository.view.git_dir) or "")
    branch = usual[1] if usual else _branch_by_gitpython(repository)
    return branch if branch and shown(branch) == branch else None


def _branch_by_gitpython(repository: Repository) -> str | None:
    """The same of any HEAD. Importing GitPython takes longer than all else that is read here."""
    from git import Repo

    with Repo(repository.view.git_dir, expand_vars=False) as repo:
        return None if repo.head.is_detached else repo.active_branch.name


def _last(settings: Settings, wanted: str) -> str | None:
    """A setting's value on one line: it goes into scripts, and is shown."""
    values = [value or "" for key, value in settings if key == wanted]
    return ("".join(filter(str.isprintable, values[-1])).strip() or None) if values else None


def _url(settings: Settings) -> str | None:
    """The remote's address, if another machine can use it."""
    remotes: dict[str, str] = {}
    for key, value in settings:
        remote = _REMOTE_URL.fullmatch(key)
        if remote and value:
            remotes.setdefault(remote[1], value)  # git fetches from the first
    url = remotes.get("origin") or (next(iter(remotes.values())) if len(remotes) == 1 else None)
    if not url:
        return None
    stripped = without_user_info(_instead(url, settings))
    try:
        check_url(stripped)
    except UsageError:
        return None
    return stripped


def _instead(url: str, settings: Settings) -> str:
    """`url` with the longest `url.*.insteadOf` that fits, which the box doesn't have."""
    fits = [
        (prefix, base[1])
        for key, prefix in settings
        if prefix and (base := _INSTEAD_OF.fullmatch(key)) and url.startswith(prefix)
    ]
    if not fits:
        return url
    prefix, instead = max(fits, key=lambda pair: len(pair[0]))
    return f"{instead}{url[len(prefix) :]}"


def name_and_key(url: str | None, root: Path) -> tuple[str, str]:
    """What a repository's address, else its place, gives it: a name, and a key with eight hex
    digits that stay the same when the way to the same repository changes."""
    name = name_of(url) if url else slug(root.name.removesuffix(".git"))
    same = as_https(url).removesuffix("/").removesuffix(".git") if url else str(root)
    return name, f"{name}-{hashlib.sha256(same.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
