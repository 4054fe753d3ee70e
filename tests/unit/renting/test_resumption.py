"""What of a run that is to go on elsewhere is believed, and what is left of its money."""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes import Run, Uploaded
from bootstrap.boxes.at_home import PullPlace, RunAtHome
from bootstrap.errors import NotSafeError, UnreachableError, UsageError
from bootstrap.link import KnownBox, LocalWire
from bootstrap.providers import RentedBox, RentedState
from bootstrap.renting import Rental, RentalState, last_results, rental, resumption
from bootstrap.setup import SetupRequest
from bootstrap.transfer import buckets
from bootstrap.transfer.destination import MANIFEST
from bootstrap.transfer.manifest import read_manifest
from bootstrap.transfer.puller import WAITS

RUN = Run("k-1", "train-1", "died", None, 1_700_000_000, "c" * 40, "w", "train", 0, 12, "python x")
ORIGIN = {"box": "gpu", "repository": RUN.repo_key, "run": RUN.name}
BEFORE = RunAtHome("gpu", 1.0, "vast:1", RUN)


def run_before(**run: Any) -> RunAtHome:
    return dataclasses.replace(BEFORE, run=dataclasses.replace(RUN, **run))


class ListedBucket:
    """A bucket that has these names."""

    names: tuple[str, ...] = ()

    def __init__(self, url: str) -> None:
        assert url == "s3://mine/results/"

    def objects(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.names]


@pytest.mark.parametrize(
    ("said", "there", "found"),
    [
        ("s3://mine/results/train-1-20231114-221320-ab", (), "…320-ab"),
        ("s3://mine/results/train-2-20231114-221320-ab", (), ""),
        ("s3://mine/results/train-1-20231114-221321-ab", (), ""),
        ("s3://mine/results/..", (), ""),
        ("s3://mine/private", (), ""),
        ("s3://mine/results/../private", (), ""),
        ("", ("train-1-20231114-221320-ab/out/a", "train-1-20231114-221321-ab/out/a"), "…320-ab"),
        ("s3://other/results/train-1-x", ("train-1-20231114-221320-ab/out/a",), "…320-ab"),
        ("", ("train-2-20231114-221320-ab/out/a",), ""),
    ],
)
def test_results_for_up_resume_are_taken_only_from_the_bucket_folder_of_the_profile(
    monkeypatch: pytest.MonkeyPatch, said: str, there: tuple[str, ...], found: str
) -> None:
    monkeypatch.setattr(buckets, "Bucket", ListedBucket)
    monkeypatch.setattr(ListedBucket, "names", there)
    train: Any = SimpleNamespace(results_to="s3://mine/results/")
    uploaded = Uploaded("going", 1, 1, 0, "", said) if said else None
    before = run_before(uploaded=uploaded)
    expected = found.replace("…", "s3://mine/results/train-1-20231114-221")
    assert last_results.bucket_of(before, train) == expected
    assert last_results.bucket_of(before, SimpleNamespace(results_to=None)) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        *(("out/a", True), ("model.pt", True), ("outside/a", False), ("sitecustomize.py", False)),
        *(("out/../sitecustomize.py", False), ("/etc/passwd", False)),
    ],
)
def test_up_resume_sends_only_paths_that_the_profile_names_as_results(
    path: str, is_one: bool
) -> None:
    assert last_results._is_result(path, ["out/", "model.pt"]) is is_one


OLD, NEW = "old state", "new state"
FOLDER, SHARDS = ("out/step-9/a", "out/step-9/b"), ("m-00001-of-00002.pt", "m-00002-of-00002.pt")


STEPS = ("out/step-8/a", "out/step-8/b", "out/step-9/b")


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


@pytest.mark.parametrize(
    ("listed", "missing", "here", "recorded", "whole"),
    [
        pytest.param(FOLDER, {}, FOLDER, (), FOLDER, id="all of a checkpoint"),
        pytest.param((), {}, FOLDER[:1], FOLDER[:1], (), id="killed while it landed"),
        pytest.param(FOLDER, {}, FOLDER[:1], (), (), id="one was removed here"),
        pytest.param(FOLDER[:1], {FOLDER[1]: "no room"}, FOLDER[:1], (), (), id="disk full"),
        pytest.param(SHARDS[:1], {}, SHARDS[:1], (), (), id="a part that never came"),
        pytest.param(FOLDER, {FOLDER[1]: WAITS["held"]}, FOLDER, (), FOLDER, id="an old state"),
        pytest.param(FOLDER, {FOLDER[1]: "no room"}, FOLDER, (), (), id="perhaps two states"),
        pytest.param(STEPS, {}, STEPS, (), STEPS[:2], id="fewer than the one before"),
        pytest.param(("last.pt",), {}, ("last.pt",), (), ("last.pt",), id="a single file"),
        pytest.param((), {}, ("last.pt",), ("last.pt",), ("last.pt",), id="newer than the list"),
        pytest.param((), {}, ("mine.txt",), (), (), id="nobody's"),
    ],
)
def test_up_resume_takes_only_results_at_home_whose_digest_is_in_the_manifest(
    tmp_path: Path,
    listed: tuple[str, ...],
    missing: dict[str, str],
    here: tuple[str, ...],
    recorded: tuple[str, ...],
    whole: tuple[str, ...],
) -> None:
    for path in here:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(OLD)
    rows = [{"path": path, "sha256": digest(OLD)} for path in listed]
    document = json.dumps({"files": rows, "missing": missing, "live": True, **ORIGIN})
    (tmp_path / MANIFEST).write_text(document)
    pulled = {path: {digest(OLD)} for path in recorded} | {MANIFEST: {digest(document)}}
    place = PullPlace(tmp_path)
    assert last_results._whole_here(BEFORE, place, here, pulled) == {*whole}
    if not recorded:
        assert last_results._whole_here(BEFORE, place, here, {}) == {*whole}
    # Another box's run of that name, whose pull put its files there first, is none of its own.
    (tmp_path / MANIFEST).write_text(json.dumps({**json.loads(document), "box": "gpu-2"}))
    for records in (pulled, {}):
        of_another = last_results._whole_here(BEFORE, place, here, records)
        assert of_another == ({*recorded} if recorded == ("last.pt",) and records else set())
    (tmp_path / MANIFEST).write_text(document)
    # Of two states no file of a checkpoint is taken; a single one that no pull put there neither.
    for path in here[:1]:
        (tmp_path / path).write_text(NEW)
    assert last_results._whole_here(BEFORE, place, here, pulled) == set()


@pytest.mark.parametrize("live", [True, False], ids=["box gone", "died"])
@pytest.mark.parametrize("from_bucket", [True, False], ids=["bucket", "home"])
def test_up_resume_sends_neither_an_incomplete_checkpoint_nor_links_to_it(
    tmp_path: Path, bucket: Path, *, live: bool, from_bucket: bool
) -> None:
    whole = {f"out/global_step{at}/{name}": OLD for at in (1, 2) for name in ("model", "optim")}
    half = {"out/global_step3/model": OLD, "out/latest": "global_step3"}
    led = {"out/best": "out/global_step2", "out/global_step2/base": "out/global_step1/model"}
    astray = {"out/newest": "out/global_step3"}
    said, place = kept_warnings(), tmp_path / "home"
    there = {**whole, **half}
    for folder in (place, bucket):
        upload(folder, there, there, live=live, links={**led, **astray})
    for path, to in {**led, **astray}.items():
        (place / path).symlink_to(os.path.relpath(place / to, (place / path).parent))
    half |= astray

    def find() -> set[str]:
        said.warned.clear()
        if from_bucket:
            with TemporaryDirectory(dir=tmp_path) as scratch:
                fetch(Path(scratch), said)
                return names_in(Path(scratch))
        train: Any = SimpleNamespace(results=("out/",), results_to=None)
        found = last_results.find_last_results(at_home(place), None, train, tmp_path, said)
        return names_in(place) - {*found.half, MANIFEST}

    assert find() == {*whole, *led}
    assert said.warned == [f"not sent, since not all of it came home whole: {', '.join(half)}"]
    # Of the first one nothing says whether it is whole.
    first = dict([*whole.items()][:2])
    for folder in (place, bucket):
        shutil.rmtree(folder / "out")
        upload(folder, first, first, live=live)
    assert find() == {*first}
    assert "out/global_step1/ is sent, but nothing shows that it is whole" in said.warned[-1]


def test_dollars_already_spent_are_subtracted_from_the_lease_of_a_resumed_run() -> None:
    loaded: Any = SimpleNamespace(profile=SimpleNamespace(lease=SimpleNamespace(dollars=20.0)))
    assert resumption._money_left(loaded, 7.5) == ("lease.dollars=12.50",)
    with pytest.raises(NotSafeError, match=r"of the \$20.00 of its lease nothing is left"):
        resumption._money_left(loaded, 20.0)
    loaded.profile.lease.dollars = None
    assert resumption._money_left(loaded, 7.5) == ()


ADDRESS = "s3://mine/results/train-1-20231114-221320-ab"


class FolderBucket:
    """A bucket whose objects are the files of a folder, at addresses that can be opened."""

    folder = Path()
    address = ""
    cut: tuple[str, ...] = ()
    """Names that are gone once they were listed."""

    def __init__(self, url: str) -> None:
        assert url == f"{ADDRESS}/"

    def objects(self) -> list[Any]:
        files = [file for file in sorted(self.folder.rglob("*")) if file.is_file()]
        return [
            SimpleNamespace(name=str(file.relative_to(self.folder)), size=file.stat().st_size)
            for file in files
        ]

    def sign(self, objects: list[Any]) -> list[str]:
        for each in objects:
            if each.name in self.cut:
                (self.folder / each.name).unlink()
        return [f"{self.address}/{each.name}?signature=secret" for each in objects]


def kept_warnings() -> Any:
    """Make a screen that keeps what it would show as a warning."""
    warned: list[str] = []
    return SimpleNamespace(warned=warned, warn=warned.append)


class SilentFileHandler(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: object) -> None:
        """Tell nobody."""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "bucket"
    folder.mkdir()
    monkeypatch.setattr(buckets, "Bucket", FolderBucket)
    monkeypatch.setattr(FolderBucket, "folder", folder)
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SilentFileHandler, directory=str(folder))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(FolderBucket, "address", f"http://127.0.0.1:{server.server_port}")
        yield folder
        server.shutdown()


def upload(
    bucket: Path,
    there: dict[str, str],
    listed: dict[str, str],
    *,
    live: bool,
    links: dict[str, str] | None = None,
) -> None:
    """Put files there, and a manifest that lists these contents and links."""
    for path, content in there.items():
        (bucket / path).parent.mkdir(parents=True, exist_ok=True)
        (bucket / path).write_text(content)
    rows = [{"path": path, "sha256": digest(content)} for path, content in listed.items()]
    rows += [
        {"path": one, "sha256": digest(f"link\0{to}"), "link": to}
        for one, to in (links or {}).items()
    ]
    manifest = json.dumps({"files": rows, "live": live, "missing": {}, **ORIGIN})
    (bucket / "boxstrap-manifest.json").write_text(manifest)


def fetch(scratch: Path, said: Any) -> str:
    return last_results._fetch(ADDRESS, ("out/", *SHARDS, "last.pt"), scratch, said)


def names_in(folder: Path) -> set[str]:
    found = (file for file in folder.rglob("*") if file.is_file() or file.is_symlink())
    return {str(file.relative_to(folder)) for file in found}


def test_only_results_listed_in_their_manifest_are_fetched_from_a_bucket(
    bucket: Path, tmp_path: Path
) -> None:
    there = {"last.pt": NEW, "out/a": OLD, "sitecustomize.py": "code", "out/unlisted": "x"}
    upload(
        bucket,
        there,
        {**dict.fromkeys(("last.pt", "out/a", "out/gone"), OLD)}
        | {"sitecustomize.py": "code", "../out/b": OLD},
        live=True,
    )
    said = kept_warnings()
    came_from = fetch(tmp_path / "scratch", said)
    assert came_from.startswith(f"{ADDRESS} (2 files, ")
    assert names_in(tmp_path) & {"out/b"} == set()
    assert names_in(tmp_path / "scratch") == {"last.pt", "out/a"}
    # A single file may be newer than the manifest: it was replaced as a whole.
    assert (tmp_path / "scratch/last.pt").read_text() == NEW
    assert said.warned == ["last.pt was replaced in the bucket after its manifest was written"]


@pytest.mark.slow
def test_an_endless_or_too_slow_bucket_download_is_cut_off(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would fill the disk, or keep a guard from all other boxes."""
    pause = 0.0

    def endless(handler: SilentFileHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b"x")
                handler.wfile.flush()
                time.sleep(pause)

    upload(bucket, {"last.pt": NEW}, {"last.pt": OLD}, live=True)
    manifest = (bucket / "boxstrap-manifest.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(SilentFileHandler, "do_GET", endless)
        listed = (read_manifest(manifest), FolderBucket(f"{ADDRESS}/"))
        patch.setattr(last_results, "bucket_manifest", lambda _: listed)
        said = kept_warnings()
        fetch(tmp_path / "scratch", said)
        assert (tmp_path / "scratch/last.pt").read_text() == "x" * len(NEW)
        assert "last.pt was replaced" in said.warned[0]
        patch.setattr(last_results, "_ANSWER_S", 0.2)
        pause = 0.1
        with pytest.raises(UnreachableError, match="too slowly"):
            fetch(tmp_path / "slow", said)
    monkeypatch.setattr(SilentFileHandler, "do_GET", endless)
    monkeypatch.setattr(last_results, "_ANSWER_S", 0.2)
    monkeypatch.setattr(last_results, "_SLOWEST", 1e9)
    with pytest.raises(UnreachableError, match="too slowly"):
        fetch(tmp_path / "none", said)


def test_up_resume_leaves_out_a_bucket_checkpoint_of_files_of_different_versions(
    bucket: Path, tmp_path: Path
) -> None:
    there = {FOLDER[0]: OLD, FOLDER[1]: NEW, "last.pt": OLD}
    upload(bucket, there, dict.fromkeys(there, OLD), live=False)
    assert "(1 file, " in fetch(tmp_path / "scratch", kept_warnings())
    assert names_in(tmp_path / "scratch") == {"last.pt"}
    (bucket / "last.pt").unlink()
    # A part that was to come still, one that the bucket has lost, and one alone that it has lost.
    for there, listed, live in (
        (SHARDS[:1], SHARDS[:1], True),
        (SHARDS[:1], SHARDS, False),
        ((), ("last.pt",), False),
    ):
        upload(bucket, dict.fromkeys(there, OLD), dict.fromkeys(listed, OLD), live=live)
        with pytest.raises(NotSafeError, match="no whole results"):
            fetch(tmp_path / "other", kept_warnings())
        assert names_in(tmp_path / "other") == set()


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        (None, "no whole results of it yet"),
        ("{", "damaged"),
        ("[]", "damaged"),
        ('{"files": {}}', "damaged"),
        ("[" * 100_000, "damaged"),
        ('{"files": [1]}', "describes a file without"),
        ('{"files": [{"path": "last.pt"}]}', "describes a file without"),
    ],
)
def test_up_resume_raises_an_error_if_the_bucket_has_no_sound_manifest(
    bucket: Path, tmp_path: Path, manifest: str | None, says: str
) -> None:
    (bucket / "last.pt").write_text(OLD)
    if manifest is not None:
        (bucket / "boxstrap-manifest.json").write_text(manifest)
    with pytest.raises(NotSafeError, match=says):
        fetch(tmp_path / "scratch", kept_warnings())


def test_a_bucket_that_does_not_answer_is_reported_without_its_signed_url(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(bucket, {"last.pt": OLD}, {"last.pt": OLD}, live=False)
    monkeypatch.setattr(FolderBucket, "cut", ("last.pt",))
    with pytest.raises(UnreachableError) as found:
        fetch(tmp_path / "scratch", kept_warnings())
    assert "last.pt" in found.value.text()
    assert "secret" not in found.value.text()


def at_home(place: Path, results: str = "home") -> RunAtHome:
    return dataclasses.replace(BEFORE, results=results, result_place=str(place))


def test_up_resume_sends_complete_results_at_home_and_names_damaged_ones(
    bucket: Path, tmp_path: Path
) -> None:
    place, said = tmp_path / "home", kept_warnings()
    there = {FOLDER[0]: OLD, FOLDER[1]: NEW, "last.pt": OLD}
    upload(place, there, dict.fromkeys(there, OLD), live=False)
    (place / "odd.pt").symlink_to(place / "last.pt")
    train: Any = SimpleNamespace(results=("out/", "last.pt", "odd.pt", "gone"), results_to=None)

    def find(before: RunAtHome) -> last_results.LastResults:
        return last_results.find_last_results(before, None, train, tmp_path / "scratch", said)

    found = find(at_home(place))
    assert (found.folder, found.came_from) == (place, str(place))
    assert set(found.half) == {*FOLDER}
    assert said.warned == [f"not sent, since not all of it came home whole: {', '.join(FOLDER)}"]
    for name in FOLDER:
        (place / name).unlink()
    assert find(at_home(place, "partly")).half == set()
    assert said.warned[1:] == [
        "not all of its results had come home: it goes on with the 1 file that did"
    ]
    # What is in no bucket and was never pulled, or only in part of a checkpoint, is nothing.
    (place / "last.pt").unlink()
    for before in (at_home(place), at_home(place, "none"), at_home(tmp_path / "nowhere"), BEFORE):
        with pytest.raises(NotSafeError, match="no whole results of train-1 are at home"):
            find(before)
    # The bucket counts first, and where it has nothing whole, what is here.
    train.results_to = "s3://mine/results"
    its = Uploaded("going", 1, 1, 0, "", ADDRESS)
    before = dataclasses.replace(at_home(place), run=dataclasses.replace(RUN, uploaded=its))
    upload(bucket, {"last.pt": OLD}, {"last.pt": OLD}, live=False)
    assert find(before).folder == tmp_path / "scratch"
    (bucket / "boxstrap-manifest.json").unlink()
    with pytest.raises(NotSafeError, match="at home or in a bucket"):
        find(before)
    (place / MANIFEST).write_text("damaged")
    (place / "last.pt").write_text(OLD)
    with pytest.raises(NotSafeError, match="at home or in a bucket"):
        find(before)


@pytest.mark.parametrize("linked", ["box", "box/train-1", "box/train-1/out", "box/train-1/out/key"])
def test_results_behind_a_symlink_of_the_repository_are_never_sent_to_the_next_box(
    tmp_path: Path, linked: str
) -> None:
    results, outside = tmp_path / "boxstrap-results", tmp_path / "outside"
    upload(outside / "box/train-1", {"out/key": "mine"}, {}, live=False)
    (results / linked).parent.mkdir(parents=True)
    (results / linked).symlink_to(outside / linked)
    train: Any = SimpleNamespace(results=("out/", "out/key"), results_to=None)
    for sha256 in ("", digest("mine")):
        rows = [{"path": "out/key", "sha256": sha256}]
        document = {"files": rows, "missing": {}, "live": False, **ORIGIN}
        (results / "box/train-1" / MANIFEST).write_text(json.dumps(document))
        before = at_home(results / "box/train-1")
        with pytest.raises(NotSafeError, match="no whole results"):
            last_results.find_last_results(before, None, train, tmp_path, kept_warnings())


def test_up_resume_overwrites_no_file_of_another_run_on_the_next_box(tmp_path: Path) -> None:
    place, box = tmp_path / "home", tmp_path / "box"
    whole = {"out/a": OLD, "out/[b]*": OLD, "out/b": "whole", "m.pt": OLD, "half.pt": OLD}
    upload(place, whole, {}, live=False)
    (place / "link").symlink_to(place / "m.pt")
    (place / "out/best").symlink_to(place / "m.pt")
    paths = ("out", "m.pt", "half.pt", "link", "gone")
    found = last_results.LastResults(place, paths, "here", half=("out/[b]*", "half.pt"))
    wire, said = LocalWire(), kept_warnings()
    state = SimpleNamespace(repo_dir=str(box / "tree"))
    there: Any = SimpleNamespace(
        link=wire, workdir=str(box), label="box", name="box", state=state, reporter=said
    )
    try:
        found.send(there)
        assert [one.partition(",")[0].partition(": a")[0] for one in said.warned] == [
            "not sent: best",
            "not sent: link",
        ]
        assert names_in(box / "tree") == {"out/a", "out/b", "m.pt"}
        (box / "tree/out/a").write_text("of another run, and longer")
        (box / "tree/out/b").unlink()
        (box / "tree/m.pt").unlink()
        with pytest.raises(
            NotSafeError, match=r"another run has files where its results go, as a\."
        ):
            found.send(there)
        assert (box / "tree/out/a").read_text() == "of another run, and longer"
        assert names_in(box / "tree") == {"out/a"}, "a refused one leaves nothing there"
    finally:
        wire.close()


def now_at(monkeypatch: pytest.MonkeyPatch, state: RentedState | None, name: str = "") -> KnownBox:
    """A box that is known here, and that its account has in this state."""
    account: Any = SimpleNamespace(
        box=lambda box_id: state and RentedBox("vast", box_id, name, state)
    )
    monkeypatch.setattr(resumption, "account_of", lambda host: (account, host.partition(":")[2]))
    return KnownBox("gpu", "vast:1")


@pytest.mark.parametrize(
    ("state", "alive", "costs"),
    [
        (RentedState.RUNNING, True, None),
        (RentedState.RUNNING, False, ""),
        (RentedState.STARTING, True, None),
        (RentedState.STOPPED, True, "gpu"),
        (RentedState.STOPPED, False, "gpu"),
        (RentedState.GONE, True, ""),
        (None, True, ""),
    ],
)
def test_up_resume_is_wrong_usage_while_the_run_may_still_be_alive_on_its_box(
    monkeypatch: pytest.MonkeyPatch, state: RentedState | None, alive: bool, costs: str | None
) -> None:
    """`costs`: the box that is still paid for; None where two would train the same."""
    before = run_before(state="running" if alive else "died")
    known = now_at(monkeypatch, state)
    if costs is None:
        with pytest.raises(UsageError, match="may still be alive") as found:
            resumption._check_is_over(before, known)
        assert "boxstrap stop --host gpu" in found.value.hint
    else:
        assert resumption._check_is_over(before, known) == costs


def test_up_resume_from_a_box_of_no_account_is_wrong_usage_while_both_seem_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = run_before(state="running")
    mine = KnownBox("gpu", "root@203.0.113.7")
    with pytest.raises(UsageError, match="may still be alive"):
        resumption._check_is_over(running, mine)
    assert resumption._check_is_over(BEFORE, mine) == ""
    assert resumption._check_is_over(running, None) == ""  # it was forgotten
    assert resumption._check_is_over(running, dataclasses.replace(mine, ended=5.0)) == ""


def test_the_money_spent_on_a_resumed_run_is_the_highest_of_recorded_and_computed() -> None:
    assert resumption.spent_on(BEFORE, None) == 0.0
    assert resumption.spent_on(BEFORE, KnownBox("gpu", "vast:1", before=2.0, spent=3.0)) == 5.0
    ours = Rental(
        "boxstrap-" + "a" * 12, "vast", RentalState.RENTED, 1_700_000_000.0, "1", price=2.0
    )
    rental.save_rental(ours)
    over = run_before(over=1_700_003_600)
    assert resumption.spent_on(over, KnownBox("gpu", "vast:1", before=2.0, spent=1.0)) == 4.0
    # It was alive when its box was lost: what came home last is a sign of the box, too.
    watched = dataclasses.replace(over, run=RUN, seen=1_700_007_200.0)
    assert resumption.spent_on(watched, KnownBox("gpu", "vast:1")) == 4.0
    rental.save_rental(dataclasses.replace(ours, spent=7.0))
    assert resumption.spent_on(over, KnownBox("gpu", "vast:1", before=2.0)) == 9.0


HEAD, SENT, PRIVATE = "a" * 40, "b" * 40, "d" * 40


@pytest.mark.parametrize(
    ("commit", "snapshot", "goes"),
    [
        (SENT, SENT, "git.ref"),
        (HEAD, HEAD, "as it stands"),  # the user stands on it
        (HEAD, "", "as it stands"),
        (SENT, HEAD, "as it stands"),  # with the changes that are here
        (PRIVATE, PRIVATE, ""),
        ("refs/stash", "refs/stash", ""),
        ("notes", "", ""),
        (SENT, PRIVATE, ""),
    ],
)
def test_the_box_never_chooses_the_commit_that_up_resume_sends_to_the_next_box(
    monkeypatch: pytest.MonkeyPatch, commit: str, snapshot: str, goes: str
) -> None:
    from bootstrap.setup import SetupRequest, payload

    source = SimpleNamespace(source=SimpleNamespace(snapshot=HEAD))
    monkeypatch.setattr(payload, "build_payload", lambda *_, **__: source)
    known = KnownBox("gpu", "vast:1").using("mine-1", snapshot=SENT).using("mine-1", snapshot="e")
    run = dataclasses.replace(RUN, commit=commit, snapshot=snapshot)
    before = dataclasses.replace(BEFORE, run=run, key="mine-1")
    loaded: Any = SimpleNamespace(for_provider=lambda _: None)
    request = SetupRequest(repo=Path.cwd())
    if not goes:
        with pytest.raises(NotSafeError, match="says gpu: that is not what stands in this folder"):
            resumption._of_its_files(request, loaded, before, known)
        return
    found = resumption._of_its_files(request, loaded, before, known)
    assert found.sets == ((f"git.ref={commit}",) if goes == "git.ref" else ())
    # What another box was sent, or what is known of no box, proves nothing.
    if goes == "git.ref":
        for other in (None, KnownBox("gpu", "vast:1").found_on("mine-1")):
            with pytest.raises(NotSafeError):
                resumption._of_its_files(request, loaded, before, other)


def test_a_box_that_lies_about_start_times_does_not_make_its_run_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    kept = [
        dataclasses.replace(BEFORE, box=box, run=dataclasses.replace(RUN, started=started))
        for box, started in (("liar", 10**12), ("gpu", 5))
    ]
    boxes = [KnownBox(name, "vast:1", created=1.0) for name in ("liar", "gpu")]
    monkeypatch.setattr(
        resumption, "list_runs", lambda *_, **__: [SimpleNamespace(kept=one) for one in kept]
    )
    monkeypatch.setattr(resumption, "all_boxes", lambda: boxes)
    monkeypatch.setattr(resumption, "ended_boxes", list)
    request = SetupRequest(repo=Path.cwd())
    with pytest.raises(UsageError, match="--resume liar/train-1\n  --resume gpu/train-1"):
        resumption.find_before(request, "train-1")
    assert resumption.find_before(request, "gpu/train-1") is kept[1]
    boxes[1] = dataclasses.replace(boxes[1], resumes=kept[0].id)  # it went on as that, from here
    assert resumption.find_before(request, "train-1") is kept[1]


def test_up_resume_of_a_finished_run_says_there_is_nothing_to_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = run_before(state="finished", rc=0)
    listed = [SimpleNamespace(kept=done)]
    monkeypatch.setattr(resumption, "list_runs", lambda *_, **__: listed)
    with pytest.raises(NotSafeError, match="it finished, there is nothing to resume"):
        resumption.find_before(SetupRequest(repo=Path.cwd()), "train-1")
