"""A caching mirror beside the boxes: the package index and Debian's packages."""

import json
import subprocess
import sys
from urllib.parse import urlsplit

from tests.boxes import host_sources, places
from tests.boxes.proc import REPOSITORY, RigError


class Mirror:
    """The mirror as the rig holds it: a process of its own on the bridge's address.

    Everything is fetched once a machine and kept in the cache. `index_url` is what
    goes into --index-url; `proxy_url` into apt's Acquire::http::Proxy.
    """

    def __init__(self, listen: str) -> None:
        pip = host_sources.pip_index()
        config = {
            "listen": listen,
            "folder": str(places.cache() / "mirror"),
            "index": pip.index,
            "indexes": [str(folder) for folder in pip.local_indexes()],
            "wheels": [str(folder) for folder in pip.local_wheels()],
            "apt_proxy": host_sources.apt_proxy(),
            "debian_hosts": [
                urlsplit(source.uri).hostname for source in host_sources.apt_sources()
            ],
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.boxes.mirror.server", json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            start_new_session=True,  # Ctrl-C is the owner's business
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            raise RigError("the mirror did not start")
        self.host = listen
        self.proxy_url = f"http://{listen}:{int(said)}"
        self.index_url = f"{self.proxy_url}/simple/"

    def box_files(self) -> dict[str, str]:
        """What makes a box use it: pip's and apt's own configuration."""
        return {
            "/etc/pip.conf": f"[global]\ncert = {host_sources.BUNDLE}\n"
            f"index-url = {self.index_url}\ntrusted-host = {self.host}\n",
            "/etc/apt/apt.conf.d/rig-mirror": f'Acquire::http::Proxy "{self.proxy_url}";\n'
            'Acquire::https::Proxy "DIRECT";\n',
        }

    @property
    def uv_toml(self) -> str:
        """/etc/uv/uv.toml for a uv that nobody tells about pip's index."""
        return f'[[index]]\nurl = "{self.index_url}"\ndefault = true\n'

    def break_with(self, status: int) -> None:
        """Answer every request with this HTTP status until mend()."""
        self._order(str(status))

    def stall(self) -> None:
        """Take requests and never answer, until mend()."""
        self._order("stall")

    def mend(self) -> None:
        """Work again."""
        self._order("none")

    def limit(self, mb_s: float) -> None:
        """Give files at so many MB (10^6) a second, all boxes together; 0: as fast as it can."""
        self._order(f"limit {mb_s * 1e6}")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def _order(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
