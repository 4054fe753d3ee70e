"""`tunnel` on a box: a port, and Jupyter with the repository's environment. Tests with a browser,
and those of TensorBoard, are in tools/browser."""

import json
import socket
import urllib.request
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from tests.boxes.ports import free_port
from tests.cli import Running, User
from tests.main_job.rented import Rented
from tests.waiting import wait_until

pytestmark = pytest.mark.boxes

SERVE = "setsid python3 -m http.server -d /workspace -b 127.0.0.1 8080 >/dev/null 2>&1 </dev/null &"
KERNEL = "pgrep -fc 'homework/.venv/bin/python -c.*[i]pykernel' || :"


def opened(going: Running) -> dict[str, dict[str, Any]]:
    """The tunnels that are open, by name."""
    line = going.line()
    assert line, going.end().text
    return {one["name"]: one for one in json.loads(line)["tunnels"]}


def ask(one: dict[str, Any], path: str, *, token: str = "", data: bytes | None = None) -> Any:
    """Fetch a page by the host name that a browser uses; the status code if it is refused."""
    request = urllib.request.Request(f"http://127.0.0.1:{one['here']}{path}", data)
    request.add_header("Host", one["url"].split("/")[2])
    if token:
        request.add_header("Authorization", f"token {token}")
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read()
    except HTTPError as error:
        return error.code


def until(rented: Rented, command: str, said: str) -> None:
    found: Callable[[], str] = lambda: rented.box.run(command).strip()  # noqa: E731
    wait_until(lambda: found() == said, found, pause=0.2)


def test_tunnel_starts_jupyter_keeps_it_over_a_lost_link_and_then_stops_it(rented: Rented) -> None:
    rented.user.repository()
    rented.run("setup", "--name", "My.Box-1").must(0)
    assert "--logdir" in rented.run("tunnel", "--tensorboard").must(5).err
    rented.box.run(SERVE)
    port = rented.box.host_string.rpartition(":")[2]
    pasted = f"ssh -p {port} root@{rented.box.host_string.split('@')[1].rpartition(':')[0]}"
    host = f"{pasted} -L 8080:localhost:8080"
    with closing(rented.begin("tunnel", "--jupyter", "--json", host=host)) as going:
        found = opened(going)
        jupyter, token = found["jupyter"], found["jupyter"]["url"].partition("token=")[2]
        assert b"homework" in ask(found["8080"], "/")
        # Else whoever listens at 8080 there would be given the cookie of Jupyter's login.
        assert urlsplit(jupyter["url"]).hostname != urlsplit(found["8080"]["url"]).hostname
        assert ask(jupyter, "/api/kernels") == 403
        assert ask(jupyter, "/api/kernels", token=token) == b"[]"
        kernel = json.loads(ask(jupyter, "/api/kernels", token=token, data=b"{}"))
        until(rented, KERNEL, "1")
        modes = rented.box.run("cd /workspace/.boxstrap/servers && stat -c %a . homework-jupyter")
        assert modes == "700\n700\n"
        assert token not in rented.box.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        # The link is lost and comes back: to the same server, at the same local address.
        rented.box.kill_sshd()
        rented.box.start_sshd()
        assert kernel["id"].encode() in ask(jupyter, "/api/kernels", token=token)
        going.interrupt()
        assert "--stop" in going.end().must(0).out
    with closing(rented.begin("tunnel", "--jupyter", "--json")) as going:
        again = opened(going)["jupyter"]
        assert (jupyter["found"], again["found"]) == (False, True)
        assert again["url"] == jupyter["url"]
        # A server that died is started again when the link comes back, with the same secret.
        rented.box.run("kill -KILL $(cut -d' ' -f1 /workspace/.boxstrap/servers/*/pid)")
        rented.box.kill_sshd()
        rented.box.start_sshd()
        later = opened(going)["jupyter"]
        assert (later["url"], later["found"]) == (jupyter["url"], False)
        assert ask(later, "/api/kernels", token=token) == b"[]"
        ask(later, "/api/kernels", token=token, data=b"{}")
        assert "stopped: Jupyter" in rented.run("tunnel", "--stop").must(0).out
        with pytest.raises(OSError, match="reset"):
            ask(later, "/api/kernels", token=token)
        going.interrupt()
        said = going.end().must(0).text
    assert "on the box Jupyter no longer answers at port" in said
    assert "--stop" not in said
    assert rented.box.run(KERNEL).strip() == "0"
    nothing = "nothing was running on My.Box-1\n"
    assert rented.run("tunnel", "--stop").must(0).out == nothing


def test_tunnel_picks_another_local_port_only_for_one_in_use_here_or_that_leads_to_itself(
    user: User,
) -> None:
    user.repository()
    first, second, third = ports = sorted({free_port() for _ in range(3)})
    words = (f"{first}:1", f"{second}:2", str(third))
    with (
        socket.create_server(("127.0.0.1", first)),
        closing(user.begin("tunnel", "--host", "local", "--json", *words)) as going,
    ):
        found = {name: one["here"] for name, one in opened(going).items()}
        going.interrupt()
        going.end()
    assert found["2"] == second
    assert not {found["1"], found[str(third)]} & {*ports}
