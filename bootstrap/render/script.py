"""The script: variables, library, steps and the box's files, assembled by Jinja."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import jinja2

from bootstrap import __version__
from bootstrap.paths import shipped
from bootstrap.plan import Step
from bootstrap.render.parts import LIBRARY, box_files, shell_part
from bootstrap.render.quote import Value, harmless, quote

MARKER = "END_OF_BOX_FILE"


class _Bare(str):
    """Text that a template writes as it is, because it says so."""

    __slots__ = ()


def render_script(
    profile_name: str, variables: Sequence[tuple[str, Value]], steps: Sequence[Step]
) -> str:
    """One bash script that takes a box to a profile; pure, and the same for the same input."""
    return (
        _environment()
        .get_template("setup.sh.j2")
        .render(
            version=__version__,
            profile_name=harmless(profile_name),
            variables=variables,
            library=[shell_part("lib", name) for name in LIBRARY],
            steps=[shell_part("steps", step.name) for step in steps],
            files=box_files(),
            marker=MARKER,
        )
    )


def script_id(script: str) -> str:
    """What tells one script from another: the SHA-256 of its bytes."""
    return hashlib.sha256(script.encode()).hexdigest()


def _environment() -> jinja2.Environment:
    # The usual delimiters are bash of their own (`${#array[@]}`).
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped("templates")),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<%=",
        variable_end_string="%>",
        comment_start_string="<%#",
        comment_end_string="%>",
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, _Bare) else quote(value),
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - shell, not HTML: `finalize` quotes every value
    )
    environment.filters["bare"] = _Bare
    return environment
