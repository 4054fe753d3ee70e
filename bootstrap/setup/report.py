"""The end of a setup: what runs, and what a person does next."""

from __future__ import annotations

import posixpath
import shlex
import shutil
import sys
from typing import TYPE_CHECKING

from bootstrap.ui.words import Next, what_next

if TYPE_CHECKING:
    from bootstrap.link.handle import BoxHandle
    from bootstrap.profile.schema import Profile
    from bootstrap.protocol.probe import BoxState
    from bootstrap.protocol.run import Run
    from bootstrap.setup.prepare import Prepared


def repo_dir(prepared: Prepared, box_state: BoxState) -> str:
    """Where the repository lies on the box, as an absolute path."""
    if box_state.repo_dir:
        return box_state.repo_dir
    box_home = box_state.facts.get("boxhome", "")
    return posixpath.join(posixpath.dirname(box_home), prepared.repo_name)


def next_steps(
    find_box: BoxHandle, prepared: Prepared, box_state: BoxState, run: Run | None, alias: str = ""
) -> str:
    """The block that ends a setup. `alias` is what ssh calls the box, if it has one."""
    name, program = find_box.known.name, program_name(sys.argv[0])
    can_attach = run and run.state == "running" and box_state.facts.get("tmux")
    folder, repo = repo_dir(prepared, box_state), find_box.options.repo
    # Whose run is meant goes by where the person stands: here they named another place.
    there = f"--host {name}" + (f" --repo {shlex.quote(str(repo.absolute()))}" if repo else "")
    return what_next(
        Next(
            box=name,
            run=run.name if run else "",
            state=run.outcome() if run else "",
            attach=f"{program} attach {there}" if can_attach else "",
            follow=f"{program} logs -f {there}" if run else "",
            shell="" if find_box.is_local else f"{program} shell {there}",
            ssh=_ssh(alias, folder, box_state) if alias else "",
            code="" if find_box.is_local else f"{program} code {there}",
            fetch=() if find_box.is_local else _fetch(find_box, prepared.profile, folder, alias),
            status=f"{program} status --host {name}",
            rented=not find_box.is_local,
            destroy_at=prepared.profile.provider.console or "",
        )
    )


def _ssh(alias: str, folder: str, box_state: BoxState) -> str:
    """Into the repository's folder and environment, by what each setup leaves on the box."""
    home = box_state.facts.get("boxhome", "")
    name = posixpath.relpath(folder, posixpath.dirname(home)) if home else folder
    words = ("bash", posixpath.join(home, "box/enter.sh"), name)
    # Two shells read them, ours first; the box chose its folders' names.
    return f"ssh -t {alias} {' '.join(shlex.quote(shlex.quote(word)) for word in words)}"


def program_name(typed: str) -> str:
    """How to call this program again: `inv`, `boxstrap`, or its path where that is not on PATH."""
    name = posixpath.basename(typed)
    if name not in {"boxstrap", "inv", "invoke"}:
        return "boxstrap"
    return name if shutil.which(name) else shlex.quote(typed)


def _fetch(find_box: BoxHandle, profile: Profile, folder: str, alias: str) -> list[str]:
    endpoint = find_box.endpoint
    if endpoint is None:
        return []
    if not alias and endpoint.alias != endpoint.hostname:
        alias = endpoint.alias
    host = alias or f"{endpoint.user}@{_bracketed(endpoint.hostname)}"
    port = "" if alias or endpoint.port == 22 else f"-P {endpoint.port} "
    results = profile.train.results if profile.train else []
    places = [posixpath.join(folder, result) for result in results]
    return [f"scp -r {port}{shlex.quote(f'{host}:{place}')} ." for place in places]


def _bracketed(hostname: str) -> str:
    return f"[{hostname}]" if ":" in hostname else hostname
