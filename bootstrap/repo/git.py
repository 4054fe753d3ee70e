"""The only module that runs git on this machine.

git is given the repository to read, and never searches for one. Of a repository's configuration,
which names programs (hooks, filters, monitors, ssh commands, helpers, a remote from which a missing
object is fetched, and whatever later versions add), it sees nothing: it sees a temporary folder
(`IsolatedGitDir`) with links to objects, refs and index, and the few settings listed here. So
reading a repository runs none of its programs and connects to nothing. git does no maintenance,
shows no prompt and takes no optional lock; its messages are in English: some are recognised.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from bootstrap.errors import NO_ROOM, BoxstrapError, UsageError, write_error
from bootstrap.paths import expanded, temporary_dir
from bootstrap.repo.names import shown
from bootstrap.repo.place import Place, head
from bootstrap.value import dataclass

_OPTIONS = (
    "--no-pager",
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.splitIndex=false"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "submodule.recurse=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    # A second line of defence, which older gits don't have.
    *("-c", "safe.bareRepository=explicit"),
)

FRUGAL = (
    *("-c", "core.packedGitLimit=8m"),
    *("-c", "core.packedGitWindowSize=1m"),
    *("-c", "pack.deltaCacheSize=8m"),
)
"""For packing: by default git maps whole packs, and so uses as much memory as it sends."""

_SET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",  # the box gets the objects as they are
    "GIT_ALLOW_PROTOCOL": "",  # none: reading connects to nothing
    "GIT_NO_LAZY_FETCH": "1",  # a second defence; older gits lack it
    "LC_ALL": "C",
}

# The `GIT_*` variables that are kept: where the user's configuration is, and which
# certificates they trust. Others may point git at another repository, or name a program.
_KEPT = re.compile(r"GIT_(CONFIG_(GLOBAL|SYSTEM|NOSYSTEM)|SSL_(CAINFO|CAPATH|CERT|KEY|NO_VERIFY))")
_ROOM = 64 * 1024  # bytes: a disk with less free space counts as full

_BOUNDED = 'ulimit -v "$1" 2>/dev/null; shift; exec "$@"'


class GitError(Exception):
    """git exited non-zero; `said` is its standard error."""

    def __init__(self, returncode: int, said: str) -> None:
        self.returncode = returncode
        self.said = said
        super().__init__(said)


@dataclass(frozen=True)
class Folders:
    """The repository that git runs on: its git folder, and its working tree if it has one."""

    git_dir: Path
    work_tree: Path | None = None

    def options(self) -> tuple[str, ...]:
        if self.work_tree is None:
            return ("--git-dir", str(self.git_dir))
        tree = str(self.work_tree)
        return ("-C", tree, "--git-dir", str(self.git_dir), "--work-tree", tree)


AT_ONCE_S = 20  # seconds for a quick read: git would wait forever for a pipe or a lost disk

TIMED_OUT = 124  # the code of a git that was given up, as `timeout` has it

NOWHERE = Folders(Path(os.devnull))
"""No repository: for questions about the user's configuration, or to a host."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a git call: of `GIT_*` only what is listed here, and `extra`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or _KEPT.fullmatch(name)
    }
    return {**kept, **_SET, **(extra or {})}


def run_git(  # noqa: PLR0913 - a call, and its bounds
    folders: Folders,
    *arguments: str,
    stdin: bytes | None = b"",
    env: Mapping[str, str] | None = None,
    ok: Sequence[int] = (0,),
    timeout: float | None = None,
    most_memory_kib: int = 0,
) -> bytes:
    """Run `git <arguments>` on the repository at `folders` and return what it prints.

    `most_memory_kib` limits its address space, if the system supports that. Raises GitError if its
    exit code is not in `ok`, or after `timeout` seconds, UsageError if git is not installed.
    """
    try:
        done = subprocess.run(
            [*_bounded(most_memory_kib), "git", *folders.options(), *_OPTIONS, *arguments],
            input=stdin,
            capture_output=True,
            env=environment(env),
            check=False,
            timeout=timeout,
        )
    except FileNotFoundError:
        raise not_installed() from None
    except subprocess.TimeoutExpired:
        raise GitError(TIMED_OUT, f"no answer within {timeout} s") from None
    if done.returncode in ok:
        return done.stdout
    raise GitError(done.returncode, done.stderr.decode("utf-8", "replace").strip())


def start_git(
    folders: Folders,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    most_memory_kib: int = 0,
) -> subprocess.Popen[bytes]:
    """Start `git <arguments>` on the repository at `folders`, with its three streams piped.
    `most_memory_kib` limits its address space, if the system supports that."""
    try:
        return subprocess.Popen(
            [*_bounded(most_memory_kib), "git", *folders.options(), *_OPTIONS, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(env),
        )
    except FileNotFoundError:
        raise not_installed() from None


def _bounded(most_memory_kib: int) -> tuple[str, ...]:
    return ("sh", "-c", _BOUNDED, "sh", str(most_memory_kib)) if most_memory_kib else ()


def not_installed() -> UsageError:
    return UsageError("git is not installed on this machine.", hint="Install it and run again.")


def disk_error(written: Path, failure: GitError) -> BoxstrapError | None:
    """Return the error if git failed because `written` is full, over quota or read-only."""
    for code in NO_ROOM:  # LC_ALL=C: git prints this text
        # For a lock file that it can't write, git doesn't say why.
        worded = code == errno.ENOSPC and "couldn't write '" in failure.said and _is_full(written)
        if worded or os.strerror(code) in failure.said:
            return write_error(shown(str(written)), OSError(code, os.strerror(code)))
    return None


def _is_full(folder: Path) -> bool:
    import shutil  # late, as `tempfile`: a quiet command makes no view of a repository

    try:
        return shutil.disk_usage(folder).free < _ROOM
    except OSError:
        return False


def git_error(folder: Path, failure: GitError, written: Path | None = None) -> BoxstrapError:
    """Return the error for what a healthy repository can't cause; `written`: where git writes."""
    if amiss := disk_error(written or folder, failure):
        return amiss
    kind = UsageError if failure.returncode == TIMED_OUT else BoxstrapError  # a pipe, a lost disk
    lines = [shown(line) for line in failure.said.splitlines() if line.strip()]
    hint = "`git fsck` in that folder says whether the repository is damaged."
    if re.search(r"unable to read|missing|bad (tree )?object|could not (parse|read)", failure.said):
        hint = "What `git fsck` in that folder calls missing comes back by: git fetch --refetch"
    return kind(
        f"git failed: {lines[-1] if lines else f'exit code {failure.returncode}'}",
        where=shown(str(folder)),
        hint=hint,
    )


Settings = Sequence[tuple[str, str | None]]
"""Keys and values in git's order: later ones win. None: a key without a value."""

# How files are compared and named. No programs, and nothing to write or connect to.
_HARMLESS = re.compile(
    r"core\.(autocrlf|eol|safecrlf|checkroundtripencoding|filemode|symlinks|ignorecase"
    r"|precomposeunicode|trustctime|checkstat|excludesfile|attributesfile|bigfilethreshold"
    r"|sparsecheckout|sparsecheckoutcone|repositoryformatversion)"
    r"|index\.sparse|user\.(name|email)"
    r"|extensions\.(?!partialclone$|worktreeconfig$)[^.]+"
    r"|remote\..*\.fetch|branch\..*\.(remote|merge)",
    re.DOTALL,
)

_LINKED = re.compile(
    r"objects|refs|packed-refs|reftable|logs|shallow|index|sharedindex\.[0-9a-f]+|[A-Z_]+_HEAD"
)

# No path has a filter: info/attributes outranks other files, and its last line wins.
NO_FILTER = b"\n* -filter\n"
_views: weakref.WeakSet[IsolatedGitDir] = weakref.WeakSet()


def remove_git_dirs() -> None:
    """Remove all views' folders: for a program that exits without any other cleanup."""
    for view in list(_views):
        view.remove()


class IsolatedGitDir:
    """A view of a repository. Its folder is removed once nothing refers to the view."""

    def __init__(self, place: Place, settings: Settings) -> None:
        import tempfile

        self._place = place
        self._settings = settings
        self._folder = Path(tempfile.mkdtemp(prefix="boxstrap-", dir=temporary_dir()))
        self.remove = weakref.finalize(self, _remove, self._folder)
        _views.add(self)
        try:
            self.git_dir = self._made("plain", NO_FILTER)
            """For everything except to ask which filters there would be."""
        except OSError as error:
            if error.filename is not None:  # else there is no room to write one of its files
                raise
            raise write_error(self._folder.parent, error) from None

    @property
    def head(self) -> str | None:
        """The content of HEAD as git writes it; None if there is none."""
        return head(self.git_dir)

    @cached_property
    def with_filters(self) -> Path:
        """The same with the repository's `filter` attributes: only to ask about them."""
        return self._made("filters", b"")

    def file(self, name: str, text: str) -> Path:
        """Write a file next to it, which is removed with it."""
        file = self._folder / name
        file.write_text(text)
        return file

    def _made(self, name: str, attributes: bytes) -> Path:
        place, common = self._place, self._folder / name
        common.mkdir()
        _link(place.common_dir, common)
        _write_info(place, common / "info", attributes)
        (common / "config").write_bytes(_config(self._settings, place))
        if place.git_dir == place.common_dir:
            return common
        own = common.with_name(f"{name}-worktree")
        own.mkdir()
        _link(place.git_dir, own)
        (own / "commondir").write_text(f"../{name}\n")
        for part in ("objects", "refs"):  # GitPython needs them, git doesn't
            if not (own / part).exists():
                (own / part).symlink_to(common / part)
        (own / "info").mkdir()
        _link_file(place.git_dir / "info" / "sparse-checkout", own / "info" / "sparse-checkout")
        return own


def _remove(folder: Path) -> None:
    """Remove the folder, even if Ctrl-C interrupts it: nothing would remove the rest later."""
    import shutil

    try:
        shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _link(real: Path, folder: Path) -> None:
    for entry in real.iterdir():
        # A pipe would block git.
        if _LINKED.fullmatch(entry.name) and (entry.is_file() or entry.is_dir()):
            if entry.name.startswith("sharedindex."):  # git sets its time when it reads it
                (folder / entry.name).write_bytes(entry.read_bytes())
            else:
                (folder / entry.name).symlink_to(entry)
    (folder / "HEAD").write_text(head(real) or "", "utf-8", "surrogateescape")


def _write_info(place: Place, info: Path, attributes: bytes) -> None:
    info.mkdir()
    real = place.common_dir / "info"
    for name in ("exclude", "sparse-checkout", "grafts"):
        _link_file(real / name, info / name)
    own = real / "attributes"
    (info / "attributes").write_bytes((own.read_bytes() if own.is_file() else b"") + attributes)


def _link_file(real: Path, link: Path) -> None:
    if real.is_file():
        link.symlink_to(real)


def _config(settings: Settings, place: Place) -> bytes:
    lines = [f"[core]\n\tbare = {str(place.bare).lower()}\n"]
    for key, value in settings:
        if key.endswith("file") and not (place.root / expanded(value or "")).is_file():
            continue  # git would wait for a pipe
        if _HARMLESS.fullmatch(key):
            section, _, rest = key.partition(".")
            subsection, _, name = rest.rpartition(".")
            header = f"{section} {_quoted(subsection)}" if subsection else section
            given = "" if value is None else f" = {_quoted(value)}"
            lines.append(f"[{header}]\n\t{name}{given}\n")
    return "".join(lines).encode("utf-8", "surrogateescape")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
