"""What a tree beside shares with the main one, by links: the profile's shared folders and files,
and each file that was pushed there, but none of its results: a run that goes on elsewhere was sent
its own. A tracked file is never shared.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from ..git import BoxTree
from ..run_folder import lines_of, names_in
from ..step_report import StepError, caution


class SharedFolders:
    def __init__(
        self, tree: BoxTree, main: str, folders: Sequence[str], results: Sequence[str]
    ) -> None:
        self._tree, self._main, self._folders = tree, main, folders
        self._results = tuple(f"{os.path.realpath(main)}/{one.rstrip('/')}/" for one in results)

    def refuse_tracked(self, snapshot: str) -> None:
        for folder in self._folders:
            if self._tree.store.ask("ls-tree", snapshot, "--", folder):
                raise StepError("shared-tracked", f"{folder}: each tree has its own")

    def are_linked(self) -> bool:
        return all(map(self._is_linked, self._folders)) and not self._missing_files()

    def link(self) -> None:
        """Link what isn't yet, and let git ignore it."""
        for folder in self._folders:
            link, place = f"{self._tree.path}/{folder}", f"{self._main}/{folder}"
            try:
                if not self._is_linked(folder):
                    self._link_folder(link, place)
            except OSError:
                what = f"{link} is there already, and is no link to {place}"
                raise StepError("shared-in-the-way", what) from None
        try:
            for link, file in self._missing_files():
                os.makedirs(os.path.dirname(link), exist_ok=True)
                os.symlink(file, link)
        except OSError as error:
            raise StepError("pushed-not-linked", str(error)) from None
        info = f"{self._tree.work.folder}/info"
        os.makedirs(info, exist_ok=True)
        new = {f"/{folder}" for folder in self._folders}.difference(lines_of(f"{info}/exclude"))
        with open(f"{info}/exclude", "a", encoding="utf-8", errors="surrogateescape") as exclude:
            exclude.write("".join(f"{line}\n" for line in sorted(new)))

    def _is_linked(self, folder: str) -> bool:
        link = f"{self._tree.path}/{folder}"
        return os.path.islink(link) and os.readlink(link) == f"{self._main}/{folder}"

    def _link_folder(self, link: str, place: str) -> None:
        """What is not in the main tree either is made there, as a folder unless its name is a
        file's. Raises OSError."""
        is_file = "." in os.path.basename(place)[1:-1]
        os.makedirs(os.path.dirname(place) if is_file else place, exist_ok=True)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if os.path.isdir(link) and not os.path.islink(link):
            os.rmdir(link)
        lies_in, tree = (
            os.path.realpath(each) for each in (os.path.dirname(link), self._tree.path)
        )
        if not f"{lies_in}/".startswith(f"{tree}/"):
            raise OSError
        os.symlink(place, link)

    def _missing_files(self) -> list[tuple[str, str]]:
        """Return link and file of each pushed file that is not linked yet. A linked folder has all
        of its files, and what is there already stays."""
        records = f"{self._tree.home}/data"
        if not any(name.endswith(".jsonl") for name in names_in(records)):
            return []
        from pathlib import Path  # slow to import, as what follows

        from ..data.records import pushed_files

        main, inside = Path(self._main).resolve(), Path(self._tree.path).resolve()
        is_inside: dict[Path, bool] = {}
        missing = []
        for name in pushed_files(Path(records), main):
            link, file = inside / name, os.fspath(main / name)
            if link.parent not in is_inside:
                real = link.parent.resolve()
                is_inside[link.parent] = inside in (real, *real.parents)
            is_result = f"{file}/".startswith(self._results)
            if is_inside[link.parent] and not (is_result or os.path.lexists(link)):
                missing.append((os.fspath(link), file))
        return missing

    def warn_of_ignored(self, venv: str, results: Sequence[str]) -> None:
        """Whether the main tree has files that git ignores, came by another way than a push or an
        install, and are not in this new tree."""
        from ..results.at_risk import MADE_BESIDE  # slow to import

        main = BoxTree(self._tree.home, self._tree.key, self._main).work
        found: list[str] = []
        with suppress(OSError):
            found = main.paths("ls-files", "-zoi", "--exclude-standard", "--directory")
        mine = (".", f"{venv}/", *(f"{each.rstrip('/')}/" for each in results))
        lacking = [path for path in found if not os.path.exists(f"{self._tree.path}/{path}")]
        lacking = [one for one in lacking if not (MADE_BESIDE.fullmatch(one) or "/." in one)]
        lacking = [path for path in lacking if not f"{path.rstrip('/')}/".startswith(mine)]
        if lacking:
            caution("tree-lacks-ignored", *lacking)
