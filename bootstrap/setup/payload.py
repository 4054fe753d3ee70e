"""What is sent to a box: the script, the commit and where the box gets it, secrets, and private
dependencies, which the user agreed to.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.boxes.secrets import SecretSet, folder_of, take_secrets
from bootstrap.errors import ProfileError, UsageError
from bootstrap.profile.consent import agree_to_addresses
from bootstrap.profile.load import LoadedProfile
from bootstrap.profile.schema import Profile
from bootstrap.repo.git import Folders, GitError, git_error, run_git
from bootstrap.repo.local import (
    LocalRepository,
    is_boxstrap_checkout,
    name_and_key,
    read_repository,
)
from bootstrap.repo.names import shown
from bootstrap.repo.place import repository_root
from bootstrap.repo.urls import check_url, without_user_info
from bootstrap.setup.program import Program, program
from bootstrap.setup.script import (
    NO_SOURCE,
    OF_ONE_RUN,
    ROOT,
    Source,
    Variables,
    render_script,
    script_id,
    variables,
)
from bootstrap.steps.plan import Step, steps_for
from bootstrap.value import dataclass, field, replace

if TYPE_CHECKING:
    from bootstrap.profile.survey.declared import GitDependency
    from bootstrap.repo.snapshot import Include, Snapshot
    from bootstrap.repo.snapshot_store import ChangeCount
    from bootstrap.setup.push import LocalItem
    from bootstrap.setup.request import SetupRequest
    from bootstrap.ui.screen import Reporter


@dataclass(frozen=True)
class Payload:
    """What is sent: the script with its program, the commit and the secrets."""

    profile: Profile
    here: LocalRepository | None
    """The repository whose objects are sent; None if the box clones it itself, or needs none."""
    snapshot: Snapshot | None  # the snapshot of it that is sent
    source: Source
    steps: tuple[Step, ...]
    values: Variables  # the variables of the script
    secrets: SecretSet = field(default_factory=SecretSet)
    dependencies: tuple[GitDependency, ...] = ()
    """The dependencies that this machine fetches and sends."""
    data: tuple[LocalItem, ...] = ()  # the items of `data:` that are on this machine
    warnings: tuple[str, ...] = ()
    """Warnings about the repository's address, and about changes that are not sent."""

    @cached_property
    def script(self) -> str:
        return render_script(self.profile.name, self.values, self.steps, self.program.digest)

    @cached_property
    def script_id(self) -> str:
        return script_id(self.script)

    @cached_property
    def program_id(self) -> str:
        """The id of the script without values that differ between a profile's runs."""
        return script_id(re.sub(f"^ *({OF_ONE_RUN})=.*\\n", "", self.script, flags=re.MULTILINE))

    @property
    def program(self) -> Program:
        return program()

    @property
    def changes(self) -> ChangeCount:
        """How many files that differ from the commit are sent."""
        from bootstrap.repo.snapshot_store import ChangeCount

        return self.snapshot.changes if self.snapshot else ChangeCount()


def build_payload(
    loaded: LoadedProfile,
    request: SetupRequest,
    *,
    local: bool,
    with_source: bool = True,
    with_secrets: bool = True,
) -> Payload:
    """Read the repository and everything the script needs, without contacting a box; once for all
    boxes of a command that get the same.

    `with_secrets`: False for a script that is only shown. Raises ProfileError, UsageError:
    no repository, boxstrap's own checkout, or changes that must not be sent.
    """
    of_box = (local, with_source, with_secrets, request.rented, request.price, request.ends)
    said = str(loaded.profile.as_dict())
    key = ("payload", loaded.profile.name, said, request.committed_only, of_box)
    return request.once.get(
        key,
        lambda: _built(loaded, request, local, with_source=with_source, with_secrets=with_secrets),
    )


def _built(
    loaded: LoadedProfile,
    request: SetupRequest,
    local: bool,
    *,
    with_source: bool,
    with_secrets: bool,
) -> Payload:
    profile = loaded.profile
    # While git reads the repository.
    reading = threading.Thread(target=lambda: program().digest, daemon=True)
    reading.start()
    here, snapshot, source = None, None, NO_SOURCE
    if with_source:
        here, snapshot, source = resolve_source(profile, request)
        nothing_is_left_open(loaded)
    if here is not None:
        nothing_is_missing(here)
        nothing_shared_is_sent(profile, here)
    dependencies: tuple[GitDependency, ...] = ()
    dependency_rows: list[str] = []
    if here is not None and not local:
        dependencies, dependency_rows = private_dependencies(profile, here, snapshot)
        if with_secrets:
            from bootstrap.profile.survey.declared import is_named

            # Those of `python.private` are part of the profile, which was agreed to or written.
            private = profile.python.private or []
            asked = {each.address for each in dependencies if not is_named(private, each.address)}
            if asked:
                agree_to_addresses(asked, here.root.resolve(), request.consent)
    steps = steps_for(profile, local=local, repo=with_source)
    data: tuple[LocalItem, ...] = ()
    if with_source and with_secrets and profile.data:
        from bootstrap.setup.push import local_items

        data = local_items(profile)
    secrets = SecretSet()
    if with_source and with_secrets and profile.secrets:
        folder = folder_of(loaded, repository_root(request.place))
        secrets = take_secrets(profile.secrets, folder)
    values = variables(
        profile,
        source,
        local=local,
        secrets_id=secrets.id,
        secret_ids=secrets.ids,
        dependencies=dependency_rows,
        sent_data={item.number: item.sent for item in data},
        rented=request.rented,
        price=request.price,
        ends=request.ends,
    )
    warnings: list[str | None] = []
    if with_source:
        warnings = [address_warning(profile, source), _changes_warning(profile, request)]
    reading.join()
    payload = Payload(
        profile=profile,
        here=here,
        snapshot=snapshot,
        source=source,
        steps=steps,
        values=values,
        secrets=secrets,
        dependencies=dependencies,
        data=data,
        warnings=tuple(filter(None, warnings)),
    )
    if request.once.is_shared:
        _ = payload.script_id  # rendered now, or each thread would
    return payload


_LARGEST = 16 * 1024 * 1024
"""Limit for a file in bytes; a lock file of a thousand packages has two million."""
_PLACEHOLDER = re.compile(
    r"(?<![\w.-])/?path[/_]to[/_][\w./-]*"
    r"|(?<![^\s'\"=/])<[A-Za-z](?:[\w .-]*[\w.-])?>(?![^\s'\"/,])",
    re.IGNORECASE,
)
_USUAL = ("uv.lock", "requirements.txt", "pyproject.toml")


def private_dependencies(
    profile: Profile, here: LocalRepository, snapshot: Snapshot | None
) -> tuple[tuple[GitDependency, ...], list[str]]:
    """Return the dependencies that this machine sends, and the rows about them for the box.

    Raises BoxstrapError if git fails, UsageError for requirements that no box can install.
    """
    # Late: `sync` sends no dependencies.
    from bootstrap.onbox.python.sources import decode
    from bootstrap.profile.survey.declared import find_git_dependencies, sent_from_here
    from bootstrap.profile.survey.files import check_requirements

    folders, commit = (snapshot.folders, snapshot.id) if snapshot else (here.folders, here.commit)
    known: dict[str, bytes | None] = {}

    def read_data(names: Sequence[str]) -> dict[str, bytes]:
        # The usual ones with the first, since each call of git takes its time.
        asked = [name for name in (*names, *([] if known else _USUAL)) if name not in known]
        try:
            found = _read(folders, commit, asked) if asked else {}
        except GitError as failure:
            raise git_error(here.root, failure) from failure
        known.update({name: found.get(name) for name in asked})
        return {name: data for name in names if (data := known[name]) is not None}

    def read(names: Sequence[str]) -> dict[str, str]:
        return {name: decode(data) for name, data in read_data(names).items()}

    check_requirements(profile.python, read_data)
    found = find_git_dependencies(profile.python, read)
    sent = sent_from_here(profile.python, found)
    if not sent:
        return (), []
    from bootstrap.repo.mirror import key_of  # late: few profiles have such dependencies

    rows = [
        f"{key_of(each.address)} {each.ref if each.is_pinned else '-'} {each.address}"
        for each in sent
    ]
    # git uses the longest matching address, so public ones that extend a private one get own rows.
    others = {each.address for each in found} - {each.address for each in sent}
    begins = tuple({each.address for each in sent})
    rows += [f"- - {other}" for other in sorted(others) if other.startswith(begins)]
    return tuple(sent), rows


def _read(folders: Folders, commit: str, names: Sequence[str]) -> dict[str, bytes]:
    """Return the contents of those files that the commit has; paths outside of it are skipped."""
    inside = (name for name in dict.fromkeys(names) if not name.startswith(("../", "/")))
    asked = [name for name in inside if "\n" not in name]
    stdin = "".join(f"{commit}:{name}\n" for name in asked).encode("utf-8", "surrogateescape")
    answer = run_git(folders, "cat-file", "--batch", stdin=stdin)
    texts: dict[str, bytes] = {}
    at = 0
    for name in asked:
        line, _, _ = answer[at:].partition(b"\n")
        at += len(line) + 1
        words = line.rsplit(b" ", 2)
        if len(words) == 3 and words[2].isdigit():
            size = int(words[2])
            if words[1] == b"blob" and size <= _LARGEST:
                texts[name] = answer[at : at + size]
            at += size + 1
    return texts


_MOST_IGNORED = 5
_COMMIT = r"[0-9a-f]{40}([0-9a-f]{24})?"
_MOST_NAMED = 10  # how many files a line names, or lines a kind has, at most
_MEANT = (
    "Run this in your training's repository, or name it: --repo PATH, or git.url in its profile."
)


def resolve_source(
    profile: Profile, request: SetupRequest
) -> tuple[LocalRepository | None, Snapshot | None, Source]:
    """Return what to check out, and the repository and snapshot to send (None: the box clones).

    Raises ProfileError, UsageError: no repository, boxstrap's own checkout, changes to another
    commit than the requested one, or changes that must not be sent.
    """
    url, ref = profile.git.url, profile.git.ref
    if url and profile.git.access == "url":
        return None, None, _by_url(url, ref)
    here = _of_url(url, ref, request.place) if url else read_repository(request.place, ref)
    if is_boxstrap_checkout(here) and request.repo is None and not url:
        raise UsageError(
            "this is boxstrap's own source, not a training repository.",
            where=str(here.root),
            hint=_MEANT,
        )
    if profile.git.access == "url":
        if here.url is None:
            raise ProfileError(
                "git.access: url needs an address, and this repository has no remote.",
                where=str(here.root),
                hint="Set git.url, or leave git.access out: the commit then travels over ssh.",
            )
        source = source_of(here, snapshot_of(here, "commit", profile))
        return None, None, _with_tags(here, replace(source, tree=""))
    include = "commit" if request.committed_only else profile.git.include
    snapshot = snapshot_of(here, include, profile)
    return here, snapshot, _with_tags(here, source_of(here, snapshot))


def _with_tags(here: LocalRepository, source: Source) -> Source:
    from bootstrap.repo.objects import find_tags

    tags = find_tags(here)
    return replace(source, tags=tags.rows, tag_objects=tags.objects)


def snapshot_of(here: LocalRepository, include: Include, profile: Profile) -> Snapshot:
    """Take the snapshot to send; with a ref in the profile, changes only count if it is HEAD."""
    from bootstrap.repo.snapshot import take_snapshot

    limit = profile.git.max_file_mib
    if include == "commit" or here.bare or here.asked is None:
        return take_snapshot(here, include, max_file_mib=limit)
    stood_on = read_repository(here.root)
    snapshot = take_snapshot(stood_on, include, max_file_mib=limit)
    if stood_on.commit == here.commit:
        return snapshot
    if snapshot.changes:
        raise UsageError(
            f"your changes ({snapshot.changes}) are to commit {stood_on.commit[:12]}, and "
            f"git.ref names {here.commit[:12]}.",
            where=str(here.root),
            hint="Check that one out, or say that the commit is enough: --committed-only",
        )
    return take_snapshot(here, "commit")


def source_of(here: LocalRepository, snapshot: Snapshot) -> Source:
    return Source(
        key=here.key,
        name=here.name,
        commit=here.commit,
        branch=here.branch,
        url=here.url,
        user_name=here.identity_name,
        user_email=here.identity_email,
        root=here.root_commit,
        usual_key=here.usual_key,
        snapshot=snapshot.id,
        tree=snapshot.content,
    )


def _by_url(url: str, ref: str | None) -> Source:
    """Return the source for `ref` at the URL; this machine resolves it, with the user's access."""
    clean = without_user_info(url)
    commit = ref if ref and re.fullmatch(_COMMIT, ref) else _resolved(url, ref)
    name, key = name_and_key(clean, Path())  # the same as inside a clone of it
    told = os.environ.get(ROOT, "")
    return Source(
        key=key,
        name=name,
        commit=commit,
        branch=None,
        url=clean,
        user_name=None,
        user_email=None,
        root=told if re.fullmatch(_COMMIT, told) else "",
        usual_key=key,
        snapshot=commit,
    )


def _resolved(url: str, ref: str | None) -> str:
    from bootstrap.repo.mirror import git_credentials

    clean, options = without_user_info(url), ref or "HEAD"
    refs = [f"refs/heads/{options}", f"refs/tags/{options}^{{}}", f"refs/tags/{options}"]
    patterns = ["HEAD"] if options == "HEAD" else refs
    lines = git_credentials(url, "ls-remote", "--end-of-options", clean, *patterns).splitlines()
    found = {name: commit for commit, _, name in (line.partition("\t") for line in lines)}
    for pattern in patterns:
        if pattern in found:
            return found[pattern]
    raise ProfileError(
        f"git.ref: {clean} has no branch or tag {options!r}.",
        hint="Name one, or a whole commit id.",
    )


def _of_url(url: str, ref: str | None, place: Path) -> LocalRepository:
    """Return the repository at the URL; the user's own clone if `place` is in it."""
    from bootstrap.repo.mirror import read_url

    try:
        mine = read_repository(place).url == without_user_info(url)
    except UsageError:
        mine = False
    return read_repository(place, ref) if mine else read_url(url, ref)


def address_warning(profile: Profile, source: Source) -> str | None:
    """Return a warning about the address from which this machine or the box fetches, if any."""
    url = source.url if profile.git.access == "url" else profile.git.url
    return check_url(url).warning if url else None


def report_source(
    here: LocalRepository | None, snapshot: Snapshot | None, source: Source, reporter: Reporter
) -> None:
    """Report the commit, the changes sent with it, new files, and files that can't be sent."""
    changes = f" with your changes ({snapshot.changes})" if snapshot and snapshot.changes else ""
    reporter.note("commit", f"{source.commit[:12]}{changes} of {source.name}")
    if here is not None and snapshot is not None:
        report_new_files(snapshot, reporter)


def report_new_files(snapshot: Snapshot, reporter: Reporter) -> None:
    """Report files not in git that are sent for the first time, and files that can't be sent."""
    if snapshot.first_time:
        names = [shown(name) for name in snapshot.first_time[:_MOST_NAMED]]
        more = len(snapshot.first_time) - len(names)
        listed = ", ".join(names) + (f" and {more} more" if more else "")
        reporter.note("new", f"{listed}: not in git yet, and sent with it")
    for path, why in snapshot.left[:_MOST_NAMED]:
        reporter.warn(f"stays here: {shown(path)}, {why}")
    if len(snapshot.left) > _MOST_NAMED:
        reporter.warn(f"stays here: {len(snapshot.left) - _MOST_NAMED} more of this kind")


def _changes_warning(profile: Profile, request: SetupRequest) -> str | None:
    """Return a warning if the box clones the commit itself, and there are changes here."""
    from bootstrap.repo.snapshot import take_snapshot

    if profile.git.access != "url" or profile.git.url or request.committed_only:
        return None
    try:
        snapshot = take_snapshot(read_repository(request.place))
    except UsageError:  # some changes must not be sent; none are
        return "your changes stay here: with git.access: url the box clones the commit."
    if not snapshot.changes or snapshot.only_profile:
        return None
    return (
        f"your changes ({snapshot.changes}) stay here: with git.access: url the box clones commit "
        f"{snapshot.commit[:12]} alone."
    )


def nothing_is_left_open(loaded: LoadedProfile) -> None:
    """Raise UsageError if a command of the profile has a placeholder, as pages write it."""
    profile = loaded.profile
    train = profile.train
    for key, command in [
        *(("prepare", command) for command in profile.prepare),
        ("train.command", train.command if train else ""),
    ]:
        if left := _PLACEHOLDER.search(command):
            raise UsageError(
                f"{left[0]} stands for something of yours: the command can't run as it is.",
                where=f"{loaded.origins.get(key, loaded.profile.name)}: {key}",
                hint="Write what it stands for, there or by --set.",
            )


def nothing_is_missing(here: LocalRepository) -> None:
    """Raise UsageError if a partial clone lacks files of the commit; they are not fetched."""
    if not here.partial:
        return
    from bootstrap.repo.objects import missing_objects

    if names := missing_objects(here):
        listed = "\n".join(f"  {name}" for name in names[:10])
        raise UsageError(
            f"this clone is partial, and {len(names)} files of commit {here.commit[:12]} are not "
            f"in it:\n{listed}",
            where=str(here.root),
            hint="Let git fetch them: git archive --output=/dev/null HEAD",
        )


def nothing_shared_is_sent(profile: Profile, here: LocalRepository) -> None:
    """Raise UsageError if a path of `shared:` is in the commit, or is sent with the changes."""
    new = ("-o",) if profile.git.include == "all" and not profile.git.ref else ()
    for number, path in enumerate(profile.shared):

        def listed(*which: str, below: str = path) -> list[str]:
            words = ("ls-files", "-z", *which, "--exclude-standard", "--", f":(top,literal){below}")
            return run_git(here.folders, *words).decode("utf-8", "replace").split("\0")[:-1]

        if sent := listed("-c", *new):
            ignored = listed("-o", "-i", "--directory")[:_MOST_IGNORED]
            those = f"shared: [{', '.join(ignored)}]"
            raise UsageError(
                f"git doesn't ignore {sent[0]}, so it is sent, and each tree has its own.",
                where=f"shared[{number}]: {path}",
                hint=f"Share what git ignores there: {those}" if ignored else "Let git ignore it.",
            )
