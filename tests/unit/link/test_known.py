"""What this machine remembers of boxes."""

from __future__ import annotations

import dataclasses
import json
import stat

import pytest

from bootstrap.errors import UsageError
from bootstrap.link import known
from bootstrap.link.known import KnownBox
from bootstrap.link.record import boxes_folder
from bootstrap.link.resolve import Endpoint
from bootstrap.link.target import parse_host


def meet(text: str, hostname: str = "", port: int = 22, **options: object) -> KnownBox:
    target = parse_host(text)
    endpoint = Endpoint(target.address, hostname or target.address, "root", target.port or port)
    return known.meet(target, endpoint, **options)  # type: ignore[arg-type]


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
def test_default_names(text: str, hostname: str, port: int, name: str) -> None:
    assert meet(text, hostname, port).name == name


def test_saved_boxes_are_found_and_private() -> None:
    box = dataclasses.replace(meet("root@1.2.3.4:22"), profile="vast", extra={"n": 1})
    assert known.find(parse_host("root@1.2.3.4:22")) is None
    known.save(box)
    assert known.find(parse_host("root@1.2.3.4:22")) == box
    assert known.find(parse_host("1.2.3.4")) == box
    assert known.find(parse_host("other")) is None
    alias = Endpoint("other", "1.2.3.4", "me", 22)
    assert known.find(parse_host("other"), alias) == box
    assert stat.S_IMODE(box.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((box.folder / "box.json").stat().st_mode) == 0o600
    assert [path.name for path in box.folder.iterdir()] == ["box.json"]


def test_a_known_name_means_its_host() -> None:
    known.save(meet("ssh -p 22 root@1.2.3.4", name="mine"))
    target, box = known.aim("mine")
    assert box is not None
    assert (target.address, target.user) == ("1.2.3.4", "root")
    assert known.aim("elsewhere")[1] is None


def test_meeting_again_keeps_what_is_known() -> None:
    first = dataclasses.replace(meet("root@1.2.3.4:22"), profile="vast", key="SHA256:x")
    known.save(first)
    again = meet("ssh root@1.2.3.4 -p 22")
    assert (again.name, again.profile, again.key) == (first.name, "vast", "SHA256:x")
    assert again.host_text == "ssh root@1.2.3.4 -p 22"


def test_new_boxes_get_names_of_their_own_and_the_newest_is_meant() -> None:
    for number in range(3):
        box = meet("root@1.2.3.4:22", new_box=number > 0)
        known.save(dataclasses.replace(box, created=float(number)))
    assert {box.name for box in known.all_boxes()} == {
        "1.2.3.4-22",
        "1.2.3.4-22-2",
        "1.2.3.4-22-3",
    }
    newest = meet("root@1.2.3.4:22")
    assert (newest.name, newest.own_pin) == ("1.2.3.4-22-3", True)
    assert meet("root@1.2.3.4:22", name="1.2.3.4-22-2").name == "1.2.3.4-22-2"
    with pytest.raises(UsageError, match="already"):
        meet("root@1.2.3.4:22", name="1.2.3.4-22-2", new_box=True)


def test_names_are_no_paths() -> None:
    for name in ("../x", ".x", "a/b", "", "-x", "x" * 64, "a b"):
        with pytest.raises(UsageError, match="name"):
            meet("gpu", name=name)
        assert known.by_name(name) is None


def test_forgotten_and_broken_boxes_are_gone() -> None:
    box = meet("gpu", "10.1.2.3")
    known.save(box)
    (box.folder / "box.json").write_text("{")
    assert known.all_boxes() == []
    known.save(box)
    known.forget(box)
    assert known.all_boxes() == []
    assert not box.folder.exists()


def test_records_of_a_later_version_are_read() -> None:
    box = meet("gpu", "10.1.2.3")
    known.save(box)
    path = box.folder / "box.json"
    path.write_text(path.read_text().replace('"name"', '"novelty": 1,\n "name"'))
    assert known.by_name("gpu") == box


def test_a_box_dated_in_the_future_is_not_newer_than_a_new_one() -> None:
    old = meet("root@1.2.3.4:22")
    known.save(dataclasses.replace(old, created=old.created + 10**9))
    new = meet("root@1.2.3.4:22", new_box=True)
    known.save(new)
    assert meet("root@1.2.3.4:22").name == new.name == "1.2.3.4-22-2"


@pytest.mark.parametrize(("text", "hostname"), [("gpu", "10.1.2.3"), ("1.2.3.4", "")])
def test_a_host_means_its_newest_box_even_where_it_is_an_earlier_ones_name(
    text: str, hostname: str
) -> None:
    known.save(meet(text, hostname))
    new = meet(text, hostname, new_box=True)
    known.save(new)
    assert known.aim(text)[1] == new
    assert meet(text, hostname) == new
    assert known.by_name(text) != new


def test_an_earlier_versions_bare_address_is_the_same_box_under_both_names() -> None:
    """Its folder, its pin and HostKeyAlias stay; what is shown and typed is one name."""
    folder = boxes_folder() / "1.2.3.4"
    folder.mkdir(parents=True)
    record = {"name": "1.2.3.4", "host_text": "root@1.2.3.4", "address": "1.2.3.4", "port": 22}
    (folder / "box.json").write_text(json.dumps(record))
    for text in ("1.2.3.4", "1.2.3.4-22"):
        found = known.by_name(text)
        assert found is not None, text
        assert (found.name, found.folder) == ("1.2.3.4-22", folder)
        assert meet(text, "1.2.3.4").name == "1.2.3.4-22"
        assert known.aim(text)[1] == found
    known.save(found)
    assert [box.name for box in known.all_boxes()] == ["1.2.3.4-22"]
    assert [path.name for path in folder.parent.iterdir()] == ["1.2.3.4"]
    assert meet("1.2.3.4", name="1.2.3.4").name == "1.2.3.4-22"
    known.forget(found)
    assert known.all_boxes() == []


def test_names_that_differ_in_capitals_alone_are_one_name() -> None:
    """To file systems, to addresses of editors, and so to a user."""
    known.save(meet("root@1.2.3.4:22", name="gpu"))
    assert meet("GPU", "9.9.9.9").name == "GPU-2"
    with pytest.raises(UsageError, match="there is a box gpu already"):
        meet("root@9.9.9.9:22", name="Gpu")


@pytest.mark.parametrize(
    "record",
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
def test_a_record_that_makes_no_sense_is_none(record: str) -> None:
    box = meet("gpu", "10.1.2.3")
    known.save(box)
    (box.folder / "box.json").write_text(record)
    assert known.all_boxes() == []
    assert known.by_name("gpu") is None
    assert [lost.name for lost in known.unreadable()] == ["gpu"]
