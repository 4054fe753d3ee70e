"""Use the rig by hand: `python -m tests.boxes start vast | build vast | list | sweep | kinds`."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time

from tests.boxes import Rig, RigError, claims, images, kinds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.boxes", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="start boxes and keep them until Ctrl-C")
    start.add_argument("kind", nargs="+", choices=kinds.KINDS)
    start.add_argument("--name", help="name of the (first) box")
    start.add_argument("--mirror", action="store_true", help="with a caching package mirror")
    build = commands.add_parser("build", help="make the file systems of kinds, for later boxes")
    build.add_argument("kind", nargs="+", choices=kinds.KINDS)
    commands.add_parser("list", help="the boxes that live now")
    commands.add_parser("sweep", help="remove what dead owners left behind")
    commands.add_parser("kinds", help="the kinds there are")
    options = parser.parse_args()
    try:
        does = {"start": _start, "build": _build, "list": _list, "sweep": _sweep, "kinds": _kinds}
        return does[options.command](options)
    except RigError as error:
        print(f"boxes: {error}", file=sys.stderr)
        return 1


def _start(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Rig(mirror=options.mirror) as rig:
        for number, kind in enumerate(options.kind):
            box = rig.start(kind, name=None if number else options.name)
            print(f"{box.name}: {kinds.KINDS[kind].about}")
            print(f"  {shlex.join(box.ssh_command())}")
            print(f"  host {box.host_string}  identity {box.identity}  key {box.known_fingerprint}")
        print("Ctrl-C ends it", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            print()
    return 0


def _build(options: argparse.Namespace) -> int:
    for kind in options.kind:
        images.layers(kinds.whole(kind))
    return 0


def _list(_: argparse.Namespace) -> int:
    for subnet, pid, boxes in claims.live():
        print(f"{subnet.network}  owner {pid}  {len(boxes)} boxes")
        for box in boxes:
            print(f"  {box['name']}  {box['kind']}  {box['host']}")
    return 0


def _sweep(_: argparse.Namespace) -> int:
    dead = claims.sweep()
    print(f"{len(dead)} left behind, removed")
    return 0


def _kinds(_: argparse.Namespace) -> int:
    for kind in kinds.KINDS.values():
        print(f"{kind.name:12}{kind.about}")
    return 0


sys.exit(main())
