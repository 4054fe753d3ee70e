# mypy: ignore-errors
"""(c) pyinfra: `pyinfra BOX deploy.py -y --data git_url=… …`."""

from pyinfra import host
from pyinfra.operations import files, git, pip, server, ssh

DEST = "/workspace/homework"

files.file(name="No automatic tmux", path="/root/.no_auto_tmux")
server.user_authorized_keys(
    name="Let my key in", user="root", public_keys=[host.data.public_key_file]
)
files.put(
    name="My key for the git server",
    src=host.data.private_key_file,
    dest="/root/.ssh/id_ed25519",
    mode="600",
)
ssh.keyscan(name="The git server's host key", hostname=host.data.git_host)
git.config(name="My name in commits", key="user.name", value="Me")
git.config(name="My address in commits", key="user.email", value="me@example.org")
git.repo(name="The repository", src=host.data.git_url, dest=DEST)
pip.venv(name="The environment", path=f"{DEST}/.venv", python="python3")
pip.packages(
    name="Its packages",
    requirements=f"{DEST}/requirements.txt",
    virtualenv=f"{DEST}/.venv",
)
server.shell(
    name="The training",
    commands=[
        f"cd {DEST} && test -e train.log || "
        "tmux new-session -d -s train 'exec .venv/bin/python train.py >train.log 2>&1'"
    ],
)
