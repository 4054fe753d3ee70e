"""Programs that tests run to their end."""

import subprocess
from collections.abc import Sequence
from typing import Any


def captured(
    command: Sequence[Any], *, check: bool = True, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program, and keep what it says as text; `more` is as for `subprocess.run`."""
    return subprocess.run(command, capture_output=True, text=True, check=check, **more)
