"""HTTPS requests: no other scheme, no token for another host, certificates checked."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import IO, Any, TypeVar

from ..pip_indexes import pip_setting
from .data_words import DataError, say

T = TypeVar("T")
TIMEOUT_S = 20
PATIENCE_S = 60
"""Seconds for which a server may send nothing."""
REFUSED = frozenset({400, 401, 402, 403, 404, 405, 406, 410, 414, 416, 451, 501})
"""Statuses that a retry does not change."""
CHANGED = 412
"""Status of a server whose file is not in the requested state (Precondition Failed)."""
NETWORK_ERRORS = (OSError, EOFError, http.client.HTTPException)
"""Errors after which a retry may succeed; URLError and HTTPError are OSErrors."""


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirects only to https, and sends a token only to the host that it is for."""

    max_redirections = 5

    def redirect_request(  # noqa: PLR0913, PLR0917 - as it is called
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Return the next request. Raises DataError if it isn't https."""
        if urllib.parse.urlsplit(newurl).scheme != "https":
            raise DataError("data-refused", f"{plain(req.full_url)} leads to {plain(newurl)}")
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and _host(newurl) != _host(req.full_url):
            new.remove_header("Authorization")
        return new


def try_again(once: Callable[[], T], what: str, there: Callable[[], int] = lambda: 0) -> T:
    """Return what `once` returns; retry for `PATIENCE_S`, counted again whenever `there` grows.

    Raises DataError.
    """
    until, pause, most = time.monotonic() + PATIENCE_S, 1, there()
    while True:
        try:
            return once()
        except NETWORK_ERRORS as error:
            if there() > most:
                most, until, pause = there(), time.monotonic() + PATIENCE_S, 1
            if time.monotonic() + pause > until:
                raise DataError("data-unreachable", f"{plain(what)}: {error}") from None
            say(f"{plain(what)}: {error}; again in {pause} s")
        time.sleep(pause)
        pause = min(pause * 2, 8)


class Https:
    """A client for all servers, for several threads."""

    schemes: tuple[str, ...] = ("https",)

    def __init__(self) -> None:
        context = ssl.create_default_context()
        if own := pip_setting("cert"):  # a company may intercept TLS with its own CA
            context.load_verify_locations(own)
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), _OnlyHttps()
        )

    def open(
        self, url: str, headers: dict[str, str], token: str = "", body: bytes | None = None
    ) -> Any:  # noqa: ANN401 - http.client.HTTPResponse, by another name in typeshed
        """Return the answer. Raises DataError if the server refuses, else NETWORK_ERRORS.

        A malformed answer, such as a redirect without an address, counts as a refusal.
        """
        if urllib.parse.urlsplit(url).scheme not in self.schemes:
            raise DataError("data-refused", f"{plain(url)} is not https")
        request = urllib.request.Request(  # noqa: S310 - https alone
            url, data=body, headers={"Accept-Encoding": "identity", **headers}
        )
        if token:
            request.add_header("Authorization", "Bearer " + token)
        try:
            return self._opener.open(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == CHANGED:
                raise DataError(
                    "data-changed", f"{plain(url)} changed during the download"
                ) from None
            if error.code in REFUSED:
                raise DataError(
                    "data-refused", f"{plain(url)}: the server answers {error.code}", error.code
                ) from None
            raise
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise DataError(
                    "data-refused",
                    f"{plain(url)}: its certificate is not trusted: {error.reason}",
                ) from None
            raise
        except ValueError as error:
            raise DataError(
                "data-refused", f"{plain(url)}: the answer makes no sense: {error}"
            ) from None


class OwnServer(Https):
    """For a server from the signer's own settings: one at home may have no certificate."""

    schemes = ("https", "http")


def plain(url: str) -> str:
    """Return a URL without its user and query, which may hold credentials."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.hostname or "", parts.path, "", ""))


def _host(url: str) -> tuple[str | None, int | None]:
    parts = urllib.parse.urlsplit(url)
    return parts.hostname, parts.port or 443
