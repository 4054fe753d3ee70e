"""Consumers that run a rendered door on boxes: cloud-init, and a notebook's kernel."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.boxes import Rig, RigBox
from tests.boxes.git_server import GitServer
from tests.cli import User

PROFILE = """\
version: 1
gpu: {require: false}
env: {GREETING: hello}
train: {command: python train.py}
"""
TRAIN = """\
import iniconfig, os
print("step 1", os.environ["GREETING"], flush=True)
"""
NOCLOUD = "/var/lib/cloud/seed/nocloud"
STAGES = ("init --local", "init", "modules --mode=config", "modules --mode=final")


def _on_a_box(kind: str, door: str, scratch: Path, proof: Callable[[RigBox, str], str]) -> str:
    with Rig(mirror=True) as rig:
        box = rig.start(kind)
        user = User(scratch / "home")
        made = user.repository(
            boxstrap__yaml=PROFILE, train__py=TRAIN, requirements__txt="iniconfig>=2\n"
        )
        bare = str(scratch / "host/homework.git")
        subprocess.run(["git", "clone", "-q", "--bare", str(made.root), bare], check=True)
        gateway = box.address.rpartition(".")[0] + ".1"
        with closing(GitServer(gateway, scratch / "host")) as host:
            made.git("remote", "add", "origin", host.url("homework.git"))
            made.git("fetch", "-q")
            file = scratch / "rendered"
            user.run("render", "--for", door, "--output", str(file)).must(0)
            return proof(box, file.read_text())


def cloud_init(scratch: Path) -> str:
    """Debian's cloud-init: its schema, and a whole first boot with it."""

    def proof(box: RigBox, text: str) -> str:
        install = (
            "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qqy install cloud-init"
        )
        box.run(install, timeout=600)
        box.run(f"mkdir -p {NOCLOUD}")
        box.write(f"{NOCLOUD}/user-data", text)
        box.write(f"{NOCLOUD}/meta-data", "instance-id: rig-1\nlocal-hostname: rig\n")
        box.write("/etc/cloud/cloud.cfg.d/99_rig.cfg", "datasource_list: [NoCloud]\n")
        valid = box.run(f"cloud-init schema --config-file {NOCLOUD}/user-data 2>&1").strip()
        assert "Valid" in valid, valid
        for stage in STAGES:
            box.run(
                f"cloud-init {stage} >>/var/log/cloud-init-output.log 2>&1",
                check=False,
                timeout=600,
            )
        log = box.run(
            "cat /home/ubuntu/.boxstrap/runs/*/train-1/log || tail -n 40 /var/log/cloud-init*",
            check=False,
        )
        assert log == "step 1 hello\n", log
        return f"{valid.splitlines()[-1]}; {log.strip()}"

    return _on_a_box("lambda", "lambda", scratch, proof)


def notebook(scratch: Path) -> str:
    """nbclient executes the cells in a kernel of their own."""

    def proof(box: RigBox, text: str) -> str:
        box.write("/root/box.ipynb", text)
        venv = "python3 -m venv /root/nb && /root/nb/bin/pip -q install nbclient ipykernel"
        box.run(venv, timeout=600)
        box.run(
            "/root/nb/bin/jupyter execute --inplace --timeout=300 /root/box.ipynb 2>&1", timeout=600
        )
        assert "step 1 hello" in box.read("/root/box.ipynb"), box.read("/root/box.ipynb")[-2000:]
        return "step 1 hello, in the cell's output"

    return _on_a_box("vast", "colab", scratch, proof)


PROOFS: dict[str, Callable[[Path], str]] = {"cloud-init": cloud_init, "notebook": notebook}
