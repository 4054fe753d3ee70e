"""Merge rules: mappings merge, lists are replaced, the later scalar wins."""

from hypothesis import given
from hypothesis import strategies as st

from bootstrap.profile.reading import Branch, Leaf, merge_branches, origin_of, origins, plain_values
from bootstrap.profile.yaml_source import Origin

PLACES = st.builds(Origin, st.sampled_from(["x.yaml", "y.yaml"]), st.integers(1, 99))
LEAVES = st.builds(Leaf, st.integers() | st.lists(st.integers(), max_size=3) | st.none(), PLACES)


def branches(depth: int) -> st.SearchStrategy[Branch]:
    """Trees that the schema allows: a section in one of them is a section in all."""
    if depth == 0:
        return st.builds(Branch, st.dictionaries(st.sampled_from("abcd"), LEAVES))
    children = st.fixed_dictionaries(
        {}, optional={"a": LEAVES, "b": LEAVES, "c": branches(depth - 1), "d": branches(depth - 1)}
    )
    return st.builds(Branch, children)


TREES = branches(2)


@given(TREES)
def test_extending_a_profile_by_nothing_or_by_itself_changes_nothing(tree):
    assert merge_branches(tree, Branch()) == tree
    assert merge_branches(Branch(), tree) == tree
    assert merge_branches(tree, tree) == tree


@given(TREES, TREES, TREES)
def test_merging_three_profiles_does_not_depend_on_which_two_are_merged_first(a, b, c):
    left = merge_branches(merge_branches(a, b), c)
    assert left == merge_branches(a, merge_branches(b, c))


@given(TREES, TREES)
def test_an_extending_profile_replaces_values_and_keeps_all_others(base, over):
    before = (plain_values(base), plain_values(over))
    merged = merge_branches(base, over)
    assert origins(merged) == origins(base) | origins(over)
    for key in origins(merged):
        source = over if key in origins(over) else base
        assert value_at(merged, key) is value_at(source, key)
    assert (plain_values(base), plain_values(over)) == before


def value_at(tree, key):
    for step in key.split("."):
        tree = tree.children[step]
    return tree.value


def test_an_extending_profile_can_replace_a_section_by_a_value_or_a_value_by_a_section():
    leaf, section = Leaf(None, Origin("x")), Branch({"command": Leaf("c", Origin("y"))})
    assert merge_branches(Branch({"train": section}), Branch({"train": leaf})) == Branch(
        {"train": leaf}
    )
    assert merge_branches(Branch({"train": leaf}), Branch({"train": section})) == Branch(
        {"train": section}
    )


def test_the_origin_of_a_profile_key_without_a_line_is_the_line_of_its_section():
    item, key, section = Origin("x", 3), Origin("x", 2), Origin("x", 1)
    tree = Branch({"a": Branch({"b": Leaf(["v"], key, (item,))}, section)})
    assert origin_of(tree, ("a", "b", 0)) == item
    assert origin_of(tree, ("a", "b", 7)) == key
    assert origin_of(tree, ("a", "b")) == key
    assert origin_of(tree, ("a", "missing")) == section
    assert origin_of(tree, ("missing",)) is None


def test_the_origin_of_a_section_in_two_profiles_is_the_line_in_the_extending_one() -> None:
    base, over = Branch(origin=Origin("base.yaml", 1)), Branch(origin=Origin("own.yaml", 2))
    assert merge_branches(base, over).origin == over.origin
    assert merge_branches(base, Branch()).origin == base.origin
