"""Variables with which an environment changes how shells, or the tools of a script, behave."""

from __future__ import annotations

SHELL_SETTINGS = (
    *("BASHOPTS", "BASH_COMPAT", "BASH_ENV", "BASH_XTRACEFD", "CDPATH", "ENV", "EXECIGNORE"),
    *("FUNCNEST", "GLOBIGNORE", "GREP_OPTIONS", "POSIXLY_CORRECT", "SHELLOPTS", "TMOUT"),
)
"""No script of this program sees them. `reset_shell` in `templates/lib/base.sh` has the same, for
scripts that a door starts."""
