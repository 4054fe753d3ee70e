"""What is typed: options of the program, what was meant, help, Tab; in `boxstrap` and `inv`."""

import json
import re
import shutil
import time
from pathlib import Path

import pexpect
import pytest

from bootstrap.boxes import Run
from bootstrap.boxes.at_home import RunAtHome, note_seen
from bootstrap.errors import UnreachableError, UsageError
from bootstrap.link import KnownBox, record
from bootstrap.profile import PROFILE
from bootstrap.tasks import NAMES, find, usage
from bootstrap.tasks.command import Call, _complete_error, _with_box
from bootstrap.tasks.completion import SCRIPTS
from bootstrap.tasks.parser import parse_command
from tests.cli import User
from tests.plain_environment import BIN
from tests.programs import captured

pytestmark = pytest.mark.slow


def test_options_directory_and_no_color_may_stand_before_the_command(at: User) -> None:
    (at.place / "sub").mkdir()
    (at.place / "sub" / "own.yaml").write_text("version: 1\n")
    at.run("--no-color", "-C", "sub", "profiles", "--validate", "own.yaml").must(0)
    at.run("profiles", "--validate", "own.yaml").must(2)


@pytest.mark.parametrize(
    ("host", "run", "meant"),
    [
        ([], ["gpu/train-1"], ("gpu", ["train-1"])),
        (None, "gpu/train-1", ("gpu", "train-1")),
        (["gpu"], ["gpu/train-1", "gpu/train-2"], ("gpu", ["train-1", "train-2"])),
        ([], ["first/train-1"], ("first", ["train-1"])),
        ([], ["gone/train-1"], ("gone", ["train-1"])),
        *((["other"], [run], (["other"], [run])) for run in ("gpu/train-1", "train-1")),
        *(([], runs, ([], runs)) for runs in (["gpu/a", "b"], ["homework/a"], ["gone/a"], [])),
    ],
)
def test_a_run_named_as_box_slash_run_means_that_run_on_that_box(
    host: object, run: object, meant: object
) -> None:
    """`homework/a` is a repository's run, as a box calls it; `gone` was forgotten here, and its
    train-1 is at home; `first` is how the box was called once."""
    record.save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1", folder_name="first"))
    at_home = Run("homework-1", "train-1", "finished", 0, 1, "c", "w", "t", 0, 9, "python x")
    RunAtHome("gone", 1.0, "root@gone", at_home).save()
    given = _with_box({"host": host, "run": run, "hosts": None})
    assert (given["host"], given["run"]) == meant


def test_each_command_with_run_given_as_box_slash_run_connects_to_that_box(at: User) -> None:
    """Its pin is not there; without a box it would be exit 2: the repository has none."""
    record.save_box(KnownBox("gpu", "root@127.0.0.1:1", "127.0.0.1", port=1))
    for task in ("status", "logs", "report", "wait", "attach", "stop", "pull"):
        assert "the box gpu is known" in at.run(task, "--run", "gpu/train-1", "--json").must(4).err


def test_a_command_for_a_run_that_only_one_box_has_needs_no_host(at: User) -> None:
    at.run("setup", "--host", "local", "--profile", "ssh", "--dry")  # gives the repository its key
    (known,) = at.state.glob("repositories/*.json")
    key = json.loads(known.read_text())["id"]
    for port, name in enumerate(("gpu", "other"), 1):
        box = KnownBox(name, f"root@127.0.0.1:{port}", "127.0.0.1", port=port).using(key)
        run = Run(key, f"train-{port}", "running", None, 1, "c", "w", "t", 0, 9, "python x")
        note_seen(record.save_box(box), [run], str, keys={key: key})
    done = at.run("stop", "--run", "train-2").must(4)
    assert "the box other is known" in done.err
    assert "other is the one box here that is known to have train-2" in done.err
    assert "the box other is known" in at.run("run", "--resume", "train-2").must(4).err
    assert "which box?" in at.run("logs", "--run", "train-3").must(2).err
    mistyped = at.run("logs", "--run", "gpu7/train-1", "--json").must(2).json()["error"]["what"]
    assert mistyped == "no box here is called gpu7, and none is known to have gpu7/train-1."
    (at.state / "forgotten.json").write_text('{"127.0.0.1 9 SHA256:x": {"name": "gpu7"}}')
    again = at.run("logs", "--run", "gpu7/train-1").must(2).err
    assert "gpu7 was forgotten here, and gpu7/train-1 did not come home." in again
    assert "gpu7 was forgotten here before." in at.run("boxes", "--forget", "gpu7").must(2).err
    record.save_box(KnownBox("third", "root@127.0.0.1:3", "127.0.0.1", port=3))
    at.run("boxes", "--forget", "gpu", "--forget", "gpu7").must(2)
    both = at.run("boxes", "--forget", "gpu", "--forget", "third", "--json").must(0).json()
    assert both["forgotten"] == ["gpu", "third"]
    assert "known to have" not in at.run("stop", "--run", "train-2").must(4).err


def test_runs_lists_the_runs_of_a_repository_that_was_moved(at: User) -> None:
    at.run("setup", "--host", "local", "--profile", "ssh", "--dry")  # gives the repository its key
    (known,) = at.state.glob("repositories/*.json")
    key = json.loads(known.read_text())["id"]
    box = KnownBox("gpu", "root@127.0.0.1:1", "127.0.0.1", port=1).using(key)
    run = Run(key, "train-1", "running", None, 1, "c", "w", "t", 0, 9, "python x")
    note_seen(record.save_box(box), [run], str, keys={key: key})
    at.place = at.place.rename(at.place.with_name("moved"))
    assert "train-1" in at.run("runs").must(0).out


def on_box(user: User) -> list[str]:
    """The files where a setup of this machine would put things."""
    return sorted(str(path) for path in (user.home / "box").rglob("*"))


def local_setup(user: User) -> list[str]:
    return ["setup", "--host", "local", "--set", f"box.workdir={user.home / 'box'}"]


@pytest.mark.parametrize(("program", "dry"), [("boxstrap", "-R"), ("inv", "--dry")])
def test_a_dry_setup_shows_the_plan_and_changes_nothing(program: str, dry: str, at: User) -> None:
    done = at.run(dry, *local_setup(at), program=program).must(0)
    planned = [line.split()[:2] for line in done.out.splitlines()]
    assert ["runs", "train"] in planned
    assert ["runs", "repo"] in planned
    found = at.run(dry, *local_setup(at), "--json", program=program).must(0).json()
    assert {"step": "train", "runs": True, "why": "new"} in found["steps"]
    assert on_box(at) == []
    assert not (at.home / ".boxstrap").exists()
    assert not (at.state / "boxes/local").exists()


def test_a_dry_setup_refuses_what_a_real_setup_refuses(at: User) -> None:
    (at.place / ".env").write_text("x")
    done = at.run("--dry", *local_setup(at)).must(2)
    assert ".env" in done.err
    at.run("--dry", *local_setup(at), "--committed-only").must(0)


def test_help_lists_only_options_that_have_an_effect(reader: User) -> None:
    shown = reader.run("--help").must(0).out
    assert reader.run().must(0).out == shown
    own = shown.partition("Options of the program")[2].split()
    assert {word for word in own if word.startswith("--")} == {
        *("--directory", "--dry", "--help", "--list", "--no-color", "--version")
    }
    assert "Invoke" not in shown
    assert len(shown.splitlines()) <= 90


def test_each_profile_key_suggested_for_another_tools_option_exists() -> None:
    keys = {key for key, _ in PROFILE.leaves()}
    ours = {option: key for option, key in usage.OTHERS_OPTIONS.items() if "." in key}
    for option, key in ours.items():
        assert key in keys or key.partition(".")[0] in keys, option


def test_the_command_list_begins_with_the_commands_needed_first(reader: User) -> None:
    shown = reader.run("--list").must(0).out
    assert reader.run("--list", "stop").must(0).out == shown  # and stops nothing
    families = [
        [line.split()[0] for line in part.splitlines() if line.startswith("  ") and line[2] != " "]
        for part in shown.partition(":")[2].strip("\n").split("\n\n")
    ]
    assert families[0] == ["init", "setup", "logs", "status", "stop"]
    assert ["plan", "verify"] in families
    assert ["render", "oneliner"] in families
    assert sorted(name for family in families for name in family) == sorted(NAMES)


def test_each_command_suggested_for_another_tools_command_word_exists() -> None:
    assert usage.OTHERS_WORDS.keys() & {*NAMES} == set()
    led_to = {re.split(r" or | ", task)[0] for task in usage.OTHERS_WORDS.values()}
    assert led_to <= {*NAMES}


def test_help_and_version_work_as_commands_too(reader: User) -> None:
    assert reader.run("help").must(0).out == reader.run("--help").must(0).out
    shown = reader.run("version").must(0).out
    assert shown == reader.run("--version").must(0).out
    assert shown.startswith("boxstrap ")


@pytest.mark.parametrize("columns", [50, 80, 200])
def test_help_texts_fit_the_width_of_the_terminal(columns: int, reader: User) -> None:
    for words in (["--help"], ["--list"], ["setup", "--help"], ["logs", "--help"]):
        shown = reader.run(*words, COLUMNS=str(columns)).must(0).out.splitlines()
        lines = [line for line in shown if "Example:" not in line]
        assert max(map(len, lines)) < columns
        assert columns > 100 or max(map(len, lines)) > columns * 0.7


def test_the_help_of_a_command_begins_with_its_usage(reader: User) -> None:
    logs = reader.run("logs", "--help").must(0).out
    assert logs.startswith("Usage: boxstrap logs [RUN …] [OPTIONS]\n")
    assert "--set KEY=VALUE" in reader.run("setup", "--help").must(0).out
    assert reader.run("run", "--help").must(0).out.splitlines()[0].endswith("[OPTIONS] -- COMMAND")
    assert logs.index("--follow") < logs.index("--host HOST")
    of_program = reader.run("--help").must(0).out
    assert of_program.index("setup  ") < of_program.index("--version")


@pytest.mark.parametrize("task", ["logs", "stop", "pull", "report", "wait"])
def test_a_run_name_may_be_given_without_its_option(task: str, reader: User) -> None:
    """What is wrong with it is said of the box, not of the word."""
    bare = reader.run(task, "train-2", "--host", "nowhere.invalid").must(3)
    assert bare.err == reader.run(task, "--run", "train-2", "--host", "nowhere.invalid").must(3).err


def test_a_box_name_in_place_of_a_run_name_exits_with_2_and_suggests_option_host(at: User) -> None:
    record.save_box(KnownBox("my-box", "root@203.0.113.1", "203.0.113.1", folder_name="first"))
    for task in ("logs", "exec", "run"):
        assert "Did you mean --host my-box?" in at.run(task, "my-box", "ls").must(2).err


def test_status_with_watch_repeats_until_it_is_interrupted(reader: User) -> None:
    going = reader.begin("status", "--watch")
    first, *_, again = [going.line() for _ in range(4)]
    assert first == again == "No box is known yet.\n"
    going.interrupt()
    assert "interrupted" not in going.end().must(0).err


def test_an_error_names_a_box_by_its_name_or_by_its_address_if_that_was_typed() -> None:
    address, own = "root@127.0.0.1:1", {"own_pin": True}
    record.save_box(KnownBox("nina1", address, "127.0.0.1", 1, user="root", created=2.0))
    record.save_box(KnownBox("old", address, "127.0.0.1", 1, user="root", created=1.0, **own))
    for host, named in ((None, "nina1"), ("nina1", "nina1"), (address, address), ("old", "old")):
        for more in ("", ": data/", ", train-1"):
            error = UnreachableError("no answer.", where=address + more)
            _complete_error(error, Call({"host": host}))
            assert error.where == named + more


def test_exec_takes_a_shell_line_that_contains_an_address_as_its_command() -> None:
    line = "git clone git@host:x"
    assert parse_command(find("exec"), ["--host", "gpu", line])["words"] == [line]
    with pytest.raises(UsageError, match="--host git@host"):
        parse_command(find("exec"), ["git@host", "ls"])


def test_a_word_behind_two_dashes_is_no_option() -> None:
    typed = parse_command(find("push"), ["--to", "x"], ["-lead.bin"])
    assert (typed["path"], typed["to"]) == ("-lead.bin", "x")


def test_boxes_lists_live_runs_and_tab_completes_their_names(at: User) -> None:
    box = KnownBox("my-box", "root@203.0.113.1", "203.0.113.1")
    record.save_box(box)
    names = ("train-1", "train-2", "a-1", "b-1", "c-1")
    state = {"train-1": "finished"}
    runs = [
        Run("homework-1", name, state.get(name, "running"), None, 1, "", "", "train", 0, 0, "x")
        for name in names
    ]
    note_seen(box, runs, str, every=True)
    assert "train-2, a-1, b-1, +1" in at.run("boxes").must(0).out
    told = at.run("boxes", "--json").json()["boxes"][0]
    assert told["running"] == [*names[1:]]
    assert told["seen"] > time.time() - 600  # though the box's record is of no login
    offered = at.run("--complete", "--", "boxstrap", "logs").must(0).out.split()
    assert set(names) <= set(offered)
    assert "train-1" in at.run("--complete", "--", "boxstrap", "run", "--resume").must(0).out


COMPLETED = {
    "tasks": ("", ["setup", "logs", "help"]),
    "a task that was begun": ("lo", ["logs"]),
    "options": ("logs --fo", ["--follow"]),
    "boxes": ("status --host", ["one-box"]),
    "a box that was begun": ("status --host one", ["one-box"]),
    "profiles": ("setup --profile", ["vast", "local"]),
    "steps": ("logs --step", ["python", "train"]),
    "doors": ("render --for", ["ec2", "colab"]),
    "providers": ("up --provider", ["vast", "runpod"]),
}


@pytest.mark.parametrize("case", COMPLETED)
def test_tab_completion_offers_words_that_fit_at_the_cursor(case: str, at: User) -> None:
    record.save_box(KnownBox("one-box", "root@203.0.113.1", "203.0.113.1"))
    typed, expected = COMPLETED[case]
    offered = at.run("--complete", "--", "boxstrap", *typed.split()).must(0).out.split()
    assert set(expected) <= set(offered)
    assert ("setup" in offered) is (" " not in typed)


def test_the_printed_bash_script_completes_a_box_name(at: User) -> None:
    record.save_box(KnownBox("one-box", "root@203.0.113.1", "203.0.113.1"))
    script = at.run("completion", "--shell", "bash").must(0).out
    use = "COMP_WORDS=(boxstrap status --host one); _complete_boxstrap boxstrap one --host"
    shell = ["bash", "-c", f"{script}\n{use}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""]
    done = captured(shell, env={**at.env, "PATH": f"{BIN}:{at.env['PATH']}"})
    assert done.stdout.split() == ["one-box"]


@pytest.mark.parametrize("value", ["", " "])
def test_an_option_with_an_empty_value_is_refused_as_wrong_usage(value: str) -> None:
    """As when a shell variable isn't set: `--gpus "$MINE"` must not mean all GPUs."""
    for name in ("gpus", "session", "host", "profile", "name", "set", "after", "identity"):
        with pytest.raises(UsageError, match=f"--{name}: its value is empty"):
            parse_command(find("run"), [f"--{name}", value, "--", "python train.py"])


def test_run_with_a_line_break_in_its_command_exits_with_2(reader: User) -> None:
    assert "line" in reader.run("run", "--host", "local", "--", "a\nb").must(2).err


STARTS = {
    "bash": ("--noprofile", "-i"),
    "zsh": ("-i",),
    "fish": ("-i", "--features", "no-query-term"),
}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_tab_completes_commands_and_boxes_in_a_new_shell_after_installing(
    shell: str, user: User
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    record.save_box(KnownBox("one-box", "root@203.0.113.1", "203.0.113.1"))
    user.env |= {"PATH": f"{BIN}:{user.env['PATH']}", "SHELL": f"/bin/{shell}", "TERM": "dumb"}
    if shell == "zsh":  # as most who use it have
        (user.home / ".zshrc").write_text("autoload -U compinit\ncompinit -u\n")
    user.run("completion", "--install").must(0)
    again = user.run("completion", "--install").must(0).out
    assert "rc" not in again  # the line is there
    with pexpect.spawn(
        shell, [*STARTS[shell]], env=user.env, cwd=str(user.home), encoding="utf-8", timeout=60
    ) as typing:
        typing.setwinsize(40, 200)
        typing.send("boxstrap doct\t")
        typing.expect("boxstrap doctor")
        typing.send("--host one\t")
        typing.expect("--host one-box")
        typing.sendline("exit")


def test_installing_completion_keeps_what_a_shell_start_up_file_has(user: User) -> None:
    user.env["SHELL"] = "/usr/bin/zsh"
    rc = user.home / ".zshrc"
    rc.write_text("setopt nobeep")  # and no end of line
    done = user.run("completion", "--install", "--json").must(0).json()
    assert [Path(file).name for file in done["written"]] == ["completion.zsh", ".zshrc"]
    first, second = rc.read_text().splitlines()
    assert first == "setopt nobeep"
    assert second.endswith("# completion of boxstrap")


def test_an_unknown_shell_or_an_unwritable_start_up_file_is_an_error_without_traceback(
    user: User,
) -> None:
    user.env["SHELL"] = "/bin/tcsh"
    assert "Name one of: bash, zsh, fish" in user.run("completion").must(2).err
    assert "complete -F" in user.run("completion", "bash").must(0).out
    (user.home / ".bashrc").mkdir()
    failed = user.run("completion", "--shell", "bash", "--install")
    assert failed.rc
    assert str(user.home / ".bashrc") in failed.err
    assert "Traceback" not in failed.err
