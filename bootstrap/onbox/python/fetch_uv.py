"""Fetch uv from the index that this box uses, and check it against boxstrap's SHA-256.

usage: onbox python.fetch_uv FALLBACK_INDEX FILE SHA256 DESTINATION
Python 3.6 and its standard library only, since it runs on whatever Python a box has.
"""

import gzip
import hashlib
import http.client
import io
import os
import re
import ssl
import struct
import sys
import time
import urllib.parse
import urllib.request
import zipfile
import zlib
from typing import IO, Iterator  # noqa: UP035 - for Python 3.6

from .. import AGENT
from ..pip_indexes import box_index, pip_setting
from ..retry_after import LONGEST_S, asked_pause

TIMEOUT_S = 20
PIECE = 256 * 1024
# The header before each member of a zip: sizes and lengths (APPNOTE 4.3.7).
LOCAL_HEADER = struct.Struct("<6xHH8xI4xHH")
WITHOUT_SIZES = 8


def get(url: str) -> bytes:
    """Return the body of `url`, decompressed."""
    headers = {"Accept": "text/html, */*;q=0.1", "Accept-Encoding": "gzip"}
    request = urllib.request.Request(url, headers=dict(AGENT, **headers))
    context = ssl.create_default_context(cafile=pip_setting("cert") or None)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
        body: bytes = answer.read()
        if answer.headers.get("Content-Encoding") == "gzip":
            body = gzip.GzipFile(fileobj=io.BytesIO(body)).read()
    return body


def link_of(page_url: str, page: str, name: str) -> str:
    """Return the URL of the file `name`, from the index's page."""
    for found in re.findall(r'href="([^"]+)"', page):
        if name not in urllib.parse.unquote(found):  # parse one of thousands
            continue
        href = str(found).replace("&amp;", "&")
        path = urllib.parse.urlsplit(href).path
        if urllib.parse.unquote(path).endswith("/" + name) or path == name:
            return urllib.parse.urljoin(page_url, href).split("#")[0]
    sys.exit("the index at %s has no %s" % (page_url, name))


class Digested:
    """Reads a response, and computes the SHA-256 of all that was read."""

    def __init__(self, answer: IO[bytes]) -> None:
        self.answer = answer
        self.sha = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Read `size` bytes, fewer at the end."""
        data = self.answer.read(size)
        self.sha.update(data)
        return data

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield the next `size` bytes as they arrive."""
        while size > 0:
            data = self.read(min(size, PIECE))
            if not data:
                return
            size -= len(data)
            yield data


def streamed(url: str, sha: str, destination: str) -> bool:
    """Digest and unpack the wheel while it arrives; return False if its layout is unexpected."""
    new = "%s.new.%d" % (destination, os.getpid())
    context = ssl.create_default_context(cafile=pip_setting("cert") or None)
    request = urllib.request.Request(url, headers=AGENT)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
            wheel = Digested(answer)
            size = find_member(wheel)
            if not size or answer.headers.get("Content-Encoding"):
                return False
            unpack(wheel, size, new)
            if answer.length:
                raise http.client.IncompleteRead(b"", answer.length)
        if wheel.sha.hexdigest() != sha:
            sys.exit("the SHA-256 of %s is wrong" % url.rpartition("/")[2])
        os.chmod(new, 0o755)
        os.replace(new, destination)
    finally:
        if os.path.exists(new):
            os.unlink(new)
    return True


def unpack(wheel: Digested, size: int, new: str) -> None:
    """Inflate the next `size` bytes into `new`, then read the rest for the digest."""
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    with open(new, "wb") as file:
        for data in wheel.pieces(size):
            file.write(inflate.decompress(data))
        file.write(inflate.flush())
    for _ in wheel.pieces(sys.maxsize):
        pass


def find_member(wheel: Digested) -> int:
    """Read up to the member uv, and return its compressed size; 0 if that is unknown."""
    while True:
        header = wheel.read(LOCAL_HEADER.size)
        if len(header) < LOCAL_HEADER.size or header[:4] != b"PK\3\4":
            return 0
        flags, method, size, name_size, extra_size = LOCAL_HEADER.unpack(header)
        name = wheel.read(name_size)
        wheel.read(extra_size)
        if flags & WITHOUT_SIZES:
            return 0
        if name.endswith(b"/scripts/uv"):
            return size if method == zipfile.ZIP_DEFLATED else 0
        for _ in wheel.pieces(size):
            pass


def fetch() -> None:
    """Fetch, verify and unpack uv; the destination appears whole or not at all."""
    fallback, name, sha, destination = sys.argv[1:]
    page_url = box_index(fallback).rstrip("/") + "/uv/"
    link = link_of(page_url, get(page_url).decode("utf-8", "replace"), name)
    if streamed(link, sha, destination):
        return
    install(get(link), name, sha, destination)


def install(wheel: bytes, name: str, sha: str, destination: str) -> None:
    """Verify and unpack it."""
    if hashlib.sha256(wheel).hexdigest() != sha:
        sys.exit("the SHA-256 of %s is wrong" % name)
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        member = next(entry for entry in archive.namelist() if entry.endswith("/scripts/uv"))
        new = "%s.new.%d" % (destination, os.getpid())
        with open(new, "wb") as file:
            file.write(archive.read(member))
    os.chmod(new, 0o755)
    os.replace(new, destination)


def main(waited: bool = False) -> None:
    """Do all that, a second time if the server asks to wait for a bearable time."""
    try:
        fetch()
    except (OSError, EOFError, ValueError, http.client.HTTPException, zlib.error) as error:
        why = str(error)
        asked = asked_pause(error)
        if asked is not None:
            why += "; the server asks to wait %d s" % asked
        if asked is not None and asked <= LONGEST_S and not waited:
            sys.stderr.write(why + "\n")
            time.sleep(asked)
            return main(True)
        sys.exit("fetching uv failed: " + why)
