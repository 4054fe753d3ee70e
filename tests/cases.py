"""Cases as text that people read without Python: `==== NAME` begins one, `---- PART` its part."""

import re
from pathlib import Path


def read_cases(file: Path) -> list[tuple[str, str]]:
    """Return the name and the text of each case, the first with what stands before all of them."""
    before, *rest = re.split(r"^==== (.*)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    texts = (text.strip("\n") for text in rest[1::2])
    return [("", before), *zip(rest[::2], texts, strict=True)]


def parts_of(text: str) -> dict[str, str]:
    """Return the parts of a case by name."""
    found = re.split(r"^---- (.*)\n", f"{text}\n", flags=re.MULTILINE)
    return dict(zip(["", *found[1::2]], found[::2], strict=True))
