"""The rig: a subnet of its own and the boxes on it."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from tests.boxes import claims, host_sources, images, kinds, net, places
from tests.boxes.box import RigBox
from tests.boxes.keys import make_key
from tests.boxes.mirror import Mirror
from tests.boxes.proc import RigError, need
from tests.boxes.provision import BoxSpec
from tests.boxes.startup import PATH
from tests.plain_environment import measuring

_PROGRAMS = ("ip", "nft", "unshare", "nsenter", "apt-get")


class Rig:
    """Starts disposable boxes and always removes them.

        with Rig() as rig:
            box = rig.start("vast")

    `mirror=True` also starts a caching mirror of the package index and of Debian's
    packages, which its boxes use. Its subnet is the first free one from `lowest` on.
    """

    def __init__(self, mirror: bool = False, lowest: int = 1) -> None:
        if os.geteuid() != 0:
            raise RigError("boxes need root: namespaces and overlays can't be made without it")
        need(*_PROGRAMS)
        self._lock = threading.Lock()
        self._next = 2
        self._boxes: list[RigBox] = []
        self._mirror: Mirror | None = None
        self._claim = claims.take(places.boxes(), lowest)
        self._closed = False
        atexit.register(self.close)
        try:
            net.set_up(self._claim.subnet)
            self.identity = self._claim.folder / "id"
            make_key(self.identity, "rig")
            self._mtu = host_sources.uplink_mtu()
            if mirror:
                self._mirror = Mirror(self._claim.subnet.gateway)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(
        self,
        kind: str,
        *,
        name: str | None = None,
        environ: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        disk: str | None = None,
        on: Path | None = None,
    ) -> RigBox:
        """Start a box of a kind (see kinds.txt); it answers on ssh when this returns.

        `environ` adds to PID 1's variables, `files` (path: text, owned by root) to its file
        system, `disk` ("300M") limits all that it writes; `on` is a layer from RigBox.keep() of
        a box of the same kind, whose file system it starts with. The first box of a kind on
        a machine builds that kind's layers, which takes up to a few minutes.
        """
        whole = kinds.whole(kind)
        more: Mapping[str, str] = {}
        if measuring():
            coverage = import_module("tests.coverage")
            whole = replace(whole, mounts=(*whole.mounts, *coverage.box_mounts()))
            more = coverage.box_files()
        layers = [*([on] if on else []), *images.layers(whole)]
        with self._lock:
            index = self._next
            self._next += 1
        if index > 254:
            raise RigError("a rig holds 253 boxes in its life: start another one")
        label = name or f"{kind}-{index}"
        variables = {"PATH": PATH, "HOME": "/root", "HOSTNAME": label}
        box = RigBox(
            BoxSpec(
                kind=whole,
                name=label,
                index=index,
                subnet=self._claim.subnet,
                folder=self._claim.folder / f"box-{index}",
                layers=layers,
                identity=self.identity,
                mtu=self._mtu,
                environ={**variables, **whole.environ, **(environ or {})},
                files={**self._house_files(), **more, **(files or {})},
                disk=disk or whole.disk,
            )
        )
        with self._lock:
            self._boxes.append(box)
        return box

    @property
    def mirror(self) -> Mirror:
        """The mirror of a rig that was made with `mirror=True`."""
        if self._mirror is None:
            raise RigError("this rig has no mirror: Rig(mirror=True)")
        return self._mirror

    def _house_files(self) -> dict[str, str]:
        return self._mirror.box_files() if self._mirror else {}

    def close(self) -> None:
        """Destroy every box and leave nothing behind; safe to call twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            boxes, self._boxes = self._boxes, []
        for box in boxes:
            box.stop()
        if self._mirror is not None:
            self._mirror.close()
        self._claim.release()
        atexit.unregister(self.close)
