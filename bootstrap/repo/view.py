"""A temporary git folder that shows a repository without its configuration.

A repository's configuration names programs: hooks, filters, monitors, ssh commands, helpers,
a remote from which a missing object is fetched, and whatever later versions of git add. So git
never sees it. It sees this folder: links to the objects, refs and index, no hooks, and a
configuration that has only the settings listed here, which name no program.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from bootstrap.errors import write_error
from bootstrap.paths import temporary_dir
from bootstrap.repo.place import Place, head

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


def remove_all() -> None:
    """Remove all views' folders: for a program that exits without any other cleanup."""
    for view in list(_views):
        view.remove()


class IsolatedGitDir:
    """A view of a repository. Its folder is removed once nothing refers to the view."""

    def __init__(self, place: Place, settings: Settings) -> None:
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
        (common / "config").write_bytes(_config(self._settings, bare=place.bare))
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
                shutil.copyfile(entry, folder / entry.name)
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


def _config(settings: Settings, *, bare: bool) -> bytes:
    lines = [f"[core]\n\tbare = {str(bare).lower()}\n"]
    for key, value in settings:
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
