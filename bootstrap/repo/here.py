"""Read the local repository: its commit, address and identity, and the user's name in git."""

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

# Branch, tag and commit names, also with `~2`, `^`, `@{u}`. Ranges (`a..b`), paths
# (`a:b`), searches (`:/x`) and options don't name a single commit.
_REF = re.compile(r"(?![-^])(?!.*\.\.)[\w./@{}~^+#%=,-]{1,255}")

_ON_A_BRANCH = re.compile(r"ref: refs/heads/(\S+)\n")

_LONGEST_PROJECT = 1024 * 1024

_REMOTE_URL = re.compile(r"remote\.(.*)\.url", re.DOTALL)
_INSTEAD_OF = re.compile(r"url\.(.*)\.insteadof", re.DOTALL)


@dataclass(frozen=True)
class LocalRepository:
    """The repository that a command works on, as it was when it was read.

    `tree` is the id of the commit's tree, `committed` the commit time in Unix seconds.
    `url` is the address of `origin` (else of the only remote) without credentials, None
    if other machines can't use it. `git_dir` is the folder that all worktrees share.
    `repository` is what git runs on.
    `asked` is the requested ref, None for the commit that is checked out.
    `key` is its id (`identity`), `usual_key` the one that its address or path alone gives,
    `root_commit` the first commit of its main line, "" if the history is cut off.
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
        """The object format: `sha1` or `sha256`."""
        return "sha256" if len(self.commit) == 64 else "sha1"


def read(path: Path, ref: str | None = None, *, exactly: bool = False) -> LocalRepository:
    """Read the repository around `path`, at `ref` (a branch, tag or commit) or at HEAD.

    `exactly`: `path` itself is one of boxstrap's bare repositories, whatever is around it.

    Raises UsageError if there is no repository, no commit yet or no such ref, or if it
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
        committed=committed or "0",  # a commit from elsewhere may lack it
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
    """Whether `here` is boxstrap's own source, not a project to set up a box for."""
    project = text(here.root / "pyproject.toml", _LONGEST_PROJECT)
    named = re.search(r"""^name\s*=\s*["']boxstrap["']\s*$""", project, re.MULTILINE)
    return named is not None and (here.root / "bootstrap" / "__init__.py").is_file()


def _commit(repository: Repository, ref: str | None) -> list[str]:
    """Return id, tree, time in seconds, parents and subject of the commit `ref` (default: HEAD)."""
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
    """Return what `ref` may mean: as git reads it, else a branch of origin with no local one."""
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
    """Return the branch of HEAD; None if it is detached, or if its name can't be shown."""
    usual = _ON_A_BRANCH.fullmatch(head(repository.view.git_dir) or "")
    branch = usual[1] if usual else _branch_by_gitpython(repository)
    return branch if branch and shown(branch) == branch else None


def _branch_by_gitpython(repository: Repository) -> str | None:
    """Do the same for any HEAD. Importing GitPython takes longer than everything else here."""
    from git import Repo

    with Repo(repository.view.git_dir, expand_vars=False) as repo:
        return None if repo.head.is_detached else repo.active_branch.name


def _last(settings: Settings, wanted: str) -> str | None:
    """Return a setting's last value on one line, since it goes into scripts and messages."""
    values = [value or "" for key, value in settings if key == wanted]
    return ("".join(filter(str.isprintable, values[-1])).strip() or None) if values else None


def _url(settings: Settings) -> str | None:
    """Return the remote's address, if another machine can use it."""
    remotes: dict[str, str] = {}
    for key, value in settings:
        remote = _REMOTE_URL.fullmatch(key)
        if remote and value:
            remotes.setdefault(remote[1], value)  # git fetches from a remote's first URL
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
    """Apply the longest `url.*.insteadOf` that matches, since the box lacks these settings."""
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
    """Derive a name and a key from the address, else the path; https and ssh give the same key."""
    name = name_of(url) if url else slug(root.name.removesuffix(".git"))
    same = as_https(url).removesuffix("/").removesuffix(".git") if url else str(root)
    return name, f"{name}-{hashlib.sha256(same.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
