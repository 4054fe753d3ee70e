"""The profile's command, started once for the same files, command, environment and data."""

from __future__ import annotations

import hashlib
import os
from functools import cached_property

from ..env_files import KEY_MARK
from ..run_folder import RunFolder, made_at, runs_below, write_whole
from ..run_queue import revive
from ..runs import new_run, start
from ..step_report import StepError, caution
from ..work.trees import absolute_command
from .step import BoxStep, SetupFacts

_REFUSED = 9


class TrainStep(BoxStep):
    is_of_tree = True

    def inputs(self) -> str:
        return self.work

    @cached_property
    def work(self) -> str:
        """A digest of what is trained. The same work starts once, however often it is asked for.

        Of the environment only what the user chose: its files are in the tree, and the driver is
        the box's. These decide only whether it is built again.
        """
        command, chosen = self.values.train_command, self.setup.environment.chosen
        return _digest(
            self.content, command, chosen, *self.setup.variables, *filter(None, [self.data])
        )

    @cached_property
    def content(self) -> str:
        """Stands for the files. A box that clones on its own finds it once it has the commit."""
        return self.values.repo_tree or _content_of(self.setup)

    @cached_property
    def data(self) -> str:
        if not self.values.data:
            return ""
        from .data import DataStep

        return DataStep(self.setup).noted_content

    @cached_property
    def _run(self) -> RunFolder | None:
        """The newest run of this work."""
        return start.of_work(self.home, self.work)

    @property
    def request(self) -> dict[str, str]:
        """What a run of it is made of, see `runs/new_run.py`."""
        setup, values, tree = self.setup, self.values, self.setup.tree
        told = ("restart", "overwrite", "queue", "nodes_id", "id", "gpus", "variables", "setup")
        commands = {
            "command": values.train_command,
            "resume": values.train_resume,
            "on_notice": values.train_on_notice,
        }
        lists = {
            "results": values.results,
            "results_to": values.results_to,
            "metrics": values.metrics,
            "notify": values.notify,
        }
        return {
            **{name: setup.one(name) for name in told},
            **{name: self._absolute(command) for name, command in commands.items()},
            **{name: "\n".join(values) for name, values in lists.items()},
            **{"home": self.home, "key": tree.key, "notes": tree.notes, "dir": tree.path},
            **{"work": self.work, "tree": self.content, "data": self.data},
            **{"commit": values.repo_commit, "snapshot": values.repo_snapshot},
            **{"session": values.train_session, "grace": values.train_grace},
            "venv": setup.environment.folder,
            "resume_all": setup.one("resume"),
            "train_nodes": values.train_nodes,
            "results_of_all": values.results_of_all,
            "log_max": f"{int(values.log_max_mib) * 1024 * 1024}",
        }

    def _absolute(self, command: str) -> str:
        return absolute_command(command, self.setup.environment.folder)

    @property
    def made_of(self) -> list[str]:
        """What a run is made of besides commit and command: a later setup names what differs."""
        chosen = os.fsencode(f"{self.setup.environment.chosen}\n")
        environment = hashlib.sha256(chosen).hexdigest()
        lines = [f"environment {environment}", f"python {self.values.python_id}"]
        lines.append(f"variables {_digest(*self.setup.variables)}")
        secrets = self.values.secrets_id
        return [*lines, f"secrets {secrets}"] if secrets else lines

    def differences(self, run: RunFolder) -> list[str]:
        """Name what differs between this setup and a run."""
        # What another machine gave can't be compared: its ids are made with another key.
        ours = f"secrets {self.values.secrets_id[:KEY_MARK]}"
        known = [
            line
            for line in run.lines("made_of") or []
            if line.startswith(ours) or not line.startswith("secrets ")
        ]
        if self._run and self._run.path == run.path:
            # For the same work only the secrets may differ.
            had = [line for line in known if line.startswith("secrets ")]
            return ["secrets"] if had and had != [f"secrets {self.values.secrets_id}"] else []
        names = {line.split(" ")[0] for line in known}
        made_of = [(line.split(" ")[0], line) for line in self.made_of]
        changed = [name for name, line in made_of if name in names and line not in known]
        found = [] if self._has_content(run) else ["commit"]
        if run.has("data") and self.data not in (run.lines("data") or ()):
            found.append("data")
        if self.values.train_command and not self._has_command(run):
            found.append("command")
        return found + changed

    def _has_content(self, run: RunFolder) -> bool:
        return self.content in (run.lines("tree") or ())

    def _has_command(self, run: RunFolder) -> bool:
        environment = run.first("venv") or self.setup.environment.folder
        own = absolute_command(self.values.train_command, environment)
        return "\n".join(run.lines("command") or []).rstrip("\n") == own.rstrip("\n")

    def check(self) -> bool:
        return bool(self.why_right())

    def why_right(self) -> str:
        """A training that failed, or died with the box, is not started again by itself."""
        new_run.clean_environment(self.home)  # tmux is asked
        return start.why_done(self.request)

    def is_asked(self) -> bool:
        return bool(self.setup.one("restart")) or super().is_asked()

    def is_left_alone(self) -> bool:
        """No other run is started beside a live one; that of this same work may lack its stamp or
        its session."""
        own = self._run.path if self._run else ""
        return super().is_left_alone() and own != self.setup.alive_run

    def what_changed(self, noted: str) -> str:  # noqa: ARG002 - it is a digest
        if self.why_right():
            return "ran"
        of_key = (run for run in runs_below(f"{self.home}/runs") if run.key == self.setup.tree.key)
        last = max(of_key, key=made_at, default=None)
        if not last or not self._has_content(last):
            same = last and self.values.repo_commit in (last.lines("commit") or ())
            return "snapshot" if same else "commit"
        if not self._has_command(last):
            return "command"
        if last.has("data") and self.data not in (last.lines("data") or ()):
            return "data"
        return "changed"

    def apply(self) -> None:
        new_run.clean_environment(self.home)
        write_whole(f"{self.setup.folder}/uploads", "")
        if (self.setup.one("restart") or not self._run) and not new_run.has_tmux():
            here = "tmux is not here: the run is detached all the same"
            caution("no-tmux", f"{here}, but it cannot be attached to")
        try:
            run = start.begin(self.request)
        except new_run.NotStartedError as error:
            raise StepError(error.code, str(error), rc=error.rc) from None
        finally:
            # Only now: what waits for its GPUs waits for it.
            revive(self.home)
        # A training need not wait for this.
        if not run.has("made_of"):
            self.note_made_of(run)

    def note_made_of(self, run: RunFolder) -> None:
        write_whole(f"{run.path}/made_of", "".join(f"{line}\n" for line in self.made_of))

    def would_lose_results(self) -> bool:
        """Whether it begins, and must not."""
        is_new = self.setup.one("restart") or self.setup.one("id")
        if not is_new and (self.setup.alive_run or self._run):
            return False
        from ..results import keep_results  # late: a plan has no use for it

        runs, tree = f"{self.home}/runs/{self.setup.tree.key}", self.setup.tree.path
        return keep_results.asked("look", f"{runs}/.new", tree, *self.values.results) == _REFUSED


def _digest(*words: str) -> str:
    return hashlib.sha256(os.fsencode("".join(f"{word}\0" for word in words))).hexdigest()


def _content_of(setup: SetupFacts) -> str:
    """Return what stands for the content of a commit that this box has; "" if it has not. Without
    the profile: the recipe has that."""
    for git in (setup.tree.work, setup.tree.store):
        said = git.run("ls-tree", setup.values.repo_snapshot)
        if not said.code:
            lines = said.output.splitlines(keepends=True)
            own = b"".join(line for line in lines if not line.endswith(b"\tboxstrap.yaml\n"))
            return hashlib.sha256(own).hexdigest()
    return ""
