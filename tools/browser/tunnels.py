"""Jupyter and TensorBoard on a box through the tunnel, and what a hostile page there can get."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.boxes import Rig
from tests.cli import User
from tests.main_job.rented import Rented
from tools.browser import browse

PROFILE = """\
version: 1
gpu: {require: false}
env: {GREETING: hello}
python: {packages: [tensorboardX]}
train: {command: python train.py}
"""
TRAIN = """\
from tensorboardX import SummaryWriter
with SummaryWriter("out/first") as writer:
    for step in range(20):
        writer.add_scalar("loss", 0.375, step)
print("step 20 loss 0.375", flush=True)
"""
# Without the files that Python compiles on import.
ENVIRONMENT = (
    "cd /workspace/homework/.venv && "
    "find . -name __pycache__ -prune -o ! -type d -printf '%p %m %s %T@ %l\n' | sort"
)
LOGINS = "grep -c 'Accepted publickey' /var/log/sshd.log"
CELL = (
    "import os, sys, tensorboardX\n"
    "kept = 41\n"
    "print('kernel', sys.prefix, os.environ['GREETING'], os.getcwd())"
)
NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "code", "id": f"c{number}", "metadata": {}, "outputs": []}
            | {"source": text, "execution_count": None}
            for number, text in enumerate((CELL, "print('after', kept + 1)"))
        ],
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "any", "language": "python"}
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
)
# It plants a cookie wherever it can, and shows what its page could get.
HOSTILE = """\
import http.server
PAGE = '''<script>
document.cookie = "planted=script; domain=localhost; path=/";
(async () => {
  const seen = {cookies: document.cookie};
  try { seen.read = await (await fetch("OTHER/secret", {credentials: "include"})).text(); }
  catch (error) { seen.read = String(error); }
  try { await fetch("OTHER/sent", {credentials: "include", mode: "no-cors"}); } catch (error) {}
  document.body.textContent = JSON.stringify(seen);
})();
</script><body>'''
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Set-Cookie", "planted=header; Domain=localhost; Path=/")
        self.end_headers()
        self.wfile.write(PAGE.encode())
http.server.HTTPServer(("127.0.0.1", 9000), Handler).serve_forever()
"""


def main() -> None:
    """Do the proof. Raises AssertionError if something is wrong."""
    with TemporaryDirectory(prefix="tunnels-") as folder, Rig(mirror=True) as rig:
        user = User(Path(folder) / "home")
        user.repository(
            boxstrap__yaml=PROFILE, train__py=TRAIN, look__ipynb=NOTEBOOK, notes__txt="out/\n"
        )
        box = rig.start("vast")
        rented = Rented(user, box)
        rented.run("setup", "--name", "My.Box-1").must(0)
        before = rented.as_user(ENVIRONMENT)
        with closing(rented.begin("tunnel", "--jupyter", "--tensorboard", "--json")) as tunnel:
            said = tunnel.line()
            assert said, tunnel.end().text
            jupyter, tensorboard = (one["url"] for one in json.loads(said)["tunnels"])
            assert "//my-box-" in jupyter
            see_servers(rented, jupyter, tensorboard, Path(folder))
            tunnel.interrupt()
            tunnel.end().must(0)
        assert rented.as_user(ENVIRONMENT) == before
        see_hostile_page(rented)
        rented.run("tunnel", "--stop").must(0)
        box.stop()


def see_servers(rented: Rented, jupyter: str, tensorboard: str, folder: Path) -> None:
    """Check both servers; the link is lost between the two cells."""
    notebook = jupyter.replace("/lab?", "/lab/tree/look.ipynb?")
    cut, healed = folder / "cut", folder / "healed"
    logins = int(rented.box.run(LOGINS))
    done = threading.Event()

    def cut_the_link() -> None:
        while not cut.exists() and not done.wait(0.1):
            pass
        rented.box.kill_sshd()
        rented.box.start_sshd()
        healed.touch()

    cutting = threading.Thread(target=cut_the_link)
    cutting.start()
    try:
        script = Path(__file__).with_suffix(".js")
        told = json.loads(browse(script, notebook, tensorboard, str(cut), str(healed)))
    finally:
        done.set()
        cutting.join()
    print(json.dumps(told))
    tree = "/workspace/homework"
    assert told["cells"] == [f"kernel {tree}/.venv hello {tree}", "after 42"], told
    assert "first" in told["runs"], told
    assert "loss" in told["card"], told
    assert "0.375" in told["card"], told
    assert int(rented.box.run(LOGINS)) == logins + 1


def see_hostile_page(rented: Rented) -> None:
    """The page shares no cookies with servers on this machine, and can't read from them."""
    with own_server() as (port, asked):
        rented.box.write("/root/hostile.py", HOSTILE.replace("OTHER", f"http://localhost:{port}"))
        rented.box.run("setsid python3 /root/hostile.py >/dev/null 2>&1 </dev/null &")
        with closing(rented.begin("tunnel", "9000", "--json")) as tunnel:
            (url,) = (one["url"] for one in json.loads(tunnel.line())["tunnels"])
            script = Path(__file__).with_name("hostile.js")
            told = json.loads(browse(script, f"http://localhost:{port}/", url))
            tunnel.interrupt()
            tunnel.end().must(0)
    print(json.dumps(told), asked)
    assert told["hostile"] == {"cookies": "", "read": "TypeError: Failed to fetch"}, told
    assert ("/sent", "") in asked, asked
    assert ("/", "own=1") in asked, asked
    assert not any("planted" in cookies for _, cookies in asked), asked


@contextmanager
def own_server() -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """The user's own server, which sets a cookie; its port, and each request's path and cookies."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Cookie", "")))
            self.send_response(200)
            self.send_header("Set-Cookie", "own=1; Path=/")
            self.end_headers()
            self.wfile.write(b"secret")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        server.server_close()
