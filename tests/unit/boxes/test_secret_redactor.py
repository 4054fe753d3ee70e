"""Secrets given to a box are redacted later, by the names kept in its record."""

from pathlib import Path

import pytest

from bootstrap.boxes.secrets import redactor_of
from bootstrap.errors import BoxstrapError, StepFailedError
from bootstrap.link import KnownBox
from bootstrap.tasks.command import Call, _guarded
from bootstrap.value import document

PEM = "-----BEGIN KEY-----\n" + "\n".join(f"line{n}" + "Ab3/" * 14 for n in range(6)) + "\nxY==\n"


def box(*names: str) -> KnownBox:
    return KnownBox("gpu", "gpu", secrets=names)


def test_each_single_line_of_a_private_key_is_redacted_in_text() -> None:
    redactor = redactor_of([box("KEY")], environment={"KEY": PEM})
    for line in PEM.splitlines()[1:-1]:
        assert redactor.text(f"> {line} <") == "> [KEY hidden] <"
    assert redactor.text(PEM.strip()) == "[KEY hidden]"
    crossed = redactor.text(PEM.replace("\n", "\r\n"))
    assert not any(line in crossed for line in PEM.splitlines()[:-1])
    # A program may turn the escaped newlines back into real ones.
    packed = redactor_of([box("KEY")], environment={"KEY": PEM.replace("\n", "\\n")})
    assert "Ab3/" not in packed.text(PEM)


def test_a_log_that_stops_within_a_private_key_shows_no_line_of_the_key() -> None:
    stream = redactor_of([box("KEY")], environment={"KEY": PEM}).stream()
    shown = b"".join(stream.feed(line.encode() + b"\n") for line in PEM.splitlines()[:4])
    assert b"Ab3/" not in shown + stream.flush()


def test_lines_of_a_secret_that_are_too_short_are_not_redacted_from_a_log() -> None:
    redactor = redactor_of(
        [box("DOC")], environment={"DOC": '{\n"a": 1,\n"private": "s3cr3t-value"\n}'}
    )
    assert redactor.text('"a": 1, { }') == '"a": 1, { }'
    assert redactor.text('"private": "s3cr3t-value"') == "[DOC hidden]"


@pytest.mark.parametrize("value", [None, "", "abc"])
def test_text_is_unchanged_if_a_secret_is_missing_or_too_short_to_redact(value: str | None) -> None:
    environment = {} if value is None else {"KEY": value}
    assert redactor_of([box("KEY")], environment=environment).text("abc") == "abc"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StepFailedError("hf_abcdef12 leaked", hint="hf_abcdef12"), 7),
        (RuntimeError("hf_abcdef12"), 1),
    ],
)
def test_secrets_are_redacted_from_errors_and_from_the_reports_of_crashes(
    own_home: Path, error: Exception, code: int
) -> None:
    def body(call: Call) -> None:
        call.redact = redactor_of([box("HF")], environment={"HF": "hf_abcdef12"}).text
        raise error

    ended = _guarded(body, Call(), "")
    assert ended.code == code
    assert "hf_abcdef12" not in ended.message
    if isinstance(error, BoxstrapError):
        assert "hf_abcdef12" not in f"{error}{document(error)}"
        assert "[HF hidden] leaked" in ended.message
    else:
        (report,) = (own_home / ".local/state/boxstrap/reports").iterdir()
        assert "hf_abcdef12" not in report.read_text()
        assert "RuntimeError: [HF hidden]" in report.read_text()
