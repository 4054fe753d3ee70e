"""The box's alias in the user's ssh config, updated at the end of a setup.

If this Linux runs inside Windows (WSL), they are also written into Windows' own ssh config: VS Code
is a Windows program there and calls Windows' ssh, which reads `.ssh/config` in Windows' home and
can't use keys or files of this Linux. The pinned host keys go there too; private keys are never
copied.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from bootstrap.boxes import ssh_config as entries
from bootstrap.boxes.ssh_config import UpdateResult
from bootstrap.boxes.userfile import (
    VARIABLE,
    ConfigPlace,
    LeftAloneError,
    UserFile,
    account_home,
    find_place,
)
from bootstrap.errors import UsageError, write_error
from bootstrap.link.record import KnownBox, all_boxes
from bootstrap.paths import write_private
from bootstrap.ui.screen import Reporter, Screen
from bootstrap.value import dataclass


def update_alias(box: KnownBox, reporter: Reporter, *, is_noisy: bool) -> str:
    """Update the ssh config and return what to type after `ssh`; "" for `local`, or if the user
    turned this off. Problems are reported, but don't make a setup fail. `is_noisy`: whether the
    box's shell prints something at each login, which scp and rsync take for an answer."""
    result = None if box.is_local else _update(reporter)
    if result is None:
        return ""
    alias = result.alias(box)
    if result.changed and alias:
        also = "editors too" if is_noisy else "scp, rsync and editors too"
        but = "; not for scp and rsync, as its shell prints something at each login"
        reporter.say(f"`ssh {alias}` leads to this box, for {also}{but if is_noisy else ''}")
    return alias


def drop_alias(reporter: Reporter) -> None:
    """Update the ssh config after a box was forgotten."""
    place = _wanted()
    if place is not None and place.entries.exists():
        _update(reporter)


def _wanted() -> ConfigPlace | None:
    place = find_place()
    return None if place is None or place.off.exists() else place


def _update(reporter: Reporter) -> UpdateResult | None:
    place = _wanted()
    if place is None:
        return None
    try:
        result = entries.update(place)
    except OSError as error:
        what = write_error(place.entries, error).what
        reporter.warn(f"the ssh config's entries are not kept: {what}")
        return None
    if result.changed:
        if result.trouble:
            reporter.warn(result.trouble)
        follow_on_windows(reporter)
    return result


def write_entries(screen: Screen) -> None:
    """Update the entries and list them. Raises UsageError if that is not possible."""
    place = _place()
    place.off.unlink(missing_ok=True)
    kept = entries.update(place, afresh=True)
    if kept.trouble:
        what, _, hint = kept.trouble.partition("\n")
        raise UsageError(what, where="ssh config", hint=hint)
    windows = follow_on_windows(screen)
    rows = [f"{entry.alias:<28} {_leads_to(entry)}" for entry in kept.entries.entries]
    rows += [f"{alias:<28} left out: {why}" for alias, why in kept.entries.left_out.items()]
    screen.result(
        {
            "file": str(place.entries),
            "included_by": str(place.config),
            "windows": windows,
            "aliases": list(kept.entries.aliases),
            "left_out": dict(kept.entries.left_out),
        },
        "\n".join(rows or ["no box is known yet: boxstrap setup --host …"]),
    )


def remove_entries(screen: Screen) -> None:
    """Remove everything from the user's ssh config, and keep it so."""
    place = _place()
    there = entries.remove_block(place)
    if is_wsl():
        try:
            remove_from_windows(find_windows())
        except NoWindowsError as error:
            screen.warn(f"Windows' ssh config was left as it is: {error}.")
    words = "is as it was before boxstrap" if there else "has nothing of boxstrap in it"
    screen.result(
        {"file": str(place.config), "removed": there},
        f"{place.config} {words}; setups leave it alone until: boxstrap ssh-config",
    )


def follow_on_windows(reporter: Reporter) -> str:
    """On WSL, also write the entries for Windows' programs; returns the folder, or ""."""
    if not is_wsl():
        return ""
    try:
        windows = find_windows()
        advice = write_for_windows(windows, all_boxes())
    except NoWindowsError as error:
        reporter.warn(
            f"Windows' programs (VS Code is one) don't know the boxes yet: {error}.\n"
            "Put what `boxstrap ssh-config` lists into C:\\Users\\NAME\\.ssh\\config by hand."
        )
        return ""
    for sentence in advice:
        reporter.say(f"Windows: {sentence}")
    return str(windows.folder)


def _leads_to(entry: entries.Entry) -> str:
    options = dict(entry.options)
    if "HostName" not in options:
        return "your own entry, with the box's host key added"
    user = f"{options['User']}@" if "User" in options else ""
    return f"{user}{options['HostName']}:{options['Port']}"


def _place() -> ConfigPlace:
    place = find_place()
    if place is None:
        raise UsageError(
            "your ssh config must not be changed: "
            f"{VARIABLE} is off, or HOME is not your account's home, {account_home()}.",
            where="ssh config",
            hint=f"Unset {VARIABLE}, or let it name the file to change.",
        )
    return place


_INCLUDE = "boxstrap/config"  # relative to .ssh, where Windows' ssh looks up relative paths
_CMD = ("cmd.exe", "/mnt/c/Windows/System32/cmd.exe")
_TIMEOUT_S = 20


class NoWindowsError(Exception):
    """The Windows side can't be reached; the message says why."""


@dataclass(frozen=True)
class Windows:
    """The Windows user's .ssh folder, as this Linux sees it."""

    folder: Path

    @property
    def config(self) -> UserFile:
        return UserFile(self.folder / "config")

    @property
    def ours(self) -> Path:
        return self.folder / "boxstrap"


def is_wsl(env: Mapping[str, str] = os.environ, version: Path = Path("/proc/version")) -> bool:
    """Whether this Linux runs inside Windows."""
    if env.get("WSL_DISTRO_NAME"):
        return True
    try:
        return "microsoft" in version.read_text(errors="replace").lower()
    except OSError:
        return False


def find_windows() -> Windows:
    """Ask Windows for its user's .ssh folder. Raises NoWindowsError."""
    # /u: output as UTF-16. Otherwise it is in an unknown code page, which loses umlauts.
    profile = _first_answer([[cmd, "/u", "/d", "/c", "echo %USERPROFILE%"] for cmd in _CMD])
    if not profile or "%" in profile:
        raise NoWindowsError("Windows does not say where its user's folder is")
    home = _first_answer([["wslpath", "-u", profile]])
    if not home or not Path(home).is_dir():
        raise NoWindowsError(f"{profile} can't be accessed from here")
    return Windows(Path(home) / ".ssh")


def write_for_windows(windows: Windows, boxes: Iterable[KnownBox]) -> list[str]:
    """Write Windows' entries; return what is left for the user to do. Raises NoWindowsError."""
    alive, advice = entries.reachable(boxes), []
    theirs = _hosts(windows)
    blocks = [entries.HEAD]
    try:
        windows.ours.mkdir(parents=True, exist_ok=True)
        for box in alive:
            alias = box.name
            if theirs & {alias, alias.lower()}:
                continue
            if box.route.jump or box.route.proxy:
                advice.append(f"{alias} is reached through another host: not from Windows")
                continue
            keys = _keys(box)
            copies = [name for name in keys if (windows.folder / name).is_file()]
            if keys and not copies:
                advice.append(
                    f"for {alias} copy the key {' or '.join(keys)} to Windows' .ssh folder, "
                    "then: boxstrap ssh-config"
                )
            try:
                blocks.append(entries.windows_entry(box, copies if box.route.identity else []))
            except entries.UnwritableError:
                continue
            _write(windows.ours / f"{box.name}.known_hosts", box.known_hosts.read_text("utf-8"))
        _write(windows.ours / "config", "\n".join(blocks))
        for file in windows.ours.glob("*.known_hosts"):
            if file.stem not in {box.name for box in alive}:  # forgotten, or no longer reachable
                file.unlink()
        data = windows.config.read()
        new = entries.with_block(data or b"", _INCLUDE, is_new=data is None)
        if new != data:
            windows.config.prepare(new).put()
    except OSError as error:
        raise NoWindowsError(write_error(windows.ours, error).what.rstrip(".")) from None
    except LeftAloneError as error:
        raise NoWindowsError(str(error)) from None
    return advice


def remove_from_windows(windows: Windows) -> None:
    """Restore the config there as it was. Raises NoWindowsError."""
    try:
        data = windows.config.read()
        rest = entries.without_block(data, _INCLUDE) if data is not None else None
        if data is not None and rest is None:
            windows.config.remove()
        elif rest is not None and rest != data:
            windows.config.prepare(rest).put()
        for file in [*windows.ours.glob("*.known_hosts"), windows.ours / "config"]:
            file.unlink(missing_ok=True)
        if windows.ours.is_dir():
            windows.ours.rmdir()
    except (OSError, LeftAloneError) as error:
        raise NoWindowsError(str(error)) from None


def _keys(box: KnownBox) -> list[str]:
    """List names of key files for the box: the one named for it, or those in ~/.ssh."""
    if box.route.identity:
        return [Path(box.route.identity).name]
    return sorted(path.stem for path in (account_home() / ".ssh").glob("id_*.pub"))


def _hosts(windows: Windows) -> frozenset[str]:
    try:
        text = (windows.config.read() or b"").decode("utf-8-sig", errors="replace")
    except LeftAloneError as error:
        raise NoWindowsError(str(error)) from None
    lines = (line.replace("=", " ").split() for line in text.splitlines())
    return frozenset(w for words in lines if words and words[0].lower() == "host" for w in words)


def _write(path: Path, text: str) -> None:
    if not path.is_file() or path.read_bytes() != text.encode():
        write_private(path, text)


def _first_answer(commands: Iterable[list[str]]) -> str:
    """Return the first line of the first command that prints one; "" if none does."""
    for command in commands:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
                cwd="/",
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        wide = b"\0" in done.stdout
        lines = done.stdout.decode("utf-16-le" if wide else "utf-8", "replace").split("\n")
        if done.returncode == 0 and lines[0].strip():
            return lines[0].strip()
    return ""
