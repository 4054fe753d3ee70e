"""The program `boxstrap`: reads the command line, and calls the command that it names. A command's
module is imported when it is chosen, and what is heavy where it is used."""

import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

# ruff: noqa: PTH120 - pathlib takes a third of a start
_CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def _leave_out_this_folder() -> None:
    """Import nothing from the current folder, which may be a repository with a `yaml.py`. Only if
    it holds this package, as in a checkout, does it stay."""
    try:
        here = os.path.realpath(os.curdir)
    except OSError:  # it was removed
        return
    if here != _CHECKOUT:
        sys.path[:] = [path for path in sys.path if os.path.realpath(path) != here]


_leave_out_this_folder()

# Imports create long-lived objects and little garbage: collecting took an eighth of the start.
gc.set_threshold(500_000, 50, 50)


def _run(argv: Sequence[str]) -> int:
    """Do what was typed; return the exit code."""
    from bootstrap.errors import UsageError

    try:
        return _run_words(argv)
    except UsageError as wrong:
        from bootstrap.tasks.usage import refuse

        return refuse(wrong)


def _run_words(argv: Sequence[str]) -> int:
    """Do what was typed; return the exit code. Raises UsageError."""
    from bootstrap.tasks import NAMES, find
    from bootstrap.tasks.parser import parse_command, parse_program

    if argv[:1] == ["--complete"]:
        from bootstrap.tasks.completion import candidates

        return _print("\n".join(candidates(" ".join(argv[2:]))))
    end = argv.index("--") if "--" in argv else len(argv)
    typed, words = parse_program(argv[:end])
    if typed["no_color"]:
        os.environ["NO_COLOR"] = "1"
    if folder := typed["directory"]:
        try:
            os.chdir(folder)
        except OSError as error:
            from bootstrap.errors import UsageError

            raise UsageError(f"-C: no such folder: {folder} ({error.strerror})") from None
    if typed["version"] or words == ["version"]:
        from bootstrap import __version__

        return _print(f"boxstrap {__version__}")
    asks = words[:1] == ["help"]
    words = words[1:] if asks else words
    if asks and words and words[0] not in NAMES:
        from bootstrap.tasks.help import topic_help

        return _print(topic_help(words[0]))
    if words and words[0] not in NAMES:
        from bootstrap.tasks.usage import unknown_command

        raise unknown_command(words[0])
    if not words or typed["list"]:
        from bootstrap.tasks.help import family_list, program_help

        return _print(family_list() if typed["list"] else program_help())
    command = find(words[0])
    given = {} if asks else parse_command(command, words[1:], argv[end + 1 :])
    if asks or typed["help"] or given["help"]:
        from bootstrap.tasks.help import command_help

        return _print(command_help(command))
    if given.get("words"):  # a command without the `--` before it
        end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
        sys.argv.insert(end - len(given["words"]), "--")
    own = {option.name: given[option.name] for option in command.options}
    return command.run(own, dry=typed["dry"] or given["dry"])


def _print(text: str) -> int:
    print(text)  # noqa: T201
    return 0


def main() -> NoReturn:
    """Run the command that was typed, and exit with the documented code."""
    code = 0
    try:
        from bootstrap.errors import UNREAD, write_error
        from bootstrap.tasks.streams import open_streams

        open_streams()
        code = _run(sys.argv[1:])
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as end:  # with the code of the ssh that `exec` waited for
        code = int(end.code or 0)
    except KeyboardInterrupt:  # before the command began, which takes care of it
        code = 130  # errors.INTERRUPTED, which may not be imported yet
    except BrokenPipeError:  # the reader of the output is gone (`| head`)
        code = code or UNREAD
    except OSError as error:  # such as a full disk
        if not code:
            code = 1
            sys.stderr.write(f"{write_error('the output', error)}\n")
    if "bootstrap.repo.git" in sys.modules:
        sys.modules["bootstrap.repo.git"].remove_git_dirs()
    if "bootstrap.link.shared" in sys.modules:  # it has its answer: now there is time
        sys.modules["bootstrap.link.shared"].open_offered()
    # Tearing down the modules takes a tenth of a second, and there is nothing left to save.
    os._exit(code)
