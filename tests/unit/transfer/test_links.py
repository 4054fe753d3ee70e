"""A link in results comes home as a link and goes on as one; nothing is written through it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.link import LocalWire
from bootstrap.onbox.results.complete_files import CompleteFiles
from bootstrap.onbox.results.copies import FOREVER
from bootstrap.onbox.results.keep_results import Keeping
from bootstrap.onbox.results.run_results import MADE, OwnResults, RunResults, write_files
from bootstrap.transfer.destination import PARTS
from bootstrap.transfer.manifest import Manifest, RunOrigin, read_manifest
from bootstrap.transfer.push import push_folder
from tests.unit.transfer.boxes import ResultsHere, SaidResults

pytestmark = pytest.mark.slow  # each starts programs

FILES = {
    **{"out/epoch=17.ckpt": "w", "out/blobs/ab": "weights", "out/blobs/cd": "config"},
    **{"out/checkpoint-5/a": "w", "out/checkpoint-5/b": "w", "out/a": "w", "more/a": "w"},
}
LINKS = {
    "out/last.ckpt": ("epoch=17.ckpt", "out/epoch=17.ckpt"),  # Lightning's
    "out/snapshots/1/model": ("../../blobs/ab", "out/blobs/ab"),  # the Hub's
    "out/snapshots/1/config": ("../../blobs/cd", "out/blobs/cd"),
    "out/latest": ("checkpoint-5", "out/checkpoint-5"),
    "out/b": ("a", "out/a"),
    "out/c": ("b", "out/a"),
    "out/d": ("{tree}/out/a", "out/a"),
    "out/e": ("../more/a", "more/a"),
}
"""Links in results: how each leads there, and where it leads at home."""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ResultsHere]:
    wire = LocalWire()
    yield ResultsHere(tmp_path / "box", tmp_path / "home", wire, ("out/", "more"))
    wire.close()


def links_in(folder: Path) -> dict[str, str]:
    """Return where each link of a folder leads, as a path below that."""
    found = (path for path in folder.rglob("*") if path.is_symlink() and PARTS not in path.parts)
    texts = {path: path.readlink() for path in found}
    return {
        str(path.relative_to(folder)): os.path.relpath(path.parent / text, folder)
        for path, text in texts.items()
        if not text.is_absolute()
    }


def link(box: ResultsHere, links: dict[str, str]) -> None:
    for path, to in links.items():
        (box.tree / path).parent.mkdir(parents=True, exist_ok=True)
        (box.tree / path).unlink(missing_ok=True)
        (box.tree / path).symlink_to(to.format(tree=box.tree))


def test_pull_recreates_a_result_symlink_so_that_it_leads_to_the_pulled_file(
    box: ResultsHere, tmp_path: Path
) -> None:
    for path, text in FILES.items():
        box.write(path, text)
    link(box, {path: there for path, (there, _) in LINKS.items()})
    wanted = {path: here for path, (_, here) in LINKS.items()}
    first = box.pull()
    assert (first.landed, first.missing) == ({*FILES, *LINKS}, {})
    assert links_in(box.home) == wanted
    assert box.pull().landed == set()
    with box.record() as record:
        rows = dict(record.files)
    text = Manifest(RunOrigin("box", "r", "train-1"), [], rows, frozenset(rows)).text()
    listed = read_manifest(text.encode())
    assert {path: one.to for path, one in listed.files.items() if one.to} == wanted
    present = {path: (one.size, one.sha256) for path, one in listed.files.items()}
    with box.source() as source:
        given = source.digests([*source.look(live=False).files.values()])
        assert present == {file.path: (file.size, said.sha256) for file, said in given}
    # Each path of the results goes alone, so a link out of it is named.
    for sent in (len(FILES) + len(LINKS) - 2, 0):
        pushed = push_folder(box.wire, box.home / "out", "on/out", workdir=str(tmp_path / "new"))
        assert (pushed.files, len(pushed.left_out)) == (sent, 1)
    del wanted["out/e"]
    assert links_in(tmp_path / "new/on") == wanted


def test_pull_updates_its_own_symlink_and_saves_beside_what_the_user_put_in_its_place(
    box: ResultsHere, tmp_path: Path
) -> None:
    for name in "abc":
        box.write(f"out/{name}", name)
    link(box, {"out/last": "a", "out/mine": "a", "out/file": "a"})
    assert len(box.pull().landed) == 6
    (box.home / "out/mine").unlink()
    (box.home / "out/mine").symlink_to("/etc/passwd")
    (box.home / "out/file").unlink()
    (box.home / "out/file").write_text("the user's")
    (box.out / "file").unlink()
    box.write("out/file", "now a file")
    link(box, {"out/last": "b", "out/mine": "b"})
    assert box.pull().missing == {}
    assert links_in(box.home) == {"out/last": "out/b", "out/mine.from-train-1": "out/b"}
    assert (box.home / "out/mine").readlink() == Path("/etc/passwd")
    assert (box.home / "out/file").read_text() == "the user's"
    assert (box.home / "out/file.from-train-1").read_text() == "now a file"
    # A link is replaced by a file, and a file by a link, each in place.
    for path in ("out/last", "out/c"):
        (box.tree / path).unlink()
    box.write("out/last", "a file")
    link(box, {"out/c": "a"})
    assert box.pull().missing == {}
    assert (box.home / "out/last").read_text() == "a file"
    assert links_in(box.home)["out/c"] == "out/a"
    assert (box.home / "out/b").read_text() == "b"
    # On a box nobody else's link is replaced either, and none is written through.
    there = tmp_path / "new/out"
    there.mkdir(parents=True)
    (there / "a").symlink_to(tmp_path / "outside")
    (there / "c").symlink_to("x")
    pushed = push_folder(
        box.wire, box.home / "out", "out", workdir=str(tmp_path / "new"), replace=True
    )
    assert sorted(pushed.kept) == ["a", "c"]
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_file_that_replaces_a_symlink_to_the_same_content_is_pulled_and_pushed_again(
    box: ResultsHere, is_first: bool
) -> None:
    """Else a pull waits for ever, and a push finds it on the box already."""
    box.write("out/step-5")
    there, said = box.workdir / "there", {True: "out/step-5", False: "step-5"}
    there.mkdir()
    for is_link in (is_first, not is_first):
        for path, pulled in (("out/last", True), ("out/latest", False)):
            (box.tree / path).unlink(missing_ok=True)
            if is_link:
                link(box, {path: "step-5"})
            else:
                box.write(path, said[pulled])
        assert box.pull().missing == {}
        assert (box.home / "out/last").is_symlink() == is_link
        assert push_folder(box.wire, box.out, "out", workdir=str(there)).kept == []
        assert (there / "out/latest").is_symlink() == is_link


def test_result_symlinks_that_lead_out_or_nowhere_are_named_as_missing(box: ResultsHere) -> None:
    box.write("out/mine")
    (box.tree / "secret").write_text("x")
    (box.out / "empty").mkdir()
    out = {"out/etc": "/etc/passwd", "out/up": "..", "out/tree": "../secret"}
    link(box, {**out, "out/dead": "gone", "out/empty-1": "empty", "out/self": "self"})
    found = box.pull()
    assert found.landed == {"out/mine"}
    assert found.missing == dict.fromkeys(out, "outside")
    none = {"out/dead": "dead", "out/self": "dead", "out/empty-1": "stray", "more": "missing"}
    assert found.look.left == {**found.missing, **none}
    assert links_in(box.home) == {}


OUT = "leads to what "
HOSTILE: dict[str, tuple[list[tuple[str, str]], dict[str, str]]] = {
    "up": ([("a", ".."), ("b", "../b"), ("c", "out/../..")], dict.fromkeys("abc", OUT)),
    "from the root": ([("a", "/etc/passwd")], {"a": OUT}),
    "into git": ([("a", ".git/hooks")], {"a": OUT}),
    "into what is boxstrap's own": ([("a", f"{PARTS}/x"), ("b", "boxstrap-run/log")], {"a": OUT}),
    "to nothing": ([("a", "gone"), ("b", "b")], {"a": "led", "b": "led"}),
    "to a link": ([("d/x", ""), ("a", "d"), ("b", "a"), ("c", "a/x")], {"b": "led", "c": "led"}),
    "to a refused file": ([("x\n", ""), ("a", "x\n")], {"a": OUT}),
    "at a name of boxstrap's": ([("x", ""), ("boxstrap-manifest.json", "x")], {}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_symlink_from_a_box_leads_out_of_the_results_folder(box: ResultsHere, name: str) -> None:
    rows, refused = HOSTILE[name]
    with box.pulling() as puller:
        found = puller.round(SaidResults(*rows), live=False)
    for path, why in refused.items():
        assert found.missing[path].startswith(why)
        assert not os.path.lexists(box.home / path)
    for path in links_in(box.home):
        assert (box.home / path).resolve().is_relative_to(box.home)
    assert not os.path.lexists(box.home / "boxstrap-manifest.json")


def test_no_result_file_is_written_through_a_symlink_from_the_box(box: ResultsHere) -> None:
    """Whether the link is said first or last, and in which round."""
    with box.pulling() as puller:
        first = puller.round(SaidResults(("d/x", ""), ("a", "d"), ("b", "d")), live=False)
        assert first.missing == {}
        through = SaidResults(("d/x", ""), ("a", "d"), ("a/y", ""), ("b/x", ""), ("b", "d"))
        through.files["n/x"] = through.files["d/x"]._replace(path="n/x", state=(1, 9, 3, 4, 5))
        through.files["n"] = through.files["a"]._replace(path="n", state=(1, 8, 1, 4, 5))
        found = puller.round(through, live=False)
    assert {path for path in found.missing if "not a folder" in found.missing[path]} == {
        "a/y",
        "b/x",
    }
    assert [path.name for path in (box.home / "d").iterdir()] == ["x"]
    assert (box.home / "n/x").read_text() == "n/x"
    assert links_in(box.home) == {"a": "d", "b": "d", "n.from-train-1": "d"}


def test_pull_writes_a_result_symlink_only_after_the_file_it_leads_to(box: ResultsHere) -> None:
    """Else a `last.ckpt` would be here before its file, or never, where that does not come."""
    said = SaidResults(("a", ""), ("d/x", ""), ("d/y", ""), ("to-a", "a"), ("to-d", "d"))
    for path in ("a", "d/x"):
        said.files[path] = said.files[path]._replace(why="held")
    with box.pulling() as puller:
        found = puller.round(said, live=True)
        assert (found.missing["to-a"], found.missing["to-d"]) == ("later", "later")
        assert links_in(box.home) == {}
        for path in ("a", "d/x"):
            said.files[path] = said.files[path]._replace(why="")
        assert puller.round(said, live=True).missing == {}
    assert links_in(box.home) == {"to-a": "a", "to-d": "d"}


def test_pull_brings_a_checkpoint_only_once_all_its_symlinks_exist(tmp_path: Path) -> None:
    now = 0.0
    looking = CompleteFiles(str(tmp_path), ["out"], clock=lambda: now)
    for at in (1, 2):
        folder = tmp_path / f"out/checkpoint-{at}"
        folder.mkdir(parents=True)
        (folder / "model").write_text("w")
        (folder / "tokens").symlink_to("../checkpoint-1/model")
    (tmp_path / "out/latest").symlink_to("checkpoint-2")
    (tmp_path / "out/checkpoint-2/tokens").unlink()
    why = []
    for _ in range(2):
        why.append({one.path: one.why for one in looking.look(live=True).files})
        now += 10
    half = {path: said for path, said in why[1].items() if said}
    assert half == dict.fromkeys(("out/checkpoint-2/model", "out/latest"), "checkpoint")
    (tmp_path / "out/checkpoint-2/tokens").symlink_to("../checkpoint-1/model")
    looking.look(live=True)
    now += 10
    assert not any(one.why for one in looking.look(live=True).files)


def test_pull_brings_a_result_that_a_later_run_replaced_from_its_copy(box: ResultsHere) -> None:
    for name in "ab":
        box.write(f"out/{name}", name)
    link(box, {"out/last": "a", "out/of b": "b"})
    run = RunResults(str(box.workdir / ".boxstrap/runs/homework-01234567/train-1"))
    (Path(run.path) / "exit").write_text("0\n")
    made = run.find()
    assert write_files(f"{run.path}/{MADE}", made)
    Keeping(run, made, []).keep(FOREVER)
    link(box, {"out/last": "b"})
    kinds = {
        one.file.path: (one.kind, one.file.to)
        for one in OwnResults(run, 0.0).look(live=False).files
    }
    assert kinds["out/last"] == ("kept", "out/a")
    assert box.pull().missing == {}
    assert links_in(box.home) == {"out/last": "out/a", "out/of b": "out/b"}
    # What its user lets go of takes the links to it along.
    (Path(run.path) / "results.without").write_text(json.dumps(["out/a"]))
    left = OwnResults(RunResults(run.path), 0.0).look(live=False)
    kinds = {one.file.path: (one.kind, one.file.to) for one in left.files}
    assert kinds == {
        "out/b": ("kept", ""),
        "out/of b": ("kept", "out/b"),
        "out/last": ("after", "out/b"),  # the one that is there now
    }
