"""What `make site` adds to MkDocs: files outside docs/ that pages link to, a check of each link.

MkDocs loads this as a hook (mkdocs.yml) and calls the functions whose names begin with `on_`.
Pages of the repository outside docs/ are pages of the site too, below `project/`, and other files
that a link names are copied there. What is built is then read as a browser would: each link, each
picture and each anchor must be there, and nothing may be fetched from outside.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OUTSIDE = "project"
"""The folder of the site for files of the repository outside docs/."""
LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))")
_FETCHED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser fetches to show a page."""

_log = logging.getLogger("mkdocs.hooks.links")


def on_config(config: MkDocsConfig) -> None:
    """List the decisions; make anchors as the places that show the repository's files do."""
    from pymdownx.slugs import slugify

    pages = ["adr/README.md", *sorted(f"adr/{page.name}" for page in DOCS.glob("adr/0*.md"))]
    nav = config.nav or []
    config.nav = [{"Decisions": pages} if "Decisions" in part else part for part in nav]
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add what pages link to outside docs/, and what those link to."""
    from mkdocs.structure.files import File

    for path in outside():
        files.append(File.generated(config, uri_of(path), abs_src_path=str(path)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with each link to a file as the site has it."""
    return rewritten(markdown, path_of(page.file.src_uri))


def on_post_build(config: MkDocsConfig) -> None:
    """Warn of each dead link, which ends a strict build."""
    for problem in dead_links(Path(config.site_dir)):
        _log.warning(problem)


def outside() -> list[Path]:
    """Return the changelog, and the files outside docs/ that a page of the site links to."""
    changelog = ROOT / "CHANGELOG.md"
    pages, found = [changelog, *sorted(DOCS.rglob("*.md"))], {changelog}
    while pages:
        page = pages.pop()
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            target = target_of(link, page)
            if target is None or target.is_relative_to(DOCS) or target in found:
                continue
            found.add(target)
            if target.suffix == ".md":
                pages.append(target)
    return sorted(found)


def target_of(link: str, page: Path) -> Path | None:
    """Return the file that a link of this page leads to; of a folder, its README."""
    name = link.partition("#")[0]
    if not name or "://" in name:
        return None
    target = Path(os.path.normpath(page.parent / name))
    target = target / "README.md" if target.is_dir() else target
    return target if target.is_file() and target.is_relative_to(ROOT) else None


def uri_of(path: Path) -> str:
    """Return where a file of the repository is among the site's sources."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"{OUTSIDE}/{path.relative_to(ROOT).as_posix()}"


def path_of(uri: str) -> Path:
    """Return the file of the repository that is the site's source of this name."""
    folder, _, name = uri.partition("/")
    return ROOT / name if folder == OUTSIDE else DOCS / uri


def rewritten(markdown: str, page: Path) -> str:
    """Return a page whose links lead to other sources of the site, and not to the repository."""

    def link(found: re.Match[str]) -> str:
        target = target_of(found[0], page)
        if target is None:
            return found[0]
        _, mark, anchor = found[0].partition("#")
        name = os.path.relpath(uri_of(target), Path(uri_of(page)).parent)
        return f"{name}{mark}{anchor}"

    return LINK.sub(link, markdown)


@dataclass
class _HtmlPage(HTMLParser):
    """The anchors of a page, what it leads to, and what a browser fetches to show it."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if (name := _FETCHED.get(tag, "")) in given:
            self.fetched.append(given[name])


def _read(page: Path) -> _HtmlPage:
    found = _HtmlPage()
    found.feed(page.read_text(encoding="utf-8"))
    return found


def dead_links(site: Path) -> Iterator[str]:
    """Yield what is wrong with the links of a built site, a line each."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        here = path.relative_to(site)
        for link in page.fetched:
            if urlsplit(link).netloc:
                yield f"{here}: fetches {link} from outside"
        for link in (*page.links, *page.fetched):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            name, anchor = unquote(parts.path), unquote(parts.fragment)
            # Only the page for what was not found has links from the root.
            base = site if name.startswith("/") else path.parent
            target = Path(os.path.normpath(base / name.lstrip("/"))) if name else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{here}: {link} is not there"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{here}: {link} has no such anchor"
