import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bootstrap.sanitize import SanitizeStream, sanitize

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Independent of the module's own tables on purpose.
HARM = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
PIECES = [
    "\x1b", "\x1b[", "\x9b", "31", ";", "m", "\x1b[31m", "\x1b[0m", "\x1b]0;title", "\x07",
    "\x1b\\", "\x9c", "\x1bP", "\x1b_G", "\x1b(B", "\r", "\n", "\r\n", "\u202e", "\u2028", "é", "█",
    "abc ", "\x00", "\x85", "?25l", "\x1b[2J",
]  # fmt: skip
NASTY = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=12).map("".join)
NASTY_BYTES = st.lists(
    st.sampled_from([piece.encode() for piece in PIECES])
    | st.sampled_from([b"\xff", b"\xc2", b"\xe2\x80", b"\x9b", b"\xf0\x9f"])
    | st.binary(max_size=3),
    max_size=12,
).map(b"".join)


@pytest.mark.parametrize(
    ("dirty", "expected"),
    [
        (b"plain\ttext\n", "plain\ttext\n"),
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b[?25l\x1b[2J\x1b[1;1Hboo", "boo"),
        (b"\x1b]0;rm -rf\x07after", "after"),
        (b"\x1b]8;;http://a.b\x1b\\link\x1b]8;;\x1b\\.", "link."),
        (b"\x1b]52;c;bHM=\x1b\\x", "x"),
        (b"\x1bPq#0;2;0;0;0\x1b\\x", "x"),
        (b"\x1b_Gf=100;AAAA\x1b\\x", "x"),
        (b"\x1b]0;never ended\nnext line", "\nnext line"),
        (b"\x1b(B\x1b7\x1b8\x1bcx", "x"),
        (b"a\x00\x1b[31mb", "ab"),
        (b"\x1b\x1b[31mb", "b"),
        ("\x9b31mc1\x9d0;t\x9cx", "c1x"),
        ("\x85nel\x7f", "nel"),
        ("user\u202egnp.exe\u2066x\u200f", "usergnp.exex"),
        ("one\u2028two", "onetwo"),
        (b"10%\r20%\r\nend", "10%\n20%\nend"),
        (b"\xff\xfeok\xc3", "\ufffd\ufffdok\ufffd"),
        ("\ud800x", "\ufffdx"),
        ("naïve ✓ 日本語 👩‍🚀", "naïve ✓ 日本語 👩‍🚀"),
        ("12\xa0GB\xa1", "12\xa0GB\xa1"),  # the first after the control codes
    ],
)
def test_terminal_control_sequences_are_removed_from_text(dirty, expected):
    assert sanitize(dirty) == expected


@calm
@given(NASTY | NASTY_BYTES)
@example("\x1b\x1b[[31m")
@example("\x00\x1b[31m")
def test_sanitized_text_has_no_control_characters_and_stays_the_same_when_repeated(dirty):
    text = sanitize(dirty)
    assert not HARM.search(text)
    assert sanitize(text) == text
    text.encode()


def stream(data: bytes, cuts=(), **options) -> bytes:
    sanitizer, places = SanitizeStream(**options), sorted({min(cut, len(data)) for cut in cuts})
    ends = zip([0, *places], [*places, len(data)], strict=True)
    return b"".join(sanitizer.feed(data[a:b]) for a, b in ends) + sanitizer.finish()


@calm
@given(NASTY_BYTES, st.lists(st.integers(0, 60), max_size=8), st.booleans())
@example(b"\x1b[31mred", [1], False)
def test_sanitized_output_is_the_same_however_its_stream_is_cut(data, cuts, on_terminal):
    assert stream(data, cuts, on_terminal=on_terminal) == stream(data, on_terminal=on_terminal)
    assert stream(data, cuts).decode() == sanitize(data)


@calm
@given(NASTY_BYTES)
def test_output_of_a_box_on_a_terminal_keeps_only_colours(data):
    kept = stream(data, on_terminal=True).decode()
    rest = re.sub(r"\x1b\[[0-9;]*m", "", kept).replace("\r", "")
    assert not HARM.search(rest)


def test_sanitizing_holds_back_only_unfinished_control_sequences_and_letters():
    sanitizer = SanitizeStream()
    assert sanitizer.feed(b"step 1 loss") == b"step 1 loss"
    assert sanitizer.feed(b" 0.5\n") == b" 0.5\n"
    assert sanitizer.feed(b"x\x1b[3") == b"x"
    assert sanitizer.feed(b"1my") == b"y"
    assert sanitizer.feed("é".encode()[:1]) == b""
    assert sanitizer.feed("é".encode()[1:]) == "é".encode()


def test_sanitized_output_keeps_carriage_returns_only_for_a_terminal():
    assert stream(b"10%\r20%\r\n", on_terminal=True) == b"10%\r20%\r\n"
    assert stream(b"10%\r20%\r\n") == b"10%\n20%\n"


def test_colours_left_on_at_the_end_of_box_output_are_reset():
    assert stream(b"\x1b[1;31mred", on_terminal=True) == b"\x1b[1;31mred\x1b[0m"
    assert stream(b"\x1b[31mred\x1b[0m", on_terminal=True) == b"\x1b[31mred\x1b[0m"
    assert stream(b"\x1b[" + b"1;" * 40 + b"m", on_terminal=True) == b"1;" * 8 + b"m"


@pytest.mark.slow
@pytest.mark.parametrize("opening", [b"\x1b]", b"\x1b[", b"\x1bP", b"\xc2\x9d", b"\x1b "])
def test_an_endless_control_sequence_from_a_box_is_removed_in_bounded_memory(opening):
    sanitizer, out = SanitizeStream(), 0
    for _ in range(200):
        out += len(sanitizer.feed(opening + b"1" * 50_000))
        assert len(sanitizer._held) <= 4098
    assert out > 200 * 40_000
    assert b"\x1b" not in sanitizer.finish()
