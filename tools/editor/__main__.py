"""The proof: python -m tools.editor [PICTURE]   (make editor-proof; needs root, npm and Chromium)

A box is set up with a secret. Then, as Remote-SSH does, a script sent over
`ssh -T -D PORT ALIAS bash` starts a real VS Code server on the box, which outlives that
connection. A browser opens it through a tunnel and types into its terminal: python there must
be the environment's, and the profile's variables and secrets must be set.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.boxes import Rig
from tests.boxes.ports import free_port
from tests.main_job.rented import Rented
from tests.main_job.settled import Settled
from tools.browser import MissingError, browse, need
from tools.editor.programs import install, server_folder

PROFILE = """\
version: 1
gpu: {require: false}
env: {GREETING: hello}
secrets: [WANDB_API_KEY]
train: {command: python train.py}
"""
SECRET = "wandb-0123456789"
SHOW = """\
import json, os, sys
seen = {
    "python": sys.executable,
    "env": os.environ.get("VIRTUAL_ENV"),
    "GREETING": os.environ.get("GREETING"),
    "WANDB_API_KEY": f"{len(os.environ.get('WANDB_API_KEY', ''))} letters",
}
print(json.dumps(seen, indent=1))
with open("/tmp/proof", "w") as file:
    json.dump({**seen, "secret": os.environ.get("WANDB_API_KEY")}, file)
"""
START = """\
mkdir -p ~/.vscode-server/data/User
echo '{"terminal.integrated.gpuAcceleration": "off"}' >~/.vscode-server/data/User/settings.json
cd /opt/editor/node_modules/code-server
setsid /opt/editor/node . --auth none --bind-addr 127.0.0.1:0 --disable-telemetry \
  --disable-update-check --disable-workspace-trust --user-data-dir ~/.vscode-server/data \
  --extensions-dir ~/.vscode-server/extensions >/tmp/server.log 2>&1 </dev/null &
found='s/.*listening on http:..127.0.0.1:\\([0-9]*\\).*/\\1/p'
until port=$(sed -n "$found" /tmp/server.log) && [ -n "$port" ]; do sleep 0.1; done
echo "listeningOn==$port=="
"""


def main(picture: Path) -> int:
    """Do the proof; return 0 if everything was right."""
    node, programs = need("node"), install()
    user = Settled()
    user.env["WANDB_API_KEY"] = SECRET
    user.repository(boxstrap__yaml=PROFILE, show__py=SHOW)
    user.agree()
    with Rig(mirror=True) as rig:
        box = rig.start("vast")
        try:
            rented = Rented(user, box)
            rented.run("setup", "--name", "my-box").must(0)
            told = user.run("code", "--host", "my-box", "--json").must(0).json()
            _carry(user, programs, node)
            port = _serve(user)
            _look(user, port, told["folder"], picture)
            seen = json.loads(box.read("/tmp/proof"))
        finally:
            user.leave()
    print(json.dumps(seen, indent=1))
    right = {
        "python": f"{told['folder']}/.venv/bin/python",
        "env": f"{told['folder']}/.venv",
        "GREETING": "hello",
        "secret": SECRET,
    }
    wrong = {name: seen.get(name) for name in right if seen.get(name) != right[name]}
    print(f"wrong: {wrong}" if wrong else f"right; the picture is {picture}")
    return 1 if wrong else 0


def _carry(user: Settled, programs: Path, node: str) -> None:
    """Send the server to the box, as an editor does if it can't be downloaded there."""
    real = Path(node).resolve()
    pack = ["tar", "-C", str(programs), "-cf", "-", "node_modules"]
    pack += ["-C", str(real.parent), real.name]
    into = "mkdir -p /opt/editor && tar -C /opt/editor -xf -"
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as packing:
        subprocess.run(
            user.inside("ssh", "my-box", into), stdin=packing.stdout, env=user.env, check=True
        )
    assert server_folder(programs).is_dir()


def _serve(user: Settled) -> int:
    """Start the server over a connection as Remote-SSH makes it, which ends afterwards."""
    command = ["ssh", "-T", "-D", str(free_port()), "my-box", "bash"]
    done = subprocess.run(
        user.inside(*command), input=START, env=user.env, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    said = re.search(r"listeningOn==(\d+)==", done.stdout)
    assert said, done
    return int(said[1])


def _look(user: Settled, port: int, folder: str, picture: Path) -> None:
    here = free_port()
    tunnel = subprocess.Popen(
        user.inside("ssh", "-N", "-L", f"{here}:127.0.0.1:{port}", "my-box"), env=user.env
    )
    try:
        url = f"http://127.0.0.1:{here}"
        _await(f"{url}/healthz")
        script, line = Path(__file__).with_name("look.js"), f"cd {folder} && python show.py"
        browse(script, f"{url}/?folder={folder}", str(picture), line, "letters", env=user.env)
    finally:
        tunnel.terminate()
        tunnel.wait()


def _await(url: str) -> None:
    limit = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else "docs/editor.png").absolute()))
    except MissingError as error:
        sys.exit(str(error))
