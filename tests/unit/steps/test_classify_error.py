"""A failed command's output becomes one code; the messages are copied from the real programs."""

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from bootstrap.onbox import retries
from bootstrap.onbox.python import bring_uv
from bootstrap.onbox.python.bring_uv import UvWheel
from bootstrap.onbox.retries import Retries, error_rows
from bootstrap.onbox.step_report import StepError
from bootstrap.steps.event_codes import CODES, named_in
from bootstrap.steps.shell import assignments, shell_part
from tests.cases import read_cases
from tests.programs import captured

SAID = read_cases(Path(__file__).with_name("failures.txt"))[1:]


def classify(folder: Path, said: str, then: str = 'classify_error "$STEP_LOG"') -> str:
    """Return the code that the library finds in a step's log."""
    (folder / "log").write_text(f"{said}\n")
    library = assignments({"ERRORS": error_rows()})
    library += "".join(shell_part("lib", name) for name in ("base", "errors"))
    done = captured(
        ["/bin/bash", "--norc", "-c", f"emit() {{ :; }}\nSTEP_LOG=$PWD/log\n{library}\n{then}"],
        cwd=folder,
        timeout=120,
    )
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(("code", "said"), SAID, ids=range(len(SAID)))
def test_the_output_of_a_failed_setup_step_decides_its_error_code(
    code: str, said: str, tmp_path: Path
) -> None:
    """In shell only while there is no Python."""
    (tmp_path / "log").write_text(f"{said}\n")
    assert retries.classify(f"{tmp_path}/log") == code
    assert code in CODES
    if code == "certificate-untrusted":
        assert named_in(code, said.encode()) == "mirror.example"
    if any(row.startswith(f"{code}|") for row in error_rows()):
        assert classify(tmp_path, said) == code


@pytest.mark.parametrize(("free", "code"), [(0, "disk-full"), (4000, "command-failed")])
def test_a_step_that_fails_on_a_full_disk_says_so(
    free: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = (
        f"df() {{ printf 'Filesystem 1024-blocks Used Available\\n/dev/x 9 9 {free} 100%% /\\n'; }}"
    )
    assert classify(tmp_path, "", f'{df}; classify_error "$STEP_LOG"') == code
    disk = SimpleNamespace(f_bavail=free, f_frsize=1024)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    assert retries.classify(f"{tmp_path}/log") == code


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("uv-unlisted", "the index at http://10.9.9.9/simple/uv/ has no uv-0.13.8-py3-none-x.whl"),
        ("uv-unlisted", "fetching uv failed: HTTP Error 404: Not Found"),
        ("uv-unlisted", "curl: (22) The requested URL returned error: 404"),
        ("uv-unlisted", "http://10.9.9.9/simple/uv/:\n2026-01-01 ERROR 404: Not Found."),
        ("uv-checksum", "the SHA-256 of uv-0.13.8-py3-none-x.whl is wrong"),
        ("index-unreachable", "fetching uv failed: HTTP Error 503: Service Unavailable"),
        ("command-failed", "fetching uv failed: File is not a zip file"),
    ],
)
def test_the_output_of_a_failed_uv_download_decides_its_error_code(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a box without Python, and on others."""
    then = f"{shell_part('lib', 'python')}\nCODE=; uv_not_fetched || echo ${{CODE:-command-failed}}"
    assert classify(tmp_path, said, then) == code.replace("index-unreachable", "command-failed")
    monkeypatch.setattr(bring_uv, "call", lambda *_: 1)
    monkeypatch.setattr(Retries, "run", lambda _, attempt: attempt())
    with pytest.raises(StepError) as failed:
        UvWheel(str(tmp_path), str(tmp_path), f"{tmp_path}/log").bring("none")
    assert failed.value.code == code


def test_the_error_code_of_a_step_ignores_output_of_earlier_tries(tmp_path: Path) -> None:
    said = "failed: No route to host.\ntrying again in 2 s\n  x No solution found"
    assert classify(tmp_path, said) == "command-failed"
    assert retries.classify(f"{tmp_path}/log") == "resolve-failed"


def test_a_step_retries_failures_of_the_network_alone_for_a_minute_at_most(tmp_path: Path) -> None:
    """Uses a fake clock: the test does not really wait, and real time does not count."""
    then = """
    unset SECONDS; SECONDS=0  # a plain variable from now on
    sleep() { SECONDS=$((SECONDS + $1)); printf '%s ' "$1"; }
    tried() { printf 'No route to host\\n' >>"$STEP_LOG"; return 4; }
    with_retries tried 2>/dev/null || printf 'rc %s' "$?"
    """
    assert classify(tmp_path, "", then) == "2 8 8 8 8 8 8 8 8 rc 4"
    then = "with_retries eval 'echo once; false' || echo rc $?"
    assert classify(tmp_path, "error: Failed to build x", then) == "once\nrc 1"


def test_a_host_name_warning_in_the_output_does_not_make_a_failure_no_dns(tmp_path: Path) -> None:
    warned = "sudo: unable to resolve host box: Name or service not known\n"
    warned += "hostname: Temporary failure in name resolution\n"
    said = {"Unmet dependencies": "command-failed", "Temporary failure resolving": "no-dns"}
    for text, code in said.items():
        assert classify(tmp_path, f"{warned}E: {text}") == code
        assert retries.classify(f"{tmp_path}/log") == code


def test_a_failed_step_names_a_dead_proxy_as_the_cause_but_not_a_live_one(tmp_path: Path) -> None:
    said = "error sending request: tunnel error: Connection refused"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        then = f"export HTTPS_PROXY=http://me:secret@127.0.0.1:{port}/; classify_error $STEP_LOG"
        assert classify(tmp_path, said, then) == "index-unreachable"
    assert classify(tmp_path, said, f"{then}; cat $STEP_LOG").split("\n") == [
        "proxy-unreachable",
        said,
        f"the proxy 127.0.0.1:{port} of HTTPS_PROXY does not answer",
    ]
    log = (tmp_path / "log").read_bytes() if (tmp_path / "log").exists() else b""
    assert named_in("proxy-unreachable", log or f"the proxy 127.0.0.1:{port} of X does".encode())
