"""The repository you stand in: which commit, of which repository, by whom."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import BoxstrapError, UsageError
from .git import GitError, broken, not_installed, run
from .names import decoded, sanitised, shown
from .urls import as_https, check_url, name_of, without_user_info

# The characters of branch, tag and commit names and of `~2`, `^`, `@{u}`; ranges
# (`a..b`), paths (`a:b`), searches (`:/x`) and options name no one commit.
_REF = re.compile(r"(?![-^])(?!.*\.\.)[\w./@{}~^+#%=,-]{1,255}")

_CONFIG = r"^(user\.(name|email)|remote\..*\.url|url\..*\.insteadof)$"
_REMOTE_URL = re.compile(r"remote\.(.*)\.url", re.DOTALL)
_INSTEAD_OF = re.compile(r"url\.(.*)\.insteadof", re.DOTALL)


@dataclass(frozen=True)
class Here:
    """The repository that a command is about, as it was when it was read.

    `url` is the address of `origin` (else of the only remote) where another machine
    can use it, with no credential in it. `git_dir` is what all worktrees share.
    `asked` is the ref that was asked for, None for the commit you stand on.
    """

    root: Path
    name: str
    commit: str
    subject: str
    branch: str | None
    url: str | None
    identity_name: str | None
    identity_email: str | None
    shallow: bool
    key: str
    git_dir: Path
    bare: bool = False
    asked: str | None = None

    @property
    def object_format(self) -> str:
        """How the repository names its objects: `sha1` or `sha256`."""
        return "sha256" if len(self.commit) == 64 else "sha1"


def read(path: Path, ref: str | None = None) -> Here:
    """The repository around `path`, at `ref` (a branch, tag or commit) or where it stands.

    Raises UsageError where there is no repository, no commit yet, no such ref, or git
    refuses the repository.
    """
    root, git_dir, bare = _find(path)
    commit, subject = _commit(root, ref)
    config = _config(root)
    url = _url(config)
    name = name_of(url) if url else sanitised(root.name.removesuffix(".git"))
    return Here(
        root=root,
        name=name,
        commit=commit,
        subject=subject,
        branch=_branch(root) if ref is None else None,
        url=url,
        identity_name=_last(config, "user.name"),
        identity_email=_last(config, "user.email"),
        shallow=(git_dir / "shallow").is_file(),
        key=f"{name}-{fingerprint(url, root)}",
        git_dir=git_dir,
        bare=bare,
        asked=ref,
    )


def is_boxstrap_checkout(here: Here) -> bool:
    """Whether `here` is boxstrap's own source, which is no training to set a box up for."""
    try:
        project = (here.root / "pyproject.toml").read_text("utf-8", "replace")
    except OSError:
        return False
    named = re.search(r"""^name\s*=\s*["']boxstrap["']\s*$""", project, re.MULTILINE)
    return named is not None and (here.root / "bootstrap" / "__init__.py").is_file()


def _find(path: Path) -> tuple[Path, Path, bool]:
    """The top of the working tree, the shared git folder, and whether it is bare."""
    try:  # GitPython asks git for its version when it is imported
        from git import Repo
        from git.exc import InvalidGitRepositoryError, NoSuchPathError
    except ImportError as missing:
        raise not_installed() from missing
    where = shown(str(path))
    start = path.expanduser().absolute()
    try:
        with Repo(start, search_parent_directories=True, expand_vars=False) as repo:
            tree, git_dir = repo.working_tree_dir, Path(repo.git_dir)
            shared = Path(repo.common_dir)
            bare = repo.bare or tree is None
    except NoSuchPathError:
        raise UsageError("there is no such folder.", where=where) from None
    except (InvalidGitRepositoryError, ValueError, OSError):
        raise UsageError(
            "this is not a git repository, nor inside one.",
            where=where,
            next_="Run from your project, name it with --repo PATH, or start one: git init",
        ) from None
    root = git_dir if bare or tree is None else Path(tree)
    return root.resolve(), shared.resolve(), bare


def _commit(root: Path, ref: str | None) -> tuple[str, str]:
    """The full id and the subject of the commit that `ref` (default: HEAD) names."""
    for candidate in ("HEAD",) if ref is None else _candidates(ref):
        try:
            printed = run(
                root,
                *("rev-list", "--max-count=1", "--encoding=UTF-8", "--format=%H%n%s"),
                *("--end-of-options", f"{candidate}^{{commit}}", "--"),
            )
        except GitError as failure:
            if not re.search(r"bad revision|unknown revision|ambiguous argument", failure.said):
                raise broken(root, failure) from failure
            continue
        _, commit, subject, *_ = [*decoded(printed).split("\n"), "", ""]
        return commit, shown(subject)
    raise _no_such(root, ref)


def _candidates(ref: str) -> tuple[str, ...]:
    """How `ref` may be meant: as git reads it, else a branch that only origin has here."""
    if not _REF.fullmatch(ref):
        raise UsageError(
            f"`{shown(ref[:80])}` does not name one commit.",
            where="git.ref",
            next_="Give a branch, a tag or a commit's id.",
        )
    return ref, f"refs/remotes/origin/{ref}"


def _no_such(root: Path, ref: str | None) -> BoxstrapError:
    where = shown(str(root))
    if ref is None and run(root, "rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1)):
        return broken(root, GitError(128, "the commit of HEAD is missing"))
    if ref is None:
        return UsageError(
            "this repository has no commit yet.", where=where, next_="Commit your work first."
        )
    return UsageError(
        f"no branch, tag or commit `{shown(ref)}` is here.",
        where=where,
        next_="If it is on the host: git fetch origin",
    )


def _branch(root: Path) -> str | None:
    """The branch that HEAD is on; None where it is detached."""
    printed = run(root, "symbolic-ref", "--quiet", "HEAD", ok=(0, 1))
    return decoded(printed).strip().removeprefix("refs/heads/") or None


def _config(root: Path) -> list[tuple[str, str]]:
    """The settings that matter here, in git's order: what comes later wins."""
    printed = run(root, "config", "--null", "--get-regexp", _CONFIG, ok=(0, 1))
    pairs = (entry.partition("\n") for entry in decoded(printed).split("\0") if entry)
    return [(key, value) for key, _, value in pairs]


def _last(config: list[tuple[str, str]], wanted: str) -> str | None:
    values = [value for key, value in config if key == wanted]
    return (values[-1].strip() or None) if values else None


def _url(config: list[tuple[str, str]]) -> str | None:
    """The remote's address, if another machine can use it."""
    remotes: dict[str, str] = {}
    for key, value in config:
        remote = _REMOTE_URL.fullmatch(key)
        if remote:
            remotes.setdefault(remote[1], value)  # git fetches from the first
    url = remotes.get("origin") or (next(iter(remotes.values())) if len(remotes) == 1 else None)
    if not url:
        return None
    stripped = without_user_info(_instead(url, config))
    try:
        check_url(stripped)
    except UsageError:
        return None
    return stripped


def _instead(url: str, config: list[tuple[str, str]]) -> str:
    """`url` with the longest `url.*.insteadOf` that fits, which the box doesn't have."""
    fits = [
        (prefix, base[1])
        for key, prefix in config
        if (base := _INSTEAD_OF.fullmatch(key)) and url.startswith(prefix)
    ]
    if not fits:
        return url
    prefix, instead = max(fits, key=lambda pair: len(pair[0]))
    return f"{instead}{url[len(prefix) :]}"


def fingerprint(url: str | None, root: Path) -> str:
    """Eight hex digits that stay the same when the way to the same repository changes."""
    same = as_https(url).removesuffix("/").removesuffix(".git") if url else str(root)
    return hashlib.sha256(same.encode("utf-8", "surrogateescape")).hexdigest()[:8]
