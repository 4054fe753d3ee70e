"""A package index of plain static pages, which link the files next to them by their bare names."""

import contextlib
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

from tests.listener import QuietHandler, served

_HREF = re.compile(r'href="([^"]+)"')


class StaticIndex(ThreadingHTTPServer):
    """The pages of another index, as a folder of files would show them.

    `without`: files whose names end with this are missing.
    """

    daemon_threads = True

    def __init__(self, address: str, upstream: str, without: str = "\n") -> None:
        super().__init__((address, 0), _Handler)
        self.upstream = upstream.rstrip("/")
        self.without = without
        self.asked: list[str] = []
        """The paths of all requests."""
        self.url = f"http://{address}:{self.server_port}/simple"

    def files(self, project: str) -> dict[str, str]:
        """Name and address of each file of a project."""
        page = f"{self.upstream}/{project}/"
        asked = urllib.request.Request(page, headers={"Accept": "text/html"})
        with urllib.request.urlopen(asked, timeout=120) as answer:
            links = [
                urllib.parse.urljoin(page, each) for each in _HREF.findall(answer.read().decode())
            ]
        named = {link.split("#")[0].rpartition("/")[2]: link.split("#")[0] for link in links}
        return {name: link for name, link in named.items() if not name.endswith(self.without)}


class _Handler(QuietHandler):
    server: StaticIndex

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        project, _, name = self.path.removeprefix("/simple/").partition("/")
        files = self.server.files(project)
        if name and name not in files:
            self.send_error(404)
            return
        if name:
            with urllib.request.urlopen(files[name], timeout=120) as answer:
                body = answer.read()
        else:
            body = "".join(f'<a href="{each}">{each}</a>\n' for each in files).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream" if name else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@contextlib.contextmanager
def static_index(address: str, upstream: str, without: str = "\n") -> Iterator[StaticIndex]:
    """A static index on this machine's `address`, until the end of the block."""
    with served(StaticIndex(address, upstream, without)) as index:
        yield index
