"""Receipts: this machine's record that all results of a run were pulled and verified.

Before a box is destroyed, its receipts are compared with what the box has now, and with the
files here. A receipt is keyed with this machine's key, so nobody else can forge one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bootstrap.errors import NotSafeError
from bootstrap.machine_key import machine_key
from bootstrap.paths import write_private
from bootstrap.transfer.landing import HomeFolder
from bootstrap.transfer.manifest import Manifest

VERSION = 1
_PURPOSE = b"boxstrap receipt\n"
"""The key has other purposes too: what is keyed for one is not valid for another."""


def receipt_file(box_folder: Path, repository: str, run: str) -> Path:
    """Return the path of a run's receipt."""
    return box_folder / "receipts" / repository / f"{run}.json"


def write_receipt(file: Path, manifest: Manifest, place: Path) -> None:
    """Write that all of the manifest is in `place`, verified. Raises OSError.

    Raises NotSafeError if the manifest has anything missing, or its run is not over.
    """
    if manifest.missing or manifest.live:
        raise NotSafeError(
            "no receipt is written: not all results are here.", where=manifest.origin.run
        )
    body = {
        "v": VERSION,
        **manifest.origin.as_dict(),
        "place": str(place),
        "files": {
            path: [size, sha256, manifest.files[path].place]
            for path, (size, sha256) in sorted(manifest.present().items())
        },
    }
    write_private(file, json.dumps({**body, "mac": _mac(body)}, indent=1) + "\n")


def check_receipt(
    file: Path, box: str, repository: str, run: str, present: Mapping[str, tuple[int, str]]
) -> list[str]:
    """Return why the receipt does not prove that nothing would be lost; empty if it does.

    `present`: size and digest of each result that the box has now. Files here are read again.
    """
    body = _read(file)
    if body is None:
        return ["this machine has no receipt for the run"]
    named = (body.get("box"), body.get("repository"), body.get("run"))
    if named != (box, repository, run):
        return ["the receipt is for another run"]
    files: dict[str, list[Any]] = body["files"]
    problems = [
        f"{path}: the box has a different file than was pulled"
        for path, (size, sha256) in present.items()
        if path in files and files[path][:2] != [size, sha256]
    ]
    problems += [f"{path}: was never pulled" for path in present if path not in files]
    problems += [f"{path}: is no longer on the box" for path in files if path not in present]
    return problems + _lost_here(Path(body["place"]), files)


def _lost_here(place: Path, files: Mapping[str, list[Any]]) -> list[str]:
    if not files:
        return []
    try:
        with HomeFolder(place) as folder:
            return [
                f"{path}: the file here is not what was pulled"
                for path, (_, sha256, name) in files.items()
                if folder.digest(name) != sha256
            ]
    except (FileNotFoundError, NotADirectoryError):
        return [f"{place} is not there any more"]
    except OSError as error:
        return [f"{place} can't be read: {(error.strerror or str(error)).lower()}"]


def _read(file: Path) -> dict[str, Any] | None:
    """Read a receipt that this machine wrote; None if there is none."""
    try:
        body = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    mac = body.pop("mac", None)
    try:
        is_ours = isinstance(mac, str) and hmac.compare_digest(
            mac.encode("utf-8", "replace"), _mac(body).encode()
        )
    except OSError:  # without the key a receipt of this machine can't be recognised
        return None
    return body if is_ours and body.get("v") == VERSION else None


def _mac(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(machine_key(), _PURPOSE + text, hashlib.sha256).hexdigest()
