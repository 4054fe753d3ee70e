"""tunnel: open ports of a box on this machine, such as those of Jupyter and TensorBoard."""

from __future__ import annotations

from bootstrap.tasks.command import HOST, JSON, Call, Option, command


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
    from bootstrap.runs.tunnel import TunnelWish, open_tunnels, stop_servers

    given = call.given
    wish = TunnelWish(
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
