"""The repository on this machine: found, its owner checked, read without running what it names.

Its identity stays the same when its remote or its path changes: `repositories/DIGEST.json` in the
state folder has its id, its git folder and the first commit of its main line. Nothing is written
into the repository itself (docs/adr/0021).
"""

import contextlib
import hashlib
import json
import os
import re
import time
from pathlib import Path

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.paths import read_record, real, state_dir, write_private
from bootstrap.repo import git
from bootstrap.repo.names import decoded, shown, slug
from bootstrap.repo.place import Place, locate, read_text, repository_root
from bootstrap.repo.urls import as_https, check_url, repository_name, without_user_info
from bootstrap.value import dataclass, field, replace

_PARTIAL = re.compile(
    r"extensions\.partialclone|remote\..*\.(promisor|partialclonefilter)", re.DOTALL
)


@dataclass(frozen=True)
class Repository:
    """A repository that git can be run on. `settings` are the user's and its own."""

    place: Place
    settings: tuple[tuple[str, str | None], ...]
    view: git.IsolatedGitDir

    @property
    def folders(self) -> git.Folders:
        """The folders to give to git: with these it runs no program that the repository names."""
        return git.Folders(self.view.git_dir, None if self.place.bare else self.place.root)


def open_repository(path: Path, *, exactly: bool = False) -> Repository:
    """Open the repository around `path`; `exactly`: the bare one there. Raises UsageError."""
    place = Place(path, path, path, bare=True) if exactly else locate(path)
    strangers = place.strangers()
    if strangers and not is_trusted(place.root):
        raise UsageError(
            f"this repository belongs to another user: {shown(str(strangers[0]))}. None of it was "
            "read.",
            where=shown(str(place.root)),
            hint="If you trust it: git config --global --add safe.directory "
            f"{shown(str(place.root))}",
        )
    if endless := place.endless():
        raise UsageError(
            "git would wait for this: it is a pipe or a device. None of it was read.",
            where=shown(str(endless)),
            hint="A repository that came as files can have that: clone it anew.",
        )
    try:
        printed = git.run_git(
            git.Folders(place.git_dir), "config", "--null", "--list", timeout=git.AT_ONCE_S
        )
    except git.GitError as failure:
        raise git.git_error(place.root, failure) from failure
    pairs = (entry.partition("\n") for entry in decoded(printed).split("\0") if entry)
    settings = tuple((key, value if equals else None) for key, equals, value in pairs)
    if not place.bare and place.git_dir == place.common_dir and _says_bare(settings):
        place = Place(place.git_dir, place.git_dir, place.common_dir, bare=True)
    return Repository(place, settings, git.IsolatedGitDir(place, settings))


def is_trusted(root: Path) -> bool:
    """Whether the user's own `safe.directory` names the folder; the repository's doesn't count."""
    values: list[str] = []
    for scope in ("--system", "--global"):
        asked = ("config", scope, "--null", "--type=path", "--get-all", "safe.directory")
        values += decoded(git.run_git(git.NOWHERE, *asked, ok=range(256))).split("\0")[:-1]
    trusted = False
    for value in values:
        if not value:
            trusted = False  # as in git: what came before doesn't count
        elif value == "*" or Path(value).resolve() == root:
            trusted = True
        elif value.endswith("/*"):
            trusted = trusted or root.is_relative_to(Path(value[:-2]).resolve())
    return trusted


def _says_bare(settings: tuple[tuple[str, str | None], ...]) -> bool:
    said = [value for key, value in settings if key == "core.bare"]
    return bool(said) and (said[-1] is None or said[-1].lower() in ("true", "yes", "on", "1"))


# Branch, tag and commit names, also with `~2`, `^`, `@{u}`. Ranges (`a..b`), paths
# (`a:b`), searches (`:/x`) and options don't name a single commit.
_REF = r"(?![-^])(?!.*\.\.)[\w./@{}~^+#%=,-]{1,255}"

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
    def folders(self) -> git.Folders:
        return self.repository.folders

    @property
    def partial(self) -> bool:
        """Whether it was cloned without all of its objects."""
        return any(_PARTIAL.fullmatch(key) for key, _ in self.repository.settings)

    @property
    def object_format(self) -> str:
        return "sha256" if len(self.commit) == 64 else "sha1"


def read_repository(
    path: Path, ref: str | None = None, *, exactly: bool = False
) -> LocalRepository:
    """Read the repository around `path`, at `ref` (a branch, tag or commit) or at HEAD.

    `exactly`: `path` itself is one of boxstrap's bare repositories, whatever is around it. Raises
    UsageError if there is no repository, no commit yet or no such ref, or it is another user's.
    """
    repository = open_repository(path, exactly=exactly)
    place, settings = repository.place, repository.settings
    root = place.root
    commit, tree, committed, parents, subject = _commit(repository, ref)
    url = _url(settings)
    name, usual = name_and_key(url, root)
    shallow = _is_shallow(place)
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


def current(place: Path) -> tuple[str, str]:
    """Return key and first commit of the repository around `place`: "" outside of one, a key that
    none has if it can't be read. One that is known, and unchanged, runs no git."""
    try:
        found = locate(place)
        known = _read_identity(_identity_file(str(found.common_dir)))
        is_same = known is not None and known.marks == _marks(found.common_dir)
        if known and known.root and is_same and not found.strangers():
            return known.id, known.root
        here = read_repository(place)
        return here.key, here.root_commit
    except BoxstrapError:
        root = repository_root(place)
        return (f"{root.name}-unread" if root else "", "")


def is_boxstrap_checkout(here: LocalRepository) -> bool:
    """Whether `here` is boxstrap's own source, not a project to set up a box for."""
    project = read_text(here.root / "pyproject.toml", _LONGEST_PROJECT)
    named = re.search(r"""^name\s*=\s*["']boxstrap["']\s*$""", project, re.MULTILINE)
    return named is not None and (here.root / "bootstrap" / "__init__.py").is_file()


def _commit(repository: Repository, ref: str | None) -> list[str]:
    """Return id, tree, time in seconds, parents and subject of the commit `ref` (default: HEAD)."""
    root = repository.place.root
    for candidate in ("HEAD",) if ref is None else _candidates(ref):
        try:
            printed = git.run_git(
                repository.folders,
                *("rev-list", "--max-count=1", "--encoding=UTF-8", "--format=%H%n%T%n%ct%n%P%n%s"),
                *("--end-of-options", f"{candidate}^{{commit}}", "--"),
                timeout=git.AT_ONCE_S,
            )
        except git.GitError as failure:
            if not re.search(r"bad revision|unknown revision|ambiguous argument", failure.said):
                raise git.git_error(root, failure) from failure
            continue
        _, *facts, subject = decoded(printed).split("\n", 5)
        return [*facts, shown(subject.partition("\n")[0])]
    raise _no_such(repository, ref)


def _candidates(ref: str) -> tuple[str, ...]:
    """Return what `ref` may mean: as git reads it, else a branch of origin with no local one."""
    if not re.fullmatch(_REF, ref):
        raise UsageError(
            f"`{shown(ref[:80])}` does not name one commit.",
            where="git.ref",
            hint="Give a branch, a tag or a commit's id.",
        )
    return ref, f"refs/remotes/origin/{ref}"


def _no_such(repository: Repository, ref: str | None) -> BoxstrapError:
    root = repository.place.root
    where = shown(str(root))
    if ref is None and git.run_git(
        repository.folders, "rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1)
    ):
        return git.git_error(root, git.GitError(128, "the commit of HEAD is missing"))
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
    if usual := _ON_A_BRANCH.fullmatch(repository.view.head or ""):
        branch = usual[1]
    else:
        from git import Repo  # late: it takes longer than everything else here

        with Repo(repository.view.git_dir, expand_vars=False) as repo:
            branch = "" if repo.head.is_detached else repo.active_branch.name
    return branch if branch and shown(branch) == branch else None


def _last(settings: git.Settings, wanted: str) -> str | None:
    """Return a setting's last value on one line, since it goes into scripts and messages."""
    values = [value or "" for key, value in settings if key == wanted]
    return ("".join(filter(str.isprintable, values[-1])).strip() or None) if values else None


def _url(settings: git.Settings) -> str | None:
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


def _instead(url: str, settings: git.Settings) -> str:
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
    name = repository_name(url) if url else slug(root.name.removesuffix(".git"))
    same = as_https(url).removesuffix("/").removesuffix(".git") if url else str(root)
    return name, f"{name}-{hashlib.sha256(same.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


@dataclass(frozen=True)
class Identity:
    """A known repository. `id` is a plain folder name, `root` the first commit, "" if unknown.

    While `marks` stay the same nothing was added, and git need not be asked.
    """

    id: str
    git_dir: str
    root: str
    marks: list[int]
    created: float

    @property
    def exists(self) -> bool:
        return bool(self.git_dir) and os.path.isdir(self.git_dir)  # noqa: PTH112 - never raises

    @property
    def file(self) -> Path:
        return _identity_file(self.git_dir or self.id)


def identify(
    folders: git.Folders, git_dir: Path, usual: str, *, shallow: bool, first: str | None = None
) -> Identity:
    """Identify the repository in `git_dir`, running git on `folders`.

    `usual` is the id derived from its address or path: a mirror of `git.url` always has
    that. `first` is its first commit, if known. If the state folder can't be written, nothing
    is remembered.
    """
    marks, known = _marks(git_dir), _read_identity(_identity_file(str(git_dir)))
    if known and known.marks == marks and (known.root or shallow):
        return known
    if shallow or (known and known.root and has_commit(folders, known.root)):
        first = ""
    elif first is None:
        first = _first_commit(folders)
    if known and not (known.root and first):
        found = replace(known, root=known.root or first, marks=marks)
    else:
        if known:  # the one known here may have moved elsewhere
            _write_identity(replace(known, git_dir=""))
        found = _new_identity(git_dir, usual, first, marks)
    _write_identity(found)
    return found


def lasting_name(root: Path) -> str:
    """Return what tells the repository at `root` from any other, wherever it stands: its id, first
    commit and address; "" if it has neither of these, or can't be read.

    One whose `.git` only leads to another repository is not that one: its place counts too.
    """
    try:
        repository = open_repository(root)
        place, url = repository.place, _url(repository.settings) or ""
        _, usual = name_and_key(url, place.root)
        known = identify(repository.folders, place.common_dir, usual, shallow=_is_shallow(place))
    except (BoxstrapError, git.GitError, OSError):
        return ""
    where = str(place.root) if place.others() else ""
    is_told = place.root == real(root) and (known.root or url or where)
    return " ".join((known.id, known.root, url, where)) if is_told else ""


def _is_shallow(place: Place) -> bool:
    return (place.common_dir / "shallow").is_file()


def known_folder(id_: str, root: str) -> Path | None:
    """Find the git folder of a known repository by id, else by first commit; None unless unique."""
    there = [each for each in _known_identities() if each.exists]
    found = [each for each in there if each.id == id_] or [
        each for each in there if root and each.root == root
    ]
    return Path(found[0].git_dir) if len(found) == 1 else None


def known_place(id_: str, root: str) -> Path | None:
    """Return where a known repository stands: around its git folder, if that is in it."""
    folder = known_folder(id_, root)
    return folder.parent if folder and folder.name == ".git" else folder


def has_commit(folders: git.Folders, commit: str) -> bool:
    with contextlib.suppress(git.GitError):
        git.run_git(folders, "cat-file", "-e", f"{commit}^{{commit}}")
        return True
    return False


def _new_identity(git_dir: Path, usual: str, first: str, marks: list[int]) -> Identity:
    """Take over the record of a repository that moved here, else make one; a clone gets its own."""
    new = Identity(usual, str(git_dir), first, marks, time.time())
    mirrors = state_dir() / "mirrors"
    if mirrors in git_dir.parents:
        return new
    others = [each for each in _known_identities() if mirrors not in Path(each.git_dir).parents]
    if moved := [each for each in others if first and each.root == first and not each.exists]:
        last = max(moved, key=lambda each: each.created)
        with contextlib.suppress(OSError):
            last.file.unlink()
        return replace(last, git_dir=str(git_dir), marks=marks)
    name = usual.rpartition("-")[0]
    taken = {each.id for each in others if each.exists or (first and each.root not in ("", first))}
    places = hashlib.sha256(os.fsencode(git_dir)).hexdigest()
    ids = (usual, f"{name}-{places[:8]}", f"{name}-{os.urandom(4).hex()}")
    return replace(new, id=next(each for each in ids if each not in taken))


def _first_commit(folders: git.Folders) -> str:
    """Return the first commit of the main line, or "" if git can't tell."""
    try:
        said = git.run_git(folders, "rev-list", "--first-parent", "--max-parents=0", "HEAD", "--")
    except git.GitError:
        return ""
    return said.decode().strip()


def _marks(git_dir: Path) -> list[int]:
    found = []
    for name in ("objects", "refs"):
        with contextlib.suppress(OSError):
            state = (git_dir / name).stat()
            found += [state.st_ino, state.st_mtime_ns]
    return found


def _identity_file(text: str) -> Path:
    digest = hashlib.sha256(os.fsencode(text)).hexdigest()[:16]
    return state_dir() / "repositories" / f"{digest}.json"


def _known_identities() -> list[Identity]:
    with contextlib.suppress(OSError):
        files = sorted((state_dir() / "repositories").glob("*.json"))
        return [found for found in map(_read_identity, files) if found]
    return []


def _read_identity(file: Path) -> Identity | None:
    try:
        found = Identity(**read_record(file))
    except (OSError, ValueError, TypeError):
        return None
    texts = (found.id, found.git_dir, found.root)
    return found if found.id and all(isinstance(text, str) for text in texts) else None


def _write_identity(found: Identity) -> None:
    """Save it; if nothing can be written, nothing is remembered."""
    with contextlib.suppress(OSError):
        write_private(found.file, json.dumps(vars(found)))
