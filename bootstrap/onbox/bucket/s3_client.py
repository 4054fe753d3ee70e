"""Put objects into an S3 bucket, signed with Signature Version 4.

Standard library only, for Python 3.8. Required permissions: `s3:PutObject` on the objects, and
`s3:AbortMultipartUpload` to give up a large object that changed during its upload.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

from .. import AGENT
from ..pip_indexes import pip_setting

TIMEOUT_S = 60
REGION_S = 10
MOST_ANSWER = 1024 * 1024
NETWORK_ERRORS = (OSError, EOFError, http.client.HTTPException)
_ALGORITHM = "AWS4-HMAC-SHA256"


class S3RefusedError(Exception):
    """The server refused; `code` is its own word for why."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code or f"HTTP-{status}")
        self.status = status


class S3Key(NamedTuple):
    """A key to sign requests with."""

    id: str
    secret: str
    token: str = ""

    @classmethod
    def of(cls, text: str) -> S3Key:
        """Parse ID:SECRET or ID:SECRET:TOKEN. Raises ValueError."""
        parts = text.strip().split(":")
        if len(parts) not in (2, 3) or not all(parts):
            raise ValueError("it is not ID:SECRET")
        return cls(*parts)


class S3Client:
    """One bucket; a `name` is that of an object in it."""

    def __init__(self, bucket: str, key: S3Key, endpoint: str = "", region: str = "") -> None:
        self._opener = _opener()
        if not endpoint:
            region = region_of(bucket) or region or "us-east-1"
            endpoint = f"https://s3.{region}.amazonaws.com"
        self._key, self._region = key, region or "us-east-1"
        self._top = f"{endpoint.rstrip('/')}/{bucket}"

    def put(self, name: str, content: bytes) -> None:
        """Put a whole object. Raises S3RefusedError, NETWORK_ERRORS."""
        self._ask("PUT", name, {}, content)

    def begin(self, name: str) -> str:
        """Start a multipart upload; return its id. Raises S3RefusedError, NETWORK_ERRORS."""
        _, said = self._ask("POST", name, {"uploads": ""})
        found = re.search(r"<UploadId>([^<]+)</UploadId>", said)
        if not found:
            raise S3RefusedError(200, "no-upload")
        return found[1]

    def part(self, name: str, upload: str, number: int, content: bytes) -> str:
        """Upload a part, numbered from 1; return its ETag."""
        query = {"partNumber": str(number), "uploadId": upload}
        tag, _ = self._ask("PUT", name, query, content)
        return tag

    def complete(self, name: str, upload: str, tags: Sequence[str]) -> None:
        """Complete a multipart upload: the object appears."""
        rows = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(tag)}</ETag></Part>"
            for number, tag in enumerate(tags, 1)
        )
        body = f"<CompleteMultipartUpload>{rows}</CompleteMultipartUpload>"
        _, said = self._ask("POST", name, {"uploadId": upload}, body.encode())
        if "<Error>" in said:  # S3 may send 200 before it is done
            raise S3RefusedError(200, _code_in(said))

    def abort(self, name: str, upload: str) -> None:
        """Abort a multipart upload: its parts would cost money."""
        self._ask("DELETE", name, {"uploadId": upload})

    def _ask(
        self, method: str, name: str, query: Mapping[str, str], body: bytes = b""
    ) -> tuple[str, str]:
        """Send a request; return the answer's ETag and text."""
        path = urlsplit(self._top).path + "/" + name
        asked = "&".join(f"{_quoted(key)}={_quoted(query[key])}" for key in sorted(query))
        address = self._top + "/" + quote(name, safe="/~") + (asked and "?" + asked)
        headers = self._signed(method, quote(path, safe="/~"), asked, body)
        request = urllib.request.Request(  # noqa: S310 - the endpoint is http or https
            address, data=body, headers=headers, method=method
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                return answer.headers.get("ETag") or "", _text(answer.read(MOST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                raise S3RefusedError(error.code, _code_in(_text(error.read(MOST_ANSWER)))) from None

    def _signed(self, method: str, path: str, query: str, body: bytes) -> dict[str, str]:
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        digest = hashlib.sha256(body).hexdigest()
        headers = {
            "host": urlsplit(self._top).netloc,
            "x-amz-content-sha256": digest,
            "x-amz-date": now,
        }
        if self._key.token:
            headers["x-amz-security-token"] = self._key.token
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        request = "\n".join((method, path, query, lines, names, digest))
        scope = f"{now[:8]}/{self._region}/s3/aws4_request"
        asked = hashlib.sha256(request.encode()).hexdigest()
        text = "\n".join((_ALGORITHM, now, scope, asked))
        key = ("AWS4" + self._key.secret).encode()
        for word in scope.split("/"):
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        credential = f"Credential={self._key.id}/{scope}, SignedHeaders={names}"
        headers["authorization"] = f"{_ALGORITHM} {credential}, Signature={signature}"
        # Without a content type urllib adds that of a form, which some servers refuse.
        return {**headers, **AGENT, "content-type": "application/octet-stream"}


def region_of(bucket: str) -> str:
    """Return the region of a bucket at Amazon, which is public; "" if it can't be found out."""
    address = "https://s3.amazonaws.com/" + quote(bucket, safe="")
    request = urllib.request.Request(address, headers=AGENT, method="HEAD")
    try:
        with _opener().open(request, timeout=REGION_S) as answer:
            return answer.headers.get("x-amz-bucket-region") or ""
    except urllib.error.HTTPError as error:
        with error:
            return error.headers.get("x-amz-bucket-region") or ""
    except NETWORK_ERRORS:
        return ""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: a signature is for one host."""

    def redirect_request(self, *_: object) -> None:
        """Return None: a redirect becomes an error."""


def _opener() -> urllib.request.OpenerDirector:
    context = ssl.create_default_context()
    if own := pip_setting("cert"):  # a company may intercept TLS with its own CA
        context.load_verify_locations(own)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects())


def _quoted(text: str) -> str:
    return quote(text, safe="~")


def _code_in(said: str) -> str:
    """Return only the server's error code: the rest may repeat what was signed."""
    found = re.search(r"<Code>([A-Za-z0-9.]{1,60})</Code>", said)
    return found[1] if found else ""


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace")
