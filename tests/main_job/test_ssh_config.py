"""After a setup the real ssh, scp, rsync, and editors reach the box by name; and `code` opens one.

Stubs stand in for editors.
"""

import json
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from bootstrap.runs.jsonc import read_jsonc
from tests.boxes import Rig
from tests.boxes.ports import free_port
from tests.cli import PROFILE
from tests.main_job.rented import Rented
from tests.main_job.settled import Settled
from tests.main_job.socks import ask, connect, fetch
from tests.main_job.used import start_used
from tests.sshd import start_agent

SETTINGS = ".vscode-server/data/Machine/settings.json"
OWN = "# mine\nHost github.com\n\tUser git\n\nHost *\n\tForwardAgent yes\n\tRemoteCommand tmux"
# As Remote-SSH does: a script on standard input that leaves a server running.
SERVER = """\
echo "start of script"
cat > /tmp/server.py <<'END'
import http.server, os
class ForwardedPageHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(f"{os.getpid()} {os.environ.get('WANDB_API_KEY')}".encode())
    def log_message(self, *a): pass
server = http.server.HTTPServer(("127.0.0.1", 0), ForwardedPageHandler)
print(server.server_port, flush=True)
server.serve_forever()
END
setsid python3 /tmp/server.py >/tmp/server.port 2>/tmp/server.err </dev/null &
until [ -s /tmp/server.port ]; do sleep 0.05; done
echo "listeningOn==$(cat /tmp/server.port)== tty==$(tty)=="
"""


@pytest.fixture(scope="module")
def rented(mirror_rig: Rig, shared_folder: Path) -> Iterator[Rented]:
    """A box that was set up by a user with their own ssh config, and no editor in PATH."""
    user = Settled()
    user.env["WANDB_API_KEY"] = "wandb-0123456789"
    user.env["BOXSTRAP_KEEP_OPEN"] = "2m"
    user.ssh_config.parent.mkdir(mode=0o700)
    user.ssh_config.write_text(OWN)
    user.repository(boxstrap__yaml=PROFILE + "env: {GREETING: hello}\nsecrets: [WANDB_API_KEY]\n")
    user.agree()
    box = start_used(mirror_rig, "vast", shared_folder)
    rented = Rented(user, box)
    done = rented.run("setup", "--name", "my-box").must(0)
    assert "`ssh my-box` leads to this box" in done.err
    assert "ssh-remote+my-box" in done.out or "code --host my-box" in done.out
    yield rented
    user.leave()
    box.stop()


@pytest.fixture
def user(rented: Rented) -> Settled:
    assert isinstance(rented.user, Settled)
    return rented.user


def test_ssh_scp_and_rsync_reach_a_box_by_its_name(user: Settled, rented: Rented) -> None:
    assert user.ssh("my-box", "echo $GREETING from $(pwd)").strip() == "hello from /root"
    (user.home / "here").write_text("there and back")
    for program in (["scp", "-q"], ["rsync", "-a"]):
        user.start(*program, str(user.home / "here"), "my-box:/tmp/there").end().must(0)
        user.start(*program, "my-box:/tmp/there", str(user.home / "back")).end().must(0)
        assert (user.home / "back").read_text() == "there and back"
        (user.home / "back").unlink()
    (box,) = user.run("boxes", "--json").must(0).json()["boxes"]
    assert box["connected"]


def test_an_editors_remote_server_started_by_box_name_outlives_its_connection(
    user: Settled, rented: Rented
) -> None:
    """`ssh -T -D PORT alias bash`, script on stdin; the server outlives the connection."""
    proxy = free_port()
    command = ["ssh", "-v", "-T", "-D", str(proxy), "-o", "ConnectTimeout=15", "my-box", "bash"]
    with subprocess.Popen(
        user.inside(*command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=user.env,
        text=True,
    ) as going:
        assert going.stdin
        assert going.stdout
        going.stdin.write(SERVER)
        going.stdin.flush()
        first = going.stdout.readline()
        assert first == "start of script\n"  # no greeting of the box comes first
        said = re.match(r"listeningOn==(\d+)== tty==not a tty==", going.stdout.readline())
        assert said
        port = int(said[1])
        pid, secret = fetch(proxy, port).split()
        assert secret == "wandb-0123456789"
        going.terminate()
    assert rented.box.run(f"cat /proc/{pid}/cmdline").replace("\0", " ").strip() == (
        "python3 /tmp/server.py"
    )
    rented.box.run(f"kill {pid}")


def test_ssh_by_box_name_can_forward_agent_and_ports_beside_boxstraps_open_connection(
    user: Settled, rented: Rented
) -> None:
    """Over a shared one `-A` forwarded no agent; `-L` and `-D` ended at once, their port stayed."""
    user.run("status").must(0)
    (box,) = user.run("boxes", "--json").must(0).json()["boxes"]
    assert box["connected"]
    assert "Control" not in (user.home / ".local/state/boxstrap/ssh/config").read_text()
    rented.box.run(
        "mkdir -p /tmp/www; echo there >/tmp/www/x; cd /tmp/www;"
        " setsid python3 -m http.server --bind 127.0.0.1 8123 >/dev/null 2>&1 </dev/null &"
    )
    sock = user.home / "agent"
    agent = start_agent(sock)
    try:
        user.env["SSH_AUTH_SOCK"] = str(sock)
        subprocess.run(["ssh-add", "-q", str(rented.box.identity)], env=user.env, check=True)
        assert "ssh-ed25519" in user.ssh("-A", "my-box", "ssh-add -L")
        user.ssh("my-box", "test -z $SSH_AUTH_SOCK")  # as the user's `Host *` says otherwise
    finally:
        del user.env["SSH_AUTH_SOCK"]
        agent.terminate()
        agent.wait()
    for way, asked in (("-L", "{}:127.0.0.1:8123"), ("-D", "{}")):
        port = free_port()
        command = user.inside("ssh", "-N", way, asked.format(port), "my-box")
        with subprocess.Popen(command, env=user.env) as forward:
            with connect(port) as through:
                said = ask(through, "/x") if way == "-L" else fetch(port, 8123, "/x")
            assert said == "there\n"
            assert forward.poll() is None
            forward.terminate()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def test_setup_with_host_root_at_box_name_finds_the_known_box_and_keeps_its_address(
    user: Settled, rented: Rented
) -> None:
    """With a user in front it resolves through our own entry, which must not be recorded."""
    rented.run("setup", host="root@my-box").must(0)
    (box,) = user.run("boxes", "--json").must(0).json()["boxes"]
    assert box["name"] == "my-box"
    assert box["host"] != "root@my-box"
    assert user.ssh("my-box", "hostname").strip() == rented.box.name
    # The identity file that was given once is remembered.
    assert "train-1" in user.run("status", "--host", "my-box").must(0).out


def test_the_ssh_line_that_setup_prints_leads_into_the_folder_and_environment(
    user: Settled, rented: Rented
) -> None:
    told = rented.run("setup").must(0).out
    (line,) = [line.split(None, 1)[1] for line in told.splitlines() if " ssh -t " in line]
    assert len(line) < 80
    words = user.inside(*shlex.split(line))
    shell = pexpect.spawn(words[0], words[1:], env=user.env, timeout=120, encoding="utf-8")
    shell.sendline("echo $PWD=$VIRTUAL_ENV=")
    shell.expect_exact("/workspace/homework=/workspace/homework/.venv=")
    shell.sendline("exit")
    shell.expect(pexpect.EOF)
    shell.close()


@pytest.fixture(scope="module")
def renamed(rented: Rented) -> Settled:
    """The box has a name with capitals now."""
    rented.run("setup", "--name", "Code-Box").must(0)
    assert isinstance(rented.user, Settled)
    return rented.user


def editor(user: Settled, name: str, rc: int = 0) -> Path:
    """A program of that name that writes its arguments to the returned file."""
    folder = user.home / "programs"
    folder.mkdir(exist_ok=True)
    said = user.home / f"{name}.said"
    (folder / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{said}\nexit {rc}\n')
    (folder / name).chmod(0o755)
    return said


def test_code_prints_a_link_when_no_editor_is_installed(renamed: Settled, rented: Rented) -> None:
    """URIs lose capitals, so the link uses the lower-case alias that ssh knows too."""
    told = renamed.run("code", "--host", "Code-Box").must(0)
    assert "vscode://vscode-remote/ssh-remote+code-box/workspace/homework" in told.out
    assert "no program code here" in told.out
    settings = read_jsonc(rented.box.read(f"/root/{SETTINGS}"))
    assert isinstance(settings, dict)
    assert settings["python.defaultInterpreterPath"] == "${workspaceFolder}/.venv/bin/python"
    # A box of the rig has as much disk space as this machine has left.
    free = int(rented.box.run("df --output=avail -k /root | tail -n 1"))
    told = renamed.run("code", "--host", "Code-Box", "--json").must(0)
    lacking = [lack["code"] for lack in told.json()["lacks"]]
    assert lacking == (["disk"] if free < 1_000_000 else [])
    assert renamed.ssh("code-box", "hostname").strip() == rented.box.name


def test_code_opens_the_tree_of_the_box_in_an_editor_here(renamed: Settled, rented: Rented) -> None:
    said = editor(renamed, "cursor")
    (renamed.home / ".config/Cursor").mkdir(parents=True)
    path = f"{renamed.home}/programs:{renamed.env['PATH']}"
    told = renamed.run("code", "--editor", "cursor", "--json", PATH=path).must(0).json()
    assert told["opened"] is True
    assert said.read_text().splitlines() == [
        "--folder-uri",
        "vscode-remote://ssh-remote+code-box/workspace/homework",
    ]
    local = json.loads((renamed.home / ".config/Cursor/User/settings.json").read_text())
    assert local["remote.SSH.remotePlatform"] == {"code-box": "linux"}
    assert rented.box.exists("/root/.cursor-server/data/Machine/settings.json")
    editor(renamed, "cursor", rc=3)
    failed = renamed.run("code", "--editor", "cursor", PATH=path).must(0)
    assert "exit code 3" in failed.err
    assert "cursor://vscode-remote/ssh-remote+code-box/workspace/homework" in failed.out


def test_editor_terminals_on_a_box_use_the_built_environment(
    renamed: Settled, rented: Rented
) -> None:
    """Even if the image's own start-up file activates another environment, as Vast.ai's do."""
    rented.box.run(f"rm /root/{SETTINGS}")
    renamed.run("code", "--host", "Code-Box").must(0)
    settings = read_jsonc(rented.box.read(f"/root/{SETTINGS}"))
    assert isinstance(settings, dict)
    values = settings["terminal.integrated.env.linux"]
    folder = "/workspace/homework"
    filled = {
        name: value.replace("${workspaceFolder}", folder).replace("${env:PATH}", "$PATH")
        for name, value in values.items()
    }
    rented.box.write("/tmp/prompt", filled["PROMPT_COMMAND"])
    asked = (
        f'cd {folder}; export PATH="{filled["PATH"]}" PROMPT_COMMAND="$(cat /tmp/prompt)";'
        'printf "command -v python\\nexit\\n" | bash -i 2>/dev/null'
    )
    assert rented.ssh(asked).strip().splitlines()[-1] == f"{folder}/.venv/bin/python"
