"""Known boxes, and an ssh config that is only the test's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bootstrap.boxes.userfile import VARIABLE, ConfigPlace, find_place
from bootstrap.link import KnownBox, record

MakeBox = Callable[..., KnownBox]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBJZ8sOwVHKRf4Jh5O2ZjYVYwTnbqc1+7cjGLq3wNSJv"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfigPlace:
    """The place of the test's ssh config, which doesn't exist yet."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "ssh" / "config"))
    found = find_place()
    assert found is not None
    return found


@pytest.fixture
def make_box() -> MakeBox:
    """Make a box known: `make_box("my-box", "root@1.2.3.4:46769", port=46769)`."""
    times = iter(range(1, 1000))

    def save(name: str, host: str = "", **fields: Any) -> KnownBox:
        values = {"address": "5.17.27.63", "port": 46769, "user": "root", **fields}
        typed = host or f"root@{values['address']}:{values['port']}"
        box = KnownBox(name, typed, created=float(next(times)), **values)
        record.save_box(box)
        box.known_hosts.write_text(f"{name} {KEY}\n")
        return box

    return save
