"""A real repository, and a listing that shows whether anything touched it."""

import hashlib
import os
import subprocess
from pathlib import Path


class SampleRepository:
    """A test's repository, and the commands that its user would type."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def git(self, *arguments: str | bytes, check: bool = True, stdin: bytes = b"") -> str:
        done = subprocess.run(
            ["git", "-C", os.fspath(self.root), *arguments],
            input=stdin,
            capture_output=True,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(done.stderr.decode())
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def write(self, name: str | bytes, content: str | bytes = "x\n") -> None:
        place = self.root / os.fsdecode(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())

    def commit(self, subject: str = "Change", **files: str | bytes) -> str:
        for name, content in files.items():
            self.write(name.replace("_py", ".py"), content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")


def listing(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Every entry under `folder`: digest, modification time in ns, mode."""
    found = {}
    for place in [folder, *sorted(folder.rglob("*"))]:
        state = place.lstat()
        digest = hashlib.sha256(place.read_bytes()).hexdigest() if place.is_file() else ""
        found[str(place)] = (digest, state.st_mtime_ns, state.st_mode)
    return found
