"""ssh-config: the known boxes as hosts of the user's own ssh config."""

from __future__ import annotations

from bootstrap.tasks.command import JSON, Call, Option, command


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
