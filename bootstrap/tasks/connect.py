"""code, ssh-config, tunnel: a box in an editor, in ssh's configuration, in a browser.

code, ssh-config: a box in an editor, and the known boxes as hosts of the user's ssh config.

tunnel: open ports of a box on this machine, such as those of Jupyter and TensorBoard.
"""

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
    from bootstrap.editors import open_code

    open_code(call.options(), call.screen, call.given["editor"])


@command(JSON, Option("remove", "Bring your ssh config back as it was, and leave it alone.", False))
def ssh_config(call: Call) -> None:
    """Let ssh, scp, rsync and editors reach the known boxes by name. A setup does it by itself.

    Example: boxstrap ssh-config
    """
    from bootstrap.sshconfig.alias import remove_entries, write_entries

    if call.given["remove"]:
        remove_entries(call.screen)
    else:
        write_entries(call.screen)


@command(
    HOST,
    Option(
        "json_", "JSON lines on standard output: the addresses, and how it ended.", JSON.default
    ),
    Option("identity", "The private key to log in with."),
    Option("repo", "The repository that is meant; default: that of the current folder."),
    Option(
        "port",
        "A port of the box; HERE:PORT; HERE:ADDRESS:PORT, as in ssh's -L. Repeatable, and the word "
        "--port may be left out.",
        many=True,
        bare=True,
    ),
    Option("jupyter", "JupyterLab, with the repository's environment as its kernel.", False),
    Option("tensorboard", "TensorBoard, of what the training wrote.", False),
    Option("logdir", "The folder that TensorBoard shows, in the tree; default: where files are."),
    Option("no_open", "Don't open a browser.", False),
    Option("stop", "End Jupyter and TensorBoard on the box, or the one that is named.", False),
)
def tunnel(call: Call) -> None:
    """Open ports of a box here, or Jupyter or TensorBoard on it, over its login; Ctrl-C closes.

    Example: boxstrap tunnel --host my-box --jupyter
    """
    from bootstrap.runs.tunnel import TunnelOptions, open_tunnels, stop_servers

    given = call.given
    wish = TunnelOptions(
        ports=given["port"] or (),
        jupyter=given["jupyter"],
        tensorboard=given["tensorboard"],
        logdir=given["logdir"] or "",
        opens=not given["no_open"],
    )
    if given["stop"]:
        stop_servers(call.options(), call.screen, wish)
        return
    try:
        open_tunnels(call.options(), call.screen, wish, as_json=call.is_json)
    except KeyboardInterrupt:
        return  # the normal way to end it
