"""A new run of a state of the repository, once for its id.

`onbox setup.run BOX_HOME`: as `work.sync`, with what the run is asked for. The
script of the repository's last setup says whether its steps are right for that state, if it is
exactly the profile's (`script`); else `setup` is answered, with what is not right, and nothing is
started. The state `none` only asks what became of the run.
"""

from __future__ import annotations

import os
import re
import threading
from binascii import a2b_hex
from functools import partial
from hashlib import sha256

from ..run_folder import lines_of
from ..run_queue import revive
from ..runs import new_run, start
from ..runs.first_output import show
from ..step_report import answer
from ..steps.gpu import is_returned
from ..steps.step import SetupFacts, step_named
from ..steps.train import TrainStep
from ..work.store import read_line
from ..work.sync import SentState, lock_of, read_request, report, taken
from ..work.trees import choose, is_placed
from .wanted import WantedSetup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..work.sync import Asked


def _script_of(asked: Asked) -> str:
    """Return the script that is the profile's, but for what differs from run to run."""
    of_one_run = re.compile(f"^ *({asked['of_one_run']})=.*\n", re.MULTILINE)
    for name in ("setup.sh", "run.sh"):
        path = f"{asked['home']}/steps/{asked['key']}/{name}"
        text = of_one_run.sub("", "\n".join(lines_of(path))).rstrip("\n") + "\n"
        if sha256(os.fsencode(text)).hexdigest() == asked["script"]:
            return path
    return ""


def _take(asked: Asked, script: str) -> None:
    state = SentState(asked, asked["state"] or read_line())
    objects = a2b_hex(asked["objects"]) if asked["state"] else 0
    if state.receive(objects) and (lock := lock_of(asked)):
        with lock:
            if not new_run.started(asked):
                _begin(asked, state, WantedSetup(script, asked["words"]))


def _begin(asked: Asked, state: SentState, wanted: WantedSetup) -> None:
    home, key, main = asked["home"], asked["key"], asked["main"]
    own = (asked["command"], asked["session"], asked["beside"], asked["cell"])
    state.tree = choose(home, key, main, state.content, *own)
    if not is_placed(state.tree):
        return answer("setup", "repo")
    # What earlier results the run would lose is copied while its files are placed; to the end, even
    # if these can't be.
    ahead = (f"{home}/runs/{key}", state.tree.path, wanted.values.results)
    keeper = threading.Thread(target=start.keep_ahead, args=ahead)
    if asked["keeps"]:
        keeper.start()
    if not state.place(wanted.values):
        return None
    facts = wanted.facts(state.tree, main)
    if keeper.ident:
        keeper.join()
    if wrong := _wrong_step(facts):
        return answer("setup", wrong)
    train = TrainStep(facts)
    try:
        if not new_run.has_tmux():
            answer("warn", "no-tmux")
        train.note_made_of(start.begin(train.request))
        train.note_success()
    except new_run.NotStartedError as error:
        report(home, error.code, str(error))
    return None


def _wrong_step(setup: SetupFacts) -> str:
    """Name a step that is not right. The box itself was checked when it was set up, and may have
    been found bad since."""
    names = filter(setup.has, ("shell", "gpu", "smoke", "python", "data", "prepare"))
    steps = {name: step_named(name, setup) for name in names}
    of_tree = [name for name in steps if steps[name].is_of_tree]
    spoiled = (name for name in steps if name not in of_tree and steps[name].is_spoiled)
    if found := next(spoiled, "gpu" if "gpu" in steps and is_returned(setup) else ""):
        return found
    wrong = (name for name in ("shell", *of_tree) if name in steps and steps[name].reason())
    return next(wrong, "")


def main() -> None:
    asked = read_request()
    new_run.clean_environment(asked["home"])
    if not new_run.started(asked) and asked["state"] != "none":
        script = _script_of(asked)
        if script:
            taken(partial(_take, asked, script), asked["home"])
            revive(asked["home"])
        else:
            answer("setup", "script")
    run = new_run.started(asked)
    if run:
        answer("run", run.name)
        answer("state", run.state())
        for name in ("dir", "venv", "started"):
            answer(name, run.first(name))
    answer("over")
    if run and asked["show_s"]:
        # Its first output as soon as there is some, and a line that only the caller can know: the
        # output may hold any byte.
        show(run, float(asked["show_s"]), asked["mark"])
