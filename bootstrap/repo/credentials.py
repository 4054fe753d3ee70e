"""Find files that look like credentials, by name or content: they stay on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from bootstrap.repo.names import decoded

READ = 256 * 1024
"""Bytes of each file that are searched."""
_READ_IN_ALL = 256 * 1024 * 1024

# Templates of such files hold no values, and public keys are no secret.
_HARMLESS = re.compile(
    r".*\.(example|sample|template|tmpl|dist|defaults?|pub|md|rst|j2|jinja2?)", re.IGNORECASE
)

# Files that are credentials whatever they contain, by the end of their path.
_NAMES = (
    (r"\.env(rc|\..+)?|.+\.env", "environment file"),
    (r"id_(rsa|dsa|ecdsa|ed25519)(_sk)?", "ssh key"),
    (r"[._]netrc", "passwords"),
    (r"\.(git-credentials|pgpass|htpasswd|vault-token|s3cfg)", "passwords"),
    (r"kubeconfig(\.ya?ml)?|.+\.kubeconfig", "access to a cluster"),
    (r"\.kube/config", "access to a cluster"),
    (r"\.aws/credentials", "AWS key"),
    (r"(application_default_)?credentials\.json|client_secret.*\.json", "credentials"),
    (r".+\.(p12|pfx|ppk|jks|keystore|kdbx)", "store of keys"),
)

# Files that may hold settings only: they are credentials if their content matches too.
_HOLDING = (
    (r"\.npmrc|\.yarnrc(\.yml)?", rb"(_authToken|_auth|_password)\s*[=:]\s*[\"']?[^\s\"'$]{8}"),
    (r"\.pypirc|pip\.conf", rb"password\s*[=:]\s*[^\s$]{8}|://[^\s/:@$]+:[^\s/@$]{8,}@"),
    (r"\.docker/config\.json|\.dockercfg", rb"\"auth\"\s*:\s*\"[A-Za-z0-9+/=]{12}"),
)

# Tokens that are recognised by their format, in any file.
_SHAPES = (
    (
        rb"-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----(\s|\\r|\\n)+"
        rb"([A-Za-z-]+: [^\n]*\n\s*)*[A-Za-z0-9+/=]{24}",
        "private key",
    ),
    (rb"PuTTY-User-Key-File-\d", "private key"),
    (rb"(?<!\w)hf_[A-Za-z0-9]{30,}", "token of Hugging Face"),
    (rb"(?<!\w)(gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{40})", "token of GitHub"),
    (rb"(?<!\w)glpat-[\w-]{20}", "token of GitLab"),
    (rb"(?<!\w)(AKIA|ASIA)(?![0-9A-Z]{9}EXAMPLE)[0-9A-Z]{16}(?!\w)", "AWS key"),
    (
        rb"(?i:aws_?secret_?(access_?)?key)[\"']?\s*[=:]\s*[\"']?"
        rb"(?![A-Za-z0-9/+]{33}EXAMPLEKEY|[A-Za-z0-9/+]*EXAMPLEKEY)[A-Za-z0-9/+]{40}(?!\w)",
        "AWS key",
    ),
    (rb"(?<![\w-])sk-((proj|svcacct|admin|ant|or)-[\w-]{32}|[A-Za-z0-9]{40})", "key of an API"),
    (rb"(?<!\w)(sk|rk)_live_[A-Za-z0-9]{20}", "key of an API"),
    (rb"(?<!\w)AIza[\w-]{35}(?![\w-])", "key of an API"),
    (rb"(?<!\w)xox[abeoprs]-\d{6,}-[\w-]{10}", "token of Slack"),
    (rb"(?<!\w)(npm_[A-Za-z0-9]{36}(?!\w)|pypi-AgE[\w-]{50})", "token of a package index"),
    (rb"(?<!\w)dop_v1_[0-9a-f]{64}", "token of a provider"),
)


def _any(rows: Iterable[tuple[str, str]]) -> Callable[[str], str]:
    compiled = [(re.compile(rf"({row})", re.DOTALL), what) for row, what in rows]
    # One pattern for nearly every file, which is none: a folder of data may have a million.
    every = re.compile(rf"(?:^|/)(?:{'|'.join(row for row, _ in rows)})\Z", re.DOTALL)

    def find(path: str) -> str:
        if not every.search(path):
            return ""
        ends = [path, *(path[at.end() :] for at in re.finditer("/", path))]
        return next((what for row, what in compiled if any(map(row.fullmatch, ends))), "")

    return find


_by_name = _any(_NAMES)
_named_holding = [
    (re.compile(rf"(.*/)?({name})", re.DOTALL), re.compile(b)) for name, b in _HOLDING
]
_shapes = [(re.compile(shape), what) for shape, what in _SHAPES]


def by_name(path: str) -> str:
    """Return what a file at `path` is by its name alone, or ""."""
    what = _by_name(path)
    return "" if what and _HARMLESS.fullmatch(path) else what


def by_content(path: str, begin: bytes) -> str:
    """Return the kind of credential in a file that starts with `begin`, or ""."""
    if any(name.fullmatch(path) and held.search(begin) for name, held in _named_holding):
        return "token"
    return next((what for shape, what in _shapes if shape.search(begin)), "")


def find_credentials(root: Path, paths: Iterable[bytes]) -> dict[bytes, str]:
    """Return the files at `paths` below `root` that look like credentials, with their kind.

    Reads the first 256 KiB of each, 256 MiB in all; beyond that, only names count.
    """
    found: dict[bytes, str] = {}
    left = _READ_IN_ALL
    for path in paths:
        name = decoded(path)
        begin = _begin(root / name) if left > 0 else b""
        left -= len(begin)
        what = by_name(name) or by_content(name, begin)
        if what:
            found[path] = what
    return found


def _begin(file: Path) -> bytes:
    try:
        if not file.is_symlink() and file.is_file():
            with file.open("rb") as opened:
                return opened.read(READ)
    except OSError:
        pass  # gone by now, or the error shows when the whole file is read
    return b""
