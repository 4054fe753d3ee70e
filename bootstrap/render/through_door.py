"""Render for a door: an edition of the script in the door's wrapper, within its limit."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bootstrap import __version__
from bootstrap.errors import UsageError
from bootstrap.render.doors import COMPACT, FULL, MINIMAL, Door, door_named
from bootstrap.render.pack import encoded, folded, paste
from bootstrap.render.quote import harmless
from bootstrap.render.script import render_text

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile
    from bootstrap.render.variables import Source


@dataclass(frozen=True)
class Rendering:
    """The text for a door, and its edition."""

    door: Door
    edition: str
    text: str

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.text.encode())


def render_door(name: str, profile: Profile, source: Source) -> Rendering:
    """Render the longest edition that fits through that door.

    Raises UsageError for an unknown door, and if no edition fits: with the sizes, and
    which parts of the profile could be dropped.
    """
    door = door_named(name)
    tried = []
    for edition in door.editions:
        script = _edition_of(edition, door, profile, source)
        text = render_text(
            f"doors/{door.template}", _values(door, edition, script, profile, source)
        )
        made = Rendering(door, edition, text)
        if door.limit is None or made.size <= door.limit:
            return made
        tried.append(made)
    raise too_long(tried, profile)


def too_long(tried: list[Rendering], profile: Profile) -> UsageError:
    """Return the error for a door into which no edition fits."""
    last = tried[-1]
    return UsageError(
        f"{last.door.name} takes {last.door.limit:,} bytes ({last.door.source}), and "
        + ", ".join(f"the {made.edition} script needs {made.size:,}" for made in tried)
        + ".",
        hint=f"What could go: {', '.join(droppable(profile))}.\n"
        "Or let the box fetch it: boxstrap oneliner --url https://…",
    )


def droppable(profile: Profile) -> list[str]:
    """Return the parts of a profile that take up space, the largest first."""
    sizes = {
        "env": sum(len(name) + len(value) for name, value in profile.env.items()),
        "packages": sum(map(len, profile.packages)),
        "ssh.authorized_keys": 120 * len(profile.ssh.authorized_keys),
        "train.command": len(profile.train.command) if profile.train else 0,
        "secrets": sum(map(len, profile.secrets)),
        "prepare": sum(map(len, profile.prepare)) + (320 if profile.prepare else 0),  # its step
    }
    found = [f"{key} ({size:,} bytes)" for key, size in _largest(sizes) if size]
    return found or ["nothing: the profile is small already"]


def _largest(sizes: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(sizes.items(), key=lambda item: item[1], reverse=True)


def as_user(user: str) -> str:
    """Return a line of shell that runs the script as the box's own user, or as root if none."""
    if not user:
        return "exec bash /var/lib/boxstrap/door.sh"
    named = f"u={user};" if user != "first" else ""
    first = "u=$(getent passwd|awk -F: '$3>=1000&&$3<60000{print $1;exit}')"
    known = f'{named}id "$u" >/dev/null 2>&1||{first}' if named else first
    return f"{known};exec runuser -l \"${{u:-root}}\" -c 'bash /var/lib/boxstrap/door.sh'"


def _values(
    door: Door, edition: str, script: str, profile: Profile, source: Source
) -> dict[str, object]:
    gpu, python = profile.gpu, profile.python
    folder = posixpath.join(_absolute(profile.box.workdir), source.name)
    values: dict[str, object] = {
        "version": __version__,
        "profile_name": harmless(profile.name),
        "edition": edition,
        "use": door.use,
        "packed": encoded(script),
        "halves": _halves(encoded(script)),
        "lines": folded(encoded(script)).splitlines(),
        "script": script,
        "paste": paste(script),
        "as_user": as_user(profile.ssh.user or door.user),
        "name": source.name,
        "run_name": re.sub(r"[^a-z0-9-]+", "-", f"box-{source.name}".lower()).strip("-")[:40],
        "secrets": profile.secrets,
        "folder": folder,
        "needs_gpu": gpu.require,
        "remote_env": dict(profile.env),
        "interpreter": posixpath.join(folder, python.venv, "bin", "python"),
        "accelerators": _one_or_all([f"{name}:{gpu.count or 1}" for name in gpu.names]),
        "dstack_gpu": dstack_gpu(profile),
    }
    if door.template == "notebook.j2":
        values["cell"] = render_text("doors/cell.py.j2", values)
    return values


def _halves(text: str) -> tuple[str, str]:
    """Return it as two arguments, each within the limit of one."""
    middle = len(text) // 2
    return text[:middle], text[middle:]


def _absolute(workdir: str) -> str:
    return "/root" + workdir[1:] if workdir.startswith("~") else workdir


def dstack_gpu(profile: Profile) -> dict[str, object]:
    """Return the GPU that dstack should look for; empty if the profile requires none."""
    gpu = profile.gpu
    if not gpu.require:
        return {}
    found: dict[str, object] = {"count": gpu.count or 1}
    if gpu.names:
        found["name"] = _one_or_all(gpu.names)
    if gpu.min_memory_gib:
        found["memory"] = f"{gpu.min_memory_gib:g}GB.."
    return found


def _one_or_all(texts: Sequence[str]) -> str | list[str]:
    """Return the only text, or all of several as a list; "" if there is none."""
    return list(texts) if len(texts) > 1 else "".join(texts)


def _edition_of(name: str, door: Door, profile: Profile, source: Source) -> str:
    """Return the script in that edition."""
    from bootstrap.render.compact import render_carrier, render_compact
    from bootstrap.render.minimal import render_minimal

    if door.bakes and profile.python.torch_backend == "auto":
        profile = profile.replace(python=profile.python.replace(torch_backend="none"))
    makers: dict[str, Callable[[], str]] = {
        FULL: lambda: render_carrier(profile, source, leave=door.leave, bare=door.takes_bare),
        COMPACT: lambda: render_compact(profile, source),
        MINIMAL: lambda: render_minimal(profile, source),
    }
    return makers[name]()
