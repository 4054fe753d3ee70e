"""Dead links of the site are found; `make site` asks it of the built pages."""

from pathlib import Path

import pytest

from tools.docs import site_links

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
def test_the_docs_site_check_finds_dead_links_missing_anchors_and_outside_files(
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
