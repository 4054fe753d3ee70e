"""`sync --back`: fetch work made on a box, check it, and keep it as refs, never checked out."""

import contextlib
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.trees import BoxWork, BoxWorkStream
from bootstrap.errors import BoxstrapError
from bootstrap.link.target import BoxOptions
from bootstrap.repo.git import run_git
from bootstrap.repo.local import LocalRepository, read_repository
from bootstrap.repo.names import decoded, shown
from bootstrap.repo.objects import have_locally
from bootstrap.repo.quarantine import Bounds, Quarantine
from bootstrap.setup.request import not_set_up
from bootstrap.setup.sync import FileChanges, file_changes
from bootstrap.ui.screen import Screen
from bootstrap.value import Document

BOUNDS = Bounds(mib=512, seconds=600)
"""Commits and edits need less than this; results don't come through git."""
MOST_FILE_MIB = 100  # a larger new file stays on the box, and is listed


@dataclass(frozen=True)
class FetchedWork(Document):
    """A box's work that is now in the local repository."""

    KEYS = "box, refs, new, edits=changed, left, commands"

    box: str
    refs: dict[str, str]  # ref and commit of everything that was made on the box
    new: frozenset[str]  # those of `refs` that this call changed
    commits: dict[str, int]  # the number of commits made on the box, for each branch's ref
    changed: FileChanges  # the files changed by edits on the box
    left: tuple[str, ...]
    within: frozenset[str] = frozenset()
    """Those of `refs` that the edits build on: merging the edits merges them too."""
    submodules: tuple[str, ...] = ()  # those with edits, as words for a shell

    @property
    def commands(self) -> list[str]:
        apart = _ref(self.box, "submodules")
        return [
            *(f"git diff {'HEAD...' if r in self.commits else f'{r}^ '}{r}" for r in self.refs),
            *(f"git merge {r}" for r in self.refs if r not in {*self.within, apart}),
            # As plumbing does it: no setting of the user changes what is printed.
            *(
                f"git diff-tree -p --binary --relative={path}/ {apart}^ {apart} | "
                f"git -C {path} apply"
                for path in self.submodules
            ),
        ]

    def lines(self) -> list[str]:
        if not self.refs:
            return [f"{self.box}: nothing was made on the box that is not here", *self._left()]
        said = []
        for ref in self.refs:
            if ref in self.commits:
                count = self.commits[ref]
                what = f"{count} commit{'s' * (count > 1)} made on the box"
            elif ref == _ref(self.box, "submodules"):
                what = f"edits made on the box in submodules: {', '.join(self.submodules)}"
            else:
                what = f"edits made on the box: {self.changed}"
            said.append(f"{ref}  {what}{'' if ref in self.new else ' (here already)'}")
        typed = [f"  {command}" for command in self.commands]
        return [
            *said,
            *self._left(),
            "To see it, and to take it once your own changes, new files too, are committed:",
            *typed,
        ]

    def _left(self) -> list[str]:
        if not self.left:
            return []
        named = ", ".join(self.left[:5]) + (", …" if len(self.left) > 5 else "")
        return [
            f"left on the box, larger than {MOST_FILE_MIB} MiB or a repository of its own: {named}"
        ]


def bring_work_home(options: BoxOptions, screen: Screen) -> FetchedWork:
    """Bring commits and edits made on the box into `refs/boxstrap/BOX/` of the local repository.

    Nothing else in the repository changes. Raises UsageError if the box has no such tree,
    UnreachableError, and BoxstrapError if what it sends is refused.
    """
    here = read_repository(options.place)
    with BoxLogin.open(options, screen, (here.key, here.root_commit)) as box:
        return bring_from(box, here, screen)


def bring_from(box: BoxLogin, here: LocalRepository, screen: Screen) -> FetchedWork:
    """As `bring_work_home`, over this box."""
    name, label = box.name, box.label
    with _stream(box, here, box.own) as stream:
        work = stream.read_work()
        if work is None:
            raise not_set_up(label, name)
        if work.unread:
            screen.warn(f"the box could not read its edits in {shown(work.folder)}")
        return _take(here, work, stream, name, label)


def look_at_work(box: BoxLogin, here: LocalRepository, key: str) -> BoxWork | None:
    """Return what was made in the tree of `key`, unfetched; else None. Raises UnreachableError."""
    with _stream(box, here, key) as stream:
        return stream.read_work()


def only_there(here: LocalRepository, commits: Iterable[str]) -> set[str]:
    """Return the commits that no local ref reaches. Raises BoxstrapError if git fails."""
    asked = set(commits)
    kept = {
        commit
        for commit in have_locally(here, asked)
        if not run_git(here.folders, "rev-list", "-n", "1", commit, "--not", "--all", "--")
    }
    return asked - kept


@contextlib.contextmanager
def _stream(box: BoxLogin, here: LocalRepository, key: str) -> Iterator[BoxWorkStream]:
    stream = BoxWorkStream(
        box.wire,
        workdir=box.workdir,
        key=key,
        folder=box.state.repo_dir if box.state.repo_key == key else "",
        object_format=here.object_format,
        most_file_mib=MOST_FILE_MIB,
        seconds=BOUNDS.seconds,
    )
    try:
        yield stream
    finally:
        stream.close()


def _take(
    here: LocalRepository, work: BoxWork, stream: BoxWorkStream, name: str, label: str
) -> FetchedWork:
    heads = {
        _ref(name, branch if branch == "HEAD" else f"heads/{branch}"): commit
        for branch, commit in work.branches.items()
    }
    if any(len(commit) != len(here.commit) for commit in work.commits):
        what = "the box names commits in another way than this repository."
        raise BoxstrapError(what, where=label)
    known = set(have_locally(here, [*work.commits, *work.sent]))
    wanted = [commit for commit in work.commits if commit not in known]
    with Quarantine(here, BOUNDS, sender=label) as quarantine:
        if wanted:
            quarantine.take(stream.pack(wanted, known))
        quarantine.check(work.commits)
        merged, inside = quarantine.with_submodules(work.edits) if work.edits else ("", [])
        # The edits as they came are kept too: `down` asks for them.
        apart = {_ref(name, "submodules"): work.edits} if merged != work.edits else {}
        there = {**heads, **({_ref(name, "edits"): merged} if merged else {}), **apart}
        counts = {ref: quarantine.own_commits(commit) for ref, commit in there.items()}
        own = {ref: commit for ref, commit in there.items() if counts[ref]}
        printed = run_git(
            here.folders, "for-each-ref", "--format=%(refname) %(objectname)", _ref(name, "")
        )
        before = dict(line.split(" ") for line in decoded(printed).split("\n")[:-1])
        if new := {ref: commit for ref, commit in own.items() if before.get(ref) != commit}:
            quarantine.keep(new)
    refs = {ref: commit for ref, commit in own.items() if inside or ref not in apart}
    edits = work.edits if refs.keys() - heads else ""
    # The parents of the edits are what was placed and, if there are any, the box's commits.
    parents = run_git(here.folders, "rev-parse", f"{edits}^@").decode().split() if edits else []
    return FetchedWork(
        box=name,
        refs=refs,
        new=frozenset(refs.keys() & new),
        commits={ref: counts[ref] for ref in heads},
        changed=file_changes(here.folders, parents, edits) if edits else FileChanges(),
        left=work.left,
        within=frozenset(ref for ref, commit in refs.items() if merged and commit in parents),
        submodules=tuple(shlex.quote(shown(decoded(path))) for path in inside),
    )


def _ref(name: str, rest: str) -> str:
    """Return a ref for a box's work; a box's name need not be valid in a ref."""
    return f"refs/boxstrap/{re.sub(r'[.](?=[.]|lock$|$)', '-', name)}/{rest}"
