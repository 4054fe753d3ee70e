"""Profile values that an attacker, or a typing mistake, may bring.

`REFUSED` must never get past loading. `ACCEPTED` looks as bad but is
legitimate at its key: it must come out byte for byte. `DOCUMENTS` are
whole files. CANARY is a file that any of them would create if a shell ran it.
"""

from collections.abc import Iterator
from typing import NamedTuple

CANARY = "boxstrap-was-here"

_OPTIONS = ["-rf", "--", f"--upload-pack=touch {CANARY}", f"-oProxyCommand=touch {CANARY}"]
_SHELL = [
    *(f"a;touch {CANARY}", f"$(touch {CANARY})", f"`touch {CANARY}`", f"a|touch${{IFS}}{CANARY}"),
    *(f"a&touch {CANARY}&", f"a>{CANARY}", f"'; touch {CANARY}; '", f'"; touch {CANARY}; "'),
    *(f"{{touch,{CANARY}}}", f"<(touch {CANARY})", "a\\", "!!"),
]
_UNSEEN = [
    *(f"a\ntouch {CANARY}", "a\rb", "a\tb", "a\x00b", "a\x1b[31mb", "a\x7fb", "a\x9bb", "a\u2028b"),
    *("a\u2029b", "a\u202eb", "a\u2066b", "\u200fa"),
]
_NOTHING = ["", "   "]
_ENORMOUS = ["x" * 100_000]
_CLIMBS = ["../x", "a/../../x", "..", "a/.."]

_ANY_FIELD = _UNSEEN + _ENORMOUS
_WORD = _OPTIONS + _SHELL + _ANY_FIELD + _NOTHING

_REQUIREMENTS = [
    *("../evil", "./../evil", "-e /evil", "-e evil", "-e  .", "/evil.whl", "a @ file:///etc"),
    *("a==$(id)", "a --hash=x", "-r b.txt"),
]
_REQUIREMENTS += [
    "a @ https://me:secret@host/a.whl",
    "a @ git+ssh://host/a",
    "a; python_version>'3' $(id)",
]
_INDEXES = ["https://me:secret@host/simple", "file:///etc", "host/simple", "https://host/a b"]
_INDEXES += ["https://host/?a=b", "ftp://host", "https://"]

# Key -> values that it must refuse. A key that ends in [] is a list, given one item.
_REFUSED: dict[str, list[str]] = {
    "box.workdir": [*_WORD, "relative", "~root", "/x/../..", "/a b", "/a:b"],
    "ssh.user": [*_WORD, "a b", "root@evil"],
    "ssh.identity": [*_WORD, "~/$HOME/x", "~/.ssh/%d"],
    "ssh.authorized_keys[]": [*_WORD, "~/.ssh/id_ed25519"],
    "git.url": [
        *_WORD,
        f"ext::sh -c touch% {CANARY}",
        "file:///etc",
        "fd::17",
        "persistent-https://x/y",
        "-u./payload",
        f"ssh://-oProxyCommand=touch {CANARY}/x",
    ],
    "git.ref": [*_WORD, "a..b", "a@{1}", "a b", "a^", "a~1", "a:b", "a?", "a*", "[a]"],
    "git.user.name": [*_OPTIONS, *_ANY_FIELD, *_NOTHING, "a <b>", f"$(touch {CANARY})"],
    "git.user.email": [*_WORD, "nobody", "a@b@c", f"$(touch${{IFS}}{CANARY})@x"],
    "python.version": [*_WORD, "3", "2.7", "3.11; x", "3.x", "\u0663.11"],
    "python.as_of": [*_WORD, "2023", "2023-13-01", "yesterday", "P1D"],
    "python.venv": [*_WORD, *_CLIMBS, ".", "./", "/", "a b", "~/venv"],
    "python.torch_backend": [*_WORD, "cuda", "cu", "CPU"],
    "python.requirements[]": [*_WORD, *_CLIMBS, "/etc/passwd", "https://evil/r.txt"],
    "python.lock": [*_WORD, *_CLIMBS, "/etc/passwd"],
    "python.extras[]": [*_WORD, "a,b", "a[b]"],
    "python.groups[]": [*_WORD, "a:b", "path/pyproject.toml:a"],
    "python.packages[]": [*_WORD, *_REQUIREMENTS],
    "python.no_build_isolation[]": [*_WORD, *_REQUIREMENTS],
    "python.only_binary[]": [*_WORD, ":all:", "a>=1"],
    "python.index[]": [*_WORD, *_INDEXES],
    "packages[]": [*_WORD, "git-", "./evil.deb", "/evil.deb", "a/stable", "a=1", "a:amd64", "a*"],
    "gpu.name": [*_OPTIONS, *_ANY_FIELD, *_NOTHING, f"`touch {CANARY}`", "a;b", "a'b"],
    "gpu.min_driver": [*_WORD, "550.x"],
    "gpu.min_cuda": [*_WORD, "12"],
    "secrets[]": [*_WORD, "A B", "A=B", "1A", "PATH", "BASH_ENV"],
    "prepare[]": [*_OPTIONS, *_ANY_FIELD, *_NOTHING],
    "train.command": [*_OPTIONS, *_ANY_FIELD, *_NOTHING],
    "train.session": [*_WORD, "a b", "a.b", "a:b", "a" * 65],
    "train.results[]": [
        *_WORD,
        *_CLIMBS,
        "/etc",
        "~/x",
        ".git",
        ".git/x",
        "a/.GIT/hooks",
        ".Git./x",
    ],
    "provider.console": [*_OPTIONS, *_ANY_FIELD, *_NOTHING],
    "env.A": _ANY_FIELD,
    "extends": [*_WORD, "nobody-has-this", "./" + "x" * 252 + ".yaml"],
}
_REFUSED_NAMES = [*_SHELL, *_OPTIONS, "A-B", "A B", "1A", "A=B", "", "PATH", "IFS", "BASH_ENV", "Ä"]
_REFUSED_NAMES += ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "POSIXLY_CORRECT", "TMOUT"]

_FREE = [
    f"$(touch {CANARY})", f"`touch {CANARY}`", f"'; touch {CANARY}; '", f'"; touch {CANARY} #',
    "$HOME ${A:-b} $1 $$ !! !x", "\\n \\\\ \\' \\\"", "a'b\"c`d", "%s %d %n",
    "{{ x }} <%= x %> {% x %}", "* ? [a] {a,b} ~ # = ;&|<>()", "=cmd|' /C calc'!A0",
    "ünïcødé 日本 😀",
    "null", "x" * 4096,
]  # fmt: skip
_ACCEPTED: dict[str, list[str]] = {
    "env.A": [*_FREE, "", " ", "-rf", "- a", "a: b #c", " a ", "3.10", "on"],
    "train.command": [*_FREE, "x" * 8192, " python train.py "],
    "git.user.name": ["O'Brien", "Zoë D'Arc", "a;b"],
    "train.results[]": ["out/", "a b/c.txt", "résultats/", "a..b", ".github/", "x.git"],
    "git.ref": ["main", "feature/a+b", "v1.0", "#12", "user@host", "a=b"],
    "python.venv": [".venv", "/venv/main"],
    "python.packages[]": [
        "torch",
        "transformers[torch, sentencepiece]>=4.40, <5",
        "torch==2.4.1+cu121",
        "numpy ~= 1.26",
        "peft @ git+https://github.com/huggingface/peft.git@v0.1#egg=peft",
        "-e .[train, eval]",
        "./submodules/simple-knn",
        "tomli; python_version < '3.11'",
    ],
    "python.index[]": ["https://download.pytorch.org/whl/cu126", "http://10.0.0.7:8080/simple/"],
    "packages[]": ["g++", "libstdc++6", "python3.11", "ImageMagick"],
    "ssh.identity": ["~/.ssh/id gpu", "/Users/José/.ssh/id"],
}


class HostileCase(NamedTuple):
    """A key with a hostile value, and the YAML document that holds it."""

    key: str
    value: str

    def document(self) -> str:
        """Return a profile with the value in line 1, escaped into one line of ASCII."""
        path = self.key.removesuffix("[]").split(".")
        text = yaml_text(self.value)
        text = f"[{text}]" if self.key.endswith("[]") else text
        if path[0] == "train" and path[1] != "command":
            text += ", command: x"
        for step in reversed(path):
            text = f"{{{yaml_text(step)}: {text}}}"
        return text


def yaml_text(text: str) -> str:
    """Return `text` as a double-quoted YAML string in ASCII."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if " " <= char <= "~" else f"\\U{ord(char):08x}"


def refused() -> Iterator[HostileCase]:
    for key, values in _REFUSED.items():
        yield from (HostileCase(key, value) for value in values)


def accepted() -> Iterator[HostileCase]:
    for key, values in _ACCEPTED.items():
        yield from (HostileCase(key, value) for value in values)


REFUSED = list(refused())
ACCEPTED = list(accepted())
REFUSED_NAMES = _REFUSED_NAMES

_LAUGHS = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 10))
# Name -> a whole file that must be refused quickly, with a line number.
DOCUMENTS: dict[str, str] = {
    "billion laughs": f"l0: &l0 [lol]\n{_LAUGHS}",
    "a list that holds itself": "packages: &a [*a]",
    "a mapping that holds itself": "env: &a {A: *a}",
    "merge key": "python: &p {venv: x}\ngit:\n  <<: *p",
    "python object": f"env: !!python/object/apply:os.system ['touch {CANARY}']",
    "python name": "env: {A: !!python/name:os.system }",
    "own tag": "packages: !x [a]",
    "deep lists": "packages: " + "[" * 100_000,
    "deep mappings": "env: " + "{a: " * 60_000,
    "deep blocks": "\n".join(" " * n + f"a{n}:" for n in range(500)),
    "deep dashes": "packages: \n" + "- " * 50_000 + "a",
    "complex keys": "? " * 50_000 + "a",
    "many values": "packages:\n" + "- a\n" * 60_000,
    "many keys": "".join(f"k{n}: x\n" for n in range(15_000)),
    "a long list": "packages: [" + "a, " * 1500 + "]",
    "a long number": "gpu: {count: " + "9" * 200_000 + "}",
    "a long text": "env: {A: " + "x" * 200_000 + "}",
    "a long key": "x" * 200_000 + ": 1",
    "a huge file": "# " + "x" * 300_000,
    "quotes without end": 'env: {A: "' + "x\n" * 50_000,
    "escape codes": "env: {A: '\x1b]0;owned\x07'}",
    "nul": "env: {A: 'a\x00b'}",
    "control in a key": '"\\e[31m": x',
    "two documents": "version: 1\n---\nversion: 1",
    "directive": "%YAML 9.9\n---\nversion: 1",
    "not a mapping": "- a",
}
