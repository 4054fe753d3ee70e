"""Merge profiles: mappings are merged; a later list or scalar replaces the earlier one."""

from __future__ import annotations

from dataclasses import dataclass, field

from bootstrap.profile.origins import Origin


@dataclass(frozen=True)
class Leaf:
    """A value that is replaced as a whole; `items` are the origins of a list's items."""

    value: object
    origin: Origin
    items: tuple[Origin, ...] = ()


@dataclass(frozen=True)
class Branch:
    """A mapping; `origin` is where its key is."""

    children: dict[str, Branch | Leaf] = field(default_factory=dict)
    origin: Origin | None = None


Tree = Branch | Leaf


def merge(base: Tree, over: Tree) -> Tree:
    """Return `over` on top of `base`. Neither is changed."""
    if not (isinstance(base, Branch) and isinstance(over, Branch)):
        return over
    return merge_branches(base, over)


def merge_branches(base: Branch, over: Branch) -> Branch:
    """Return `over` on top of `base`, both mappings."""
    children = dict(base.children)
    for key, child in over.children.items():
        children[key] = merge(children[key], child) if key in children else child
    return Branch(children, over.origin or base.origin)


def plain(tree: Tree) -> object:
    """Return the values without their origins."""
    if isinstance(tree, Leaf):
        return list(tree.value) if isinstance(tree.value, list) else tree.value
    return {key: plain(child) for key, child in tree.children.items()}


def origins(tree: Tree, prefix: str = "") -> dict[str, Origin]:
    """Return the origin of each value by its dotted key."""
    if isinstance(tree, Leaf):
        return {prefix: tree.origin}
    found: dict[str, Origin] = {}
    for key, child in tree.children.items():
        found |= origins(child, f"{prefix}.{key}" if prefix else key)
    return found


def origin_of(tree: Tree, path: tuple[str | int, ...]) -> Origin | None:
    """Return the nearest known origin for `path`: the item, the key, or the mapping around it."""
    if not path:
        return tree.origin
    step, rest = path[0], path[1:]
    if isinstance(tree, Branch):
        child = tree.children.get(str(step))
        return tree.origin if child is None else origin_of(child, rest) or tree.origin
    if isinstance(step, int) and step < len(tree.items):
        return tree.items[step]
    return tree.origin
