"""The box uploads results to a bucket; a real S3 server checks every signature."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nanio", reason="the S3 server needs Python 3.11")

from bootstrap.onbox.bucket import upload_results
from bootstrap.onbox.bucket.s3_client import S3Client, S3Key, S3RefusedError
from bootstrap.onbox.bucket.upload_results import MANIFEST, Upload
from tests.box_programs import lay_programs, onbox
from tests.boxes.s3_server import REGION, S3Server
from tests.run_states import identity
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow  # each starts programs

PART = 5 * 1024 * 1024
"""The smallest part that S3 accepts, in bytes."""
BELOW = re.compile(r"mine/train-1-20250102-030405-[0-9a-f]{6}/")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    made = S3Server("127.0.0.1", tmp_path_factory.mktemp("s3") / "buckets")
    yield made
    made.close()


class UploadTraining:
    """A run's folder and its tree, as on a box."""

    def __init__(self, folder: Path, server: S3Server) -> None:
        self.server, self.bucket = server, f"b{abs(hash(folder)) % 10**9}"
        (server.folder / self.bucket).mkdir()
        self.run, self.tree = folder / "home/runs/homework/train-1", folder / "tree"
        self.out = self.tree / "out"
        self.out.mkdir(parents=True)
        self.run.mkdir(parents=True)
        where = f"s3://{self.bucket}/mine\n{server.endpoint}\n{REGION}\n"
        notes = {
            "results_to": where,
            "dir": f"{self.tree}\n",
            "results": "out/\n",
            "commit": "c1\n",
            "pid": "1 1 x\n",
        }
        notes["started"] = "1735787045\n"
        for name, text in notes.items():
            (self.run / name).write_text(text)
        self.give_key(f"{server.key_id}:{server.secret}")

    def give_key(self, text: str) -> None:
        (self.run.parents[2] / "secrets").write_bytes(f"OTHER=x\0RESULTS_KEY={text}\0".encode())

    @property
    def there(self) -> dict[str, bytes]:
        found = self.server.objects(self.bucket)
        assert len({BELOW.match(name) and BELOW.match(name)[0] for name in found}) <= 1
        return {BELOW.sub("", name, 1): content for name, content in found.items()}

    @property
    def manifest(self) -> dict[str, object]:
        said: dict[str, object] = json.loads(self.there[MANIFEST])
        return said

    @property
    def said(self) -> str:
        return (self.run / "uploaded").read_text().strip()


@pytest.fixture
def training(tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> UploadTraining:
    monkeypatch.setattr(upload_results, "PART", PART)
    return UploadTraining(tmp_path, server)


def test_a_complete_result_is_uploaded_to_the_bucket_once_and_again_only_if_changed(
    training: UploadTraining,
) -> None:
    (training.out / "a b+c=ü.bin").write_bytes(b"weights")
    (training.out / "deep").mkdir()
    (training.out / "deep/empty").touch()
    large = os.urandom(2 * PART + 17)
    (training.out / "large").write_bytes(large)
    with (training.out / "held").open("wb") as held:
        held.write(b"half")
        held.flush()
        assert Upload(training.run, stood_s=0).once(live=True) == 1
    files = {"out/a b+c=ü.bin": b"weights", "out/deep/empty": b"", "out/large": large}
    assert {name: body for name, body in training.there.items() if name != MANIFEST} == files
    digests = {name: hashlib.sha256(body).hexdigest() for name, body in files.items()}
    rows = training.manifest["files"]
    assert isinstance(rows, list)
    assert {row["path"]: row["sha256"] for row in rows} == digests
    assert (training.manifest["complete"], training.manifest["live"]) == (False, True)
    # Uploaded files are not uploaded again; new and changed ones are.
    (training.out / "large").write_bytes(large[:100])
    asked = len(training.server.asked)
    one = Upload(training.run, stood_s=0)
    assert one.once(live=False) == 0
    assert len(training.server.asked) - asked == 3  # large, held and the manifest
    assert training.there["out/large"] == large[:100]
    assert training.there["out/held"] == b"half"
    assert training.manifest["complete"] is True


def test_the_upload_of_a_large_file_continues_after_a_cut(
    training: UploadTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(3 * PART)
    (training.out / "large").write_bytes(content)
    put = S3Client.part

    def cut(self: S3Client, name: str, upload: str, number: int, body: bytes) -> str:
        if number == 3:
            raise ConnectionResetError
        return put(self, name, upload, number, body)

    monkeypatch.setattr(S3Client, "part", cut)
    with pytest.raises(ConnectionResetError):
        Upload(training.run, stood_s=0).once(live=True)
    assert training.there == {}
    monkeypatch.setattr(S3Client, "part", put)
    asked = len(training.server.asked)
    assert Upload(training.run, stood_s=0).once(live=True) == 0
    assert sum("partNumber" in line for line in training.server.asked[asked:]) == 1
    assert training.there["out/large"] == content


def test_a_result_that_changes_while_being_uploaded_does_not_appear_in_the_bucket(
    training: UploadTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = training.out / "large"
    large.write_bytes(os.urandom(2 * PART))
    put = S3Client.part

    def meanwhile(self: S3Client, name: str, upload: str, number: int, body: bytes) -> str:
        with large.open("r+b") as file:
            file.write(b"torn")
        return put(self, name, upload, number, body)

    monkeypatch.setattr(S3Client, "part", meanwhile)
    one = Upload(training.run, stood_s=0)
    assert one.once(live=True) == 1
    assert "out/large" not in training.there
    monkeypatch.setattr(S3Client, "part", put)
    assert one.once(live=True) == 0
    assert training.there["out/large"] == large.read_bytes()


def test_a_symlink_out_of_the_results_is_not_uploaded_but_one_within_is_listed(
    training: UploadTraining, tmp_path: Path
) -> None:
    (tmp_path / "of another").write_text("secret")
    (training.out / "link").symlink_to(tmp_path / "of another")
    Upload(training.run, stood_s=0).once(live=False)
    assert [*training.there] == [MANIFEST]
    # One within the results is written down: a bucket holds none.
    (training.out / "epoch=1.ckpt").write_text("weights")
    (training.out / "last.ckpt").symlink_to("epoch=1.ckpt")
    one = Upload(training.run, stood_s=0)
    assert (one.once(live=False), one.once(live=False)) == (0, 0)
    assert {*training.there} == {"out/epoch=1.ckpt", MANIFEST}
    rows = training.manifest["files"]
    assert isinstance(rows, list)
    assert {row["path"]: row.get("link") for row in rows} == {
        "out/epoch=1.ckpt": None,
        "out/last.ckpt": "out/epoch=1.ckpt",
    }
    assert training.manifest["complete"] is True


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("{id}:wrong-secret", "SignatureDoesNotMatch"),
        ("NOBODY:{secret}", "InvalidAccessKeyId"),
        ("not a key", "no-key"),
        ("", "no-key"),
    ],
)
def test_each_cause_of_a_refused_upload_to_a_bucket_has_its_own_single_word(
    training: UploadTraining, key: str, why: str
) -> None:
    server = training.server
    training.give_key(key.format(id=server.key_id, secret=server.secret))
    (training.out / "x").touch()
    with pytest.raises((S3RefusedError, ValueError)) as failed:
        Upload(training.run, stood_s=0).once(live=True)
    assert upload_results._word_for(failed.value) == why


def test_an_s3_key_in_a_secret_is_split_at_colons_into_id_key_and_optional_token() -> None:
    assert S3Key.of("a:b\n") == ("a", "b", "")
    assert S3Key.of("a:b:c") == ("a", "b", "c")


def _begin(training: UploadTraining, home: Path) -> subprocess.Popen[bytes]:
    """Start the program as it is on a box."""
    program = [str(onbox(lay_programs(home / "box/current"))), "bucket.upload_results"]
    return subprocess.Popen([sys.executable, "-I", "-B", *program, str(training.run)])


def test_the_uploading_process_ends_once_the_run_ended_and_every_file_is_uploaded(
    training: UploadTraining,
) -> None:
    home = training.run.parents[2]
    (training.out / "first").write_bytes(b"1")
    with subprocess.Popen(["sleep", "60"]) as command:
        (training.run / "pid").write_text(2 * f"{identity(command.pid)}\n")
        with _begin(training, home) as program:
            wait_until(lambda: "out/first" in training.there)
            with _begin(training, home) as second:  # a second one ends while one is at work
                assert second.wait(PATIENCE_S) == 0
            # Killed; the next start continues.
            program.send_signal(signal.SIGKILL)
        (training.out / "last").write_bytes(b"2")
        (training.run / "exit").write_text("0\n")
        command.kill()
    with _begin(training, home) as program:
        assert program.wait(PATIENCE_S) == 0
    assert {*training.there} == {"out/first", "out/last", MANIFEST}
    assert training.said.startswith(f"whole 2 2 0 - s3://{training.bucket}/mine/train-1-2025")
    assert training.manifest["live"] is False
