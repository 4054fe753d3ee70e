"""A box's answer about its shells is read with bounds and compared with the expected values."""

from __future__ import annotations

from bootstrap.protocol.environment_comparison import WAYS, read_answer

GOOD, ELSE = "a" * 64, "b" * 64


def line(*words: str) -> bytes:
    return "\t".join(words).encode() + b"\n"


def answer(**digests: str) -> bytes:
    """Return an answer from every way, with this digest of A, or none if it is empty."""
    told = [line("shell", "zsh")]
    for way in (*WAYS, "file"):
        digest = digests.get(way.replace("-", "_"), GOOD)
        told += [line("answered", way), *([line("digest", way, "A", digest)] if digest else [])]
    return b"".join(told)


def test_each_outcome_has_its_word_and_its_advice() -> None:
    cases = {
        answer(): ("right", ""),
        answer(vscode=ELSE): ("another value in VS Code", "undo it"),
        answer(vscode=""): ("missing in VS Code", "undo it"),
        answer(vscode=ELSE) + line("set", "A", "~/.zshrc:3"): ("another value", "~/.zshrc:3"),
        answer(vscode=ELSE, file=ELSE): ("another value", "boxstrap setup --host gpu"),
        answer().replace(line("answered", "vscode"), b""): ("no answer", "zsh waits"),
        answer(vscode="").replace(
            line("answered", "vscode"), line("not", "vscode", "read-only-home")
        ): ("right", ""),
    }
    for given, (says, advice) in cases.items():
        proof = read_answer(given, ["A"], {"A": GOOD}, box="gpu")
        told = "\n".join(proof.advice())
        assert (says in told and advice in told) if advice else not proof.wrong, (given, told)


def test_a_secret_whose_value_is_not_here_is_compared_with_what_the_box_keeps() -> None:
    assert not read_answer(answer(), ["A"], {}, secrets=["A"]).wrong
    (wrong,) = read_answer(answer(login=ELSE), ["A"], {}, secrets=["A"]).wrong
    assert wrong.wrong == {"login": "other"}
    (nowhere,) = read_answer(answer(file=""), ["A"], {}, secrets=["A"]).wrong
    assert set(nowhere.wrong) == set(WAYS)


def test_a_lying_box_proves_nothing_by_noise() -> None:
    noise = [
        b"",
        b"\xff\x00" * 500,
        line("digest", "ssh"),
        line("not", "ssh", "because"),
        line("set", "A", "\x1b[2J" + "x" * 9999) * 50,
        line("shell", "$(reboot)"),
    ]
    for given in noise:
        proof = read_answer(given, ["A"], {"A": GOOD})
        assert [each.name for each in proof.wrong] == ["A"]
        assert len("".join(proof.advice())) < 2000
        assert "\x1b" not in "".join(proof.advice())
        assert "$(" not in "".join(proof.advice())
