"""The environment files, seen by every kind of shell; the provider's automatic tmux is off."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

from ..env_files import add_earlier_secrets, privately, write_env_files, write_secrets
from ..processes import is_alive
from ..quoted import quoted
from ..run_folder import RunFolder, lines_of, names_in, secrets_of, write_whole
from ..short_program import which
from ..step_report import StepError, caution, tell
from .step import BoxStep

TYPE_CHECKING = False
if TYPE_CHECKING:  # slow to import
    from collections.abc import Mapping

_SH = "[ ! -r ~/.boxstrap/env ] || . ~/.boxstrap/env"
_CSH = "if ( -r ~/.boxstrap/env.csh ) source ~/.boxstrap/env.csh"
_RC_FILES = (
    (".bashrc", _SH, "always"),
    (".profile", _SH, "always"),
    (".bash_profile", _SH, "file"),
    (".bash_login", _SH, "file"),
    (".zshenv", _SH, "zsh"),
    (
        ".config/fish/conf.d/boxstrap.fish",
        "test -r ~/.boxstrap/env.fish; and source ~/.boxstrap/env.fish",
        "fish",
    ),
    (".cshrc", _CSH, "csh"),
    (".tcshrc", _CSH, "file"),
)
"""The files that read the environment file, their line, and when: always, if there is the file, or
that shell."""
_DOWNLOADS = (
    ("HF_HOME", "huggingface", ".cache/huggingface"),
    ("TORCH_HOME", "torch", ".cache/torch"),
    ("PIP_CACHE_DIR", "pip", ".cache/pip"),
    ("UV_CACHE_DIR", "uv", ".cache/uv"),
)
"""What downloads models and packages: the variable that says where to, its folder with us, and its
usual one."""
_SETTERS = (
    *("~/.bashrc", "~/.bash_profile", "~/.bash_login", "~/.profile"),
    *("~/.zshrc", "~/.zshenv", "~/.zprofile"),
    *("/etc/environment", "/etc/rp_environment", "/etc/profile", "/etc/bash.bashrc"),
)


class ShellStep(BoxStep):
    """Each repository has files of its own, which its runs and `exec` read, however many others are
    set up on the box; a login sees those of the last setup."""

    @property
    def stamp(self) -> str:
        return f"{self.setup.tree.steps}/shell.ok"

    def inputs(self) -> str:
        return quoted("v1", *self.setup.variables, self.values.secrets_id)

    def check(self) -> bool:
        # Every profile has this step: no other one sees a lease that was set by an earlier setup
        # alone. One of this setup is being begun beside this check: its own step sees to it.
        box = RunFolder(self.home)
        is_unattended = box.has("lease.json") and not is_alive(box.first("lease.pid"))
        is_written = os.path.exists(f"{self.setup.tree.steps}/env")
        if not is_written or (is_unattended and not self.setup.has("lease")):
            return False
        is_off = os.path.isfile(f"{self._user}/.no_auto_tmux")
        return not self._is_seen or (is_off and self._is_linked and not [*self._missing])

    def apply(self) -> None:
        os.makedirs(self.setup.tree.steps, exist_ok=True)
        self._write_env(self._keep_secrets())
        # On the user's own machine only the training sees it: rc files stay as they are.
        if self._is_seen:
            if not os.path.isfile(f"{self._user}/.no_auto_tmux"):
                write_whole(f"{self._user}/.no_auto_tmux", "")
            for file, line in [*self._missing]:
                _begin_with(file, line)
        elif not self._is_local:
            sentence = "the home folder can't be written: only the training sees the environment"
            caution("read-only-home", sentence)

    @property
    def _user(self) -> str:
        return os.path.expanduser("~")

    @property
    def _is_local(self) -> bool:
        return bool(self.values.is_local)

    @property
    def _is_seen(self) -> bool:
        """Whether the user's shells are to see the files."""
        return not self._is_local and os.access(self._user, os.W_OK)

    @property
    def _is_linked(self) -> bool:
        """A folder that is no link of ours stays as it is."""
        link = f"{self._user}/.boxstrap"
        is_there = os.path.exists(link)
        return is_there and (not os.path.islink(link) or os.path.samefile(link, self.home))

    @property
    def _missing(self) -> Iterator[tuple[str, str]]:
        """The files that lack their line, and that."""
        for name, reads, when in _RC_FILES:
            file, line = f"{self._user}/{name}", f"{reads} # boxstrap"
            is_wanted = when == "always" or (
                os.path.isfile(file) if when == "file" else which(when)
            )
            if is_wanted and line not in lines_of(file):
                yield file, line

    def _keep_secrets(self) -> dict[str, str]:
        """Keep those that came with this setup, and of those that the box has what it or another
        repository still asks for, the others to redact alone; return its own."""
        kept, notes = f"{self.home}/secrets", f"{self.setup.tree.steps}/shell.secrets"
        held, sent = secrets_of(self.home), secrets_of(self.setup.folder)
        known, ids = {**held, **sent}, self.values.secret_ids
        own = self.values.secrets if ids or not sent else [*sent]
        for name in own:
            if name not in known:
                sentence = f"the secret {name} was removed from this box in the meantime"
                raise StepError("secret-gone", sentence)
        write_whole(notes, "".join(f"{name}\n" for name in own), 0o600)
        asked = {name for note in _notes(self.home) for name in lines_of(note)}
        wanted = {name: value for name, value in known.items() if name in asked}
        if wanted != held:
            # Logs of runs that were started with others: they are redacted in them.
            earlier = {name: value for name, value in held.items() if wanted.get(name) != value}
            add_earlier_secrets(self.home, earlier)
            write_secrets(self.home, wanted)
        if known:
            # The ids show later setups which.
            had = dict(line.partition(" ")[::2] for line in lines_of(f"{kept}.ids"))
            had = {name: had[name] for name in wanted if name in had and name not in own}
            had.update(zip(own, ids))  # noqa: B905 - Python 3.8
            write_whole(f"{kept}.ids", "".join(f"{one} {its}\n" for one, its in had.items()), 0o600)
        return {name: known[name] for name in own}

    def _write_env(self, secrets: Mapping[str, str]) -> None:
        downloads = dict(self._downloads())
        named = ", ".join(downloads)
        if named and lines_of(f"{self.home}/downloads") != [named]:
            write_whole(f"{self.home}/downloads", named, 0o600)
            tell("note code=downloads-kept")
        profile = dict(zip(self.values.env_names, self.values.env_values))  # noqa: B905 - Python 3.8
        for folder in (self.setup.tree.steps, self.home):
            write_env_files(folder, {**downloads, **profile, **secrets})

    def _downloads(self) -> Iterator[tuple[str, str]]:
        """Yield variables for folders in the working folder, which outlives a tree and, on a
        volume, the box. Not where somebody chose another, or has downloaded already."""
        workdir, user = os.path.dirname(self.home), self._user
        if self._is_local or workdir == user or self._is_set_elsewhere("XDG_CACHE_HOME", ""):
            return
        for name, own, usual in _DOWNLOADS:
            folder = f"{self.home}/cache/{own}"
            with suppress(OSError):
                if os.listdir(f"{user}/{usual}"):
                    continue
            if self._is_set_elsewhere(name, folder):
                continue
            yield name, folder
            # A token of `hf auth login` stays on the box: a volume outlives it.
            token = f"{user}/{usual}/token"
            if name == "HF_HOME" and not self._is_set_elsewhere("HF_TOKEN_PATH", token):
                yield "HF_TOKEN_PATH", token

    def _is_set_elsewhere(self, name: str, ours: str) -> bool:
        """Whether the profile, the image or one of the user's files sets it to something else."""
        if os.environ.get(name, ours) != ours or name in self.values.env_names:
            return True
        return bool(re.search(rf"(^|[^A-Z_]){name}=".encode(), self._set, re.MULTILINE))

    @cached_property
    def _set(self) -> bytes:
        """What sets variables here."""
        from glob import glob  # late: a check has no need of it

        said = b""
        for path in [*map(os.path.expanduser, _SETTERS), *glob("/etc/profile.d/*.sh")]:
            with suppress(OSError), open(path, "rb") as file:
                said += file.read() + b"\n"
        with suppress(OSError), open("/proc/1/environ", "rb") as file:
            said += file.read().replace(b"\n", b" ").replace(b"\0", b"\n")
        return said


def _notes(home: str) -> list[str]:
    """Return the files with the names of the secrets that each repository asks for."""
    return [f"{home}/steps/{key}/shell.secrets" for key in names_in(f"{home}/steps")]


def _begin_with(path: str, line: str) -> None:
    """Put a line at the top, since many rc files return early if the shell is not interactive. The
    file is replaced as a whole or not at all; a link stays a link."""
    file = os.path.realpath(path)
    os.makedirs(os.path.dirname(file), exist_ok=True)
    new, text, had = f"{file}.boxstrap", b"", None
    with suppress(FileNotFoundError), open(file, "rb") as before:
        text, had = before.read(), os.fstat(before.fileno())
    text = f"{line}\n".encode() + text
    with open(new, "wb", opener=privately) as after:
        after.write(text)
    os.chmod(new, had.st_mode & 0o7777 if had else 0o644)
    if had:
        with suppress(OSError):
            os.chown(new, had.st_uid, had.st_gid)
    try:
        os.replace(new, file)
    except OSError:  # one that is a mount of its own can't be replaced
        with open(file, "wb") as there:
            there.write(text)
        os.unlink(new)
