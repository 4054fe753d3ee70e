"""A launch is all or nothing: a cut upload starts nothing; an unsuitable box or uv is refused."""

import contextlib
import gzip
import hashlib
import re
import shutil
import time
import zipfile
from pathlib import Path

import pytest

from bootstrap.errors import BoxLacksError, BoxstrapError, UnreachableError
from bootstrap.link import LinkLost, LocalWire
from bootstrap.link.query import LaunchOptions, build_query, launch, new_setup_id
from bootstrap.onbox.python.uv_release import VERSION, WHEELS
from bootstrap.paths import cache_dir
from bootstrap.setup import send
from bootstrap.setup.program import Program
from tests.waiting import wait_until

# A minimal script that is called like the real one.
SCRIPT = """\
{
folder=$(dirname "$0")
case $1 in
  run)
    printf '%s\\n' "$@" >"$folder/arguments"
    [ ! -f "$folder/secrets" ] || cat "$folder/secrets" >"$folder/was-given"
    stat -L -c %a "$folder/secrets" >"$folder/mode"
    printf 'begun\\n' >"$folder/pid"
    ;;
esac
exit
}
"""
PROGRAM = Program("\fdefaults.sh\nA=1\n\flib/x.sh\nx() { :; }\n\fonbox/a/b.py\n1\n")
SETUP = "20260101-000000-abcdef"
SECRETS = b"TOKEN=canary-1\0OTHER=a\nb\0"


def start(workdir: Path, **changes: object) -> LaunchOptions:
    fields = {
        "script": SCRIPT,
        "program": PROGRAM,
        "setup": SETUP,
        "workdir": str(workdir),
        "wait_s": 5,
    }
    return LaunchOptions(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    return tmp_path / "it's a work dir"


def test_a_setup_script_gets_its_arguments_and_secrets_in_private_files(workdir: Path) -> None:
    launch(LocalWire(), start(workdir, words=["restart", "only=gpu"], secrets=SECRETS))
    folder = workdir / ".boxstrap/setups" / SETUP
    assert (folder / "arguments").read_text().split() == ["run", SETUP, "5", "restart", "only=gpu"]
    # Only the script has the secrets open: the file has no name that would outlive it.
    assert (folder / "was-given").read_bytes() == SECRETS
    assert (folder / "mode").read_text() == "600\n"
    assert (folder / "secrets").is_symlink()
    assert (folder / "setup.sh").read_text() == SCRIPT
    assert (folder / "setup.sh").stat().st_mode & 0o777 == 0o600
    for private in (folder, workdir / ".boxstrap"):
        assert private.stat().st_mode & 0o777 == 0o700


class Cut(LocalWire):
    """A wire that carries at most this many bytes of input."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def start(self, command: str):  # type: ignore[no-untyped-def]
        stream = super().start(command)
        whole = stream.write

        def write(data: bytes) -> None:
            whole(data[: self._most])
            self._most = 0

        stream.write = write  # type: ignore[method-assign,assignment]
        return stream


PACKED = gzip.compress(SCRIPT.encode(), mtime=0)
BOTH, SHORT = len(PACKED) + len(PROGRAM.packed), PROGRAM.digest[:16]


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 1, 50, len(PACKED) - 1, len(PACKED) + 3, BOTH - 1, BOTH + 3])
def test_a_setup_whose_upload_is_cut_starts_nothing_and_leaves_no_secrets(
    at: int, workdir: Path
) -> None:
    with pytest.raises((LinkLost, BoxLacksError)):
        launch(Cut(at), start(workdir, secrets=SECRETS))
    time.sleep(0.2)
    assert list(workdir.rglob("pid")) == []
    assert list(workdir.rglob("secrets")) == []
    if at < len(PACKED):
        assert not workdir.exists()
    assert [path.name for path in workdir.glob(".boxstrap/box/*")] == [SHORT] * (at >= BOTH)


def test_setup_sends_the_program_again_only_if_the_copy_is_damaged(workdir: Path) -> None:
    wire = CountingWire()
    launch(wire, start(workdir))
    (folder,) = (workdir / ".boxstrap/box").iterdir()
    assert folder.name == PROGRAM.digest[:16]
    assert (folder / "onbox/a/b.py").read_text() == "1\n"
    for package in ("onbox", "onbox/a"):  # as the box compiles it
        (folder / package / "__pycache__").mkdir()
        (folder / package / "__pycache__/b.cpython-311.pyc").write_bytes(b"\0compiled")
    for damage, sent in ((None, 1), ("", 2), ("\0" * 11, 2)):  # as a power cut leaves it
        if damage is not None:
            (folder / "lib/x.sh").write_text(damage)
        shutil.rmtree(workdir / ".boxstrap/setups")
        wire.launches = 0
        launch(wire, start(workdir, has_program=True))
        assert wire.launches == sent
        assert (folder / "lib/x.sh").read_text() == "x() { :; }\n"


class Slow(LocalWire):
    """A wire by which the program's end comes once another client's launch is over."""

    def __init__(self, workdir: Path, another: LocalWire) -> None:
        super().__init__()
        self._workdir, self._another = workdir, another

    def start(self, command: str):  # type: ignore[no-untyped-def]
        stream = super().start(command)
        whole = stream.write

        def write(data: bytes) -> None:
            whole(data[:-3])
            wait_until(lambda: [*self._workdir.glob(".boxstrap/box/*.new.*")])
            with contextlib.suppress(LinkLost, BoxLacksError):
                launch(self._another, start(self._workdir, setup=new_setup_id()))
            whole(data[-3:])

        stream.write = write  # type: ignore[method-assign,assignment]
        return stream


@pytest.mark.parametrize("most", [BOTH, BOTH - 1])
def test_setup_does_not_remove_a_program_that_another_machine_is_still_sending_to_the_box(
    most: int, workdir: Path
) -> None:
    launch(Slow(workdir, Cut(most)), start(workdir))
    assert (workdir / ".boxstrap/setups" / SETUP / "pid").exists()
    programs = [*workdir.glob(".boxstrap/box/*"), *workdir.glob(".boxstrap/box/*/*.sh")]
    assert [path.name for path in programs[:1]] == [SHORT]
    assert not [path for path in programs if path.stat().st_mode & 0o077]


class CountingWire(LocalWire):
    """A wire that counts its commands."""

    launches = 0

    def start(self, command: str):  # type: ignore[no-untyped-def]
        self.launches += 1
        return super().start(command)


@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        ("'disk-full\tno room' 'no-git\tno git'", "no room; no git"),
        *((f"'{code}\t'", "") for code in ("{", "{0}", "{a.b}", "", "x\x1b[31m", "%s")),
    ],
)
def test_setup_refuses_a_box_that_lacks_a_requirement_and_changes_nothing(
    workdir: Path, lacks: str, says: str
) -> None:
    lacking = SCRIPT.replace(
        "case $1 in", f"case $1 in preflight) printf 'lacks\\t%s\\n' {lacks} ;;"
    )
    with pytest.raises(BoxLacksError) as caught:
        launch(LocalWire(), start(workdir, script=lacking))
    assert says in caught.value.what
    assert "Nothing was changed" in caught.value.hint
    assert not workdir.exists()


def test_a_setup_script_that_dies_at_its_start_gives_an_error_with_its_output(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = SCRIPT.replace("run)", "run) echo 'no fifo here' >&2; exit 1;")
    fast = build_query("launch").replace("-gt 1000", "-gt 10")
    monkeypatch.setattr(
        "bootstrap.link.query.build_query",
        lambda name, **values: build_query(name, **values).replace("-gt 1000", "-gt 10"),
    )
    assert "-gt 10 " in fast
    with pytest.raises(BoxstrapError, match="no fifo here") as caught:
        launch(LocalWire(), start(workdir, script=dying))
    assert not isinstance(caught.value, UnreachableError)


def test_ids_of_setups_are_unique_and_sort_by_time() -> None:
    ids = [new_setup_id(now) for now in (0, 1, 100_000, 1e9, 2e9)]
    assert ids == sorted(ids)
    assert len({new_setup_id(0) for _ in range(20)}) == 20  # 24 bits are random
    assert all(re.fullmatch(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}", each) for each in ids)


MACHINE = "Linux-aarch64"
NAME = WHEELS[MACHINE][0]
INFO = f"uv-{VERSION}.dist-info"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that this machine's pip reads, with a wheel for another kind of machine."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / NAME, "w") as archive:
        about = f"Metadata-Version: 2.1\nName: uv\nVersion: {VERSION}\n"
        archive.writestr(f"{INFO}/METADATA", about)
        archive.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
        archive.writestr(f"{INFO}/RECORD", "")
    sha256 = hashlib.sha256((folder / NAME).read_bytes()).hexdigest()
    monkeypatch.setattr(send, "WHEELS", {MACHINE: (NAME, sha256)})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip/__main__.py").write_text("raise SystemExit('a repository that is hostile')\n")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.slow
def test_the_uv_wheel_is_downloaded_once_and_replaces_a_damaged_cached_one(index: Path) -> None:
    wheel = (index / NAME).read_bytes()
    kept = cache_dir() / "uv" / NAME
    kept.parent.mkdir(parents=True)
    (kept.parent / "uv-0.1-py3-none-any.whl").write_text("of an earlier version")
    kept.write_text("damaged")
    assert send.fetch_wheel(MACHINE) == wheel
    (index / NAME).unlink()
    assert send.fetch_wheel(MACHINE) == wheel
    assert list(kept.parent.iterdir()) == [kept]


@pytest.mark.slow
def test_a_uv_wheel_with_a_wrong_hash_is_refused_and_not_cached(index: Path) -> None:
    with zipfile.ZipFile(index / NAME, "a") as archive:
        archive.writestr("more", "")
    with pytest.raises(BoxstrapError, match=f"does not give uv {VERSION} either: "):
        send.fetch_wheel(MACHINE)
    assert not (cache_dir() / "uv").exists()
    with pytest.raises(BoxstrapError, match="no uv is known for"):
        send.fetch_wheel("Linux-\x1b[31m")
