"""What is sent to a box, and what is refused before the box is touched."""

import json
import os
import re
from pathlib import Path

import pytest

from bootstrap.errors import ProfileError, UsageError
from bootstrap.profile import ConsentError, DataItem, Profile
from bootstrap.profile.load import read_profile
from bootstrap.repo.place import repository_root
from bootstrap.setup.context import get_context
from bootstrap.setup.payload import Payload, build_payload
from bootstrap.setup.push import LocalItem, local_items
from bootstrap.setup.request import SetupRequest
from bootstrap.ui.screens import make_screen
from tests.cli import User
from tests.plain_environment import HERE

pytestmark = pytest.mark.slow  # each starts programs


@pytest.fixture(autouse=True)
def stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Restore the current folder afterwards, since `payload` changes it."""
    monkeypatch.chdir(tmp_path)


def payload(place: Path, *sets: str, with_source: bool = True, **asked: object) -> Payload:
    """Return what is sent when the current folder is `place`."""
    os.chdir(place)
    loaded = read_profile("vast", sets=sets)
    return build_payload(loaded, SetupRequest(**asked), local=False, with_source=with_source)  # type: ignore[arg-type]


def test_setup_sends_a_clean_repository_as_its_commit(user: User) -> None:
    repository = user.repository()
    found = payload(repository.root)
    assert found.source.commit == repository.head
    assert found.source.name == "homework"
    assert found.here is not None
    assert f"REPO_COMMIT='{repository.head}'" in found.script


def test_boxstraps_own_checkout_is_no_training_repository_unless_named_by_repo() -> None:
    with pytest.raises(UsageError, match="boxstrap's own source") as caught:
        payload(HERE, committed_only=True)
    assert "--repo" in caught.value.hint
    request = SetupRequest(repo=HERE, committed_only=True)
    assert build_payload(read_profile("vast"), request, local=False).source.name


def test_a_folder_without_a_repository_is_a_usage_error_unless_no_source_is_needed(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError):
        payload(tmp_path)
    assert payload(tmp_path, with_source=False).source.commit == ""


def test_setup_sends_uncommitted_changes_unless_option_committed_only_is_set(user: User) -> None:
    repository = user.repository()
    repository.write({"train.py": "x", "new.py": "y"})
    found = payload(repository.root)
    assert found.source.commit == repository.head
    assert found.source.snapshot not in ("", repository.head)
    assert f"REPO_SNAPSHOT='{found.source.snapshot}'" in found.script
    assert str(found.changes) == "1 modified, 1 new"
    tracked = payload(repository.root, "git.include=tracked")
    assert str(tracked.changes) == "1 modified"
    for alone in (
        payload(repository.root, committed_only=True),
        payload(repository.root, "git.include=commit"),
    ):
        assert alone.source.snapshot == repository.head
        assert not alone.changes


def test_editing_boxstrap_yaml_makes_a_new_snapshot_but_counts_as_the_same_work(user: User) -> None:
    repository = user.repository()
    clean = payload(repository.root).source
    (repository.root / "boxstrap.yaml").write_text("version: 1\ngpu: {require: false}\n")
    edited = payload(repository.root).source
    assert edited.snapshot != clean.snapshot
    assert edited.tree == clean.tree
    repository.git("rm", "-q", "--cached", "boxstrap.yaml")
    repository.git("commit", "-q", "-m", "Without a profile")
    assert payload(repository.root).source.tree == clean.tree
    (repository.root / "sub").mkdir()
    (repository.root / "sub/boxstrap.yaml").write_text("version: 1\n")
    other = payload(repository.root).source.tree
    assert other != clean.tree
    repository.commit({}, "All of it")
    assert payload(repository.root).source.tree == other
    assert payload(repository.root).source.snapshot == repository.head


def test_setup_refuses_uncommitted_changes_when_git_ref_is_another_commit(user: User) -> None:
    repository = user.repository()
    repository.git("tag", "v1")
    repository.commit({"a.txt": "a"})
    repository.git("tag", "v2")
    repository.write({"train.py": "x"})
    with pytest.raises(UsageError, match=r"your changes \(1 modified\) are to commit"):
        payload(repository.root, "git.ref=v1")
    assert payload(repository.root, "git.ref=v1", committed_only=True).source.snapshot
    assert str(payload(repository.root, "git.ref=v2").changes) == "1 modified"


def test_setup_by_git_url_sends_no_uncommitted_changes_and_warns_the_user(user: User) -> None:
    repository = user.repository()
    repository.git("remote", "add", "origin", "https://example.org/me/homework.git")
    assert not payload(repository.root, "git.access=url").warnings
    repository.write({"train.py": "x", ".env": "A=b"})
    (warning,) = payload(repository.root, "git.access=url").warnings
    assert "your changes stay here" in warning
    (repository.root / ".env").unlink()
    (warning,) = payload(repository.root, "git.access=url").warnings
    assert "your changes (1 modified) stay here" in warning
    assert not payload(repository.root, "git.access=url", committed_only=True).warnings


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("python train.py --data /path/to/imagenet", "/path/to/imagenet"),
        ("python train.py --model '<your model>' -o out", "<your model>"),
        ("python train.py <a.txt >b.txt", ""),
        ("python train.py --data mypath/tools", ""),
    ],
)
def test_a_placeholder_in_a_train_command_is_refused(user: User, command: str, left: str) -> None:
    place = user.repository().root
    for sets in (f"train.command={command}", f'prepare=["{command}"]'):
        if not left:
            payload(place, sets, committed_only=True)
            continue
        with pytest.raises(UsageError, match=re.escape(left)) as caught:
            payload(place, sets, committed_only=True)
        assert sets.partition("=")[0] in str(caught.value.where)


def test_render_for_a_provider_refuses_and_lists_uncommitted_changes(user: User) -> None:
    repository = user.repository()
    repository.write({"train.py": "x", "new.py": "y"})
    for words in (("oneliner",), ("render", "--for", "ec2")):
        refused = user.run(*words).must(2)
        assert "a door can't carry this" in refused.err
        assert "  your changes (1 modified, 1 new): new.py" in refused.err
        assert "--committed-only" in refused.err
        assert not refused.out
    # The repository's profile is read on this machine and need not be carried.
    repository.git("checkout", "-q", ".")
    (repository.root / "new.py").unlink()
    (repository.root / "boxstrap.yaml").write_text("version: 1\ngpu: {require: false}\n")
    assert "can't carry this" not in user.run("oneliner").must(2).err
    repository.commit({".gitattributes": "*.pt filter=lfs\n", "a.pt": "pointer"})
    assert "a.pt: an LFS file" in user.run("oneliner").must(2).err


def test_render_for_a_provider_refuses_a_profile_that_needs_data_of_this_machine(
    user: User,
) -> None:
    repository = user.repository()
    repository.git("remote", "add", "origin", "https://example.org/me/homework.git")
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    for source in ("~/sets", "s3://mine/sets"):
        text = f"version: 1\nextends: vast\ndata: [{{from: {source}, to: data/x}}]\n"
        (repository.root / "boxstrap.yaml").write_text(text)
        user.agree()
        for words in (("oneliner",), ("render", "--for", "lambda")):
            refused = user.run(*words).must(2)
            assert "data[0].from: a door can't bring " in refused.err
            assert "boxstrap setup --host" in refused.err
            assert not refused.out
    (repository.root / "boxstrap.yaml").write_text(text.replace("s3:", "https:"))
    script = user.run("render", "--for", "lambda").must(0).out
    assert script.startswith("#")


def test_data_to_send_counts_as_changed_if_a_file_name_size_or_time_changed(
    user: User, tmp_path: Path
) -> None:
    def item(to: str, **values: object) -> LocalItem:
        row = DataItem(**{"from": str(tmp_path / "sets"), "to": to, **values})
        (found,) = local_items(Profile(data=[row]))
        return found

    with pytest.raises(UsageError, match=r"there is no .*/sets on this machine"):
        item("a")
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets/a").write_text("1")
    first = item("a").sent
    assert item("a").sent == first
    (tmp_path / "sets/b.tmp").write_text("2")
    assert item("a", exclude=["*.tmp"]).sent == first
    assert item("a").sent != first
    os.utime(tmp_path / "sets/a", (1, 1))
    assert item("a", exclude=["*.tmp"]).sent != first
    (tmp_path / "sets/b.tmp").unlink()
    (tmp_path / "sets/a").rename(tmp_path / "file")
    (tmp_path / "sets").rmdir()
    (tmp_path / "file").rename(tmp_path / "sets")
    assert item("data/").sent.to == "data/sets"
    with pytest.raises(UsageError, match="a file that is sent keeps its name, sets"):
        item("data/other")


def test_setup_exits_with_2_naming_a_new_file_that_looks_like_a_credential(user: User) -> None:
    repository = user.repository()
    repository.write({".env": "API_KEY=1", "notes.txt": "nothing"})
    with pytest.raises(UsageError, match=r"look like credentials") as caught:
        payload(repository.root)
    assert "  .env  (environment file)" in caught.value.what
    assert "notes.txt" not in caught.value.what
    assert ".gitignore" in caught.value.hint
    assert payload(repository.root, "git.include=tracked").source.snapshot == repository.head


def test_setup_exits_with_2_naming_a_new_file_above_git_max_file_mib(user: User) -> None:
    repository = user.repository()
    (repository.root / "data.bin").write_bytes(bytes(3 * 2**20))
    payload(repository.root)
    with pytest.raises(UsageError, match=r"larger than 2 MiB \(git.max_file_mib\)") as caught:
        payload(repository.root, "git.max_file_mib=2")
    assert "  data.bin  (3 MiB)" in caught.value.what
    # What looks like a credential beside it is told with it, not only once it is mended.
    repository.write({".env": "API_KEY=1"})
    with pytest.raises(UsageError, match=r"data\.bin(.|\n)*\.env") as caught:
        payload(repository.root, "git.max_file_mib=2")
    assert [line.split(":")[0] for line in caught.value.hint.split("\n")[:2]] == [
        *("Large ones", "Credentials")
    ]


def test_setup_with_git_ref_sends_the_commit_of_that_ref_not_the_current_one(user: User) -> None:
    repository = user.repository()
    first = repository.head
    repository.git("tag", "v1")
    second = repository.commit({"a.txt": "a"})
    assert payload(repository.root, "git.ref=v1").source.commit == first
    assert payload(repository.root).source.commit == second
    assert payload(repository.root).script_id != payload(repository.root, "git.ref=v1").script_id


def test_git_access_url_in_a_repository_without_a_remote_is_a_profile_error(user: User) -> None:
    repository = user.repository()
    with pytest.raises(ProfileError, match="no remote"):
        payload(repository.root, "git.access=url")


def test_the_setup_script_contains_only_steps_that_the_profile_needs(user: User) -> None:
    repository = user.repository()
    assert [step.name for step in payload(repository.root).steps][-2:] == ["python", "smoke"]
    for without in ("gpu.smoke=none", "gpu.require=false"):
        assert [step.name for step in payload(repository.root, without).steps][-1] == "python"
    with_train = payload(repository.root, "train.command=python train.py")
    assert [step.name for step in with_train.steps][-1] == "train"
    loaded = read_profile("local", sets=("train.command=true",))
    local = build_payload(loaded, SetupRequest(repo=repository.root), local=True)
    assert "ssh" not in [step.name for step in local.steps]


def test_setup_in_a_subfolder_finds_the_repositorys_top_folder(user: User, tmp_path: Path) -> None:
    repository = user.repository()
    below = repository.root / "a/b"
    below.mkdir(parents=True)
    assert repository_root(below) == repository.root
    assert repository_root(tmp_path) is None


ASKED = "lib @ git+ssh://git@example.org/me/lib.git\n"
OTHER = "own @ git+https://example.org/me/own\nfree @ git+https://example.org/other/free\n"


def test_setup_sends_a_private_ssh_dependency_only_after_consent_and_none_to_this_machine(
    user: User,
) -> None:
    repository = user.repository(requirements__txt=f"# {OTHER}{ASKED}")
    with pytest.raises(ConsentError, match="requirements take from you") as caught:
        payload(repository.root)
    assert [str(each) for each in caught.value.grants.each] == [
        "dependency  ssh://git@example.org/me/lib.git"
    ]
    agreed = payload(repository.root, consent=caught.value.grants.digest)
    assert [each.address for each in agreed.dependencies] == ["ssh://git@example.org/me/lib.git"]
    assert "- ssh://git@example.org/me/lib.git'" in agreed.script
    # The file in the working tree counts, not the committed one; a new address needs new consent.
    repository.write({"requirements.txt": ASKED.replace("lib", "new")})
    with pytest.raises(ConsentError, match=r"me/new\.git \(new\)"):
        payload(repository.root)
    assert payload(repository.root, "python.private=[]").dependencies == ()
    assert build_payload(read_profile("local"), SetupRequest(), local=True).dependencies == ()


def test_a_requirements_file_outside_the_repository_is_not_read_on_this_machine(user: User) -> None:
    repository = user.repository(requirements__txt="-r ../beyond.txt\n-r /etc/hosts\n")
    assert payload(repository.root).dependencies == ()


def test_an_https_dependency_is_sent_only_if_the_profile_lists_it_as_private(user: User) -> None:
    repository = user.repository(requirements__txt=OTHER)
    assert payload(repository.root).dependencies == ()
    own = payload(repository.root, "python.private=[https://example.org/me/]")
    assert [each.address for each in own.dependencies] == ["https://example.org/me/own"]


def test_dollars_of_a_lease_are_counted_at_the_price_that_an_earlier_setup_was_given(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", user.env)
    root = user.repository().root

    def lease(*sets: str) -> object:
        made = get_context(SetupRequest("local", "local", sets, root), make_screen(json=True))
        made.box.save(made.box.known)
        made.box.close()
        return json.loads(str(made.payload.values["lease"]["LEASE"]))

    assert lease("box.price=1.5") == {}
    assert lease("lease.hours=1") == {"seconds": 3600.0}
    assert lease("lease.dollars=2") == {"dollars": 2.0, "price": 1.5}
