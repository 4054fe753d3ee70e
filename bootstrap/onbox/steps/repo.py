"""The commit of this setup, with its snapshot, placed into the repository's folder below
`box.workdir`."""

from __future__ import annotations

import hashlib
import os
from functools import cached_property
from glob import escape, glob
from time import sleep

from ..client import Client
from ..git import BoxGit
from ..quoted import quoted
from ..retries import Retries, classify
from ..run_folder import RunFolder, lines_of, write_whole
from ..step_report import StepError
from ..work.place import Placing, WantedTree, check, place_tags, set_user
from ..work.repair import free_locks, remove_folder, wrong_packs
from ..work.repository import root_of
from .step import BoxStep


class RepoStep(BoxStep):
    is_of_tree = True

    def inputs(self) -> str:
        wanted = self._wanted
        is_commit = wanted.snapshot == wanted.commit
        placed = wanted.commit if is_commit else f"{wanted.commit}+{wanted.snapshot}"
        user = (self.values.git_user_name, self.values.git_user_email)
        tags = "".join(f"{row}\n" for row in self.values.repo_tags)
        own = quoted("v1", placed, wanted.tree.path, self.values.repo_url, *user)
        return f"{own}{hashlib.sha256(os.fsencode(tags)).hexdigest()} " if tags else own

    def what_changed(self, noted: str) -> str:
        before, now = (text.split(" ", 2)[2:] for text in (noted, self.inputs()))
        if before != now:
            return "changed"
        return "snapshot" if noted.startswith(f"v1 {self._wanted.commit}") else "commit"

    def check(self) -> bool:
        return check(self._wanted, notes=bool(self.setup.folder))

    @cached_property
    def _wanted(self) -> WantedTree:
        setup = self.setup
        places = setup.tree, setup.one("main"), self.values, setup.one("usual")
        return WantedTree(*places, adopts=bool(setup.one("adopt")))

    @cached_property
    def _store(self) -> BoxGit:
        """Without the objects of the tree, which may be all that a damaged one has left."""
        return BoxGit(self.setup.tree.store.folder)

    def apply(self) -> None:
        wanted, tree, store = self._wanted, self.setup.tree, self._store
        if self.values.clone_url:
            self._fetch()
        else:
            self._await_commit()
        own = escape(store.folder)
        for left in (f"{own}.new.*", f"{own}.damaged.*", f"{own}/*.new.*"):
            for path in glob(left):
                remove_folder(path) if os.path.isdir(path) else os.unlink(path)
        Placing(wanted).place()
        place_tags(wanted)
        set_user(wanted)
        # The first commit was not known before, if the box fetched it itself.
        if not tree.note("repo.root"):
            write_whole(f"{tree.steps}/repo.root", root_of(store.folder), 0o600)

    def _has_commit(self) -> bool:
        """The ref comes last: objects that are there without it may still be arriving."""
        folder, ref = self._store.folder, f"refs/boxstrap/{self._wanted.snapshot}"
        # Asked twenty times a second, on a core that others need: git is not started if there can
        # be no ref.
        places = (f"{folder}/{name}" for name in (ref, "packed-refs", "reftable"))
        is_right = any(map(os.path.exists, places)) and not wrong_packs(
            f"{folder}/packs", f"{folder}/objects/pack"
        )
        return is_right and bool(self._store.id_of(f"{ref}^{{commit}}"))

    def _await_commit(self) -> None:
        """It comes over the login of the machine that started this; that link may break and come
        back."""
        client, store, wanted = Client(self.setup.folder), self._store.folder, self._wanted
        begun = os.stat(f"{self.setup.folder}/pid").st_mtime_ns
        while not self._has_commit():
            may_come = client.may_send("commit", f"{store}.sender") or self._has_commit()
            # The cause first: who sends gives up after it. An earlier setup's doesn't count.
            refused = RunFolder(os.path.dirname(store)).stat(f"{wanted.tree.key}.git.refused")
            if refused and refused.st_mtime_ns > begun:
                code = "".join(lines_of(f"{store}.refused")[:1])
                raise StepError(code, f"git could not store commit {wanted.snapshot} here")
            if not may_come:
                raise StepError("commit-missing", f"commit {wanted.commit[:12]} never arrived")
            sleep(0.05)

    def _fetch(self) -> None:
        if self._has_commit():
            return
        from ..work.fetch import GitHost  # late: few boxes do so
        from ..work.store import open_store

        commit, url, folder = self._wanted.commit, self.values.repo_url, self._store.folder
        store = open_store(folder, "sha256" if len(commit) == 64 else "sha1")
        free_locks(folder, folder)
        hosts = "".join(f"{line}\n" for line in self.values.known_hosts)
        host = GitHost(self.home, url, self.setup.one("token"), hosts)
        step_log = f"{self.setup.folder}/logs/repo.log"
        if host.fetch(store, commit, Retries(step_log)):
            code = classify(step_log)
            is_known = code not in ("command-failed", "dependency-private")
            why = f"{url} could not be fetched from this box"
            over = (
                "git.access: over-ssh sends it from your machine instead, and needs no credential"
            )
            raise StepError(code if is_known else "clone-failed", why, f"{over} here")
        # A commit that came with its branch has no ref of its own yet.
        store.run("update-ref", f"refs/boxstrap/{commit}", commit)
        if not self._has_commit():
            raise StepError("ref-missing", f"{url} has no commit {commit}")
