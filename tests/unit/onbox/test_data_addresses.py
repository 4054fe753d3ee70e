"""Objects of a bucket come by signed URLs: more than a thousand, and after these expired."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nanio", reason="the S3 server needs Python 3.11")

from bootstrap.onbox.data import download, sources
from bootstrap.onbox.data.download import fetch_items
from bootstrap.onbox.data.items import DataError, Item, Places
from bootstrap.onbox.data.records import DataRecords
from bootstrap.transfer.buckets import EXPIRES_S, BucketItems
from tests.boxes.s3_server import S3Server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server("127.0.0.1", tmp_path_factory.mktemp("s3") / "buckets")
    for number in range(1003):
        server.put("corpus", f"many/{number:04}.txt", b"%d" % number)
    server.put("corpus", "large.bin", os.urandom(5_000_000))
    yield server
    server.close()


class Signer:
    """This machine's part: it signs URLs when the box reports that it waits for them."""

    def __init__(self, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {**server.variables(), "CLIENT_SENDS": "1"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sources, "tell", self.hear)
        self.server = server
        self.places = Places(tmp_path / "home", tmp_path / "tree", tmp_path)
        self.file = tmp_path / "data.addresses"
        self.items = BucketItems({})
        self.asked = 0
        (tmp_path / "tree").mkdir()

    def hear(self, line: str) -> None:
        assert line == "wait code=data-addresses"
        self.asked += 1
        self.items.list()
        part = self.file.with_suffix(".new")
        part.write_bytes(b"".join(self.items.lines()))
        part.rename(self.file)

    def fetch(self, *named: tuple[str, str]) -> None:
        home = self.places._replace(home=self.places.home / ".boxstrap")
        exclude = ((r"0[0-8]", True),)  # a tenth of the many is enough
        items = [Item(n, url, to, "", False, exclude, "") for n, (url, to) in enumerate(named)]
        self.items = BucketItems({item.number: item.source for item in items})
        keys = {home.key(item) for item in items}
        fetch_items(items, home, DataRecords(home.home, keys))


@pytest.fixture
def signer(served: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Signer]:
    (tmp_path / "home").mkdir()
    made = Signer(served, tmp_path, monkeypatch)
    made.places = made.places._replace(tree=tmp_path / "home" / "tree")
    made.places.tree.mkdir()
    yield made
    served.move_clock(0)


@pytest.mark.slow
def test_a_box_downloads_all_objects_of_a_bucket_and_no_file_on_it_has_a_signed_url(
    signer: Signer, tmp_path: Path
) -> None:
    signer.fetch(("s3://corpus/many/", "data"), ("s3://corpus/large.bin", "model/"))
    found = {path.name: path.read_text() for path in (signer.places.tree / "data").iterdir()}
    assert found == {f"{number:04}.txt": str(number) for number in range(900, 1003)}
    large = (signer.server.folder / "corpus" / "large.bin").read_bytes()
    assert (signer.places.tree / "model" / "large.bin").read_bytes() == large
    assert signer.asked == 1
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in kept if b"X-Amz-Signature" in path.read_bytes()]


@pytest.mark.slow
def test_signed_urls_that_expire_during_a_download_are_requested_again(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "BLOCK", 500_000)
    opened = download.Download.open
    count = 0

    def later(self: download.Download, *given: object) -> object:
        nonlocal count
        count += 1
        if count == 3:  # the URLs expire before this request
            signer.server.move_clock(EXPIRES_S + 60)
        return opened(self, *given)  # type: ignore[arg-type]

    hear = signer.hear

    def sign_in_time(line: str) -> None:
        if signer.asked:
            signer.server.move_clock(0)
            time.sleep(1.1)  # URLs signed in the same second are identical
        hear(line)

    monkeypatch.setattr(sources, "tell", sign_in_time)
    monkeypatch.setattr(download.Download, "open", later)
    signer.fetch(("s3://corpus/large.bin", "large.bin"))
    large = (signer.server.folder / "corpus" / "large.bin").read_bytes()
    assert (signer.places.tree / "large.bin").read_bytes() == large
    assert signer.asked == 2
    assert any(" 403" in line for line in signer.server.asked)


@pytest.mark.slow
def test_a_download_ends_when_newly_signed_urls_are_refused_too(signer: Signer) -> None:
    signer.server.move_clock(2 * EXPIRES_S)
    with pytest.raises(DataError, match="answers 403") as refused:
        signer.fetch(("s3://corpus/large.bin", "large.bin"))
    assert "X-Amz" not in str(refused.value)
    assert signer.asked == 2


@pytest.mark.slow
def test_a_bucket_download_fails_at_once_if_no_machine_sends_signed_urls(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT_SENDS", "")
    monkeypatch.setattr(sources, "tell", lambda line: None)
    with pytest.raises(DataError, match="no signed URLs"):
        signer.fetch(("s3://corpus/large.bin", "large.bin"))
    monkeypatch.setattr(sources, "tell", lambda line: signer.file.write_text(""))
    with pytest.raises(DataError, match="could not sign any URL"):
        signer.fetch(("s3://corpus/large.bin", "large.bin"))
