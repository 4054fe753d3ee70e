"""`steps/data.py`: what it fetches, what it refuses, and what it does not fetch twice."""

import io
import json
import os
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from email.utils import formatdate
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest

from bootstrap.onbox.data import download, sources
from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.step_report import StepError
from bootstrap.onbox.steps.data import DataStep
from bootstrap.onbox.steps.step import SetupFacts
from bootstrap.onbox.values import Values
from tests.data_server import DataServer
from tests.listener import QuietHandler
from tests.listener import served as serving
from tests.unit.onbox.test_build import SleptClock

BLOCK = 32 * 1024 * 1024


def test_data_can_be_saved_below_either_of_two_working_folders_with_one_boxstrap_folder(
    tmp_path: Path,
) -> None:
    from bootstrap.onbox.data.items import Item, Places

    first, second = tmp_path / "workspace", tmp_path / "root"
    (first / ".boxstrap").mkdir(parents=True)
    second.mkdir()
    (second / ".boxstrap").symlink_to(first / ".boxstrap")
    places = Places(second / ".boxstrap", second / "homework", tmp_path)
    item = Item(0, "x", "data/small", "", False, (), "")
    assert places.target(item) == second / "homework/data/small"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataServer]:
    server = DataServer("127.0.0.1", tmp_path_factory.mktemp("server"))
    yield server
    server.close()


@pytest.fixture
def server(served: DataServer) -> DataServer:
    served.files.clear(), served.redirects.clear(), served.asked.clear()
    served.status = served.status_left = served.cuts_left = served.sent = 0
    served.ranges, served.tags, served.token, served.retry_after = True, True, "", ""
    served.modified, served.heeds_times = "", True
    served.odd.clear()
    return served


_DO = """
import json, sys
from bootstrap.onbox.steps.apply import do_step
from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.steps.step import SetupFacts
from bootstrap.onbox.values import Values
home, tree, values = sys.argv[1:]
facts = SetupFacts(BoxTree(home, "", tree), Values(json.loads(values)), {"setup": home}, ())
do_step("data", facts)
"""


class BoxHere:
    """A working folder with a tree in it, as on a box."""

    def __init__(self, folder: Path, server: DataServer) -> None:
        self.home, self.tree = folder / ".boxstrap", folder / "work"
        (self.home / "steps").mkdir(parents=True)
        self.tree.mkdir()
        # This machine's own pip certificates are not read: that takes longer than a fetch.
        trusted = {"SSL_CERT_FILE": str(server.certificate), "PIP_CERT": ""}
        self.env = {**trusted, "HF_ENDPOINT": server.address}

    def step(self, *items: dict[str, Any]) -> DataStep:
        tree, asked = BoxTree(str(self.home), "", str(self.tree)), {"setup": str(self.home)}
        return DataStep(SetupFacts(tree, Values(self.values(*items)), asked, ()))

    def values(self, *items: dict[str, Any]) -> dict[str, list[str]]:
        return {"data": [*map(json.dumps, items)], "secrets": ["HF_TOKEN"]}

    def run(self, *items: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        """Fetch in this process: starting Python each time would cost a second."""
        out, err, code = io.StringIO(), io.StringIO(), 0
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.delenv("HF_TOKEN", raising=False)
            for name, value in self.env.items():
                patch.setenv(name, value)
            try:
                self.step(*items).apply()
            except StepError as error:
                code = 1
                print(f"code {error.code}")
                print(error, file=sys.stderr)
        return subprocess.CompletedProcess([], code, out.getvalue(), err.getvalue())

    def fetched(self, *items: dict[str, Any]) -> str:
        """Fetch, then check that `check` finds everything; return stdout."""
        done = self.run(*items)
        assert (done.returncode, done.stderr) == (0, ""), done
        assert self.step(*items).check()
        return done.stdout

    def refused(self, code: str, *items: dict[str, Any]) -> str:
        """Fetch, which must fail with this code and change no file; return stderr."""
        before = self.files()
        done = self.run(*items)
        assert done.returncode == 1, done
        assert f"code {code}" in done.stdout.splitlines()[-1], done
        assert "Traceback" not in done.stderr
        assert self.files() == before
        assert not self.step(*items).check()
        return done.stderr

    def files(self) -> dict[str, bytes]:
        paths = (path for path in self.tree.rglob("*") if path.is_file() and path.name != "exclude")
        return {str(path.relative_to(self.tree)): path.read_bytes() for path in paths}


@pytest.fixture
def box(tmp_path: Path, server: DataServer) -> BoxHere:
    return BoxHere(tmp_path, server)


def test_data_is_downloaded_once_and_never_over_a_file_edited_on_the_box(
    box: BoxHere, server: DataServer
):
    sha256 = server.add("a/train.bin", b"x" * 1000)
    item = {"from": server.url("a/train.bin"), "to": "data/", "sha256": sha256}
    assert not box.step(item).check()
    box.fetched(item)
    assert box.files() == {"data/train.bin": b"x" * 1000}
    asked = len(server.asked)
    assert box.fetched(item) == ""
    assert len(server.asked) == asked
    # A file that was changed on the box fails the check, and is not replaced either.
    (box.tree / "data/train.bin").write_bytes(b"mine")
    box.refused("data-in-the-way", item)


def test_data_without_a_digest_is_fetched_with_a_warning(box: BoxHere, server: DataServer):
    server.add("train.bin", b"x")
    said = box.fetched({"from": server.url("train.bin?key=secret"), "to": "train.bin"})
    assert "warn code=data-unpinned" in said
    assert "secret" not in said


def test_data_with_a_wrong_digest_leaves_no_file(box: BoxHere, server: DataServer):
    server.add("train.bin", b"x")
    item = {"from": server.url("train.bin"), "to": "data/train.bin", "sha256": "0" * 64}
    assert "does not have the digest 000" in box.refused("data-digest", item)


def test_data_in_large_files_is_fetched_in_blocks_and_continues_after_cuts(
    box: BoxHere, server: DataServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(download, "BLOCK", 1024 * 1024)
    content = os.urandom(3 * 1024 * 1024 + 5)
    item = {"from": server.url("l"), "to": "l", "sha256": server.add("l", content)}
    server.cut_after, server.cuts_left = 700_000, 3
    box.fetched(item)
    assert box.files() == {"l": content}
    assert server.sent <= len(content) + 100, "what came before the cut was asked for again"
    assert len({span for _, span, _ in server.asked}) == 1 + 4 + 3


@pytest.mark.parametrize("tags", [True, False])
def test_a_download_of_data_mixes_in_no_blocks_of_an_earlier_file(
    box: BoxHere, server: DataServer, monkeypatch: pytest.MonkeyPatch, *, tags: bool
):
    """Without a digest, equal sizes alone would allow a mix of two files."""
    monkeypatch.setattr(download, "BLOCK", 4096)
    monkeypatch.setattr(download, "WORKERS", 1)
    monkeypatch.setattr(sources, "PATIENCE_S", 0)
    server.tags = tags
    # Both have the same ETag, since the server computes it from the first bytes.
    first, second = b"a" * 4096 + b"1" * 4096, b"a" * 4096 + b"2" * 4096
    if not tags:
        second = b"b" * 8192
    server.add("one", first + b"1")
    fetch = download._FileParts._block

    def cut(parts: Any, number: int) -> None:
        if number:
            raise download.DataError("data-unreachable", "cut")
        fetch(parts, number)

    with monkeypatch.context() as cutting:
        cutting.setattr(download._FileParts, "_block", cut)
        box.run({"from": server.url("one"), "to": "data/x"})
    assert [*(box.tree / "data").glob("*.json")]
    name = "two" if tags else "one"
    server.add(name, second + b"2")
    asked = len(server.asked)
    box.fetched({"from": server.url(name), "to": "data/x"})
    assert box.files() == {"data/x": second + b"2"}
    assert len(server.asked) == asked + 4, "the size is asked for, and all blocks"


@pytest.mark.parametrize("heeds_times", [True, False])
def test_a_file_that_changes_during_its_download_is_refused_and_not_kept(
    box: BoxHere, server: DataServer, monkeypatch: pytest.MonkeyPatch, *, heeds_times: bool
):
    """With a server that obeys If-Unmodified-Since, and one that only sends Last-Modified."""
    monkeypatch.setattr(download, "BLOCK", 4096)
    monkeypatch.setattr(download, "WORKERS", 1)
    server.tags, server.heeds_times = False, heeds_times
    server.modified = "Sun, 22 Nov 2026 08:00:00 GMT"
    server.add("l", b"1" * 8193)
    fetch = download._FileParts._block

    def changing(parts: Any, number: int) -> None:
        if number == 1:
            server.add("l", b"2" * 8193)
            server.modified = "Sun, 22 Nov 2026 08:00:01 GMT"
        fetch(parts, number)

    item = {"from": server.url("l"), "to": "l"}
    with monkeypatch.context() as changes:
        changes.setattr(download._FileParts, "_block", changing)
        done = box.run(item)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "code data-changed")
    assert "/l changed during the download" in done.stderr
    assert not (box.tree / "l").exists()
    box.fetched(item)
    assert box.files() == {"l": b"2" * 8193}


ODD = [
    *({"Content-Range": f"bytes 0-0/{size}"} for size in ("-5", "9" * 30, "9" * 5000, "²", "x")),
    {"Content-Range": "x" * 60_000},
    {"Location": "https://[::1/x"},
    {"Location": "https://127.0.0.1:99999999/x"},
    {"Location": "https://" + "x" * 70 + ".example/"},
    *({"Content-Length": size} for size in ("-5", "9" * 30, "9" * 5000, "x", "")),
]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_a_nonsense_answer_of_a_data_server_is_refused_naming_the_server(
    box: BoxHere, server: DataServer, odd: dict[str, str]
):
    server.add("l", b"1" * 10)
    if "Location" in odd:
        server.redirects["l"] = odd["Location"]
    server.ranges = "Content-Length" not in odd
    server.odd.update(odd)
    assert "127.0.0.1" in box.refused("data-refused", {"from": server.url("l"), "to": "l"})


@pytest.mark.parametrize("size", [-5, 10**30])
def test_an_impossible_file_size_from_hugging_face_is_refused(
    box: BoxHere, server: DataServer, size: int
):
    entry = {"type": "file", "path": "a", "oid": "0" * 40, "size": size}
    server.add("list", json.dumps([entry]).encode())
    server.redirects[f"api/models/me/m/tree/{'5' * 40}"] = server.url("list")
    box.refused("data-refused", {"from": "hf:models/me/m@v1", "to": "m"})


@pytest.mark.slow
def test_blocks_of_data_fetched_before_a_kill_are_not_refetched(box: BoxHere, server: DataServer):
    content = os.urandom(1024) * (3 * BLOCK // 1024)
    item = {"from": server.url("l"), "to": "l", "sha256": server.add("l", content)}
    # The last block stalls, so the others are complete when the program is killed.
    server.cut_after, server.cuts_left = 1000, 1000
    with subprocess.Popen(
        [sys.executable, "-c", _DO, box.home, box.tree, json.dumps(box.values(item))],
        stdout=subprocess.DEVNULL,
        env={**os.environ, **box.env},
    ) as running:
        server.cuts_left = 2
        while not any(
            len(json.loads(noted.read_text())["done"]) >= 2
            for noted in box.tree.glob(".boxstrap-*.json")
        ):
            assert running.poll() is None
            time.sleep(0.02)
        running.kill()
    server.cuts_left = server.sent = 0
    box.fetched(item)
    assert box.files() == {"l": content}
    assert server.sent <= BLOCK + 1


def test_data_is_fetched_without_range_requests_or_after_a_503(box: BoxHere, server: DataServer):
    content = b"y" * (BLOCK + 5)
    item = {"from": server.url("l"), "to": "l", "sha256": server.add("l", content)}
    server.ranges = False
    server.cut_after, server.cuts_left = 1000, 1
    box.fetched(item)
    assert box.files() == {"l": content}
    server.ranges = True
    server.add("m", b"small")
    server.status, server.status_left = 503, 1
    assert "503" in box.fetched({"from": server.url("m"), "to": "m"})


@pytest.mark.slow
def test_a_data_download_waits_for_a_short_retry_after_and_fails_naming_a_long_one(
    box: BoxHere, server: DataServer, monkeypatch: pytest.MonkeyPatch
):
    clock = SleptClock(monkeypatch, sources)
    server.add("m", b"small")
    item = {"from": server.url("m"), "to": "m"}
    server.status, server.status_left, server.retry_after = 429, 2, "90"
    assert "asks to wait 90 s; again in 90 s" in box.fetched(item)
    assert clock.slept == [90, 90]  # which is not taken from its own patience
    item["to"] = "n"
    server.status_left = 100
    for asked, said in {"7200": "7200", formatdate(time.time() + 3660): "36"}.items():
        server.retry_after = asked
        server.asked.clear()
        assert f"the server asks to wait {said}" in box.refused("data-unreachable", item)
        assert len(server.asked) == 1
    # One that asks for ever is given up, and nonsense is no time.
    for asked in ("1", "soon", "-5", "1e9"):
        server.retry_after = asked
        box.refused("data-unreachable", item)


@pytest.mark.parametrize("status", [403, 404])
def test_a_data_download_fails_at_its_first_403_or_404(
    box: BoxHere, server: DataServer, status: int
):
    server.status, server.status_left = status, 100
    item = {"from": server.url("x?sig=secret"), "to": "x"}
    said = box.refused("data-refused", item)
    assert f"/x: the server answers {status}" in said
    assert "secret" not in said
    assert len(server.asked) == 1


def test_data_downloads_refuse_http_redirects_http_servers_and_unknown_certs(
    box: BoxHere, server: DataServer
):
    server.redirects["x"] = "http://127.0.0.1/x"
    assert "leads to http://" in box.refused("data-refused", {"from": server.url("x"), "to": "x"})
    with serving(HTTPServer(("127.0.0.1", 0), QuietHandler)) as http:
        there = f"https://127.0.0.1:{http.server_port}/x"
        assert f"{there} doesn't speak https" in box.refused(
            "data-refused", {"from": there, "to": "x"}
        )
    del box.env["SSL_CERT_FILE"]
    said = box.refused("data-refused", {"from": server.url("y"), "to": "y"})
    assert "certificate is not trusted" in said


def test_data_larger_than_the_free_disk_is_not_fetched(box: BoxHere, server: DataServer):
    huge = os.statvfs(box.tree).f_bavail * os.statvfs(box.tree).f_frsize
    addressed(box, {"path": "a", "size": huge, "url": server.url("a")})
    said = box.run({"from": "s3://bucket/a", "to": "a"})
    assert said.stdout.startswith("wait code=data-addresses\ncode data-space need=")
    assert server.asked == []


def addressed(box: BoxHere, *rows: dict[str, object]) -> None:
    """Write the signed URLs of the first item, as this machine sends them."""
    own: dict[str, object] = {"item": 0, "etag": "", "alone": False}
    lines = (json.dumps({**own, **row}) for row in rows)
    (box.home / "data.addresses").write_text("\n".join(lines))


def test_bucket_objects_are_saved_in_the_folder_of_the_profile_and_bad_paths_refused(
    box: BoxHere, server: DataServer
):
    rows = [
        {"path": f"d/{n}", "size": 1, "url": server.url(f"{n}?sig=s"), "etag": '"e"'} for n in "abc"
    ]
    for row in rows:
        server.add(row["path"][-1], row["path"][-1].encode())
    addressed(box, *rows)
    item = {"from": "s3://bucket/d", "to": "in", "exclude": [["^d/b$", True]]}
    assert box.step(item).asks() == [f"bucket 0 {box.tree}/in"]
    box.fetched(item)
    assert box.files() == {"in/d/a": b"a", "in/d/c": b"c"}
    for bad in ("../x", "/etc/x", "a\nb", "a/./b", "x" * 300, "a//b"):
        addressed(box, {**rows[0], "path": bad})
        box.refused("data-refused", {"from": "s3://bucket/other", "to": "in"})


def hub(server: DataServer) -> None:
    for path, content in {
        "README.md": b"# data\n",
        "train/0.parquet": b"p" * 500,
        "train/1.parquet": b"q" * 500,
        "test/0.parquet": b"r" * 500,
    }.items():
        server.add(f"datasets/me/set/{path}", content)


def test_a_hugging_face_dataset_is_fetched_at_its_revision(box: BoxHere, server: DataServer):
    hub(server)
    item = {"from": "hf:datasets/me/set@v1", "to": "set", "exclude": [["^test/.*$", True]]}
    assert f"is commit {'5' * 40}" in box.fetched(item)
    assert set(box.files()) == {"set/README.md", "set/train/0.parquet", "set/train/1.parquet"}
    folder = {"from": "hf:datasets/me/set@v1/train", "to": "t"}
    file = {"from": "hf:datasets/me/set@v1/test/0.parquet", "to": "e.parquet"}
    box.fetched(item, folder, file)
    assert {"t/0.parquet", "t/1.parquet", "e.parquet"} <= set(box.files())
    # A new revision: files that it no longer has are removed; files of others stay.
    (box.tree / "set/mine").write_text("mine")
    del server.files["datasets/me/set/train/1.parquet"]
    box.fetched({**item, "from": "hf:datasets/me/set@v2"}, folder, file)
    assert {name for name in box.files() if name.startswith("set/")} == {
        *("set/README.md", "set/train/0.parquet", "set/mine")
    }


def test_a_changed_data_address_in_the_profile_downloads_only_that_file_again(
    box: BoxHere, server: DataServer
):
    for name, content in (("a/x", b"1"), ("b/x", b"2"), ("b/y", b"3")):
        server.add(name, content)
    y = {"from": server.url("b/y"), "to": "d/"}
    box.fetched({"from": server.url("a/x"), "to": "d/"}, y)
    box.fetched({"from": server.url("b/x"), "to": "d/"}, y)
    assert box.files() == {"d/x": b"2", "d/y": b"3"}
    # A file that no item names any more stays in a folder that several items share.
    server.add("c/y", b"4")
    box.fetched({"from": server.url("c/y"), "to": "d/"})
    assert box.files() == {"d/x": b"2", "d/y": b"4"}
    two = [{"from": server.url(name), "to": "e/"} for name in ("a/x", "b/x")]
    assert "the same place" in box.refused("data-in-the-way", *two)


@pytest.mark.parametrize("said", [b"[]", b"7", b'{"sha": 7}', b"<html>"])
def test_a_malformed_hugging_face_answer_is_refused(box: BoxHere, server: DataServer, said: bytes):
    server.add("elsewhere", said)
    server.redirects["api/models/me/m/revision/v1"] = server.url("elsewhere")
    box.refused("data-refused", {"from": "hf:models/me/m@v1", "to": "m"})
    server.redirects["api/models/me/m/revision/v1"] = server.url("right")
    server.add("right", b'{"sha": "%s"}' % (b"5" * 40))
    server.redirects[f"api/models/me/m/tree/{'5' * 40}"] = server.url("elsewhere")
    box.refused("data-refused", {"from": "hf:models/me/m@v1", "to": "m"})


def test_an_endless_list_of_files_from_hugging_face_is_refused_at_a_limit(
    box: BoxHere, server: DataServer, monkeypatch: pytest.MonkeyPatch
):
    hub(server)
    item = {"from": "hf:datasets/me/set@v1", "to": "set"}
    with monkeypatch.context() as few:
        few.setattr(sources, "MOST_PAGES", 1)
        assert "without an end" in box.refused("data-refused", item)
    with monkeypatch.context() as few:
        few.setattr(sources, "MOST_FILES", 2)
        asked = len(server.asked)
        assert "more than 2 files" in box.refused("data-refused", item)
        assert len(server.asked) == asked + 3, "no more is asked for than would be taken"


def test_a_redirect_of_hugging_face_gets_no_token(box: BoxHere, server: DataServer, tmp_path: Path):
    hub(server)
    server.token = "hf_secret"
    item = {"from": "hf:datasets/me/set@v1/train/0.parquet", "to": "x"}
    assert "answers 401" in box.refused("data-refused", item)
    (tmp_path / "other").mkdir()
    other = DataServer("127.0.0.1", tmp_path / "other")
    try:
        other.add("elsewhere", b"p" * 500)
        path = f"datasets/me/set/resolve/{'5' * 40}/train/0.parquet"
        server.redirects[path] = other.url("elsewhere")
        box.env["HF_TOKEN"] = "hf_secret"
        trusted = tmp_path / "both.pem"
        both = server.certificate.read_text() + other.certificate.read_text()
        trusted.write_text(both)
        box.env["SSL_CERT_FILE"] = str(trusted)
        said = box.fetched(item)
        assert "hf_secret" not in said
        assert [authorization for *_, authorization in other.asked] == [""]
        assert server.asked[-1] == (path, "", "Bearer hf_secret")
    finally:
        other.close()


def tar(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def member(name: str, **values: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in values.items():
        setattr(info, key, value)
    return info


def zipped(*members: tuple[str, bytes, int]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return out.getvalue()


def test_unpacking_an_archive_of_data_overwrites_no_other_file(box: BoxHere, server: DataServer):
    whole = tar(
        (member("a", type=tarfile.DIRTYPE), b""),
        (member("a/run.sh", mode=0o6777), b"#!"),
        (member("./b"), b"b"),
    )
    sha256 = server.add("x.tar.gz", whole)
    item = {"from": server.url("x.tar.gz"), "to": "set", "sha256": sha256, "unpack": True}
    box.fetched(item)
    assert box.files() == {"set/a/run.sh": b"#!", "set/b": b"b"}
    assert stat.S_IMODE((box.tree / "set/a/run.sh").stat().st_mode) == 0o755
    server.add("y.zip", zipped(("c/d", b"d", 0o100644)))
    box.fetched(item, {"from": server.url("y.zip"), "to": "zip", "unpack": True})
    assert box.files()["zip/c/d"] == b"d"
    assert list((box.home / "data").glob("*.archive")) == []
    # Files of somebody else are not replaced.
    server.add("z.zip", zipped(("mine", b"theirs", 0)))
    (box.tree / "set/mine").write_text("mine")
    box.refused("data-in-the-way", {"from": server.url("z.zip"), "to": "set", "unpack": True})


@pytest.mark.parametrize("system", [0, 3])
def test_a_backslash_in_a_zip_file_means_folder(box: BoxHere, server: DataServer, system: int):
    """As unzip reads what Windows' own tools pack."""
    made = zipped(("train\\", b"", 0), ("train\\cat\\0.txt", b"0", 0), ("train/cat/1.txt", b"1", 0))
    made = made.replace(b"PK\1\2\x14\3", b"PK\1\2\x14" + bytes([system]))
    server.add("w.zip", made)
    box.fetched({"from": server.url("w.zip"), "to": "set", "unpack": True})
    assert box.files() == {"set/train/cat/0.txt": b"0", "set/train/cat/1.txt": b"1"}


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("files/12345", lambda: zipped(("a/b", b"x", 0))),
        ("files/6", lambda: tar((member("a/b"), b"x"))),
        ("download.php?id=7", lambda: tar((member("a/b"), b"x"), mode="w:xz")),
        ("really-tar.zip", lambda: tar((member("a/b"), b"x"))),
        ("really-zip.tar.gz", lambda: zipped(("a/b", b"x", 0))),
        ("self-extracting.exe", lambda: b"MZ" + bytes(5000) + zipped(("a/b", b"x", 0))),
        ("UPPER.ZIP", lambda: zipped(("a/b", b"x", 0))),
        ("zip-in.tar", lambda: tar((member("a/b"), zipped(("c", b"d", 0))), mode="w")),
        ("old.tar", lambda: _old_tar("a/b", b"x")),
    ],
)
def test_an_archive_is_recognised_by_its_content_whatever_its_name(
    name: str, pack: Callable[[], bytes], box: BoxHere, server: DataServer
):
    server.add(name.partition("?")[0], pack())
    box.fetched({"from": server.url(name), "to": "set", "unpack": True})
    assert [*box.files()] == ["set/a/b"]


def _old_tar(name: str, content: bytes) -> bytes:
    """As tar wrote it before POSIX: without a magic word."""
    out = tar((member(name), content), mode="w")
    header = bytearray(out[:512])
    header[257:265] = bytes(8)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + out[512:]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"7z\xbc\xaf\x27\x1c" + bytes(50), "7z"),
        (b"Rar!\x1a\x07" + bytes(50), "rar"),
        (b"\x28\xb5\x2f\xfd" + bytes(50), "zstd"),
        (b"\n<!DOCTYPE html><html>log in", "a web page"),
    ],
)
def test_an_archive_of_an_unknown_format_is_refused_naming_the_format(
    content: bytes, words: str, box: BoxHere, server: DataServer
):
    server.add("x.zip", content)
    said = box.refused("data-archive", {"from": server.url("x.zip"), "to": "set", "unpack": True})
    assert words in said


def test_data_from_a_url_without_a_file_name_gets_the_name_that_the_server_sends(
    box: BoxHere, server: DataServer
):
    server.add("files/12345", b"x")
    server.odd["Content-Disposition"] = 'attachment; filename="..\\\\corpus one.csv"'
    box.fetched({"from": server.url("files/12345"), "to": "set/"})
    assert [*box.files()] == ["set/corpus one.csv"]
    server.add("named.txt", b"y")
    box.fetched({"from": server.url("named.txt"), "to": "named/"})
    assert "named/named.txt" in box.files()


BAD = {
    "up.tar": lambda: tar((member("a"), b"a"), (member("../up"), b"x")),
    "inner-up.tar": lambda: tar((member("a/../../up"), b"x")),
    "absolute.tar": lambda: tar((member("/etc/up"), b"x")),
    "symlink.tar": lambda: tar((member("l", type=tarfile.SYMTYPE, linkname="/etc"), b"")),
    "hardlink.tar": lambda: tar((member("l", type=tarfile.LNKTYPE, linkname="/etc/passwd"), b"")),
    "device.tar": lambda: tar((member("d", type=tarfile.CHRTYPE, devmajor=1, devminor=3), b"")),
    "fifo.tar": lambda: tar((member("f", type=tarfile.FIFOTYPE), b"")),
    "newline.tar": lambda: tar((member("a\nb"), b"x")),
    "empty.tar": tar,
    "none.tar": lambda: b"no archive at all" * 100,
    "torn.tar.gz": lambda: tar((member("a"), os.urandom(100_000)))[:50_000],
    "names.tar.gz": lambda: tar((member("n" * 2_000_000), b"")),
    "up.zip": lambda: zipped(("../up", b"x", 0)),
    "absolute.zip": lambda: zipped(("/up", b"x", 0)),
    "up-of-windows.zip": lambda: zipped(("..\\up", b"x", 0)),
    "inner-up-of-windows.zip": lambda: zipped(("a\\..\\..\\up", b"x", 0)),
    "absolute-of-windows.zip": lambda: zipped(("\\up", b"x", 0)),
    "share.zip": lambda: zipped(("\\\\host\\up", b"x", 0)),
    "drive.zip": lambda: zipped(("C:\\up", b"x", 0)),
    "drive-slash.zip": lambda: zipped(("c:/up", b"x", 0)),
    "symlink.zip": lambda: zipped(("l", b"/etc/passwd", 0o120777)),
    "none.zip": lambda: b"no archive at all" * 100,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_nothing_is_unpacked_of_an_archive_with_links_devices_or_outside_paths(
    name: str, box: BoxHere, server: DataServer, tmp_path: Path
):
    server.add(name, BAD[name]())
    said = box.refused("data-archive", {"from": server.url(name), "to": "set", "unpack": True})
    assert ("a header in the archive is too large" in said) == name.startswith("names")
    assert {path.name for path in tmp_path.iterdir()} <= {".boxstrap", "work"}
    assert not (box.tree / "set").exists()
    assert list(box.tree.glob(".boxstrap*")) == []


def test_unpacking_an_archive_bomb_writes_at_most_3_mib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from bootstrap.onbox.data import download as module
    from bootstrap.onbox.data.items import DataError

    monkeypatch.setattr(module, "LEAST", 1024 * 1024)
    for name, content in (
        ("b.tar.gz", tar((member("zeros"), bytes(8 << 20)))),
        ("b.zip", zipped(("zeros", bytes(8 << 20), 0))),
    ):
        archive, into = tmp_path / name, tmp_path / f"{name}.d"
        archive.write_bytes(content)
        into.mkdir()
        with pytest.raises(DataError, match="far more than its own size"):
            module.unpack(archive, name, into)
        assert sum(file.stat().st_size for file in into.iterdir()) <= 3 << 20


def test_data_for_a_folder_outside_the_workdir_is_not_fetched(box: BoxHere, server: DataServer):
    server.add("x", b"x")
    for to in ("/etc/x", "~/x", str(box.home / "x"), "link/x"):
        (box.tree / "link").is_symlink() or (box.tree / "link").symlink_to("/tmp")
        box.refused("data-outside", {"from": server.url("x"), "to": to})
    assert server.asked == []
    box.fetched({"from": server.url("x"), "to": str(box.tree.parent / "volume/x")})
