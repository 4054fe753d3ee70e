import base64
import json
import subprocess
import sys
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bootstrap.onbox.redact import Redactor, TooShortError
from bootstrap.steps.shell import sent_program

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

KEY = "hf_AbC/dé+ f=&\"x'9"
TOKEN = "abcdef123456"


def pieces(redactor: Redactor, parts: list[bytes]) -> bytes:
    stream = redactor.stream()
    return b"".join([stream.feed(part) for part in parts]) + stream.flush()


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        quote(KEY),
        quote(KEY, safe=""),
        quote_plus(KEY),
        quote(KEY).replace("%C3%A9%2B", "%c3%a9%2b").replace("%3D", "%3d"),
        json.dumps(KEY)[1:-1],
        json.dumps(KEY, ensure_ascii=False)[1:-1],
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(KEY.encode()).decode(),
        base64.b64encode(KEY.encode()).decode().rstrip("="),
    ],
)
def test_a_secret_is_redacted_in_each_url_json_or_base64_encoding(form):
    assert Redactor({"HF": KEY}).text(f"<{form}>") == "<[HF hidden]>"


@pytest.mark.parametrize("before", ["u:", "me:", "you:", "user:"])
def test_a_secret_inside_longer_base64_text_is_redacted(before):
    encoded = base64.b64encode(f"{before}{TOKEN}:tail".encode()).decode()
    redacted = Redactor({"T": TOKEN}).text(f"Authorization: Basic {encoded}")
    assert "[T hidden]" in redacted
    start = len("Authorization: Basic ")
    left = redacted[start:].replace("[T hidden]", "")
    assert len(left) <= len(encoded) - len(TOKEN)


@pytest.mark.parametrize("value", ["", "12345", "é1"])
def test_a_secret_too_short_to_redact_raises_an_error_with_its_name_only(value):
    with pytest.raises(TooShortError) as refused:
        Redactor({"WANDB_API_KEY": value})
    assert "WANDB_API_KEY" in str(refused.value)
    assert not value or value not in str(refused.value)


def test_a_secret_split_at_any_place_in_a_stream_is_redacted():
    redactor = Redactor({"KEY": KEY, "TOKEN": TOKEN, "LONG": TOKEN + "-and-more"})
    text = f"a {KEY} b{TOKEN}{TOKEN}-and-more c{quote(KEY)} abcdef123 {TOKEN}-and-mor".encode()
    whole = redactor.redact(text)
    assert whole == (
        b"a [KEY hidden] b[TOKEN hidden][LONG hidden] c[KEY hidden] abcdef123 "
        b"[TOKEN hidden]-and-mor"
    )
    for first in range(len(text) + 1):
        assert pieces(redactor, [text[:first], text[first:]]) == whole
    for size in range(1, 9):
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        assert pieces(redactor, parts) == whole


SECRETS = st.dictionaries(
    st.sampled_from("ABC"), st.text("ab", min_size=6, max_size=9), min_size=1, max_size=3
)


@calm
@given(SECRETS, st.lists(st.text("ab", max_size=9), max_size=8), st.data())
def test_redacting_a_stream_in_pieces_equals_redacting_the_whole(secrets, parts, data):
    redactor = Redactor(secrets)
    parts = [*parts, data.draw(st.sampled_from(list(secrets.values())))]
    redacted = pieces(redactor, [part.encode() for part in parts])
    assert redacted == redactor.redact("".join(parts).encode())
    assert not any(value.encode() in redacted for value in secrets.values())


def test_a_secret_with_a_newline_at_its_end_is_redacted_also_where_none_follows():
    assert Redactor({"T": TOKEN + "\n"}).text(f"{TOKEN}.") == "[T hidden]."
    with pytest.raises(TooShortError):
        Redactor({"T": "12345\n"})


def test_redaction_of_a_stream_holds_back_only_text_that_may_begin_a_secret():
    stream = Redactor({"T": TOKEN}).stream()
    assert stream.feed(b"loss 0.5\n") == b"loss 0.5\n"
    assert stream.feed(b"x abc") == b"x "
    assert stream.flush() == b"abc"
    assert stream.feed(TOKEN.encode()) == b"[T hidden]"


def test_redaction_does_not_change_text_without_secrets_or_odd_bytes():
    data = bytes(range(256))
    assert Redactor({}).redact(data) == data
    assert pieces(Redactor({}), [data, data]) == data * 2
    assert Redactor({"T": TOKEN}).text("\udcff ok") == "\udcff ok"
    assert Redactor({"T": TOKEN}).redact(data + TOKEN.encode()) == data + b"[T hidden]"


PEM = (
    "-----BEGIN KEY-----\n"
    + "\n".join(base64.b64encode(bytes([n]) * 7 + b"Ab+/" * 10).decode() for n in range(9))
    + "\n-----END KEY-----\n"
)


@pytest.mark.parametrize("width", [64, 76])
def test_a_secret_in_base64_with_line_breaks_is_redacted_in_every_line(width):
    whole = base64.b64encode(PEM.strip().encode()).decode()
    lines = [whole[at : at + width] for at in range(0, len(whole), width)]
    redacted = Redactor({"K": PEM}).text("\n".join(lines)).splitlines()
    assert redacted[:-1] == ["[K hidden]"] * (len(lines) - 1)
    assert redacted[-1] == "[K hidden]" or len(redacted[-1]) < 16


@pytest.mark.parametrize(
    "disguise",
    [
        lambda line: line,
        lambda line: quote(line, safe=""),
        lambda line: json.dumps({"line": line}).replace("/", "\\/"),
        lambda line: base64.b64encode(line.encode()).decode(),
        lambda line: base64.urlsafe_b64encode(b"x" + line.encode() + b"y").decode(),
    ],
)
def test_each_line_of_a_private_key_is_redacted_in_each_encoding(disguise):
    redactor = Redactor({"K": PEM})
    for line in PEM.splitlines()[1:-1]:
        shown = redactor.text(f"a line of a log {disguise(line)} goes on")
        assert "[K hidden]" in shown
        assert not any(line[at : at + 12] in shown for at in range(len(line) - 12))


def test_redaction_with_the_same_length_fills_the_place_of_a_secret_with_asterisks():
    redactor = Redactor({"TOKEN": "t" * 20, "T": "short1"}, same_length=True)
    text = f"a {'t' * 20} b short1 c"
    assert redactor.text(text) == "a [TOKEN hidden******] b ****** c"
    assert len(redactor.text(text)) == len(text)


@pytest.mark.slow
@pytest.mark.parametrize("start", [0, 70_000, 100_009, 100_015, 100_026, 100_033, 100_040, 100_062])
def test_a_log_read_from_within_a_secret_shows_no_part_of_the_secret(start, tmp_path):
    """As `logs -f` does after a lost link: earlier bytes are read again, but not sent again."""
    kept, run = tmp_path / "secrets", tmp_path / "runs/k/train-1"
    kept.write_bytes(b"TOKEN=second-value-of-it\0OTHER=loss 0.5\0X=abc\0")
    run.mkdir(parents=True)
    earlier = subprocess.Popen(["sleep", "600"], env={"TOKEN": "first-value-of-it"})
    (run / "pid").write_text(f"4194305 1 gone\n{earlier.pid} 1 here\n")
    before = "-" * 100_000  # more than a pipe holds: it comes in several pieces
    log = f"{before}loss 0.5 first-value-of-it lr 1 second-value-of-it X abc end\n"
    program = sent_program("onbox/redact.py")
    argv = [sys.executable, "-I", "-c", program, str(start), "yes", "TOKEN X", str(tmp_path)]
    done = subprocess.run(argv, input=log.encode(), capture_output=True, check=True)
    earlier.kill()
    earlier.wait()
    whole = f"{before}loss 0.5 [TOKEN hidden***] lr 1 [TOKEN hidden****] X abc end\n"
    assert done.stdout.decode() == whole[start:]
