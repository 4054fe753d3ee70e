"""A real S3 server (nanio): checks every signature and expiry, by a clock that can be moved."""

import os
import socket
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tests.boxes.ports import free_port

REGION = "us-east-1"


class S3Server:
    """Serves the subfolders of a folder as buckets, to clients with one of two keys."""

    key_id, secret = "AKIDOFTHEPERSON", "the/person's+own=secret of buckets"
    box_key_id, box_secret = "AKIDOFTHEBOX", "the/box's+own=secret-of-results"

    def __init__(self, listen: str, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port(listen)
        self.endpoint = f"http://{listen}:{self.port}"
        self._asked = folder.with_suffix(".asked")
        self._clock = folder.with_suffix(".clock")
        with self._asked.open("wb") as asked:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, listen, str(self.port), str(folder)],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,  # the server ends with its parent
                stdout=asked,
            )
        self._await(listen)

    def _await(self, listen: str) -> None:
        until = time.monotonic() + 120
        while self._process.poll() is None and time.monotonic() < until:
            with socket.socket() as link:
                if link.connect_ex((listen, self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the S3 server did not start")

    def variables(self) -> dict[str, str]:
        """Return the environment variables of a user of this server."""
        return {
            "AWS_ACCESS_KEY_ID": self.key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
        }

    def put(self, bucket: str, name: str, content: bytes) -> None:
        """Write an object directly, without the server."""
        path = self.folder / bucket / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def objects(self, bucket: str) -> dict[str, bytes]:
        """Return all objects of a bucket, without the server's own files (names with a dot)."""
        top = self.folder / bucket
        names = ((each, str(each.relative_to(top))) for each in top.rglob("*"))
        # The server renames its own files while this looks: they are not read at all.
        files = (
            (each, name) for each, name in names if not name.startswith(".") and each.is_file()
        )
        return {name: each.read_bytes() for each, name in files}

    def move_clock(self, seconds: float) -> None:
        """Check signed URLs from now on as if it were this many seconds later."""
        self._clock.write_text(str(seconds))

    @property
    def asked(self) -> list[str]:
        """The requests so far, from the server's log."""
        return self._asked.read_text().splitlines()

    def close(self) -> None:
        """Stop the server."""
        with self._process:
            self._process.terminate()


def _serve(listen: str, port: str, folder: str) -> None:
    import uvicorn
    from nanio.app import build_app
    from nanio.auth import middleware
    from nanio.auth.credentials import StaticCredentialResolver
    from nanio.config import Settings

    clock = Path(folder).with_suffix(".clock")
    judged = middleware.verify_presigned_url

    def now() -> datetime:
        moved = float(clock.read_text() or 0) if clock.exists() else 0.0
        return datetime.now(timezone.utc) + timedelta(seconds=moved)

    def judge(**request: Any) -> Any:
        return judged(**request, now=now())

    middleware.verify_presigned_url = judge
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keys = {S3Server.key_id: S3Server.secret, S3Server.box_key_id: S3Server.box_secret}
    settings = Settings(
        data_dir=Path(folder), region=REGION, credentials=StaticCredentialResolver(keys)
    )
    uvicorn.run(build_app(settings), host=listen, port=int(port))


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
