"""The package index as a box sees it: upstream's pages plus this machine's wheels."""

import contextlib
import gzip
import hashlib
import html
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from tests.boxes.mirror.store import MirrorStore, NotFoundError

_JSON = "application/vnd.pypi.simple.v1+json"
_PAGE_AGE = 12 * 3600.0

#: Increment it when the cached form of a page changes.
_FORMAT = 1


@dataclass(frozen=True)
class File:
    """One file of a project, at an http: or file: URL."""

    name: str
    url: str
    sha256: str | None = None
    requires_python: str | None = None
    yanked: str | None = None

    @property
    def local(self) -> Path | None:
        """Its path, if it is on this machine."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def is_wheel(self) -> bool:
        return self.name.endswith(".whl")


def normal(name: str) -> str:
    """Normalize a project's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


class Index:
    """Upstream pages, overlaid with folders on this machine.

    Files of local indexes are added to upstream's. A project with a wheel in a
    find-links folder is served only from there: the wheel is there because the
    index's own builds are wrong for this machine.
    """

    def __init__(
        self, store: MirrorStore, upstream: str, indexes: Sequence[Path], wheels: Sequence[Path]
    ) -> None:
        self._store = store
        self._upstream = upstream
        self._indexes = indexes
        self._key = f"{_FORMAT} {upstream} {indexes} {wheels}"
        self._read: dict[str, dict[str, File]] = {}
        self._alone: dict[str, list[Path]] = {}
        for folder in wheels:
            for wheel in sorted(folder.glob("*.whl")):
                self._alone.setdefault(normal(wheel.name.split("-")[0]), []).append(wheel)

    def files(self, project: str) -> dict[str, File]:
        """Return a project's files by name, read once per process; empty if no index has it."""
        if project not in self._read:
            text = self._kept(project, "files", lambda: self._listed(project))
            self._read[project] = {row["name"]: File(**row) for row in json.loads(text)}
        return self._read[project]

    def page(self, project: str, form: str, packed: bool) -> bytes | None:
        """Return a project's page as "json" or "html", gzipped or not; None if there is none."""
        files = self.files(project).values()
        if not files:
            return None

        def make() -> bytes:
            text = as_json(project, files) if form == "json" else as_html(project, files)
            return gzip.compress(text, 6) if packed else text

        return self._kept(project, f"{form} {packed}", make)

    def metadata(self, file: File) -> bytes:
        """Return a wheel's METADATA (PEP 658) from upstream, else from the wheel itself."""
        return self._store.made(f"metadata of {file.url}", lambda: self._metadata(file))

    def _metadata(self, file: File) -> bytes:
        if file.local is None:
            try:
                return self._store.get(f"{file.url}.metadata").read_bytes()
            except NotFoundError:
                wheel = self._store.get(file.url, sha256=file.sha256)
        else:
            wheel = file.local
        with zipfile.ZipFile(wheel) as packed:
            name = next(n for n in packed.namelist() if n.endswith(".dist-info/METADATA"))
            return packed.read(name)

    def _kept(self, project: str, what: str, make: Callable[[], bytes]) -> bytes:
        """Return what `make` makes of a project's pages, cached until one of them changes."""
        pages = [folder / project / "index.html" for folder in self._indexes]
        if project in self._alone:
            pages = self._alone[project]
        else:
            with contextlib.suppress(NotFoundError):
                pages.append(self._upstream_page(project))
        newest = max((page.stat().st_mtime for page in pages if page.exists()), default=0)
        return self._store.made(f"{self._key} {project} {what}", make, newest)

    def _listed(self, project: str) -> bytes:
        return json.dumps([asdict(file) for file in self._files(project)]).encode()

    def _files(self, project: str) -> list[File]:
        if project in self._alone:
            wheels = self._alone[project]
            return [File(wheel.name, wheel.as_uri(), _sha256(wheel)) for wheel in wheels]
        found = self._upstream_files(project)
        known = {file.name for file in found}
        for folder in self._indexes:
            page = folder / project / "index.html"
            if page.exists():
                here = _parse_html(page.read_text(), page.as_uri())
                found += [file for file in here if file.name not in known]
                known |= {file.name for file in here}
        return found

    def _upstream_page(self, project: str) -> Path:
        accept = f"{_JSON}, text/html;q=0.5"
        url = self._page_url(project)
        return self._store.get(url, max_age=_PAGE_AGE, headers={"Accept": accept})

    def _upstream_files(self, project: str) -> list[File]:
        url = self._page_url(project)
        try:
            text = self._upstream_page(project).read_text()
        except NotFoundError:
            return []
        return list(_parse_json(text, url) if text.startswith("{") else _parse_html(text, url))

    def _page_url(self, project: str) -> str:
        return f"{self._upstream}/{project}/"


def as_json(project: str, files: Iterable[File]) -> bytes:
    """Render a project's page as JSON (PEP 691)."""
    rows: list[dict[str, object]] = []
    for file in files:
        row: dict[str, object] = {
            "filename": file.name,
            "url": _link(project, file),
            "hashes": {"sha256": file.sha256} if file.sha256 else {},
        }
        if file.requires_python:
            row["requires-python"] = file.requires_python
        if file.yanked is not None:
            row["yanked"] = file.yanked or True
        if file.is_wheel:
            row["core-metadata"] = True
        rows.append(row)
    return json.dumps({"meta": {"api-version": "1.0"}, "name": project, "files": rows}).encode()


def as_html(project: str, files: Iterable[File]) -> bytes:
    """Render a project's page as HTML (PEP 503)."""
    lines = ["<!DOCTYPE html><html><head>"]
    lines.append(f"<title>Links for {project}</title></head><body>")
    for file in files:
        link = _link(project, file) + (f"#sha256={file.sha256}" if file.sha256 else "")
        extra = ""
        if file.requires_python:
            extra += f' data-requires-python="{html.escape(file.requires_python)}"'
        if file.yanked is not None:
            extra += f' data-yanked="{html.escape(file.yanked)}"'
        if file.is_wheel:
            extra += ' data-core-metadata="true" data-dist-info-metadata="true"'
        lines.append(f'<a href="{html.escape(link)}"{extra}>{html.escape(file.name)}</a><br/>')
    lines.append("</body></html>\n")
    return "\n".join(lines).encode()


def _link(project: str, file: File) -> str:
    return f"../../files/{project}/{file.name}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _parse_json(text: str, base: str) -> Iterator[File]:
    for row in json.loads(text)["files"]:
        yanked = row.get("yanked", False)
        yield File(
            name=row["filename"],
            url=urljoin(base, row["url"]),
            sha256=row.get("hashes", {}).get("sha256"),
            requires_python=row.get("requires-python"),
            yanked=None if yanked is False else (yanked if isinstance(yanked, str) else ""),
        )


class _Links(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base
        self._open: File | None = None
        self.found: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag != "a" or not given.get("href"):
            return
        url, fragment = urldefrag(urljoin(self._base, given["href"] or ""))
        algorithm, _, value = fragment.partition("=")
        self._open = File(
            name=unquote(url.rpartition("/")[2]),
            url=url,
            sha256=value if algorithm == "sha256" else None,
            requires_python=given.get("data-requires-python"),
            yanked=(given["data-yanked"] or "") if "data-yanked" in given else None,
        )

    def handle_data(self, data: str) -> None:
        if self._open and data.strip():
            self._open = replace(self._open, name=data.strip())

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._open:
            self.found.append(self._open)
            self._open = None


def _parse_html(text: str, base: str) -> list[File]:
    links = _Links(base)
    links.feed(text)
    return links.found
