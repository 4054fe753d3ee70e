"""uv is hashed and unpacked during the download, and is installed whole or not at all."""

import hashlib
import io
import sys
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from bootstrap.onbox import MAIN
from bootstrap.onbox.python import bring_uv
from bootstrap.onbox.python.bring_uv import UvWheel, find_uv
from bootstrap.onbox.step_report import StepError
from bootstrap.paths import shipped
from tests.listener import QuietHandler
from tests.programs import captured

pytestmark = pytest.mark.slow  # each starts programs

WHEEL, MEMBER = "uv-1-any.whl", "uv-1.data/scripts/uv"
PROGRAM = b"#!/bin/sh\necho uv\n" + bytes(range(256)) * 4000


class OneWay(io.BytesIO):
    """An output that can't seek."""

    def tell(self) -> int:
        raise OSError


def wheel(method: int = zipfile.ZIP_DEFLATED, *, seekable: bool = True) -> bytes:
    """A wheel with uv between other members; without seeking, sizes follow the data."""
    whole = io.BytesIO() if seekable else OneWay()
    with zipfile.ZipFile(whole, "w", method) as archive:
        archive.writestr("uv/__init__.py", b"x" * 300_000)
        archive.writestr(MEMBER, PROGRAM)
        archive.writestr(f"{MEMBER}x", b"another one")
    return whole.getvalue()


class UvIndex(ThreadingHTTPServer):
    """An index with one wheel, which hangs up after `cut` bytes of it."""

    def __init__(self, data: bytes, cut: int | None) -> None:
        super().__init__(("127.0.0.1", 0), _UvHandler)
        self.data, self.cut, self.asked = data, cut, 0
        self.retry_after: list[str] = []
        """What it asks to wait, of each of the next requests."""


class _UvHandler(QuietHandler):
    server: UvIndex

    def do_GET(self) -> None:
        if self.server.retry_after:
            self.send_response(429)
            self.send_header("Retry-After", self.server.retry_after.pop(0))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.server.data
        if self.path.endswith("/uv/"):
            body = f'<a href="{WHEEL}">{WHEEL}</a>'.encode()
        else:
            self.server.asked += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if body is not self.server.data else body[: self.server.cut])


class Fetched:
    """The outcome of one download."""

    def __init__(
        self, folder: Path, data: bytes, cut: int | None, sha: str, waits: Sequence[str] = ()
    ) -> None:
        index = UvIndex(data, cut)
        index.retry_after += waits
        threading.Thread(target=index.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{index.server_port}/simple"
        done = captured(
            [sys.executable, MAIN, "python.fetch_uv", "none", WHEEL, sha, folder / "uv"],
            env={"UV_DEFAULT_INDEX": url, "HOME": str(folder), "PATH": "/usr/bin:/bin"},
            timeout=120,
            check=False,
        )
        index.shutdown()
        index.server_close()
        self.rc, self.said, self.asked = done.returncode, done.stderr, index.asked
        self.there = {each.name: each.read_bytes() for each in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


@pytest.mark.parametrize(
    ("data", "times"),
    [(wheel(), 1), (wheel(zipfile.ZIP_STORED), 2), (wheel(seekable=False), 2)],
    ids=["as uv's", "stored", "without sizes"],
)
def test_uv_is_extracted_from_a_wheel_of_any_zip_layout(
    folder: Path, data: bytes, times: int
) -> None:
    fetched = Fetched(folder, data, None, hashlib.sha256(data).hexdigest())
    assert (fetched.rc, fetched.said, fetched.asked) == (0, "", times)
    assert fetched.there == {"uv": PROGRAM}
    assert (folder / "uv").stat().st_mode & 0o111


def test_fetching_uv_waits_once_for_a_short_retry_after_of_the_package_index(folder: Path) -> None:
    data = wheel()
    sha = hashlib.sha256(data).hexdigest()
    began = time.monotonic()
    fetched = Fetched(folder, data, None, sha, ["1"])
    assert (fetched.rc, fetched.there) == (0, {"uv": PROGRAM})
    assert time.monotonic() - began >= 1
    for waits in (["1", "1"], ["7200"]):
        fetched = Fetched(folder, data, None, sha, waits)
        assert fetched.rc == 1
        assert f"429: Too Many Requests; the server asks to wait {waits[0]} s" in fetched.said


def test_a_wheel_of_uv_with_a_wrong_digest_leaves_no_file(folder: Path) -> None:
    fetched = Fetched(folder, wheel(), None, hashlib.sha256(b"another").hexdigest())
    assert (fetched.rc, fetched.said) == (1, f"the SHA-256 of {WHEEL} is wrong\n")
    assert fetched.there == {}


@pytest.mark.parametrize("cut", [10, 400, -200, -1])
def test_a_cut_off_download_of_uv_fails_with_incomplete_read_and_leaves_no_file(
    folder: Path, cut: int
) -> None:
    data = wheel()
    fetched = Fetched(folder, data, cut, hashlib.sha256(data).hexdigest())
    assert fetched.rc == 1
    assert "fetching uv failed: IncompleteRead" in fetched.said
    assert fetched.there == {}


@pytest.mark.parametrize(
    ("cut", "other", "says"),
    [(None, b"", ""), (None, b"x", f"the SHA-256 of {WHEEL} is wrong\n"), (400, b"", "curl: (18)")],
    ids=["as uv's", "another one", "cut off"],
)
def test_on_a_box_without_python_curl_downloads_uv_and_its_checksum_is_checked_too(
    folder: Path, cut: int | None, other: bytes, says: str
) -> None:
    """A cut-off download is a network error, not a wrong digest."""
    data = wheel()
    index = UvIndex(data, cut)
    threading.Thread(target=index.serve_forever, daemon=True).start()
    lib = shipped("templates") / "lib"
    script = (
        f"for part in base stage0 python; do . {lib}/$part.sh; done; UV={folder}/uv UV_VERSION=1\n"
        f"INDEX=http://127.0.0.1:{index.server_port}/simple WHEEL={WHEEL}\n"
        f"WHEEL_SUM={hashlib.sha256(data + other).hexdigest()}; fetch_plainly"
    )
    done = captured(["bash", "-c", script], check=False)
    index.shutdown()
    index.server_close()
    there = {each.name: each.read_bytes() for each in folder.iterdir()}
    assert there.get("uv") == (None if says else PROGRAM)
    assert (done.returncode == 0) == (not says)
    assert (done.stderr + done.stdout).startswith(says)
    assert ("SHA-256" in done.stdout) == (other != b"")


@pytest.mark.parametrize(
    ("version", "setting"), [("0.10.12", "UV_NATIVE_TLS"), ("0.11.0", "UV_SYSTEM_CERTS")]
)
def test_a_uv_found_on_the_box_is_called_with_the_certificate_option_of_its_version(
    folder: Path, version: str, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = folder / "uv"
    uv.write_text(f"#!/bin/sh\necho uv {version} of a distribution\n")
    uv.chmod(0o755)
    monkeypatch.setenv("HOME", "/none")
    monkeypatch.setenv("PATH", f"{folder}:/bin")
    assert find_uv("/none") == (str(uv), setting)
    uv.write_text("#!/bin/sh\necho uv 0.7.99\n")
    assert find_uv("/none") == ()


@pytest.mark.parametrize(
    ("sent", "code"), [(wheel(), ""), (b"another", "uv-checksum"), (b"", "uv-unlisted")]
)
def test_uv_that_the_index_lacks_is_taken_from_what_is_sent_if_its_checksum_is_right(
    folder: Path, sent: bytes, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {"log": b"the index has no uv-1\n", "uv.whl": sent}.items():
        (folder / name).write_bytes(text)
    monkeypatch.setenv("CLIENT_SENDS", "yes")
    monkeypatch.setattr(bring_uv, "call", lambda *_: 1)
    monkeypatch.setattr(bring_uv, "find_uv", lambda home: (home,))
    sha256 = hashlib.sha256(b"" if code else sent).hexdigest()
    monkeypatch.setattr(bring_uv, "wheel_here", lambda: (WHEEL, sha256))
    monkeypatch.setattr(bring_uv, "log", (folder / "log").write_text)
    with nullcontext() if not code else pytest.raises(StepError) as failed:
        UvWheel(str(folder.parent), str(folder), f"{folder}/log").bring("none")
    assert not failed or failed.value.code == code
    assert (folder / "uv").exists() == (not code)
