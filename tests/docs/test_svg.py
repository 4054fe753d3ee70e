import re
from typing import Any
from xml.etree import ElementTree

from tests.docs.svg import draw
from tests.unit.ui.telling import run_events

SVG = "{http://www.w3.org/2000/svg}"


def drawn(**options: Any) -> str:
    return draw(run_events(), "next:\n\n  attach  <boxstrap> & \x1b[31mmore", **options)


def test_it_is_an_svg_that_fetches_nothing() -> None:
    text = drawn(title="boxstrap setup --host vast-5")
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<script|<style|@import", text)
    assert "\x1b" not in text


def test_every_step_and_word_is_there_and_inside() -> None:
    root = ElementTree.fromstring(drawn(price=1.2))
    texts = [(each.text or "").replace("\xa0", " ") for each in root.iter(f"{SVG}text")]
    for step in ("preflight", "shell", "gpu", "repo", "python", "train", "setup"):
        assert any(text.startswith(step) for text in texts)
    assert "  attach  <boxstrap> & more" in texts
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for each in [*root.iter(f"{SVG}text"), *root.iter(f"{SVG}rect")]:
        long = float(each.attrib.get("textLength") or each.attrib.get("width") or 0)
        assert float(each.attrib.get("x", 0)) + long <= width + 0.5
        assert float(each.attrib.get("y", 0)) <= height


def test_steps_that_ran_at_once_lie_side_by_side() -> None:
    bars = [r for r in ElementTree.fromstring(drawn()).iter(f"{SVG}rect") if "rx" in r.attrib][1:]
    assert len(bars) == 4  # preflight, gpu, repo, python: the others took no time
    spans = [(float(b.attrib["x"]), float(b.attrib["x"]) + float(b.attrib["width"])) for b in bars]
    gpu, repo, python = spans[1:]
    assert repo[0] < gpu[1]
    assert python[0] >= repo[1] - 0.2


def test_no_events_make_no_error() -> None:
    ElementTree.fromstring(draw([], ""))
