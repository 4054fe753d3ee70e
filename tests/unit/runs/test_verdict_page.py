"""The page for the host's owner: it needs no other file, and a box can't inject markup."""

import json
from datetime import datetime, timezone
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bootstrap.boxes import Verdict, read_verdict
from bootstrap.errors import UsageError
from bootstrap.runs.page import Subject, named_page, verdict_page, write_page
from tests.nvml import stub
from tests.unit.boxes.test_verdict import document, gpu, reason, row
from tools.docs import verdict_example
from tools.docs.generate import ROOT

AT = datetime(2026, 11, 21, 8, 45, 1, tzinfo=timezone.utc)
EVIL = "</td><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7*7 }}{% x %}\x1b[31m"


class PageReader(HTMLParser):
    """Collects the tags, attributes and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(text: str) -> PageReader:
    reader = PageReader()
    reader.feed(text)
    return reader


def hostile() -> Verdict:
    everything = document(
        verdict="return",
        reasons=[reason(check=EVIL, says=EVIL, advice=EVIL)],
        driver=EVIL,
        cuda=EVIL,
        gpus=[gpu(0, name=EVIL, uuid=EVIL, capability=EVIL)],
        checks=[row(EVIL, 0, "return", EVIL, EVIL, EVIL)],
        advice=[EVIL],
    )
    return read_verdict(json.dumps(everything).encode())


def test_the_verdict_page_of_a_hostile_box_has_its_html_as_plain_text_and_loads_nothing() -> None:
    text = verdict_page(hostile(), Subject(EVIL, EVIL, AT, EVIL))
    assert "default-src 'none'" in text
    for word in ("http://", "https://", "url(", "@import", "<link", "<iframe"):
        assert word not in text
    seen = parsed(text)
    well = parsed(
        verdict_page(read_verdict(json.dumps(document()).encode()), Subject("b", "p", AT))
    )
    assert set(seen.tags) - set(well.tags) <= {"ol", "li", "p", "br"}
    assert {name for name, _ in seen.attributes} <= {
        *("lang", "charset", "class", "content", "name", "data-name", "http-equiv")
    }
    assert seen.text.count("<script>alert(1)</script>") > 8
    assert "{{ 7*7 }}" in seen.text
    assert "\x1b" not in seen.text.replace(EVIL, "")


def test_the_verdict_page_names_box_provider_time_gpu_and_reason() -> None:
    sick = document(verdict="return", reasons=[reason()])
    text = parsed(
        verdict_page(read_verdict(json.dumps(sick).encode()), Subject("root@b:22", "Vast.ai", AT))
    ).text
    for part in (
        *("Return this box.", "root@b:22", "Vast.ai", "2026-11-21 08:45:01 UTC"),
        *("NVIDIA A100-SXM4-80GB, 80.0 GiB", "GPU-1", "GPU 1: uncorrected memory errors: 2"),
        "550.54.15",
    ):
        assert part in text, part


@pytest.mark.slow
@pytest.mark.skipif(stub.compiler() is None, reason="no C compiler for the stand-in for NVML")
def test_the_verdict_example_in_the_docs_equals_the_generated_page() -> None:
    kept = (ROOT / "docs/verdict-example.html").read_text(encoding="utf-8")
    assert verdict_example.example() == kept, "make docs"
    assert "An example" in kept


def test_a_report_option_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "no" / "page.html"):
        with pytest.raises(UsageError, match="can't be written"):
            named_page(str(place), "--report")
    named_page(str(tmp_path / "page.html"), "--report")
    write_page(tmp_path / "page.html", "é", "--report")
    assert (tmp_path / "page.html").read_bytes() == "é".encode()
