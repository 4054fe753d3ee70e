"""What a box can do without: results that are at home and unchanged, and downloads, unless a run
may still need them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.onbox.results.complete_files import state_of
from bootstrap.onbox.results.disposable import disposable
from bootstrap.onbox.results.run_results import HOME, MADE, digest_of, write_files
from tests.run_states import identity

NAMES = ("out/last.pt", "out/step-1/a.pt")


class DisposableBox:
    """A box with one finished run, whose results are at home, and with downloads."""

    def __init__(self, folder: Path) -> None:
        self.home, self.tree = folder / ".boxstrap", folder / "homework"
        self.run = self.add_run("train-1", exit="0\n")
        for name in NAMES:
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / name).write_bytes(os.urandom(9000))
        files = {name: state_of((self.tree / name).stat()) for name in NAMES}
        write_files(str(self.run / MADE), files)
        (self.run / HOME).write_text(f"{digest_of(files)}\n")
        for name in ("uv/wheel", "huggingface/hub/model", "huggingface/token", "own/file"):
            (self.home / "cache" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / "cache" / name).write_bytes(os.urandom(5000))

    def add_run(self, name: str, tree: str = "homework", **notes: str) -> Path:
        run = self.home / "runs/k" / name
        run.mkdir(parents=True)
        words = {"dir": f"{self.tree.with_name(tree)}\n", "results": "out/\n", "pid": "1 1 x\n"}
        for word, text in {**words, **notes}.items():
            if text:
                (run / word).write_text(text)
        return run

    def clean(self, key: str = "", *, look: bool = False) -> dict[str, str]:
        rows = list(disposable(str(self.home), key, look=look))
        assert all(size >= 5000 for _, _, size, _, _ in rows)
        return {name: became for _, name, _, became, _ in rows}

    def results(self) -> list[str]:
        return [name for name in NAMES if (self.tree / name).exists()]


@pytest.fixture
def box(tmp_path: Path) -> DisposableBox:
    return DisposableBox(tmp_path)


def test_clean_removes_pulled_results_and_caches_but_keeps_tokens(box: DisposableBox) -> None:
    safe = {"k/train-1": "safe", "huggingface/hub": "safe", "uv": "safe"}
    assert box.clean(look=True) == safe
    assert box.results() == [*NAMES]
    assert "k/train-1" not in box.clean("another", look=True)
    assert box.clean("k") == dict.fromkeys(safe, "removed")
    assert (box.results(), list((box.tree / "out").iterdir())) == ([], [])
    left = sorted(str(one.relative_to(box.home)) for one in box.home.glob("cache/**/*"))
    assert left == ["cache/huggingface", "cache/huggingface/token", "cache/own", "cache/own/file"]
    assert box.clean() == {}


def never_pulled(box: DisposableBox) -> None:
    (box.run / HOME).unlink()


def pulled_before_its_end(box: DisposableBox) -> None:
    (box.run / HOME).write_text("of other files\n")


def failed(box: DisposableBox) -> None:
    (box.run / "exit").write_text("1\n")


def changed(box: DisposableBox) -> None:
    for name in NAMES:
        (box.tree / name).write_bytes(b"mine" * 3000)


@pytest.mark.parametrize("make", [never_pulled, pulled_before_its_end, failed, changed])
def test_clean_keeps_results_that_are_unpulled_changed_or_of_a_failed_run(
    box: DisposableBox, make: Callable[[DisposableBox], None]
) -> None:
    make(box)
    # What stays is said: it may be what fills the disk.
    said = {failed: "kept", changed: None}.get(make, "unpulled")
    assert box.clean().get("k/train-1") == said
    assert box.results() == [*NAMES]


def live(box: DisposableBox) -> None:
    box.add_run("train-2", pid=f"{identity(os.getpid())}\n")


def waiting(box: DisposableBox) -> None:
    box.add_run("train-2", pid="", queue="after train-1\n")


def to_be_resumed(box: DisposableBox) -> None:
    box.add_run("train-2", exit="143\n", resume="python train.py --resume\n")


def elsewhere(box: DisposableBox) -> None:
    box.add_run("train-2", "homework@2", pid="", queue="gpus\n")


@pytest.mark.parametrize(
    ("make", "results", "cache"),
    [
        (live, "used", "used"),
        (waiting, "used", "used"),
        (to_be_resumed, "used", "removed"),
        (elsewhere, "removed", "used"),
    ],
)
def test_clean_keeps_results_and_caches_that_a_live_or_queued_run_may_need(
    box: DisposableBox, make: Callable[[DisposableBox], None], results: str, cache: str
) -> None:
    make(box)
    said = box.clean()
    assert (said["k/train-1"], said["uv"]) == (results, cache)
    assert bool(box.results()) == (results == "used")
    assert (box.home / "cache/uv/wheel").exists() == (cache == "used")


def test_clean_keeps_uvs_cache_where_environments_link_into_the_cache(box: DisposableBox) -> None:
    (box.home / "env").write_text("export UV_LINK_MODE=symlink\n")
    said = box.clean()
    assert (said["uv"], said["huggingface/hub"]) == ("used", "removed")
