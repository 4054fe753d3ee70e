"""code, ssh-config: a box in an editor, and the known boxes as hosts of the user's ssh config."""

from __future__ import annotations

from bootstrap.tasks.command import HOST, JSON, Call, Option, command


@command(
    HOST,
    JSON,
    Option("identity", "The private key to log in with."),
    Option("repo", "The repository whose box is meant where no host is given."),
    Option("editor", "The editor: code, cursor, windsurf or codium.", "code"),
)
def code(call: Call) -> None:
    """Open the repository on a box in VS Code, or another editor made of it.

    Example: boxstrap code --host my-box --editor cursor
    """
    from bootstrap.editors.open import open_code

    open_code(call.options(), call.screen, call.given["editor"])


@command(JSON, Option("remove", "Bring your ssh config back as it was, and leave it alone.", False))
def ssh_config(call: Call) -> None:
    """Let ssh, scp, rsync and editors reach the known boxes by name. A setup does it by itself.

    Example: boxstrap ssh-config
    """
    from bootstrap.sshconfig.task import remove_entries, write_entries

    if call.given["remove"]:
        remove_entries(call.screen)
    else:
        write_entries(call.screen)
