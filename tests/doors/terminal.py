"""A terminal to paste into: tmux on this machine, with an ssh login to a box inside it."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.programs import captured

PATIENCE_S = 180


class Terminal:
    """The one window of its own tmux server."""

    def __init__(self, socket: Path, argv: Sequence[str]) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        self._run("new-session", "-d", "-x", "180", "-y", "50", *argv)

    def _run(self, *words: str, stdin: str | None = None) -> str:
        done = captured([*self._tmux, *words], input=stdin)
        return done.stdout

    def screen(self) -> str:
        """What it shows, including the scrollback."""
        return self._run("capture-pane", "-p", "-J", "-S", "-300")

    def type_lines(self, text: str) -> None:
        """Type the text with `send-keys`, line by line."""
        for line in text.splitlines():
            self._run("send-keys", "-l", "--", line)
            self._run("send-keys", "Enter")

    def paste(self, text: str) -> None:
        """Paste the whole text at once."""
        self._run("load-buffer", "-", stdin=text)
        self._run("paste-buffer")

    def wait_for(self, *wanted: str, timeout: float = PATIENCE_S) -> str:
        """The screen, once it shows one of these. Fails after `timeout` seconds."""
        return self.until(lambda shown: any(text in shown for text in wanted), timeout)

    def until(self, right: Callable[[str], bool], timeout: float = PATIENCE_S) -> str:
        """The screen, once `right` accepts it. Fails after `timeout` seconds."""
        limit = time.monotonic() + timeout
        while not right(shown := self.screen()):
            assert time.monotonic() < limit, f"it never came:\n{shown[-4000:]}"
            time.sleep(0.25)
        return shown

    def close(self) -> None:
        """End the server."""
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)


@contextlib.contextmanager
def terminal(folder: Path, argv: Sequence[str]) -> Iterator[Terminal]:
    """A terminal that runs `argv`, until the end of the block."""
    made = Terminal(folder / "tmux", argv)
    try:
        yield made
    finally:
        made.close()
