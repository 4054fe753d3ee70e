"""The site: every page is in its navigation, and links lead to its own pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bootstrap.tasks.documents import DOCUMENTS
from tools.docs import site_links
from tools.docs.generate import ROOT

CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))


def in_nav(part: object) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(part, str):
        yield part
    for sub in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from in_nav(sub)


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    named = list(in_nav(CONFIG["nav"]))
    assert len(named) == len(set(named))
    pages = {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")}
    wanted = {page.as_posix() for page in pages if page.parts[0] != "adr"}
    assert {name for name in named if not name.startswith("project/")} == wanted
    assert {"Decisions": []} in CONFIG["nav"]


def test_a_file_outside_of_docs_has_its_place_on_the_site() -> None:
    found = {site_links.uri_of(path) for path in site_links.outside()}
    assert {"project/CHANGELOG.md", "project/CONTRIBUTING.md"} <= found
    assert "project/tests/boxes/README.md" in found
    for uri in found:
        assert site_links.uri_of(site_links.path_of(uri)) == uri


@pytest.mark.parametrize(
    ("page", "link", "want"),
    [
        ("docs/support.md", "../tests/boxes/README.md", "project/tests/boxes/README.md"),
        ("docs/reference/json.md", "../../profiles/schema.json", "../project/profiles/schema.json"),
        ("docs/runs.md", "data.md#pull", "data.md#pull"),
        ("CONTRIBUTING.md", "docs/adr/README.md", "../adr/README.md"),
        (
            "tests/boxes/README.md",
            "../../docs/nodes.md#which-boxes",
            "../../../nodes.md#which-boxes",
        ),
        ("docs/estimate.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("docs/runs.md", "not-there.md", "not-there.md"),
        ("docs/index.md", "adr", "adr/README.md"),
    ],
)
def test_links_between_files_become_links_of_the_site(page: str, link: str, want: str) -> None:
    assert site_links.rewritten(f"see [it]({link}).", ROOT / page) == f"see [it]({want})."


SOUND = '<a id="top"></a><a href="b.html#part">b</a><a href="https://example.org">x</a>'
OTHER = '<h2 id="part">Part</h2><a href="sub/">s</a><img src="a.svg"><a href="index.html#top">t</a>'


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("", "", None),
        ("b.html#part", "c.html", "index.html: c.html is not there"),
        ("b.html#part", "b.html#past", "index.html: b.html#past has no such anchor"),
        ('href="https://example.org">', 'href="#none">', "index.html: #none has no such anchor"),
        ("a.svg", "b.svg", "b.html: b.svg is not there"),
        ("sub/", "sup/", "b.html: sup/ is not there"),
        ("Part</h2>", '</h2><a href="/c.html">', "b.html: /c.html is not there"),
        ("<img src", "<script src=https://example.org/x.js></script><img src", "from outside"),
        ("<img src", "<link href=//example.org/x.css><img src", "from outside"),
    ],
)
def test_a_dead_link_missing_anchor_or_outside_file_of_the_site_is_found(
    tmp_path: Path, was: str, becomes: str, said: str | None
) -> None:
    (tmp_path / "sub").mkdir()
    root = '<a href="/b.html#part"></a>'
    for name, text in {"index": SOUND, "b": OTHER, "sub/index": "<p>", "404": root}.items():
        changed = text.replace(f"{was}", becomes) if was and name != "404" else text
        (tmp_path / f"{name}.html").write_text(changed)
    (tmp_path / "a.svg").write_text("<svg/>")
    found = list(site_links.dead_links(tmp_path))
    assert len(found) == (said is not None), found
    assert said is None or said in found[0]


def test_each_json_document_has_a_section_in_the_reference() -> None:
    text = (ROOT / "docs/reference/json.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## (.*)$", text, re.MULTILINE)) == {*DOCUMENTS, "Types"}
    assert "| `v` | integer | always |" in text


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_has_a_profile_commands_and_an_end(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("```yaml") == 1
    assert len(re.findall(r"^boxstrap ", text, re.MULTILINE)) >= 4
    ends = ("boxstrap down", "boxstrap pull --host HOST")
    assert any(f"\n{end}" in text for end in ends)


def test_the_docs_have_six_tutorials() -> None:
    assert len(TUTORIALS) == 6


def test_the_site_fetches_no_font_for_its_theme_and_is_built_strictly() -> None:
    assert CONFIG["theme"]["font"] is False
    assert CONFIG["strict"] is True
    # `--quiet` would also leave out what ends a strict build.
    assert "mkdocs build --strict\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
