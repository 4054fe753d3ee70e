"""profiles, init: list, show and check profiles, and write a first one."""

from __future__ import annotations

from pathlib import Path

from bootstrap.tasks.command import JSON, SET, Call, Option, command


@command(
    JSON,
    Option("show", "Show this profile whole, and where each value comes from."),
    Option("validate", "Check this profile: a name or a path."),
    SET,
    changes=(),
)
def profiles(call: Call) -> None:
    """List the profiles there are; show one with the origin of each value; check one.

    Example: boxstrap profiles --show vast --set gpu.count=2
    """
    from bootstrap.profile.load import listed, origin_lines, read_profile
    from bootstrap.repo.place import repository_root

    given = call.given
    name = given["show"] or given["validate"]
    if not name:
        found = listed()
        rows = [
            f"{item.name:<12} {item.description}{' (your own)' if item.own else ''}"
            for item in found
        ]
        data = [{"name": item.name, "path": str(item.path), "own": item.own} for item in found]
        call.screen.result({"profiles": data}, "\n".join(rows))
        return
    loaded = read_profile(
        name, sets=tuple(given["set_"] or ()), repo_root=repository_root(Path.cwd())
    )
    if given["validate"]:
        files = [str(path) for path in loaded.chain]
        call.screen.result({"valid": True, "files": files}, f"right: {', '.join(files)}")
        return
    from bootstrap.repo.urls import without_user_info

    shown = loaded.profile.as_dict()
    shown["git"]["url"] = without_user_info(loaded.profile.git.url or "") or None
    call.screen.result(
        {"profile": shown},
        "\n".join(origin_lines(loaded.profile, loaded.origins, described=True)),
    )


@command(
    JSON,
    Option("repo", "The repository; default: that of the current folder."),
    Option("command", "The training's command; default: what the repository shows."),
)
def init(call: Call) -> None:
    """Write a commented boxstrap.yaml from what the repository shows. Nothing of it is run.

    Example: boxstrap init --command "python train.py --epochs 3"
    """
    from bootstrap.errors import UsageError, write_error
    from bootstrap.link.prompt import Prompt
    from bootstrap.paths import write_users_file
    from bootstrap.profile.scaffold import look_where_you_stand, notes, write_profile
    from bootstrap.profile.values import COMMAND
    from bootstrap.repo.local import read_repository

    place, command = call.options().place, call.given["command"] or ""
    try:
        COMMAND(command or "none")
    except ValueError as error:
        raise UsageError(str(error), where="--command") from None
    try:
        here = read_repository(place)
        root, url, lacking = here.root, here.url, []
    except UsageError as error:
        # A folder without a repository, or without a commit, can still get a profile.
        root, url, lacking = place, None, [f"{error.what} {error.hint}"]
    file, facts = (
        root / "boxstrap.yaml",
        look_where_you_stand(root, place, url=url, command=command),
    )
    prompt = Prompt(print)
    if len(facts.candidates) > 1 and not (call.is_json or file.exists()) and prompt.has_terminal():
        script = prompt.choose("Which of them is the training?", facts.candidates)
        facts = look_where_you_stand(root, place, url=url, script=script)
    try:
        write_users_file(file, write_profile(facts), "x")  # "x" never follows a link
    except FileExistsError:
        raise UsageError(
            "it is there already; nothing was written.",
            where=str(file),
            hint=f"See what it says: boxstrap profiles --show {file}",
        ) from None
    except OSError as error:
        raise write_error(file, error) from None
    remarks = [*notes(facts), *lacking]
    lines = [f"written: {file}", *remarks, "Read it through, then: boxstrap setup --host …"]
    call.screen.result({"written": str(file), "notes": remarks}, "\n".join(lines))
