"""Bring a profile's data to its places on this box.

usage: onbox data.fetch check|asks|fetch|again|sent|untracked|content HOME TREE LISTS <ITEMS
HOME is boxstrap's folder, TREE the repository's, LISTS the one that gets this setup's signed URLs;
ITEMS is the script's list, as JSON. A line for the step is a word and its values: `progress`,
`wait`, `warn`, `code`; other lines are for its log.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from .records import DataRecord, DataRecords, sent_content, sent_files
from .sources import DataError, Item, Places, say

IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.ELOOP)


def check(items: list[Item], places: Places) -> int:
    """Return 0 if all items are there, else 1."""
    records = _records(items, places)
    return int(not all(records.is_right(places.key(item)) for item in items))


def asks(items: list[Item], places: Places) -> int:
    """Print a line for each item that the user's machine must send or sign: KIND NUMBER PLACE."""
    records = _records(items, places)
    for item in items:
        if item.asked_for and not records.is_right(places.key(item)):
            say(f"{item.asked_for} {item.number} {places.target(item)}")
    return 0


def sent(items: list[Item], places: Places) -> int:
    """Record the items that were sent, from what the transfers recorded."""
    records = _records(items, places)
    for item in items:
        if item.digest:
            target = places.target(item)
            files = sent_files(places.home, target)
            records.keep(places.key(item), DataRecord(str(target), files))
    return 0


def untracked(items: list[Item], places: Places) -> int:
    """Print the data in the tree, as lines for git's `info/exclude`."""
    records, tree = _records(items, places), places.tree.resolve()
    for item in items:
        record = records.read(places.key(item))
        files = [Path(file.path) for file in record.files] if record else []
        for path in files if item.to.endswith("/") else [places.target(item)]:
            if tree in path.parents:
                say("/" + re.sub(r"([\\*?\[\]!# ])", r"\\\1", str(path.relative_to(tree))))
    return 0


def fetch(items: list[Item], places: Places) -> int:
    """Fetch the missing items that this box fetches itself."""
    from .download import fetch_items

    records = _records(items, places)
    missing = [item for item in items if not item.digest and not records.is_right(places.key(item))]
    if missing:
        fetch_items(missing, places, records)
    return 0


def again(items: list[Item], places: Places) -> int:
    """Forget what this box fetched, so that servers are asked again; files that are right stay."""
    records = _records(items, places)
    for item in items:
        if not item.digest:
            records.forget(places.key(item))
    return 0


def content(items: list[Item], places: Places) -> int:
    """Print a digest of the data that is in place: the same wherever it was sent from, and when.

    Sent files count by their content, fetched ones by the digest or address that names them.
    """
    records, rows = _records(items, places), []
    for item in items:
        target, record = places.target(item), records.read(places.key(item))
        folder = target if item.to.endswith("/") or not target.is_file() else target.parent
        if item.digest:
            known = sent_content(places.home, target)
        else:
            known = {file.path: "" for file in record.files} if record else {}
        named = sorted((os.path.relpath(path, folder), sha256) for path, sha256 in known.items())
        of = "" if item.digest else item.sha256 or item.source
        rows.append([item.to, of, item.unpack, named])
    say(hashlib.sha256(json.dumps(rows).encode("utf-8", "surrogateescape")).hexdigest())
    return 0


def _records(items: Iterable[Item], places: Places) -> DataRecords:
    return DataRecords(places.home, {places.key(item) for item in items})


DOES = {
    "check": check,
    "asks": asks,
    "fetch": fetch,
    "again": again,
    "sent": sent,
    "untracked": untracked,
    "content": content,
}


def main() -> int:
    """Run the command line; on failure, print a code and a sentence, and return 1."""
    word, home, tree, lists = sys.argv[1:]
    try:
        rows = json.load(sys.stdin)
        items = [Item.of(number, row) for number, row in enumerate(rows)]
        return DOES[word](items, Places(Path(home), Path(tree), Path(lists)))
    except DataError as error:
        code, sentence = error.code, str(error)
    except OSError as error:
        known = "data-in-the-way" if error.errno in IN_THE_WAY else "command-failed"
        code = "disk-full" if error.errno == errno.ENOSPC else known
        sentence = str(error)
    say(f"code {code}")
    sys.stderr.write(sentence + "\n")
    return 1
