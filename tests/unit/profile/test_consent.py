"""What a repository's own profile takes needs the user's consent; the user's profile does not."""

import ast
import json
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.errors import ProfileError, exit_code
from bootstrap.link import BoxOptions
from bootstrap.paths import config_dir, state_dir
from bootstrap.profile import consent
from bootstrap.profile.consent import (
    FOR_THE_BOX,
    NO_SECRET,
    TO_RENT,
    ConsentError,
    load_profile,
    usable_profile,
)
from bootstrap.profile.schema import PROFILE, Profile, taking_keys
from bootstrap.profile.values import Field, Permission, Section, field
from bootstrap.value import document
from tests.cli import User, UserRepository
from tests.plain_environment import HERE

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 42 + "{} me\n"
TAKES: dict[str, tuple[str, str]] = {
    "secrets": ("secrets: [A_TOKEN]", "A_TOKEN"),
    "git.url": (
        "git: {url: https://example.org/me/private.git}",
        "https://example.org/me/private.git",
    ),
    "python.private": (
        "python: {private: [https://example.org/me/library]}",
        "https://example.org/me/library",
    ),
    "ssh.identity": ("ssh: {identity: ~/id}", "{home}/id"),
    "ssh.authorized_keys": ("ssh: {authorized_keys: [~/me.pub]}", "{home}/me.pub SHA256:"),
    "ssh.keep_open": ("ssh: {keep_open: 300d}", "300d"),
    "extends": ("extends: ../base.yaml", "{home}/base.yaml"),
    "data": ("data: [{from: ~/sets, to: data}]", "{home}/sets"),
    "train.results_to": (
        "secrets: [RESULTS_KEY]\n"
        "train: {command: x, results: [out/], results_to: s3://mine/results}",
        "s3://mine/results",
    ),
    "lease.hours": ("lease: {hours: 2}", "2.0"),
    "lease.dollars": ("lease: {dollars: 3}", "3.0"),
    "lease.idle": ("lease: {idle: 30m}", "30m"),
    "lease.stall": ("lease: {stall: 2h}", "2h"),
    "lease.then": ("lease: {then: destroy}", "destroy"),
    "box.image": ("box: {image: me/mine:1}", "me/mine:1"),
    "box.disk_gb": ("box: {disk_gb: 80}", "80"),
    "box.volume": ("box: {volume: v5}", "v5"),
    "provider.account": ("provider: {account: vast}", "vast"),
    "rent.provider": ("rent: {provider: vast}", "vast"),
    "rent.max_price": ("rent: {max_price: 0.6}", "0.6"),
    "rent.spot": ("rent: {spot: true}", "True"),
}


@pytest.fixture(autouse=True)
def config() -> None:
    """Here the user's own config folder is where it really is: in the home."""


def test_each_profile_key_is_marked_as_needing_consent_or_not() -> None:
    marks = {key: field.takes for key, field in PROFILE.leaves()}
    assert [key for key, mark in marks.items() if mark is None] == []
    assert len(marks) >= 50
    assert set(taking_keys()) == set(TAKES)


def test_a_new_profile_key_without_a_consent_mark_fails_the_test_of_marks() -> None:
    url = {"__annotations__": {"url": str}, "url": field("Where it is.")}
    bucket = {"__annotations__": {"bucket": type("Bucket", (Section,), url)}}
    grown = type("Grown", (Profile,), {**bucket, "bucket": field("What is fetched.")})
    assert dict(Field("section", section=grown).leaves())["bucket.url"].takes is None


@pytest.fixture
def clone(user: User, monkeypatch: pytest.MonkeyPatch) -> UserRepository:
    """A repository that the user cloned; it is the current folder."""
    made = user.repository()
    monkeypatch.chdir(made.root)
    (user.home / "id").write_text("a key")
    (user.home / "me.pub").write_text(KEY.format("A"))
    (user.home / "base.yaml").write_text("version: 1\nenv: {FROM: home}\n")
    return made


Says = Callable[..., BoxOptions]


@pytest.fixture
def says(clone: UserRepository) -> Says:
    """`says(text)` writes `text` into the repository's profile."""

    def write(text: str, name: str = "boxstrap.yaml", **options: object) -> BoxOptions:
        (clone.root / name).write_text(f"version: 1\n{text}\n")
        return BoxOptions(repo=clone.root, **options)  # type: ignore[arg-type]

    return write


def refused(options: BoxOptions, **kinds: frozenset[Permission]) -> ConsentError:
    with pytest.raises(ConsentError) as caught:
        load_profile(options, **kinds)
    assert exit_code(caught.value) == 2
    return caught.value


def agree(options: BoxOptions, **kinds: frozenset[Permission]) -> None:
    digest = refused(options, **kinds).grants.digest
    load_profile(BoxOptions(**{**vars(options), "consent": digest}), **kinds)


def records() -> list[Path]:
    return sorted((state_dir() / "consent").glob("**/*"))


@pytest.mark.slow
@pytest.mark.parametrize("key", TAKES)
def test_each_key_of_a_repositorys_profile_that_takes_from_this_machine_needs_consent_once(
    key: str, says: Says, user: User
) -> None:
    text, what = TAKES[key]
    options = says(text)
    error = refused(options, kinds=TO_RENT)
    (each,) = (one for one in error.grants.each if one.key == key)
    # Uploading results needs the bucket's secret, which is taken too.
    assert {one.takes for one in error.grants.each} <= {each.takes, "RESULTS_KEY"}
    assert each.takes.startswith(what.format(home=user.home.resolve()))
    assert f"  {each}" in error.text()
    assert f"--consent {error.grants.digest}" in error.text()
    takes = [{"key": one.key, "takes": one.takes} for one in error.grants.each]
    assert document(error)["takes"] == takes
    assert records() == []
    agree(options, kinds=TO_RENT)
    load_profile(options, kinds=TO_RENT)
    (record,) = records()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    assert "A_TOKEN" in record.read_text() or key != "secrets"


def test_extending_a_shipped_profile_needs_consent_for_its_provider_account_alone(
    says: Says,
) -> None:
    error = refused(says("extends: vast"), kinds=TO_RENT)
    assert [(one.key, one.takes) for one in error.grants.each] == [("provider.account", "vast")]


def test_a_profile_that_takes_nothing_from_this_machine_needs_no_consent(says: Says) -> None:
    load_profile(says("env: {A: b}\npackages: [ffmpeg]\nextends: vast\nsecrets: []"))
    load_profile(says("provider: {account: vast}"))  # a setup rents nothing
    load_profile(says("ssh: {keep_open: 10m}"))
    load_profile(says("ssh: {keep_open: 0}"))
    load_profile(
        says("data: [{from: https://example.org/x, to: x}, {from: hf:models/me/a@main, to: a}]")
    )
    assert records() == []


def test_consent_is_asked_again_when_the_secrets_grow_and_not_when_they_shrink(says: Says) -> None:
    agree(says("secrets: [A, B]"))
    load_profile(says("secrets: [B]"))
    error = refused(says("secrets: [B, C]"))
    assert "secret      C (new)" in error.text()
    assert "secret      B\n" in error.text()
    agree(says("secrets: [B, C]"))
    load_profile(says("secrets: [A, C]"))


def test_a_consent_digest_is_refused_for_any_other_list_of_secrets(says: Says) -> None:
    digest = refused(says("secrets: [A]")).grants.digest
    for text in ("secrets: [A, B]", "secrets: [B]", "secrets: [A]\nssh: {identity: ~/id}"):
        refused(says(text, consent=digest))
    for wrong in ("", "0" * 32, digest[:31], digest.upper()):
        refused(says("secrets: [A]", consent=wrong))
    load_profile(says("secrets: [A]", consent=digest))


def test_consent_still_holds_for_a_repository_that_was_moved_or_is_reached_by_a_symlink(
    says: Says, user: User, clone: UserRepository
) -> None:
    agree(says("secrets: [A]"))
    moved = clone.root.rename(clone.root.with_name("elsewhere"))
    load_profile(BoxOptions(repo=moved))
    (user.home / "way").symlink_to("elsewhere")
    load_profile(BoxOptions(repo=user.home / "way"))


def _another(clone: UserRepository, user: User) -> None:
    clone.root.rename(clone.root.with_name("aside"))
    UserRepository(clone.root, user.env, {"train.py": "'theirs'\n"}).commit({"x": "y"}, "More")


def _fork(clone: UserRepository, user: User) -> None:
    """Somebody's copy with the same history, cloned to where the first one stood."""
    fork = clone.root.rename(clone.root.with_name("fork"))
    subprocess.run(["git", "clone", "-q", fork, clone.root], env=user.env, check=True)
    shutil.rmtree(fork / ".git")
    clone.git("remote", "set-url", "origin", "https://example.org/another/homework.git")


def _same_name(clone: UserRepository, user: User) -> None:
    clone.root.rename(clone.root.with_name("aside"))
    other = UserRepository(clone.root, user.env, {"train.py": "'theirs'\n"})
    other.git("commit", "-q", "--amend", "-m", "Another beginning")
    other.git("remote", "add", "origin", "https://example.org/me/homework.git")


def _leads_there(clone: UserRepository, user: User) -> None:
    """A stranger's folder whose `.git` is the repository that the user agreed for."""
    own = clone.root.rename(clone.root.with_name("own"))
    clone.root.mkdir()
    (clone.root / ".git").write_text(f"gitdir: {own}/.git\n")


def _inside(clone: UserRepository, user: User) -> None:
    """A folder within it that claims to be a repository."""
    (clone.root / "sub/.git").mkdir(parents=True)


@pytest.mark.slow
@pytest.mark.parametrize("other", [_another, _fork, _same_name, _leads_there, _inside])
def test_consent_to_one_repository_is_asked_for_again_in_a_fork_or_another(
    other: Callable[[UserRepository, User], None], says: Says, user: User, clone: UserRepository
) -> None:
    clone.git("remote", "add", "origin", "https://example.org/me/homework.git")
    options = says("secrets: [A]")
    digest = refused(options).grants.digest
    agree(options)
    other(clone, user)
    place = clone.root / "sub" if other is _inside else clone.root
    (place / "boxstrap.yaml").write_text("version: 1\nsecrets: [A]\n")
    for given in (None, digest):
        refused(BoxOptions(repo=place, consent=given), kinds={Permission.SECRET})


@pytest.mark.slow
@pytest.mark.parametrize("left", ["", "[]", "{}", '{"repository": 7, "takes": 1}', "\0"])
def test_with_a_damaged_consent_record_consent_is_asked_for_again(left: str, says: Says) -> None:
    options = says("secrets: [A]")
    agree(options)
    (record,) = records()
    record.write_text(left)
    refused(options)
    agree(options)
    load_profile(options)
    # One of another repository under this one's file name doesn't count either, nor nonsense in it.
    kept = json.loads(record.read_text())
    for changed in ({"repository": "/elsewhere"}, {"takes": 7}, {"takes": [["secrets"]]}):
        record.write_text(json.dumps({**kept, **changed}))
        refused(options)


def test_a_profile_in_the_users_own_config_folder_or_home_needs_no_consent(
    says: Says, user: User, clone: UserRepository
) -> None:
    own = "version: 1\nsecrets: [A]\nssh: {identity: ~/id, authorized_keys: [~/me.pub]}\n"
    config_dir().mkdir(parents=True)
    (config_dir() / "mine.yaml").write_text(own)
    (user.home / "mine.yaml").write_text(own + "extends: base.yaml\n")
    load_profile(says("", profile="mine"))
    load_profile(says("", profile="../mine.yaml"))
    load_profile(says("", profile=str(user.home / "mine.yaml")))
    load_profile(says("secrets: [B]", sets=("secrets=[A]", "ssh.identity=~/id")))
    # If the home is a git repository, the user's config folder is still the user's.
    (user.home / ".git").mkdir()
    load_profile(BoxOptions(repo=user.home, profile="mine"))
    assert records() == []
    # A key that the user's profile sets itself is the user's, whatever it extends.
    (config_dir() / "mine.yaml").write_text(f"{own}extends: {clone.root}/boxstrap.yaml\n")
    load_profile(says("env: {B: c}", profile="mine"))
    assert records() == []
    # What comes from a repository's file that the user's profile extends is the repository's.
    (config_dir() / "mine.yaml").write_text(f"extends: {clone.root}/boxstrap.yaml\n")
    refused(says("secrets: [A]", profile="mine"))


@pytest.mark.parametrize("way", ["named", "link", "link in config", "folder", "absolute", "cwd"])
def test_a_repositorys_profile_needs_consent_also_if_given_by_a_symlink_or_other_path(
    way: str, says: Says, user: User, clone: UserRepository
) -> None:
    (clone.root / "sub").mkdir()
    options = says("secrets: [A]", "sub/evil.yaml")
    evil = clone.root / "sub/evil.yaml"
    config_dir().mkdir(parents=True)
    (user.home / "link.yaml").symlink_to(evil)
    (config_dir() / "mine.yaml").symlink_to(evil)
    (user.home / "way").symlink_to(clone.root / "sub")
    named = {
        "named": "sub/evil.yaml",
        "link": str(user.home / "link.yaml"),
        "link in config": "mine",
        "folder": str(user.home / "way/evil.yaml"),
        "absolute": f"{user.home}/x/../homework/./sub/evil.yaml",
        "cwd": "./sub/evil.yaml",
    }
    (user.home / "x").mkdir()
    repo = user.home if way == "cwd" else options.repo  # not the current folder's repository
    refused(BoxOptions(repo=repo, profile=named[way]))


def test_a_profile_symlink_out_of_the_repository_needs_consent_for_the_file_and_what_it_asks(
    says: Says, user: User, clone: UserRepository
) -> None:
    """What that file asks for is asked for by the repository too."""
    (user.home / "base.yaml").write_text("version: 1\nsecrets: [OF_THE_HOME]\n")
    (clone.root / "boxstrap.yaml").unlink()
    (clone.root / "boxstrap.yaml").symlink_to(user.home / "base.yaml")
    taken = refused(BoxOptions(repo=clone.root)).grants.each
    home = user.home.resolve()
    assert [each.takes for each in taken] == [f"{home}/base.yaml", "OF_THE_HOME"]
    (clone.root / "boxstrap.yaml").unlink()
    (clone.root / "sub").symlink_to(user.home)
    for way in ("../base.yaml", "sub/base.yaml"):
        taken = refused(says(f"extends: {way}")).grants.each
        assert [each.takes for each in taken] == [f"{home}/base.yaml", "OF_THE_HOME"]


def test_an_authorized_key_file_whose_content_changed_needs_consent_again(
    says: Says, user: User
) -> None:
    options = says("ssh: {authorized_keys: [~/me.pub]}")
    agree(options)
    (user.home / "me.pub").write_text(KEY.format("B"))
    assert "(new)" in refused(options).text()
    (user.home / "me.pub").unlink()
    with pytest.raises(ProfileError) as caught:
        load_profile(options)
    assert caught.value.where.endswith("boxstrap.yaml:2")


def test_a_git_url_needs_consent_unless_it_is_this_repositorys_own_remote(
    says: Says, clone: UserRepository
) -> None:
    clone.git("remote", "add", "origin", "https://example.org/me/homework.git")
    load_profile(says("git: {url: https://example.org/me/homework.git}"))
    for other in ("git@example.org:me/homework.git", "https://example.org/me/private.git"):
        refused(says(f"git: {{url: '{other}'}}"))
    # An attacker who sets the address as origin gains nothing: it is not fetched then.
    assert "tok-1" not in refused(says("git: {url: 'https://tok-1@example.org/x.git'}")).text()


def test_a_command_asks_no_consent_for_profile_keys_that_it_does_not_use(says: Says) -> None:
    options = says("secrets: [A]\ngit: {url: https://example.org/me/private.git}")
    load_profile(options, kinds=FOR_THE_BOX)
    refused(says("ssh: {identity: ~/id}"), kinds=FOR_THE_BOX)


def test_the_redactor_reads_only_secrets_that_the_user_consented_to(says: Says) -> None:
    agree(says("secrets: [A]"))
    assert usable_profile(says("secrets: [A, B]"), "secrets") == ["A"]
    assert usable_profile(says("git: {url: https://example.org/another.git}"), "git.url") == []
    assert usable_profile(says("", sets=("secrets=[B]",)), "secrets") == ["B"]


@pytest.mark.parametrize(
    "text",
    [
        *("extends: /proc/self/cwd/x.yaml", "extends: /proc/self/environ", "extends: ../proc.yaml"),
        *("extends: //dev/stdin", "ssh: {identity: /proc/self/root/etc/passwd}"),
        *("ssh: {identity: /etc/../proc/self/environ}", "ssh: {identity: ~/environ}"),
        "ssh: {authorized_keys: [/proc/self/cwd/x.pub]}",
        *("ssh: {authorized_keys: [~/environ.pub]}", "ssh: {authorized_keys: [/dev/fd/0.pub]}"),
    ],
)
def test_a_profile_path_into_proc_or_dev_is_refused_without_offering_consent(
    text: str, says: Says, user: User
) -> None:
    for name in ("proc.yaml", "environ", "environ.pub"):
        (user.home / name).symlink_to("/proc/self/environ")
    options = says(text)
    with pytest.raises(ProfileError, match=r"(/proc|/dev).* is no ordinary file") as caught:
        load_profile(options)
    assert not isinstance(caught.value, ConsentError)


@pytest.mark.slow
def test_no_module_but_the_listed_ones_imports_the_profile_reader_without_consent() -> None:
    root = HERE / "bootstrap"
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if "read_profile" in (text := path.read_text())  # parsing all takes a second
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module == "bootstrap.profile.load"
        if "read_profile" in {name.name for name in node.names}
    }
    assert found == {"profile/consent.py", "tasks/profiles.py"}


# A `.git` that came with the files may point to another repository's objects.


@pytest.fixture
def private(user: User, clone: UserRepository) -> UserRepository:
    """Another repository of the user's; the current folder is the first one."""
    assert clone.root.is_dir()
    return UserRepository(user.home / "private", user.env, {"secret.py": "1\n"})


def _git_file(git: Path, other: Path) -> None:
    shutil.rmtree(git)
    git.write_text(f"gitdir: {other}\n")


def _git_link(git: Path, other: Path) -> None:
    shutil.rmtree(git)
    git.symlink_to(other)


def _commondir(git: Path, other: Path) -> None:
    (git / "commondir").write_text(str(other))


def _forged_worktree(git: Path, other: Path) -> None:
    """Claims to be a worktree of the other repository, which has no record of it."""
    own = git.parent / "worktrees" / "x"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "gitdir").write_text(str(git))
    (own / "commondir").write_text(str(other))
    _git_file(git, own)


def _alternates(git: Path, other: Path) -> None:
    (git / "objects/info/alternates").write_text("#" * 99999 + f"\n{other}/objects\n")


def _quoted_alternates(git: Path, other: Path) -> None:
    (git / "objects/info/alternates").write_text(f'"{other}/obj\\145cts"\n')


def _chained_alternates(git: Path, other: Path) -> None:
    (git / "more/info").mkdir(parents=True)
    (git / "more/info/alternates").write_text(f"{other}/objects\n")
    (git / "objects/info/alternates").write_text("../more\n")


def _linked_objects(git: Path, other: Path) -> None:
    shutil.rmtree(git / "objects")
    (git / "objects").symlink_to(other / "objects")


def _linked_packs(git: Path, other: Path) -> None:
    (git / "objects/pack").rmdir()
    (git / "objects/pack").symlink_to(other / "objects/pack")


@pytest.mark.parametrize(
    "lead",
    [
        _git_file, _git_link, _commondir, _forged_worktree, _alternates, _quoted_alternates,
        _chained_alternates, _linked_objects, _linked_packs,
    ],
)  # fmt: skip
@pytest.mark.slow
def test_a_git_folder_that_borrows_another_repositorys_objects_needs_consent(
    lead: Callable[[Path, Path], None], says: Says, clone: UserRepository, private: UserRepository
) -> None:
    options = says("secrets: []")
    load_profile(options)
    lead(clone.root / ".git", private.root / ".git")
    (each,) = refused(options).grants.each
    assert each.kind is Permission.REPOSITORY
    assert str(private.root / ".git") in each.takes
    load_profile(options, kinds=FOR_THE_BOX)
    agree(options)
    load_profile(options)


@pytest.mark.slow
@pytest.mark.parametrize("profile", [None, "vast", "mine", "../mine.yaml"])
def test_borrowed_git_objects_need_consent_also_with_the_users_own_profile(
    profile: str | None, user: User, clone: UserRepository, private: UserRepository
) -> None:
    """Files that came without a `boxstrap.yaml` have a `.git` all the same."""
    (clone.root / "boxstrap.yaml").unlink()
    config_dir().mkdir(parents=True)
    for file in (config_dir() / "mine.yaml", user.home / "mine.yaml"):
        file.write_text("version: 1\nsecrets: [MINE]\n")
    options = BoxOptions(repo=clone.root, profile=profile)
    load_profile(options)
    _alternates(clone.root / ".git", private.root / ".git")
    error = refused(options, kinds=NO_SECRET)
    assert [each.takes for each in error.grants.each] == [str(private.root / ".git/objects")]
    assert ".git: this repository's .git takes from you" in error.text()
    load_profile(options, kinds=FOR_THE_BOX)
    agree(options)
    load_profile(options)


def test_a_real_worktree_submodule_or_separate_git_folder_needs_no_consent(
    says: Says, clone: UserRepository, private: UserRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other repository has a record of them, or the git folder is inside the tree."""
    says("secrets: []")
    clone.git("add", "-A")
    clone.git("commit", "-qm", "A profile")
    private.git("worktree", "add", "-q", str(clone.root.parent / "beside"))
    allow = ("-c", "protocol.file.allow=always")
    private.git(*allow, "submodule", "add", "-q", str(clone.root), "sub")
    clone.git("init", "-q", "--separate-git-dir", str(clone.root / ".bare"))
    for place in (clone.root.parent / "beside", private.root / "sub", clone.root):
        (place / "boxstrap.yaml").write_text("version: 1\n")
        monkeypatch.chdir(place)
        load_profile(BoxOptions(repo=place))
    alternates = private.root / ".git/objects/info/alternates"
    alternates.write_text(f"{clone.root}/.bare/objects\n")
    error = refused(BoxOptions(repo=clone.root.parent / "beside"))
    assert [each.takes for each in error.grants.each] == [f"{clone.root}/.bare/objects"]


def test_data_from_this_machine_or_an_s3_bucket_needs_consent_and_https_data_does_not(
    says: Says, user: User
) -> None:
    text = (
        "data: [{from: ~/sets, to: a}, {from: s3://mine/x, to: b}, {from: https://e.org/x, to: c}]"
    )
    options = says(text)
    assert [each.takes for each in refused(options).grants.each] == [
        str(user.home.resolve() / "sets"),
        "s3://mine/x",
    ]
    load_profile(options, kinds=NO_SECRET)


@pytest.mark.slow
def test_a_profile_path_inside_the_repository_needs_no_consent_unless_a_symlink_leads_out(
    says: Says, user: User
) -> None:
    options = says("data: [{from: sets/big, to: a}]\nssh: {identity: ~/homework/sets/id}")
    root = options.place.resolve()
    load_profile(options)
    assert records() == []
    # A link counts as its target.
    (root / "sets").symlink_to(user.home)
    found = [each.takes for each in refused(options).grants.each]
    assert found == [f"{user.home.resolve()}/big", f"{user.home.resolve()}/id"]
    # What is the user's own there is asked about: git's settings, secrets, and what holds them.
    (root / "sub").mkdir()
    (root / "sub/.env").write_text("A=b\n")
    (root / "deep/er/est").mkdir(parents=True)
    (root / "deep/er/est/.env.local").write_text("A=b\n")
    (root / "kept/er/.aws").mkdir(parents=True)
    (root / "kept/er/.aws/credentials").write_text("A=b\n")
    (root / "own/src").mkdir(parents=True)
    (root / "own/.git").mkdir()
    inside = ("sub", "sub/.env", "deep", "deep/er", "kept", "own/src")
    spelled = (".GIT/config", "x/.gIt", "git~1/config", ".ENV", "x/Id_RSA", ".aws/credentials")
    for private in (".", ".git/config", ".env", "x/.git/y", *inside, *spelled):
        (each,) = refused(says(f"data: [{{from: {private}, to: a}}]")).grants.each
        assert each.takes == str(root / private)
    # A public key lets its owner in, wherever its file is.
    (root / "their.pub").write_text(KEY.format("C"))
    refused(says("ssh: {authorized_keys: [~/homework/their.pub]}"))


def test_a_consent_request_says_whether_its_profile_is_committed_or_your_own(
    says: Says, clone: UserRepository
) -> None:
    own = "Not committed, so your own unless it came with the repository: boxstrap.yaml."
    author = "The repository's author committed this."
    options = says("secrets: [A]")  # the committed profile takes nothing
    assert own in refused(options).hint
    clone.git("commit", "-qam", "It takes a secret")
    assert author in refused(options).hint
    assert own in refused(says("secrets: [A, B]")).hint
    clone.git("rm", "-q", "--cached", "boxstrap.yaml")
    clone.git("commit", "-qm", "Not here")
    assert own in refused(options).hint
    # One file of the author's among them is enough.
    says("secrets: [A]", "base.yaml")
    clone.git("add", "base.yaml")
    clone.git("commit", "-qm", "A base")
    assert author in refused(says("extends: base.yaml")).hint


@pytest.mark.parametrize(
    ("path", "private"),
    [
        ("a/.g\u200cit/config", True),  # HFS+ reads it as .git
        ("a/.GIT/config", True),
        ("a/.ENV", True),
        ("docs/é", False),
        ("git/x", False),
    ],
)
def test_a_path_to_git_config_needs_consent_in_any_letter_case_or_unicode_form(
    path: str, private: bool
) -> None:
    assert consent._is_private(path) == private
