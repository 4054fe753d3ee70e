"""Addresses of repositories: which may be cloned from, and which parts may be kept.

git runs a program for some of them (`ext::sh -c …`, any `NAME::…`, see gitremote-helpers(7)) and
reads others as options (`-u…`): all that is not allowed here is refused before git sees it.
"""

import re
import unicodedata
from enum import Enum
from urllib.parse import unquote

from bootstrap.errors import UsageError
from bootstrap.repo.names import shown, slug

LONGEST = 2048

ALLOWED = "Allowed are https://HOST/PATH, ssh://[USER@]HOST/PATH and USER@HOST:PATH."

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_HELPER = r"([A-Za-z0-9][A-Za-z0-9+.-]*)::"
_HOST = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]"
_PORT = r"[0-9]{1,5}"
_USER = r"[A-Za-z0-9_][A-Za-z0-9._~+-]*"
_SCP = re.compile(r"(?:([^/@:]*)@)?(\[[^\]/]*\]|[^/@:\[\]]*):(.*)", re.DOTALL)
_SCP_PASSWORD = re.compile(r"([^/@:]+):[^/]*@")
_OUT_OF_PLACE = r"[^A-Za-z0-9._~/+@%:,=-]"
_BAD_ESCAPE = r"%(?![0-9A-Fa-f]{2})|%[01][0-9A-Fa-f]|%7[Ff]"
_NO_HOSTS = frozenset({"http", "https", "ssh", "file", "ftp"})  # `https:/x` lacks a slash
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"})

# Hosts of ssh on port 443, and the host that has the same repository over https.
_SSH_ONLY_HOSTS = {
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
}


class UrlKind(Enum):
    HTTPS = "https"
    SSH = "ssh"
    HTTP = "http"
    GIT = "git"

    @property
    def warning(self) -> str | None:
        """What to tell the user before this kind is used, if anything."""
        if self in (UrlKind.HTTP, UrlKind.GIT):
            return (
                f"{self.value}:// is neither encrypted nor signed: anybody on the way to "
                "the host can change the code. Use https:// where the host has it."
            )
        return None


def check_url(url: str) -> UrlKind:
    """Return how `url` is reached. A user name and password in it are allowed, and never shown.

    Raises UsageError, which says what is wrong and what is allowed, for anything that is
    not https, ssh (`ssh://` or `user@host:path`), http or git.
    """
    _check_characters(url)
    if scheme := _SCHEME.fullmatch(url):
        return _check_with_scheme(url, scheme[1], scheme[2])
    return _check_without_scheme(url)


def without_user_info(url: str) -> str:
    """Return `url` without credentials; any other text is returned unchanged.

    http(s) loses the whole `user:token@` (and a query, where tokens are put too);
    ssh keeps the account's name, which is part of the address, and loses a password.
    """
    scheme = _SCHEME.fullmatch(url)
    if not scheme:
        return _SCP_PASSWORD.sub(r"\1@", url, count=1) if _SCP_PASSWORD.match(url) else url
    name, rest = scheme[1], scheme[2]
    authority, path = _split_authority(rest)
    if "ssh" in name.lower():
        user, at, host = authority.rpartition("@")
        return f"{name}://{user.partition(':')[0]}{at}{host}{path}"
    host = authority.rpartition("@")[2]
    if name.lower() in ("http", "https"):
        path = re.split(r"[?#]", path, maxsplit=1)[0]
    return f"{name}://{host}{path}"


def as_https(url: str) -> str:
    """Return the repository's https address, without user-info. Raises as `check_url`."""
    kind = check_url(url)
    bare = without_user_info(url)
    if scheme := _SCHEME.fullmatch(bare):
        authority, path = _split_authority(scheme[2])
        host = authority.rpartition("@")[2]
    else:
        _, host, path = _split_scp(bare)
    if kind is not UrlKind.HTTP and kind is not UrlKind.HTTPS:
        host = re.sub(r":[0-9]+$", "", host)  # the port of another protocol
    host = _SSH_ONLY_HOSTS.get(host.lower(), host)
    return f"https://{host}/{path.lstrip('/')}"


def repository_name(url: str) -> str:
    """Return the folder name of a clone of `url`: its last part without `.git`, sanitized."""
    path = re.split(r"[?#]", without_user_info(url), maxsplit=1)[0].rstrip("/")
    last = unquote(re.split(r"[/:\\]", path)[-1])
    return slug(last.removesuffix(".git"))


def _check_characters(url: str) -> None:
    if not url:
        raise UsageError("the repository's address is empty.", hint=ALLOWED)
    if len(url) > LONGEST:
        raise UsageError(
            f"the repository's address has {len(url)} characters; {LONGEST} are allowed.",
            hint=ALLOWED,
        )
    if url.startswith("-"):
        raise _refused(url, "it starts with a dash, which git reads as an option")
    if helper := re.match(_HELPER, url):
        raise _refused(url, f"`{helper[1]}::` runs a helper program of git")
    for character in url:
        if unicodedata.category(character) in _HIDDEN:
            raise _refused(url, f"it contains {_named(character)}")


def _check_with_scheme(url: str, scheme: str, rest: str) -> UrlKind:
    kind = next((kind for kind in UrlKind if kind.value == scheme), None)
    if kind is None:
        raise _refused(url, _why_not(scheme))
    authority, path = _split_authority(rest)
    user_info, at, address = authority.rpartition("@")
    if at and kind in (UrlKind.SSH, UrlKind.GIT):
        _check_user(url, user_info.partition(":")[0])
    elif "@" in user_info:
        raise _refused(url, "it has two @ before its host: write %40 for the first")
    elif at:
        _check_text(url, user_info, "its user name or password")
    host, port = _split_port(address)
    _check_host(url, host)
    if port is not None and not (re.fullmatch(_PORT, port) and 0 < int(port) < 65536):
        raise _refused(url, "its port is not a number from 1 to 65535")
    _check_path(url, path, "/")
    return kind


def _check_without_scheme(url: str) -> UrlKind:
    if _SCP_PASSWORD.match(url):
        raise _refused(url, "it must not contain a password")
    scp = _SCP.fullmatch(url)
    if scp is None or "\\" in url or re.match(r"[A-Za-z]:", url):
        raise _refused(url, _why_no_path(url))
    user, host, path = _split_scp(url)
    if user is None and host.lower() in _NO_HOSTS:
        raise _refused(url, f"`{host}:` is followed by two slashes")
    if user is not None:
        _check_user(url, user)
    _check_host(url, host)
    _check_path(url, path, "")
    return UrlKind.SSH


def _check_user(url: str, user: str) -> None:
    if not re.fullmatch(_USER, user):
        raise _refused(url, "its user name is invalid")


def _check_host(url: str, host: str) -> None:
    if not host.isascii():
        raise _refused(url, "its host is not plain ASCII: write its xn-- form")
    if not re.fullmatch(_HOST, host) or ".." in host:
        raise _refused(url, f"`{shown(host)}` is not a host" if host else "it names no host")


def _check_path(url: str, path: str, root: str) -> None:
    if path in ("", root) or not path.strip("/"):
        raise _refused(url, "it names a host, but no repository there")
    if path.lstrip("/").startswith("-"):
        raise _refused(url, "its path starts with a dash, which programs read as an option")
    _check_text(url, path, "its path")


def _check_text(url: str, text: str, what: str) -> None:
    plain = ("a" if not c.isascii() and c.isalnum() else c for c in text)
    if odd := re.search(_OUT_OF_PLACE, "".join(plain)):
        raise _refused(url, f"{what} contains {_named(odd[0])}: write %{ord(odd[0]):02X} for it")
    if re.search(_BAD_ESCAPE, text):
        raise _refused(url, f"{what} contains a % that stands for no printable character")


def _why_not(scheme: str) -> str:
    if scheme.lower() in {kind.value for kind in UrlKind}:
        return f"`{scheme}` is written in lower case"
    if scheme.lower() == "file":
        return "file:// is a path of this machine, which the box can't see"
    if "ssh" in scheme.lower():
        return f"`{scheme}://` is an old spelling of ssh://"
    return f"`{scheme}://` is not a way to reach a repository"


def _why_no_path(url: str) -> str:
    first = url.partition("/")[0]
    if re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}", first) and "/" in url:
        return f"it has no scheme: did you mean https://{url}"
    return (
        "it is a path of this machine (leave git.url out to send the current folder's repository)"
    )


def _split_authority(rest: str) -> tuple[str, str]:
    """Split into `user@host:port` and the rest, with its slash."""
    end = re.search(r"[/?#]", rest)
    return (rest[: end.start()], rest[end.start() :]) if end else (rest, "")


def _split_port(address: str) -> tuple[str, str | None]:
    host, colon, port = address.rpartition(":")
    return (host, port) if colon and not port.endswith("]") else (address, None)


def _split_scp(url: str) -> tuple[str | None, str, str]:
    scp = _SCP.fullmatch(url)
    return (scp[1], scp[2], scp[3]) if scp else (None, "", url)


def _refused(url: str, why: str) -> UsageError:
    # A wrong address may have a password anywhere, so everything before the last @ is removed.
    address = shown(re.sub(r"://.*@", "://…@", without_user_info(url)))[:200]
    return UsageError(f"`{address}` can't be cloned on a box: {why}.", hint=ALLOWED)


def _named(character: str) -> str:
    if character == " ":
        return "a space"
    if unicodedata.category(character) in _HIDDEN:
        return f"a character that can't be seen (U+{ord(character):04X})"
    return f"`{character}`"
