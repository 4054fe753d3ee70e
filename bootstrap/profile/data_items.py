"""The items of a profile's `data:`: where each comes from, and where it goes on the box."""

# No `from __future__ import annotations`: `Section` reads them as types.
import posixpath
import re
from typing import Annotated, Literal

from bootstrap.profile.fields import Free, Section, field
from bootstrap.profile.values import REPO_PATH, WORKDIR, Rule, ordinary, shown_value

Place = Literal["local", "address", "hub", "bucket"]
_SCHEMES: dict[str, Place] = {
    "https": "address",
    "hf": "hub",
    "s3": "bucket",
    "gs": "bucket",
    "az": "bucket",
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_ADDRESS = r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[!-~]*"
_BUCKET = r"(s3|gs|az)://[A-Za-z0-9._-]+(/[^\\\"]*)?"
_HUB = re.compile(
    r"hf:(?P<kind>datasets|models)/(?P<name>[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)?)"
    r"@(?P<revision>[A-Za-z0-9._%-]+)(/(?P<path>[^\\\"]+))?"
)
_EXPECTED: dict[Place, tuple[str, str]] = {
    "address": (_ADDRESS, "https://host/path without a name or password"),
    "hub": (
        _HUB.pattern,
        "hf:datasets/OWNER/NAME@REVISION or hf:models/…, and perhaps /path after it",
    ),
    "bucket": (_BUCKET, "s3://bucket/path, gs://… or az://…"),
}


def place_of(source: str) -> Place:
    """Return what kind of source this is. Raises ValueError for a scheme that is not supported."""
    scheme = _SCHEME.match(source)
    if not scheme:
        return "local"
    if scheme[1] not in _SCHEMES:
        raise ValueError(
            f"{shown_value(source)}: nothing is fetched by {scheme[1]}:; there are "
            f"{', '.join(f'{name}:' for name in _SCHEMES)} and paths on this machine"
        )
    return _SCHEMES[scheme[1]]


def _source(text: str) -> str:
    place = place_of(text)
    if place == "local":
        return ordinary(text)
    pattern, expected = _EXPECTED[place]
    if not re.fullmatch(pattern, text):
        raise ValueError(f"expected {expected}, got {shown_value(text)}")
    if place != "address" and ".." in text.split("/"):
        raise ValueError(f"{shown_value(text)} leaves its folder with '..'")
    return text


def _target(path: str) -> str:
    """Normalize the path, and keep a trailing slash: it means a folder."""
    if not set(path.split("/")) - {"", ".", "~"}:
        raise ValueError(f"{shown_value(path)} is not a path of its own")
    if path.startswith(("/", "~")):
        WORKDIR(path)
    else:
        REPO_PATH(path)
    return posixpath.normpath(path) + ("/" if path.endswith("/") else "")


SOURCE = Rule(
    "a path on this machine, or an address: https:, hf:, s3:, gs:, az:", r"(?s).+", finish=_source
)
TARGET = Rule(
    "a path in the repository, or on the box if it starts with / or ~/ "
    "(letters, digits, . _ + @ = -)",
    r"(?s).+",
    stays=True,
    finish=_target,
)
SHA256 = Rule("a SHA-256 (64 digits 0-9 a-f)", r"[0-9a-f]{64}")
PATTERN = Rule("a pattern, as a line of .gitignore", r"(?s).+")


class DataItem(Section):
    """One thing to train on: a file, a folder or an archive, and its place on the box."""

    from_: Free[Annotated[str, SOURCE]] = field(
        "A path here, https://…, hf:datasets/OWNER/NAME@REVISION, s3://, gs:// or az://."
    )
    to: Free[Annotated[str, TARGET]] = field(
        "Its path in the repository's folder on the box, or in its working folder; "
        "with a / at the end it goes into that folder by its own name."
    )
    sha256: Free[Annotated[str, SHA256] | None] = field(
        "The SHA-256 that the file at an address must have."
    )
    unpack: Free[bool] = field(
        "Whether the file is an archive (zip, tar, tar.gz, tar.bz2, tar.xz) to unpack into `to`.",
        default=False,
    )
    exclude: Free[list[Annotated[str, PATTERN]]] = field(
        "What of a folder, of a hub's repository or of a bucket stays away, as in .gitignore."
    )

    @property
    def source(self) -> str:
        """The item's `from`."""
        found: str = self.from_
        return found

    def exclude_rules(self) -> list[tuple[str, bool]]:
        """Return `exclude` as regular expressions, each with whether a match is left out."""
        if not self.exclude:
            return []
        from pathspec import GitIgnoreSpec

        patterns = GitIgnoreSpec.from_lines(self.exclude).patterns
        return [(p.regex.pattern, bool(p.include)) for p in patterns if p.regex]

    @property
    def place(self) -> Place:
        """What kind of source it comes from."""
        return place_of(self.source)


def misfits(items: list[DataItem]) -> list[tuple[int, str, str]]:
    """Return keys that contradict one another: the item's number, the key, and why."""
    wrong: list[tuple[int, str, str]] = []
    seen: dict[str, int] = {}
    for number, item in enumerate(items):
        if item.sha256 and item.place in ("local", "hub"):
            why = "is checked for a file at an address; here each file has its own"
            wrong.append((number, "sha256", why))
        if item.unpack and item.place in ("local", "hub"):
            wrong.append((number, "unpack", "takes an archive at an address or in a bucket"))
        if item.exclude and (item.place == "address" or item.unpack):
            wrong.append(
                (number, "exclude", "chooses among several files, but this source is a single one")
            )
        if item.to in seen and not item.to.endswith("/"):
            wrong.append((number, "to", f"data[{seen[item.to]}] goes there too"))
        seen.setdefault(item.to, number)
    return wrong
