"""Names of paramiko that boxstrap uses without a promise of stability, and why.

paramiko may change any of these in any version. Before widening its range in
pyproject.toml, run tests/unit/link with the new version and add that version to TESTED.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from paramiko.auth_handler import AuthHandler, AuthOnlyHandler
from paramiko.auth_strategy import AuthStrategy
from paramiko.channel import Channel
from paramiko.packet import Packetizer
from paramiko.transport import ServiceRequestingTransport, Transport

from bootstrap import link
from tests.plain_environment import HERE

pytestmark = pytest.mark.slow

toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
TESTED = ("3.5.0", "4.0.0", "5.0.0", "5.1.0")
"""Versions with which all of tests/unit/link has passed."""

USED: dict[tuple[type, str], str] = {
    (Transport, "_send_message"): "sends the service request and a login without waiting",
    (Transport, "_channel_handler_table"): "leads data past our check of the window",
    (Channel, "_feed"): "takes data in, once our check has passed",
    (Channel, "_feed_extended"): "takes errors in, once our check has passed",
    (AuthHandler, "_finalize_pubkey_algorithm"): "which signature of RSA the box knows",
}
"""Private names that are called or read."""

OVERRIDDEN: dict[tuple[type, str], str] = {
    (Packetizer, "REKEY_BYTES"): "renegotiates as late as OpenSSH",
    (Packetizer, "REKEY_PACKETS"): "renegotiates as late as OpenSSH",
    (Packetizer, "read_all"): "a packet's length is not believed",
    (Transport, "_channel_handler_table"): "as above",
    (Transport, "_parse_disconnect"): "keeps the reason that a box gives",
    (Transport, "auth_handler"): "is of our class",
    (Transport, "close"): "wakes a reader",
    (Transport, "get_exception"): "an odd message is the box's fault",
    (ServiceRequestingTransport, "ensure_session"): "one round trip less",
    (AuthOnlyHandler, "send_auth_request"): "is ready before the answer comes",
    (AuthHandler, "_parse_userauth_info_request"): "message 60 says that a key would do",
    (AuthStrategy, "authenticate"): "a documented hook",
    (AuthStrategy, "get_sources"): "a documented hook",
    (paramiko.MissingHostKeyPolicy, "missing_host_key"): "a documented hook",
    (paramiko.PKey, "asbytes"): "a documented hook",
    (paramiko.PKey, "get_name"): "a documented hook",
    (paramiko.PKey, "sign_ssh_data"): "a documented hook",
}
"""Names of paramiko's classes that boxstrap's subclasses override."""

ATTRIBUTES: dict[tuple[type, str], str] = {
    (AuthHandler, "auth_event"): "is set by the answer to a login",
    (AuthHandler, "auth_method"): "is read by paramiko's reader of answers",
    (AuthHandler, "username"): "is read by paramiko's reader of answers",
    (AuthOnlyHandler, "wait_for_response"): "waits for that answer",
    (AuthHandler, "transport"): "the transport that it logs in over",
    (Transport, "lock"): "one login's request at a time",
    (Transport, "handshake_timeout"): "ends a handshake that hangs",
    (Channel, "in_buffer"): "bytes that nobody read yet",
    (Channel, "in_stderr_buffer"): "bytes of errors that nobody read yet",
    (Channel, "eof_received"): "an end that the box said",
    (paramiko.PKey, "public_blob"): "the certificate that is sent with a key",
}
"""Attributes without an underscore that paramiko doesn't document."""


def modules() -> Iterator[str]:
    return (f"bootstrap.link.{module.name}" for module in pkgutil.iter_modules(link.__path__))


def owns(owner: type, name: str) -> bool:
    """Whether the class or a base class has the name, or sets it on its instances."""
    sources = [inspect.getsource(base) for base in owner.__mro__ if base is not object]
    return hasattr(owner, name) or any(re.search(rf"self\.{name}\b", text) for text in sources)


@pytest.mark.parametrize(("owner", "name"), [*USED, *OVERRIDDEN, *ATTRIBUTES], ids=str)
def test_the_installed_paramiko_has_each_private_name_in_use(owner: type, name: str) -> None:
    assert owns(owner, name), (
        f"paramiko {paramiko.__version__} has no {owner.__name__}.{name} any more: see how "
        "bootstrap/link uses it, and narrow the range in pyproject.toml until that is fixed"
    )


def test_every_private_paramiko_name_that_boxstrap_uses_is_listed() -> None:
    """A name counts if it is used on another object, or on `self` but not defined by the module."""
    found = set()
    for name in modules():
        file = importlib.import_module(name).__file__
        tree = ast.parse(Path(str(file)).read_text(encoding="utf-8"))
        nodes = list(ast.walk(tree))
        own = {node.name for node in nodes if isinstance(node, ast.FunctionDef)} | {
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        found |= {
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute)
            and re.match(r"_(?!_)", node.attr)
            and not (ast.unparse(node.value) == "self" and node.attr in own)
        }
    assert found == {name for _, name in USED}


def test_every_paramiko_name_that_boxstrap_overrides_is_listed() -> None:
    found = set()
    for module in map(importlib.import_module, modules()):
        for ours in vars(module).values():
            if not inspect.isclass(ours) or ours.__module__ != module.__name__:
                continue
            theirs = [base for base in ours.__mro__ if base.__module__.startswith("paramiko.")]
            names = {*vars(ours), *vars(ours).get("__annotations__", {})}
            found |= {
                name
                for name in names
                if not name.startswith("__") and any(owns(base, name) for base in theirs)
            }
    assert found == {name for _, name in OVERRIDDEN}


def test_the_paramiko_range_in_pyproject_is_that_of_the_tested_versions() -> None:
    project = toml.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (wanted,) = (text for text in project["dependencies"] if text.startswith("paramiko"))
    match = re.fullmatch(r"paramiko>=([\d.]+),<(\d+)", wanted)
    assert match is not None
    versions = [tuple(map(int, text.split("."))) for text in TESTED]
    lowest = tuple(map(int, match[1].split(".")))
    assert min(versions)[: len(lowest)] == lowest
    majors = {version[0] for version in versions}
    assert majors == set(range(lowest[0], int(match[2])))
    assert int(paramiko.__version__.split(".")[0]) in majors
