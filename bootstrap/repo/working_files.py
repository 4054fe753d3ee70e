"""The files in a working tree: git says what is tracked or ignored, the disk what exists.

Submodules count as ordinary folders. What looks like a credential stays on this machine.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from bootstrap.errors import UsageError
from bootstrap.repo.git import run_git
from bootstrap.repo.local import Repository, open_repository
from bootstrap.repo.names import decoded
from bootstrap.value import dataclass, field

_MOST_SUBMODULES = 100
NO_FILE = "neither a file nor a folder"
_SUBMODULE, EXECUTABLE, PLAIN = b"160000", b"100755", b"100644"

# An entry of `git ls-files -t --stage --others -z`.
_ENTRY = re.compile(rb"(?:\? ([^\0]+)|([HSMRCK]) ([0-7]{6}) ([0-9a-f]{40,64}) [0-3]\t([^\0]+))\0")
# Names that git refuses, since on other file systems they would mean the folder `.git`.
_NO_NAME = re.compile(rb"(?i)(.*/)?(\.git|git~1)[ .]*(:.*)?(/.*)?", re.DOTALL)
LEADS_OUT = "of which only the link travels: it leads to a place of this machine"
LEADS_TO_IGNORED = "of which only the link travels: what it leads to is ignored by git"


@dataclass
class WorkingFiles:
    """Paths from the top of the repository, as bytes."""

    tracked: dict[bytes, bytes] = field(default_factory=dict)
    """Files that git tracks, with their modes in the index."""
    new: set[bytes] = field(default_factory=set)  # files that are neither tracked nor ignored
    absent: dict[bytes, bytes] = field(default_factory=dict)
    """What git has but the working tree is meant to lack: files of a sparse checkout, a submodule
    that isn't here. Mode and id of each, as `update-index --index-info` reads them."""
    objects: list[Path] = field(default_factory=list)  # where the objects of submodules are
    links: set[bytes] = field(default_factory=set)
    """The paths that are links, of all that were looked at."""
    left: dict[bytes, str] = field(default_factory=dict)  # what can't travel, and why

    def standing(self, root: Path) -> list[bytes]:
        """Return the listed files that exist, links included, sorted; fill `links` and `left`."""
        listed = self.tracked.keys() | self.new
        found: list[bytes] = []
        for folder, entries in _scanned(os.fsencode(root), _folders(listed)):
            for entry in entries:
                path = folder + entry.name
                if entry.is_symlink():
                    self.links.add(path)
                if path in self.links or entry.is_file(follow_symlinks=False):
                    if path in listed:
                        found.append(path)
                        if path in self.links and leads_out(path, entry.path):
                            self.left[path] = LEADS_OUT
                elif not entry.is_dir(follow_symlinks=False) and entry.name != b".git":
                    self.left[path] = NO_FILE
        there = {*found}
        if within := [path for path in found if path in self.links and path not in self.left]:
            named = {b".", *there, *self.left, *(part for path in found for part in _upwards(path))}
            top = os.path.realpath(os.fsencode(root))
            for path in within:
                to = os.path.realpath(os.path.join(top, path))  # noqa: PTH118 - bytes
                if os.path.lexists(to) and os.path.relpath(to, top) not in named:
                    self.left[path] = LEADS_TO_IGNORED
        for path in [*self.absent]:
            if any(part in there for part in _upwards(path)):  # a file is where its folder was
                del self.absent[path]
        return sorted(found)


def leads_out(path: bytes, place: bytes) -> bool:
    """Whether a link, by its text, leads to nothing that travels with the repository."""
    try:
        to = os.readlink(place)  # noqa: PTH115 - bytes
    except OSError:
        return False
    inside = os.path.normpath(b"./" + path.rpartition(b"/")[0] + b"/" + to)
    return to.startswith(b"/") or inside.split(b"/")[0] == b".."


_LISTED_S = 600
"""Seconds in which the slowest disk lists its files: a pipe as `.gitignore` of a folder never
answers."""


def listing(repository: Repository, *, untracked: bool) -> bytes:
    """Return git's list of the files of one repository. Raises GitError."""
    others = ("--others", "--exclude-standard") if untracked else ()
    asked = ("ls-files", "-z", "-t", "--stage", "--cached", *others)
    return run_git(repository.folders, *asked, timeout=_LISTED_S)


def is_plain(listed: bytes) -> bool:
    """Whether a listing has no submodule, and no file that a sparse checkout may leave out."""
    return b" 160000 " not in listed and not re.search(rb"(?:^|\0)S ", listed)


def untracked_first(listed: bytes) -> Iterator[bytes]:
    """Yield the files that git doesn't track: a listing starts with them."""
    for entry in _ENTRY.finditer(listed):
        if not entry[1]:
            return
        yield entry[1]


def working_files(repository: Repository, listed: bytes, *, untracked: bool) -> WorkingFiles:
    """Return the files of a repository and of its submodules. Raises GitError."""
    found = WorkingFiles()
    _add(found, repository, listed, b"", untracked=untracked, top=repository)
    return found


def _add(  # noqa: PLR0913 - what is handed down through submodules
    found: WorkingFiles,
    repository: Repository,
    listed: bytes,
    prefix: bytes,
    *,
    untracked: bool,
    top: Repository,
) -> None:
    root = os.fsencode(repository.place.root)
    for new, tag, mode, blob, name in _ENTRY.findall(listed):
        path = prefix + (new or name)
        if new:
            if new.endswith(b"/"):
                found.left[path] = "a repository of its own"
            elif _NO_NAME.fullmatch(new):
                found.left[path] = "git takes no such name"
            else:
                found.new.add(path)
        elif mode == _SUBMODULE and _is_folder(os.path.join(root, name)):  # noqa: PTH118
            inner = (
                submodule(top, path)
                if len(found.objects) < _MOST_SUBMODULES
                else f"one submodule more than {_MOST_SUBMODULES}"
            )
            if isinstance(inner, str):
                found.left[path] = inner
                found.absent[path] = b"%s %s" % (mode, blob)
                continue
            found.objects.append(inner.place.common_dir / "objects")
            again = listing(inner, untracked=untracked)
            _add(found, inner, again, path + b"/", untracked=untracked, top=top)
        elif tag == b"S" and not os.path.lexists(os.path.join(root, name)):  # noqa: PTH118
            found.absent[path] = b"%s %s" % (mode, blob)
        else:
            found.tracked[path] = mode


def _is_folder(place: bytes) -> bool:
    """Whether it is a folder itself, not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(place).st_mode)
    except OSError:
        return False


def submodule(top: Repository, path: bytes) -> Repository | str:
    """Open the submodule at `path` of `top`; return the reason if it can't be taken."""
    root = top.place.root / decoded(path)
    if top.place.bare or not os.path.lexists(root / ".git"):
        return "a submodule that isn't here (git submodule update --init)"
    try:
        inner = open_repository(root)
    except UsageError as error:
        return error.what
    if inner.place.root != root:
        return "a submodule behind a link"
    own = (top.place.root, top.place.common_dir)
    if any(not any(map(other.is_relative_to, own)) for other in inner.place.others()):
        return "a submodule whose git folder or objects lie elsewhere"
    return inner


def _folders(paths: Iterable[bytes]) -> set[bytes]:
    """Return all folders around the paths, each with a slash at its end; the top is empty."""
    found = {b""}
    for path in paths:
        for folder in _upwards(path):
            if folder + b"/" in found:
                break
            found.add(folder + b"/")
    return found


def _upwards(path: bytes) -> Iterator[bytes]:
    """Yield the folders around a path, the nearest first."""
    while path := path.rpartition(b"/")[0]:
        yield path


def _scanned(root: bytes, folders: set[bytes]) -> Iterator[tuple[bytes, list[os.DirEntry[bytes]]]]:
    """Yield each folder with its entries, but no links to folders."""
    real = {b""}
    for folder in sorted(folders):
        if folder not in real:
            continue
        try:
            with os.scandir(os.path.join(root, folder)) as scanned:  # noqa: PTH118 - bytes
                entries = list(scanned)
        except OSError:
            continue
        for entry in entries:
            inside = folder + entry.name + b"/"
            if inside in folders and entry.is_dir(follow_symlinks=False):
                real.add(inside)
        yield folder, entries


READ_FOR_CREDENTIALS = 256 * 1024  # bytes of each file that are searched
_READ_IN_ALL = 256 * 1024 * 1024

# Templates of such files hold no values, and public keys are no secret.
_HARMLESS = re.compile(
    r".*\.(example|sample|template|tmpl|dist|defaults?|pub|md|rst|j2|jinja2?)", re.IGNORECASE
)

# Files that are credentials whatever they contain, by the end of their path.
_NAMES = (
    (r"\.env(rc|\..+)?|.+\.env", "environment file"),
    (r"id_(rsa|dsa|ecdsa|ed25519)(_sk)?", "ssh key"),
    (r"[._]netrc", "passwords"),
    (r"\.(git-credentials|pgpass|htpasswd|vault-token|s3cfg)", "passwords"),
    (r"kubeconfig(\.ya?ml)?|.+\.kubeconfig", "access to a cluster"),
    (r"\.kube/config", "access to a cluster"),
    (r"\.aws/credentials", "AWS key"),
    (r"(application_default_)?credentials\.json|client_secret.*\.json", "credentials"),
    (r".+\.(p12|pfx|ppk|jks|keystore|kdbx)", "store of keys"),
)

# Files that may hold settings only: they are credentials if their content matches too.
_HOLDING = (
    (r"\.npmrc|\.yarnrc(\.yml)?", rb"(_authToken|_auth|_password)\s*[=:]\s*[\"']?[^\s\"'$]{8}"),
    (r"\.pypirc|pip\.conf", rb"password\s*[=:]\s*[^\s$]{8}|://[^\s/:@$]+:[^\s/@$]{8,}@"),
    (r"\.docker/config\.json|\.dockercfg", rb"\"auth\"\s*:\s*\"[A-Za-z0-9+/=]{12}"),
)

# Tokens that are recognised by their format, in any file.
_SHAPES = (
    (
        rb"-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----(\s|\\r|\\n)+"
        rb"([A-Za-z-]+: [^\n]*\n\s*)*[A-Za-z0-9+/=]{24}",
        "private key",
    ),
    (rb"PuTTY-User-Key-File-\d", "private key"),
    (rb"(?<!\w)hf_[A-Za-z0-9]{30,}", "token of Hugging Face"),
    (rb"(?<!\w)(gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{40})", "token of GitHub"),
    (rb"(?<!\w)glpat-[\w-]{20}", "token of GitLab"),
    (rb"(?<!\w)(AKIA|ASIA)(?![0-9A-Z]{9}EXAMPLE)[0-9A-Z]{16}(?!\w)", "AWS key"),
    (
        rb"(?i:aws_?secret_?(access_?)?key)[\"']?\s*[=:]\s*[\"']?"
        rb"(?![A-Za-z0-9/+]{33}EXAMPLEKEY|[A-Za-z0-9/+]*EXAMPLEKEY)[A-Za-z0-9/+]{40}(?!\w)",
        "AWS key",
    ),
    (rb"(?<![\w-])sk-((proj|svcacct|admin|ant|or)-[\w-]{32}|[A-Za-z0-9]{40})", "key of an API"),
    (rb"(?<!\w)(sk|rk)_live_[A-Za-z0-9]{20}", "key of an API"),
    (rb"(?<!\w)AIza[\w-]{35}(?![\w-])", "key of an API"),
    (rb"(?<!\w)xox[abeoprs]-\d{6,}-[\w-]{10}", "token of Slack"),
    (rb"(?<!\w)(npm_[A-Za-z0-9]{36}(?!\w)|pypi-AgE[\w-]{50})", "token of a package index"),
    (rb"(?<!\w)dop_v1_[0-9a-f]{64}", "token of a provider"),
)
# One pattern for nearly every file, which is none: a folder of data may have a million.
_EVERY_NAME = rf"(?s)(?:^|/)(?:{'|'.join(row for row, _ in _NAMES)})\Z"


def credential_by_name(path: str) -> str:
    """Return what a file at `path` is by its name alone, or ""."""
    if not re.search(_EVERY_NAME, path) or _HARMLESS.fullmatch(path):
        return ""
    return next(what for row, what in _NAMES if re.search(rf"(?s)(?:^|/)(?:{row})\Z", path))


def credential_by_content(path: str, begin: bytes) -> str:
    """Return the kind of credential in a file that starts with `begin`, or ""."""
    named = (held for name, held in _HOLDING if re.fullmatch(rf"(?s)(.*/)?({name})", path))
    if any(re.search(held, begin) for held in named):
        return "token"
    return next((what for shape, what in _SHAPES if re.search(shape, begin)), "")


def find_credentials(root: Path, paths: Iterable[bytes]) -> dict[bytes, str]:
    """Return the files at `paths` below `root` that look like credentials, with their kind. Reads
    the first 256 KiB of each, 256 MiB in all; beyond that, only names count."""
    found: dict[bytes, str] = {}
    left = _READ_IN_ALL
    for path in paths:
        name = decoded(path)
        begin = begin_of(root / name, READ_FOR_CREDENTIALS) if left > 0 else b""
        left -= len(begin)
        if what := credential_by_name(name) or credential_by_content(name, begin):
            found[path] = what
    return found


def begin_of(file: Path, most: int) -> bytes:
    try:
        if not file.is_symlink() and file.is_file():
            with file.open("rb") as opened:
                return opened.read(most)
    except OSError:
        pass  # gone by now, or the error shows when the whole file is read
    return b""
