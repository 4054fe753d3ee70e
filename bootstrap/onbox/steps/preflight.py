"""Can this box be set up at all? Stage 0 knows: `templates/lib/preflight.sh`. It is not asked again
where the box plainly is as it should be."""

from __future__ import annotations

import os

from ..short_program import run, which
from ..step_report import StepError
from .step import BoxStep

_SETTINGS = ("uv.toml", "pyproject.toml", ".python-version", ".python-versions")
_LEAST_FILES = 20000


class PreflightStep(BoxStep):
    def check(self) -> bool:
        return self._is_plain() or not self._lacks()

    def apply(self) -> None:
        """Say what it lacks first."""
        code, _, sentence = self._lacks().partition("\t")
        if code:
            raise StepError(code, sentence)

    def _lacks(self) -> str:
        script = os.fsencode(self.setup.one("page"))
        stage0 = ["bash", "--norc", "-c", 'eval "$(cat)"', "setup", "preflight"]
        said = os.fsdecode(run(stage0, os.environ, given=script).output)
        return said.split("\n")[0].partition("\t")[2]

    def _is_plain(self) -> bool:
        """Whether all that may change after a box was set up is so that stage 0 lacks nothing."""
        workdir, volume = os.path.dirname(self.home), self.values.volume_at
        settings = filter(os.path.lexists, (f"{workdir}/{name}" for name in _SETTINGS))
        temporary = os.environ.get("TMPDIR", "")
        temporary = temporary if os.access(temporary, os.W_OK) else "/tmp"  # noqa: S108 - as the shell has it
        return (
            not os.path.islink(self.home)
            and all(os.lstat(path).st_uid == os.geteuid() for path in (self.home, *settings))
            and (not volume or os.path.ismount(volume))
            and bool(which("git"))
            and _has_room(workdir, self.values.min_free_mb, _LEAST_FILES)
            and _has_room(temporary, self.values.min_tmp_mb)
        )


def _has_room(folder: str, megabytes: str, files: int = 0) -> bool:
    disk = os.statvfs(folder)
    has_files = not disk.f_files or disk.f_ffree >= files  # some have no fixed number
    is_large = disk.f_bavail * disk.f_frsize >= int(megabytes) * 10**6
    return os.access(folder, os.W_OK) and has_files and is_large
