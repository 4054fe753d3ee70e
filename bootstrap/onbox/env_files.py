"""The environment files: what sets the profile's values and the secrets, for each kind of shell."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress

from .run_folder import lines_of, read_secrets, secrets_of, write_whole

KEY_MARK = 6
"""Characters at the begin of an id of secrets that tell whose key it is made with."""


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


def env_file(home: str, key: str = "*", folder: str = "") -> str:
    """Return the one, for sh, of a repository: by its key, or by the folder of one of its trees;
    that of the last setup if there is none."""
    steps = f"{glob.escape(home)}/steps/{glob.escape(key) if key != '*' else key}"
    for own in glob.iglob(f"{steps}/env"):
        notes = os.path.dirname(own)
        trees = (f"{notes}/repo.dir", *glob.iglob(f"{glob.escape(notes)}/beside/*/repo.dir"))
        if not folder or [folder] in map(lines_of, trees):
            return own
    return f"{home}/env"


def forget_login(home: str) -> None:
    """Take out of this environment what a login has of the repository that was set up last. A bash
    that takes sshd for its parent, at the first level, would read ~/.bashrc and have it again."""
    for line in lines_of(f"{home}/env"):
        if found := re.match(r"export (?!PATH=)(\w+)=", line):
            os.environ.pop(found[1], None)
    if os.environ.get("SHLVL", "0") == "0":
        os.environ["SHLVL"] = "1"


def write_env_files(home: str, values: Mapping[str, str]) -> None:
    for file, line in _WRITERS.items():
        text = "".join(line(*pair) for pair in values.items())
        write_whole(f"{home}/{file}", text or "\n", 0o600)


def write_secrets(home: str, secrets: Mapping[str, str]) -> None:
    text = "".join(f"{name}={value}\0" for name, value in secrets.items())
    write_whole(f"{home}/secrets", text, 0o600)


def add_earlier_secrets(home: str, secrets: Mapping[str, str]) -> None:
    """Keep what no run is given any more, to redact it in the logs of runs that were."""
    path = f"{home}/secrets.earlier"
    if new := sorted(secrets.items() - {*read_secrets(path)}):
        text = "".join(f"{name}={value}\0" for name, value in new)
        with open(path, "ab", opener=privately) as file:
            file.write(os.fsencode(text))


def privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def wipe(home: str, names: Iterable[str]) -> list[str]:
    """Remove the secrets that the box holds, and these, and return their names: from the
    environment files by the exact text that was written. A file that still sets one of them is
    deleted: the next setup writes it again."""
    held, own = secrets_of(home), glob.escape(home)
    wiped = dict.fromkeys([*held, *dict(read_secrets(f"{home}/secrets.earlier"))])
    for file, line in _WRITERS.items():
        for path in (f"{home}/{file}", *glob.glob(f"{own}/steps/*/{file}")):
            with suppress(FileNotFoundError), open(path, "rb") as env:
                text = env.read().decode("utf-8", "surrogateescape")
                for pair in held.items():
                    text = text.replace(line(*pair), "", 1)
                left = {*re.findall(r"^(?:export|set -gx|setenv) (\w+)[= ]", text, re.MULTILINE)}
                if found := left & {*names, *held}:
                    os.unlink(path)
                    wiped.update(dict.fromkeys(found))
                else:
                    write_whole(path, text, 0o600)
    stale = ("secrets.ids", "secrets.earlier", "setups/*/secrets")
    for name in (*stale, "steps/*/shell.ok", "steps/*/shell.secrets"):
        for path in glob.glob(f"{own}/{name}"):
            os.unlink(path)
    if os.path.exists(f"{home}/secrets"):
        # An empty file says that there were secrets: a live run may still have them.
        write_secrets(home, {})
    return [*wiped]
