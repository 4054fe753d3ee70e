"""The environment files: what sets the profile's values and the secrets, for each kind of shell."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress

from .run_folder import secrets_of, write_whole


def _for_sh(name: str, value: str) -> str:
    quoted = value.replace("'", "'\\''")
    return f"export {name}='{quoted}'\n"


def _for_fish(name: str, value: str) -> str:
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"set -gx {name} '{quoted}'\n"


def _for_csh(name: str, value: str) -> str:
    quoted = value.replace("'", "'\\''").replace("!", "\\!").replace("\n", "\\\n")
    return f"setenv {name} '{quoted}'\n"


_WRITERS = {"env": _for_sh, "env.fish": _for_fish, "env.csh": _for_csh}


def write_env_files(home: str, values: Mapping[str, str]) -> None:
    for file, line in _WRITERS.items():
        text = "".join(line(*pair) for pair in values.items())
        write_whole(f"{home}/{file}", text or "\n", 0o600)


def write_secrets(home: str, secrets: Mapping[str, str]) -> None:
    text = "".join(f"{name}={value}\0" for name, value in secrets.items())
    write_whole(f"{home}/secrets", text, 0o600)


def wipe(home: str, names: Iterable[str]) -> list[str]:
    """Remove the secrets that the box holds, and these, and return their names: from the
    environment files by the exact text that was written. A file that still sets one of them is
    deleted: the next setup writes it again."""
    held = secrets_of(home)
    wiped = dict.fromkeys(held)
    for file, line in _WRITERS.items():
        with suppress(FileNotFoundError), open(f"{home}/{file}", "rb") as env:
            text = env.read().decode("utf-8", "surrogateescape")
            for pair in held.items():
                text = text.replace(line(*pair), "", 1)
            left = {*re.findall(r"^(?:export|set -gx|setenv) (\w+)[= ]", text, re.MULTILINE)}
            if found := left & {*names, *held}:
                os.unlink(env.name)
                wiped.update(dict.fromkeys(found))
            else:
                write_whole(env.name, text, 0o600)
    for stale in ("secrets.ids", "secrets.earlier", "steps/shell.ok", "setups/*/secrets"):
        for path in glob.glob(f"{glob.escape(home)}/{stale}"):
            os.unlink(path)
    if os.path.exists(f"{home}/secrets"):
        # An empty file says that there were secrets: a live run may still have them.
        write_secrets(home, {})
    return [*wiped]
