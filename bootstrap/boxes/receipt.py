"""The receipt of a run's results: this machine's record of which were pulled and verified.

Before a box is destroyed, its receipts are compared with what the box has now, and with the files
here. A receipt is keyed with this machine's key, so nobody else can forge one.
"""

import contextlib
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bootstrap.boxes.at_home import PullPlace
from bootstrap.boxes.secrets import machine_key
from bootstrap.paths import write_private
from bootstrap.transfer.destination import LocalFolder
from bootstrap.transfer.frames import LostResult
from bootstrap.transfer.manifest import Manifest
from bootstrap.transfer.puller import lost_words
from bootstrap.value import document

VERSION = 1
_PURPOSE = b"boxstrap receipt\n"
"""The key has other purposes too: what is keyed for one is not valid for another."""


def receipt_file(box_folder: Path, repository: str, run: str) -> Path:
    return box_folder / "receipts" / repository / f"{run}.json"


def write_receipt(
    file: Path, manifest: Manifest, place: Path, synced: Callable[[], None] = lambda: None
) -> None:
    """Write that these files of the manifest are in `place`, verified, once they are `synced`.
    Raises OSError. It says nothing of what is missing, nor of what a run that is not over makes
    later."""
    body = {
        "v": VERSION,
        **document(manifest.origin),
        "live": manifest.live,
        "place": str(place),
        "files": {
            path: [one.home.size, one.sha256, one.place, one.state[3]]
            for path, one in manifest.proven().items()
        },
    }
    _write(file, body, synced)


def fuller_place(file: Path, manifest: Manifest, place: Path) -> Path | None:
    """Return the other folder for which the receipt proves files that this pull has not brought."""
    body = _read(file)
    if body is None or body["files"].keys() <= manifest.proven().keys():
        return None
    other = Path(body["place"])
    return other if other != place and other.is_dir() else None


def note_name(box_folder: Path, before: str, now: str) -> None:
    """Write the receipts of the box `before` anew for its name of now. What can't be is left: it
    proves nothing until the next pull."""
    for file in (box_folder / "receipts").glob("*/*.json"):
        body = _read(file)
        if body and body["box"] == before:
            with contextlib.suppress(OSError):
                _write(file, {**body, "box": now})


def check_receipt(
    file: Path,
    origin: tuple[str, str, str],
    present: Mapping[str, tuple[int, str]],
    lost: Mapping[str, LostResult],
    key: str = "",
) -> list[str]:
    """Return why the receipt does not prove that nothing would be lost; empty if it does.

    `origin`: box, repository and run. `present`: size and digest of each result that the box has
    now; `lost`: those it has no more. Files here are read again, also where the repository of this
    `key` was moved with them.
    """
    body = _read(file)
    if body is None:
        return ["this machine has no receipt for the run"]
    if (body.get("box"), body.get("repository"), body.get("run")) != origin:
        return ["the receipt is for another run"]
    files: dict[str, list[Any]] = body["files"]
    problems = [
        f"{path}: the box has a different file than was pulled"
        for path, (size, sha256) in present.items()
        if path in files and files[path][:2] != [size, sha256]
    ]
    problems += [f"{path}: was never pulled" for path in present if path not in files]
    problems += [
        f"{path}: {lost_words(one)}, and was never pulled"
        for path, one in lost.items()
        if [*files.get(path, ())][0::3] != [*one.state[2:4]]
    ]
    return problems + _lost_here(PullPlace.again(Path(body["place"]), key), files)


def is_still_here(file: Path, key: str) -> bool:
    """Whether all that the receipt proves is here as it was pulled, also where the repository of
    this `key` was moved with it; so too without a receipt: another machine may have pulled."""
    body = _read(file)
    if body is None:
        return not file.exists()
    return not _lost_here(PullPlace.again(Path(body["place"]), key), body["files"])


def _lost_here(home: PullPlace, files: Mapping[str, list[Any]]) -> list[str]:
    if not files:
        return []
    try:
        with LocalFolder(home.base, home.inside) as folder:
            return [
                f"{path}: the file here is not what was pulled"
                for path, (_, sha256, name, *_) in files.items()
                if folder.digest(name) != sha256
            ]
    except (FileNotFoundError, NotADirectoryError):
        return [f"{home.path} is not there any more"]
    except OSError as error:
        return [f"{home.path} can't be read: {(error.strerror or str(error)).lower()}"]


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
            mac.encode("utf-8", "replace"), _mac(_text_of(body)).encode()
        )
    except OSError:  # without the key a receipt of this machine can't be recognised
        return None
    return body if is_ours and body.get("v") == VERSION else None


def _write(file: Path, body: Mapping[str, Any], synced: Callable[[], None] = lambda: None) -> None:
    text = _text_of(body)  # it is long: made once, for both
    text = f'{text[:-1]},"mac":"{_mac(text)}"}}\n'
    synced()
    write_private(file, text)


def _text_of(body: Mapping[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def _mac(text: str) -> str:
    return hmac.new(machine_key(), _PURPOSE + text.encode(), hashlib.sha256).hexdigest()
