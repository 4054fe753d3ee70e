"""Puts the profile's `data:` into its places: fetched by this box, or sent by the machine that
started this."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from functools import cached_property
from pathlib import Path

from ..client import Client
from ..data.items import DataError, Item, Places
from ..data.records import DataRecord, DataRecords, sent_content, sent_files
from ..env_files import env_file
from ..quoted import quoted
from ..run_folder import RunFolder, lines_of, write_whole
from ..step_report import StepError, tell
from .step import BoxStep

_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.ELOOP)


class DataStep(BoxStep):
    is_of_tree = True

    def inputs(self) -> str:
        return quoted("v1", self.setup.tree.path, f"[{','.join(self.values.data)}]")

    def what_changed(self, noted: str) -> str:  # noqa: ARG002 - settings and content are one text
        return "data"

    @cached_property
    def _places(self) -> Places:
        return Places(Path(self.home), Path(self.setup.tree.path), Path(self.setup.folder))

    @cached_property
    def _items(self) -> list[tuple[Item, str]]:
        """The items, and the key of each one's record."""
        rows = enumerate(map(json.loads, self.values.data))
        items = (Item.of(number, row) for number, row in rows)
        return [(item, self._places.key(item)) for item in items]

    @property
    def _records(self) -> DataRecords:
        return DataRecords(Path(self.home), {key for _, key in self._items})

    def check(self) -> bool:
        """Look only at what was noted when the data arrived: no data is read."""
        try:
            return all(self._records.is_right(key) for _, key in self._items)
        except DataError:
            return False

    def apply(self) -> None:
        try:
            self._bring()
        except OSError as error:
            known = "data-in-the-way" if error.errno in _IN_THE_WAY else "command-failed"
            code = "disk-full" if error.errno == errno.ENOSPC else known
            raise StepError(code, str(error)) from error

    def _bring(self) -> None:
        self._take_variables()
        if "data" in self.setup.one("redo").split(","):
            self.ask_again()
        asked = self.asks()
        self._keep_untracked()
        is_sent = any(line.startswith("local ") for line in asked)
        if is_sent and os.environ.get("CLIENT_SENDS"):
            waits = "".join(f"{line}\n" for line in asked)
            write_whole(f"{self.setup.folder}/data.waits", waits)
            tell("wait code=data")
        self.fetch()
        if is_sent:
            self._await_data()
            self._note_sent()
        self._keep_untracked()
        write_whole(f"{self.setup.tree.notes}/data.content", f"{self.content()}\n", 0o600)

    def _take_variables(self) -> None:
        """The hub's HF_TOKEN is used only if it is a secret of the profile."""
        import shlex  # late: who only looks doesn't need it

        words = shlex.split("\n".join(lines_of(env_file(self.home, self.setup.tree.key))))
        for name, _, value in (word.partition("=") for word in words if "=" in word):
            os.environ[name] = value
        if "HF_TOKEN" not in self.values.secrets:
            os.environ.pop("HF_TOKEN", None)

    def asks(self) -> list[str]:
        """Return a line for each item that the user's machine must send or sign: KIND NUMBER
        PLACE."""
        missing = [item for item, key in self._items if not self._records.is_right(key)]
        told = [item for item in missing if item.asked_for]
        return [f"{item.asked_for} {item.number} {self._places.target(item)}" for item in told]

    def ask_again(self) -> None:
        """Forget what this box fetched, so that servers are asked again; files that are right
        stay."""
        for item, key in self._items:
            if not item.digest:
                self._records.forget(key)

    def fetch(self) -> None:
        """Fetch the missing items that this box fetches itself."""
        from ..data.download import fetch_items

        own = [(item, key) for item, key in self._items if not item.digest]
        missing = [item for item, key in own if not self._records.is_right(key)]
        if missing:
            fetch_items(missing, self._places, self._records)

    def _await_data(self) -> None:
        if not Client(self.setup.folder).brings("data", "data.sent"):
            raise StepError("data-missing", "the data to be sent from your machine never arrived")
        if RunFolder(self.setup.folder).first("data.sent") != "all":
            why = "boxstrap on your machine says why"
            raise StepError("data-missing", "not all data could be sent", why)

    def _note_sent(self) -> None:
        """Record the items that were sent, from what the transfers recorded."""
        for item, key in self._items:
            if item.digest:
                target = self._places.target(item)
                files = sent_files(self._places.home, target)
                self._records.keep(key, DataRecord(str(target), files))

    def _keep_untracked(self) -> None:
        """Data that has arrived, or is on its way, is no work of this tree: `sync --back` skips it,
        and it blocks no commit."""
        exclude = f"{self.setup.tree.work.folder}/info/exclude"
        os.makedirs(os.path.dirname(exclude), exist_ok=True)
        known = lines_of(exclude)
        new = [line for line in self._untracked() if line not in known]
        with open(exclude, "a", encoding="utf-8", errors="surrogateescape") as file:
            file.write("".join(f"{line}\n" for line in new))

    def _untracked(self) -> list[str]:
        """Return the data in the tree, as lines for git's `info/exclude`."""
        found, tree = [".boxstrap-*"], self._places.tree.resolve()
        for item, key in self._items:
            record = self._records.read(key)
            files = [Path(file.path) for file in record.files] if record else []
            for path in files if item.to.endswith("/") else [self._places.target(item)]:
                if tree in path.parents:
                    name = str(path.relative_to(tree))
                    found.append("/" + re.sub(r"([\\*?\[\]!# ])", r"\\\1", name))
        return found

    def content(self) -> str:
        """Return a digest of the data that is in place: the same wherever it was sent from, and
        when.

        Sent files count by their content, fetched ones by the digest or address that names them.
        """
        rows = []
        for item, key in self._items:
            target, record = self._places.target(item), self._records.read(key)
            folder = target if item.to.endswith("/") or not target.is_file() else target.parent
            if item.digest:
                known = sent_content(self._places.home, target)
            else:
                known = {file.path: "" for file in record.files} if record else {}
            named = sorted((os.path.relpath(path, folder), sum_) for path, sum_ in known.items())
            of = "" if item.digest else item.sha256 or item.source
            rows.append([item.to, of, item.unpack, named])
        return hashlib.sha256(json.dumps(rows).encode("utf-8", "surrogateescape")).hexdigest()

    @property
    def noted_content(self) -> str:
        """What the profile's data in this tree is, by content; "" if there is none. While a run is
        alive, other data than its own stays away: `awaited`."""
        noted = RunFolder(self.setup.tree.notes).first("data.content")
        if not self.setup.has("data") or not noted:
            return ""
        return noted if lines_of(self.stamp) == [self.inputs()] else "awaited"
