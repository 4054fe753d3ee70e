"""The boxes' layers: built once, kept in the cache, shared by every process.

A layer is what its build left in the upper folder of an overlay. Its name is a
hash of everything that went into it and of the layer below, so a changed recipe
is a new layer and nothing is ever changed in place.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.boxes import host_sources, places
from tests.boxes.kinds import Kind, ResolvedKind
from tests.boxes.proc import need, sh

_Builder = Callable[[Path], None]

#: Increment it to rebuild every layer.
RECIPE = 1

_BASE_PACKAGES = ("openssh-server",)

_BASE_FILES = {
    # As in container images: no services at install time, no slow syncs, no documentation.
    "/usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",
    "/etc/dpkg/dpkg.cfg.d/rig": "force-unsafe-io\npath-exclude=/usr/share/doc/*\n"
    "path-exclude=/usr/share/man/*\npath-exclude=/usr/share/locale/*\n",
    "/etc/apt/apt.conf.d/rig": 'Acquire::Languages "none";\n',
    "/etc/ssh/sshd_config.d/rig.conf": "HostKey /etc/ssh/ssh_host_ed25519_key\n"
    "PasswordAuthentication no\n",
}


def layers(kind: ResolvedKind) -> list[Path]:
    """Return the folders of a kind's layers, topmost first; missing ones are built."""
    stack = [_base()]
    for row in kind.chain:
        if row.packages or row.files or row.build:
            stack.insert(0, _layer(row, stack))
    return stack


def _base() -> Path:
    """Return a Debian root file system with sshd and this machine's settings."""
    files = {
        path: text.encode() for path, text in _base_files().items()
    } | host_sources.certificates()
    source = host_sources.apt_sources()[0]
    recipe = {
        "suite": source.release,
        "mirror": source.uri,
        "packages": _BASE_PACKAGES,
        "files": {path: hashlib.sha256(data).hexdigest() for path, data in files.items()},
    }
    key = _key(recipe)
    return _made(key) or _make(key, lambda folder: _debootstrap(folder, source, files))


def _base_files() -> dict[str, str]:
    files = dict(_BASE_FILES)
    files["/sbin/box-init"] = (places.SCRIPTS / "init.sh").read_text()
    files["/etc/apt/sources.list"] = host_sources.sources_list()
    files["/etc/resolv.conf"] = host_sources.resolv_conf()
    files["/etc/pip.conf"] = host_sources.pip_conf()
    proxy = host_sources.apt_proxy()
    if proxy:
        files["/etc/apt/apt.conf.d/rig"] += f'Acquire::http::Proxy "{proxy}";\n'
    return files


def _debootstrap(folder: Path, source: host_sources.AptSource, files: dict[str, bytes]) -> None:
    need("debootstrap")
    archives = _folder("archives")
    proxy = host_sources.apt_proxy()
    env = dict(os.environ, **({"http_proxy": proxy} if proxy else {}))
    sh(
        [
            "debootstrap",
            "--variant=minbase",
            f"--include={','.join(_BASE_PACKAGES)}",
            f"--cache-dir={archives}",
            source.release,
            str(folder),
            source.uri,
        ],
        env=env,
        timeout=1800,
    )
    for path, data in files.items():
        _write(folder, path, data)
    for key in (folder / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    for rest in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man"):
        for found in (folder / rest).iterdir():
            if found.is_dir() and not found.is_symlink():
                shutil.rmtree(found)
            else:
                found.unlink()


def _layer(row: Kind, below: list[Path]) -> Path:
    recipe = {
        "below": below[0].name,
        "packages": row.packages,
        "files": dict(row.files),
        "build": row.build,
        "script": (places.SCRIPTS / "build.sh").read_text(),
    }
    key = _key(recipe)
    return _made(key) or _make(key, lambda folder: _build(row, below, folder))


def _build(row: Kind, below: list[Path], folder: Path) -> None:
    aside = folder.with_name(folder.name + ".aside")
    for name in ("work", "root"):
        (aside / name).mkdir(parents=True)
    archives, lists = _folder("archives"), _folder("lists")
    for place in (archives, lists):
        (place / "partial").mkdir(exist_ok=True)
    for path, text in row.files.items():
        put(folder, below, path, text.encode())
    sh(
        [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child"),
            *("bash", str(places.SCRIPTS / "build.sh"), ":".join(map(str, below)), str(folder)),
            *(str(aside / "work"), str(aside / "root"), str(archives), str(lists)),
            *("--", *row.packages),
        ],
        stdin=row.build,
        timeout=1800,
    )
    shutil.rmtree(aside)


def put(
    upper: Path, below: Sequence[Path], path: str, data: bytes, *, mode: int = 0o644, owner: int = 0
) -> None:
    """Write a file into an overlay's upper folder.

    Parent folders get the owner and mode that they have in the layers below, since an
    overlay uses the attributes of the uppermost folder; a folder that no layer has
    belongs to `owner` and is closed to others.
    """
    at = upper
    for part in Path(path).parent.parts[1:]:
        at = at / part
        if at.exists():
            continue
        inner = at.relative_to(upper)
        model = next((layer / inner for layer in below if (layer / inner).is_dir()), None)
        at.mkdir(mode=0o700)
        if model is None:
            os.chown(at, owner, owner)
        else:
            known = model.stat()
            os.chown(at, known.st_uid, known.st_gid)
            at.chmod(known.st_mode & 0o7777)
    file = upper / path.lstrip("/")
    file.write_bytes(data)
    file.chmod(mode)
    os.chown(file, owner, owner)


def _write(root: Path, path: str, data: bytes) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    file.chmod(0o755 if data.startswith(b"#!") else 0o644)


def _key(recipe: object) -> str:
    text = json.dumps([RECIPE, recipe], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _folder(name: str) -> Path:
    folder = places.cache() / name
    folder.mkdir(exist_ok=True)
    return folder


def _made(key: str) -> Path | None:
    folder = _folder("layers") / key
    return folder if folder.is_dir() else None


def _make(key: str, build: _Builder) -> Path:
    """Build a layer in a temporary folder and rename it into place; others wait for it."""
    place = _folder("layers")
    with places.locked(places.cache() / "building.lock"):
        found = _made(key)
        if found:
            return found
        for left in place.glob(".making*"):
            shutil.rmtree(left)
        new = place / f".making-{key}"
        new.mkdir()
        build(new)
        new.rename(place / key)
    return place / key
