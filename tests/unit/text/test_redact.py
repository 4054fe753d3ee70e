import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bootstrap.text.redact import Redactor, TooShortError

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
def test_each_disguise_is_masked(form):
    assert Redactor({"HF": KEY}).text(f"<{form}>") == "<[HF hidden]>"


@pytest.mark.parametrize("before", ["u:", "me:", "you:", "user:"])
def test_a_secret_inside_base64_of_more_is_masked(before):
    encoded = base64.b64encode(f"{before}{TOKEN}:tail".encode()).decode()
    redacted = Redactor({"T": TOKEN}).text(f"Authorization: Basic {encoded}")
    assert "[T hidden]" in redacted
    start = len("Authorization: Basic ")
    left = redacted[start:].replace("[T hidden]", "")
    assert len(left) <= len(encoded) - len(TOKEN)


@pytest.mark.parametrize("value", ["", "12345", "é1"])
def test_a_short_secret_is_refused_by_its_name(value):
    with pytest.raises(TooShortError) as refused:
        Redactor({"WANDB_API_KEY": value})
    assert "WANDB_API_KEY" in str(refused.value)
    assert not value or value not in str(refused.value)


def test_all_splits_of_all_forms():
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
def test_pieces_and_whole_agree(secrets, parts, data):
    redactor = Redactor(secrets)
    parts = [*parts, data.draw(st.sampled_from(list(secrets.values())))]
    redacted = pieces(redactor, [part.encode() for part in parts])
    assert redacted == redactor.redact("".join(parts).encode())
    assert not any(value.encode() in redacted for value in secrets.values())


def test_a_newline_at_a_values_end_is_not_part_of_the_secret():
    assert Redactor({"T": TOKEN + "\n"}).text(f"{TOKEN}.") == "[T hidden]."
    with pytest.raises(TooShortError):
        Redactor({"T": "12345\n"})


def test_nothing_is_held_back_without_need():
    stream = Redactor({"T": TOKEN}).stream()
    assert stream.feed(b"loss 0.5\n") == b"loss 0.5\n"
    assert stream.feed(b"x abc") == b"x "
    assert stream.flush() == b"abc"
    assert stream.feed(TOKEN.encode()) == b"[T hidden]"


def test_no_secrets_and_odd_bytes_pass():
    data = bytes(range(256))
    assert Redactor({}).redact(data) == data
    assert pieces(Redactor({}), [data, data]) == data * 2
    assert Redactor({"T": TOKEN}).text("\udcff ok") == "\udcff ok"
    assert Redactor({"T": TOKEN}).redact(data + TOKEN.encode()) == data + b"[T hidden]"
