"""What this machine remembers about boxes."""

import dataclasses
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bootstrap import Box
from bootstrap.errors import UnreachableError, UsageError, WhichBoxError
from bootstrap.link import BoxOptions, KnownBox, parse_host, record, registry
from bootstrap.link.endpoint import Endpoint, resolve
from bootstrap.link.wire import not_found
from bootstrap.providers import RentedBox, RentedState, accounts


def get_or_create(text: str, hostname: str = "", port: int = 22, **options: object) -> KnownBox:
    target = parse_host(text)
    endpoint = Endpoint(target.address, hostname or target.address, "root", target.port or port)
    return registry.get_or_create(target, endpoint, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "hostname", "port", "name"),
    [
        ("gpu", "10.1.2.3", 2200, "gpu"),
        ("root@5.17.27.63:46769", "5.17.27.63", 46769, "5.17.27.63-46769"),
        ("box.example.org", "box.example.org", 22, "box.example.org-22"),
        ("[2001:db8::1]:2200", "2001:db8::1", 2200, "2001-db8--1-2200"),
        ("::1", "::1", 22, "1-22"),
    ],
)
def test_a_new_box_is_named_by_its_alias_or_its_address_and_port(
    text: str, hostname: str, port: int, name: str
) -> None:
    assert get_or_create(text, hostname, port).name == name


def test_a_known_box_is_found_by_address_or_alias_and_others_can_not_read_its_record() -> None:
    box = dataclasses.replace(get_or_create("root@1.2.3.4:22"), profile="vast", provider="vast")
    assert registry.find_known(parse_host("root@1.2.3.4:22")) is None
    record.save_box(box)
    assert registry.find_known(parse_host("root@1.2.3.4:22")) == box
    assert registry.find_known(parse_host("1.2.3.4")) == box
    assert registry.find_known(parse_host("other")) is None
    alias = Endpoint("other", "1.2.3.4", "me", 22)
    assert registry.find_known(parse_host("other"), alias) == box
    assert stat.S_IMODE(box.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((box.folder / "box.json").stat().st_mode) == 0o600
    assert [path.name for path in box.folder.iterdir()] == ["box.json"]


def test_a_known_box_typed_as_an_ssh_command_has_its_earlier_name_and_profile() -> None:
    first = dataclasses.replace(get_or_create("root@1.2.3.4:22"), profile="vast", key="SHA256:x")
    record.save_box(first)
    again = get_or_create("ssh root@1.2.3.4 -p 22")
    assert (again.name, again.profile, again.key) == (first.name, "vast", "SHA256:x")
    assert again.host_text == "ssh root@1.2.3.4 -p 22"


def test_with_new_box_a_known_address_gives_a_name_with_a_number_and_then_means_that_box() -> None:
    for number in range(3):
        box = get_or_create("root@1.2.3.4:22", new_box=number > 0)
        record.save_box(dataclasses.replace(box, created=float(number)))
    assert {box.name for box in record.all_boxes()} == {
        "1.2.3.4-22",
        "1.2.3.4-22-2",
        "1.2.3.4-22-3",
    }
    newest = get_or_create("root@1.2.3.4:22")
    assert (newest.name, newest.own_pin) == ("1.2.3.4-22-3", True)
    assert get_or_create("root@1.2.3.4:22", name="1.2.3.4-22-2").name == "1.2.3.4-22-2"
    with pytest.raises(UsageError, match="already"):
        get_or_create("root@1.2.3.4:22", name="1.2.3.4-22-2", new_box=True)


def test_a_known_box_can_not_take_the_name_of_a_box_at_another_address() -> None:
    """Its host key would be compared with the other's: an alarm about a change that was none."""
    for host in ("10.1.2.3", "10.1.2.4"):
        record.save_box(get_or_create(f"root@{host}:22", host, name=f"gpu-{host[-1]}"))
    with pytest.raises(UsageError, match=r"a box gpu-4 already\.\nGive gpu-3 another name"):
        get_or_create("root@10.1.2.3:22", "10.1.2.3", name="gpu-4")
    moved = get_or_create("root@10.1.2.5:22", "10.1.2.5", name="gpu-4")
    assert (moved.name, moved.address) == ("gpu-4", "10.1.2.5")


def test_a_new_name_renames_the_known_box_and_its_former_name_still_finds_the_box() -> None:
    first = get_or_create("gpu", "10.1.2.3").using("repo-12345678", snapshot="a" * 40)
    record.save_box(first)
    read_earlier = registry.box_by_name("gpu")  # by a command that goes on
    renamed = get_or_create("gpu", "10.1.2.3", name="nina")
    assert (renamed.name, renamed.folder) == ("nina", first.folder)
    record.save_box(renamed)
    assert read_earlier is not None
    record.save_box(read_earlier, is_new=False)
    (only,) = record.all_boxes()
    assert (only.name, only.repositories) == ("nina", first.repositories)
    assert registry.box_by_name("nina") == registry.box_by_name("gpu") == only
    # Another box can't have the former name; the box itself can have it back.
    assert get_or_create("root@9.9.9.9:22", new_box=True).name == "9.9.9.9-22"
    for name in ("gpu", "Gpu"):
        with pytest.raises(UsageError, match="there is a box nina already"):
            get_or_create("root@9.9.9.9:22", name=name)
    back = get_or_create("nina", "10.1.2.3", box=only, name="gpu")
    assert (back.name, back.folder_name, back.folder) == ("gpu", "", first.folder)
    # Of two at one place the one that was named.
    record.save_box(get_or_create("gpu", "10.1.2.3", new_box=True))
    assert get_or_create("gpu", "10.1.2.3", box=only, name="old").folder == first.folder
    assert registry.lookup("nina")[1] == only


def test_an_earlier_name_of_a_box_typed_as_host_is_answered_by_did_you_mean_its_new_name() -> None:
    for name in ("gpu", "nina", "third"):
        record.save_box(get_or_create("root@10.1.2.3:22", name=name))
    (only,) = record.all_boxes()
    assert (only.name, only.host_key_alias, only.former) == ("third", "gpu", ("gpu", "nina"))
    assert "Did you mean third?" in not_found(resolve(parse_host("nina"))).hint
    assert get_or_create("gpu", name="nina").former == ("gpu", "third")


def test_a_command_that_only_reads_does_not_rename_a_known_box() -> None:
    def resolve(name: str, *, renames: bool) -> str:
        options = BoxOptions(host="root@10.1.2.3:22", name=name, renames=renames)
        return registry.resolve_box(options, print).known.name

    assert resolve("gpu", renames=False) == "gpu"  # it has no name yet
    record.save_box(get_or_create("root@10.1.2.3:22", name="gpu"))
    assert resolve("gpu", renames=False) == "gpu"
    with pytest.raises(UsageError, match="gpu would be renamed"):
        resolve("nina", renames=False)
    assert resolve("nina", renames=True) == "nina"
    with pytest.raises(UsageError, match="this machine is always called local"):
        registry.resolve_box(BoxOptions(host="local", name="nina"), print)


def test_a_login_by_address_to_a_known_box_uses_the_key_file_saved_for_that_box(
    tmp_path: Path,
) -> None:
    (key := tmp_path / "id").touch()
    box = get_or_create("root@10.1.2.3:22", name="gpu")
    box = dataclasses.replace(box, address="10.1.2.3", port=22, user="root")
    record.save_box(
        dataclasses.replace(box, route=dataclasses.replace(box.route, identity=str(key)))
    )

    def keys(host: str, **options: Any) -> Sequence[Path]:
        found = registry.resolve_box(BoxOptions(host=host, **options), print)
        assert found.endpoint
        return found.endpoint.identity_files

    assert key in keys("gpu")
    assert key in keys("root@10.1.2.3:22")
    (other := tmp_path / "other").touch()
    assert keys("root@10.1.2.3:22", identity=str(other)) == (other,)
    assert key not in keys("root@10.1.2.3:23")
    assert key not in keys("root@10.1.2.3:22", new_box=True)
    record.save_box(get_or_create(f"ssh -i {other} root@10.1.2.4", name="pasted"))
    assert keys("pasted") == (other,)
    other.unlink()
    assert other not in keys("pasted")
    with pytest.raises(UsageError, match="there is no key file"):
        keys(f"ssh -i {other} root@10.1.2.3")


def test_a_box_can_not_be_given_the_name_of_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who types it means that host: what they send would go to the box."""
    monkeypatch.setattr(registry, "has_alias", "prod".__eq__)
    monkeypatch.setattr(registry, "resolved", lambda name: {"10.9.9.9"} & {name} or {"*"})
    record.save_box(get_or_create("root@10.1.2.3:22", "10.1.2.3", name="gpu"))
    for name in ("prod", "10.9.9.9", "github.com"):
        for host in ("root@10.1.2.3:22", "root@10.1.2.4:22"):  # a known box, and a new one
            with pytest.raises(UsageError, match=f"{name} is the name of a host"):
                get_or_create(host, host[5:-3], name=name)
    assert get_or_create("prod", "prod", name="prod").name == "prod-22"
    assert get_or_create("root@9.9.9.9:22", "9.9.9.9", name="any").name == "any"


def test_a_box_name_of_odd_characters_or_64_letters_or_like_local_or_a_domain_is_refused() -> None:
    """`--host local` would send there what was meant to stay here."""
    for name in ("../x", ".x", "a/b", "", "-x", "x" * 64, "a b", "local", "LOCAL", "gitlab.com."):
        with pytest.raises(UsageError, match="can't be a box's name"):
            get_or_create("gpu", name=name)
        assert registry.box_by_name(name) is None


def test_an_address_means_the_box_added_last_even_if_an_older_record_has_a_future_date() -> None:
    old = get_or_create("root@1.2.3.4:22")
    record.save_box(dataclasses.replace(old, created=old.created + 10**9))
    new = get_or_create("root@1.2.3.4:22", new_box=True)
    record.save_box(new)
    assert get_or_create("root@1.2.3.4:22").name == new.name == "1.2.3.4-22-2"


@pytest.mark.parametrize(("text", "hostname"), [("gpu", "10.1.2.3"), ("1.2.3.4", "")])
def test_a_typed_address_chooses_the_newest_box_there_even_if_an_older_box_has_it_as_its_name(
    text: str, hostname: str
) -> None:
    record.save_box(get_or_create(text, hostname))
    new = get_or_create(text, hostname, new_box=True)
    record.save_box(new)
    assert registry.lookup(text)[1] == new
    assert get_or_create(text, hostname) == new
    assert registry.box_by_name(text) != new


def test_box_names_that_differ_only_in_capitals_are_the_same_name() -> None:
    """File systems and the addresses of editors may ignore case, so boxstrap does too."""
    record.save_box(get_or_create("root@1.2.3.4:22", name="gpu"))
    assert get_or_create("GPU", "9.9.9.9").name == "GPU-2"
    with pytest.raises(UsageError, match="there is a box gpu already"):
        get_or_create("root@9.9.9.9:22", name="Gpu")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"name": "gpu"}',
        '{"name": "other", "host_text": "gpu"}',
        '{"name": "gpu", "host_text": "gpu", "created": "now"}',
        '{"name": "gpu", "host_text": "gpu", "created": NaN}',
        '{"name": "gpu", "host_text": "gpu", "extra": []}',
        '{"name": "gpu", "host_text": "gpu", "port": true}',
        '{"name": "gpu", "host_text": "gpu", "folder_name": "../gpu"}',
    ],
)
def test_a_box_with_a_malformed_record_is_not_known_and_is_listed_as_unreadable(text: str) -> None:
    box = get_or_create("gpu", "10.1.2.3")
    record.save_box(box)
    (box.folder / "box.json").write_text(text)
    assert record.all_boxes() == []
    assert registry.box_by_name("gpu") is None
    assert [lost.name for lost in record.unreadable_record()] == ["gpu"]


def test_hugging_face_jobs_at_their_one_address_are_different_boxes_by_their_user_name() -> None:
    def met(text: str, user: str) -> KnownBox:
        endpoint = Endpoint("ssh.hf.jobs", "ssh.hf.jobs", user, 22)
        return registry.get_or_create(parse_host(text), endpoint)

    first = met("aaa111@ssh.hf.jobs", "aaa111")
    assert first.name == "ssh.hf.jobs-aaa111"
    record.save_box(first)
    second = met("bbb222@ssh.hf.jobs", "bbb222")
    assert second.name == "ssh.hf.jobs-bbb222"
    record.save_box(second)
    assert met("ssh aaa111@ssh.hf.jobs", "aaa111").name == first.name
    assert met("hf:aaa111", "aaa111").name == first.name
    # The door shows one host key for all: a new job is no first contact with it.
    third = met("hf:ccc333", "ccc333")
    assert (third.name, third.own_pin) == ("hf-ccc333", False)
    assert registry.boxes_at(Endpoint("x", "SSH.hf.jobs", "ccc333", 22)) is not None
    # Elsewhere it is the address alone.
    record.save_box(get_or_create("root@1.2.3.4:22"))
    me = Endpoint("1.2.3.4", "1.2.3.4", "me", 22)
    assert registry.get_or_create(parse_host("me@1.2.3.4"), me).name == "1.2.3.4-22"


def test_without_host_the_error_names_the_other_repository_that_has_the_only_known_box() -> None:
    there = (record.BoxRepository("homework-aaaaaaaa", place="/w/homework"),)
    box = get_or_create("root@1.2.3.4:22")
    record.save_box(dataclasses.replace(box, repositories=there))
    with pytest.raises(UsageError, match="homework has none") as caught:
        registry.only_box("homework-bbbbbbbb")
    assert "of homework (/w/homework)" in caught.value.what


def test_the_end_of_a_rented_box_is_announced_in_its_last_hour() -> None:
    box = get_or_create("root@1.2.3.4:22")
    assert box.end_words(1e12) == ""
    box = dataclasses.replace(box, ends=10_000.0)
    assert box.end_words(10_000.0 - 3601) == ""
    assert "it ends in 59 min 59 s by its own limit" in box.end_words(10_000.0 - 3599)
    assert "it ends now" in box.end_words(10_001.0)
    assert box.end_words(10_601.0) == ""  # it is here: it was started again since
    record.save_box(box)
    (kept,) = record.all_boxes()
    assert kept.ends == 10_000.0


@pytest.mark.parametrize("address", ["1.2.3.4;id", "$(id)", "-oPort=1", "a b", "1.2.3.4\n", "\0"])
def test_a_hostile_address_in_a_providers_answer_is_an_error_that_the_box_has_no_address(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    rented = RentedBox("vast", "7", "", RentedState.RUNNING, address=address, port=22, user="root")
    monkeypatch.setattr(accounts, "find_rented", lambda _: rented)
    with pytest.raises(UnreachableError, match="no address"):
        registry.ask_account(parse_host("vast:7"))


def test_library_status_of_a_repository_with_several_boxes_raises_an_error_that_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    box = Box(repo=str(tmp_path))
    for number in (3, 4):
        known = get_or_create(f"root@10.1.2.{number}:22", f"10.1.2.{number}", name=f"gpu-{number}")
        record.save_box(known.using(box._request.repository[0]))
    monkeypatch.setattr("bootstrap.runs.status.find_status", lambda *_: [None, None])
    with pytest.raises(WhichBoxError, match="gpu-3"):
        box.status()
