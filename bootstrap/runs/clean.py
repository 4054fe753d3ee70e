"""`clean`: remove trees beside the main one that are no longer needed from the box."""

from __future__ import annotations

from collections.abc import Sequence

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import NotSafeError, StepFailedError
from bootstrap.link.target import BoxOptions
from bootstrap.protocol.trees import TreeBeside, clean_trees
from bootstrap.text.sizes import size
from bootstrap.ui.screen import Screen


def clean_box(options: BoxOptions, screen: Screen, *, discard: Sequence[str], look: bool) -> None:
    """Remove trees whose runs are over and that hold no work; those in `discard` may hold work.
    With `look`, only show what would be removed.

    Raises NotSafeError if a tree is kept for what it holds, and as `clean_trees`.
    """
    with BoxLogin.open(options, screen) as box:
        trees, copied = clean_trees(box, repo_key=box.own, discard=discard, look=look)
        known = box.known
        document = {"box": known.name, "trees": [tree.as_dict() for tree in trees]}
        lines = _lines(trees, copied, look=look)
        screen.result({**document, "copies_of_results": copied}, "\n".join(lines))
    stuck = [tree for tree in trees if tree.state == "left"]
    if stuck:
        raise StepFailedError(
            f"not all of {_names(stuck)} could be removed.",
            where=known.name,
            hint="It is another user's: see what is left below .boxstrap/trees there.",
        )
    kept = [tree for tree in trees if tree.state == "kept"]
    refused = [tree for tree in kept if not tree.is_in_use or tree.name in discard]
    if refused:
        free = [tree for tree in refused if not tree.is_in_use]
        hint = "A run ends with: boxstrap stop"
        if free:
            words = " ".join(f"--discard {tree.name}" for tree in free)
            hint = (
                "Copy what you need from it (scp and rsync reach the box by its name), then:\n"
                f"  boxstrap clean --host {known.name} {words}"
            )
        raise NotSafeError(f"{_names(refused)} stayed.", where=known.name, hint=hint)


def _names(trees: Sequence[TreeBeside]) -> str:
    return ", ".join(tree.name for tree in trees)


_BECAME = {
    "removed": "removed",
    "safe": "would be removed",
    "kept": "stays",
    "left": "is left in part",
}


def _lines(trees: Sequence[TreeBeside], copied: int, *, look: bool) -> list[str]:
    lines = []
    for tree in trees:
        lines.append(f"{tree.name}: {_BECAME[tree.state]} ({size(tree.bytes)})")
        lost = "it held " if tree.state == "removed" else ""
        lines += [f"  {lost}{one}" for one in tree.holds]
    if copied:
        became = _BECAME["safe" if look else "removed"]
        lines.append(f"copies of results that are at home: {became} ({size(copied)})")
    nothing = "there is no tree beside the main one" + ("" if look else ": nothing to remove")
    return lines or [nothing]
