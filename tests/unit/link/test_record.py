"""A box's record: what it keeps, what others add to it, left alone if a later version wrote it."""

import dataclasses
import json
from pathlib import Path

import pytest

from bootstrap.errors import UsageError
from bootstrap.link import BoxOptions, Endpoint, parse_host, record, registry
from bootstrap.link.record import VERSION, BoxRepository, KnownBox, Route
from tests.cli import User
from tests.logins import login_to

EXTRA = {
    "console": "https://cloud.vast.ai/instances/",
    "editor_settings": {"python.defaultInterpreterPath": "${workspaceFolder}/.venv/bin/python"},
    "identities": ["/home/me/.ssh/id_gpu"],
    "identities_only": True,
    "identity": "/home/me/.ssh/id_gpu",
    "jump": "me@bastion:2222",
    "known_hosts": ["/home/me/.ssh/known_hosts"],
    "provider": "vast",
    "proxy": "",
    "repositories": [
        {
            "key": "homework-1a2b3c4d5e6f",
            "place": "",
            "root": "8f14e45fceea167a5a36dedd4bea2543d0f4a0b1",
            "script": "abababab",
            "left": [],
            "sent": [],
            "snapshot": "",
            "stood_in": "",
            "used": 1795316402.1966858,
            "venv": ".venv",
            "workdir": "/workspace",
        }
    ],
    "secrets": ["HF_TOKEN", "WANDB_API_KEY"],
    "workdir": "/workspace",
}
WRITTEN = {
    "address": "5.17.27.63",
    "created": 1795316402.1178052,
    "extra": EXTRA,
    "folder_name": "",
    "host_text": "gpu",
    "key": "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU",
    "name": "gpu",
    "own_pin": False,
    "port": 46769,
    "profile": "vast",
    "seen": 1795316402.1966858,
    "user": "root",
    "v": VERSION,
}
READ = KnownBox(
    name="gpu",
    host_text="gpu",
    address="5.17.27.63",
    port=46769,
    user="root",
    profile="vast",
    key="SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU",
    created=1795316402.1178052,
    seen=1795316402.1966858,
    route=Route(
        identity="/home/me/.ssh/id_gpu",
        identities=("/home/me/.ssh/id_gpu",),
        identities_only=True,
        jump="me@bastion:2222",
        known_hosts=("/home/me/.ssh/known_hosts",),
    ),
    provider="vast",
    workdir="/workspace",
    console="https://cloud.vast.ai/instances/",
    repositories=(
        BoxRepository(
            key="homework-1a2b3c4d5e6f",
            root="8f14e45fceea167a5a36dedd4bea2543d0f4a0b1",
            workdir="/workspace",
            venv=".venv",
            script="abababab",
            used=1795316402.1966858,
        ),
    ),
    secrets=("HF_TOKEN", "WANDB_API_KEY"),
    editor_settings={"python.defaultInterpreterPath": "${workspaceFolder}/.venv/bin/python"},
)


def write(name: str, values: object) -> Path:
    folder = record.boxes_folder() / name
    folder.mkdir(parents=True)
    (folder / "box.json").write_text(json.dumps(values))
    return folder / "box.json"


def rewritten(file: Path) -> dict[str, object]:
    box = registry.box_by_name(file.parent.name)
    assert box is not None
    record.save_box(box)
    values: dict[str, object] = json.loads(file.read_text())
    return values


def test_the_record_of_a_known_box_is_written_back_as_read() -> None:
    written = rewritten(write("gpu", WRITTEN))
    assert registry.box_by_name("gpu") == READ
    assert isinstance(written["extra"], dict)
    assert written == {**written, **WRITTEN, "extra": {**written["extra"], **EXTRA}}
    assert registry.box_by_name("gpu") == READ


TWO = READ.using("other-00000001", root="b" * 40, workdir="/mine", snapshot="c" * 40)
"""The box after another repository was set up on it too."""


def test_recording_a_second_repository_on_a_box_leaves_the_entry_of_the_first_unchanged() -> None:
    record.save_box(TWO)
    box = registry.box_by_name("gpu")
    assert box == TWO
    assert [each.name for each in box.repositories] == ["other", "homework-1a2b3c4d5e6f"]
    assert box.of("homework-1a2b3c4d5e6f") == READ.last
    assert (box.workdir_of("homework-1a2b3c4d5e6f"), box.workdir_of("other-00000001")) == (
        *("/workspace", "/mine"),
    )
    again = TWO.using("homework-1a2b3c4d5e6f", snapshot="d" * 40)
    assert again.last.key == "homework-1a2b3c4d5e6f"
    assert again.last.root == READ.last.root


def test_what_two_commands_at_once_record_of_a_box_is_all_in_its_record_afterwards() -> None:
    record.save_box(READ)
    record.save_box(TWO)  # by another command, while this one still has what it read before
    record.save_box(dataclasses.replace(READ, seen=7.0).using("third-00000002", snapshot="e" * 40))
    box = registry.box_by_name("gpu")
    assert box is not None
    assert {each.key for each in box.repositories} == {
        *("homework-1a2b3c4d5e6f", "other-00000001", "third-00000002")
    }
    assert box.of("other-00000001") == TWO.last
    # The record of another box of that name has nothing to do with them.
    record.save_box(KnownBox("gpu", "elsewhere", created=9.0))
    assert registry.box_by_name("gpu") == KnownBox("gpu", "elsewhere", created=9.0)


def test_a_long_command_saves_its_changes_of_a_box_record_without_undoing_those_of_others() -> None:
    """As `sync --watch` does, which saves the record after each save of a file."""
    terms = {"seconds": 60.0, "set": 5.0, "extended": 0.0, "held": "no-key"}
    record.save_box(dataclasses.replace(READ, lease=terms))
    box = registry.box_by_name("gpu")
    assert box is not None
    login = login_to(box, None, print)
    for others, own, kept in (
        ({"lease": {**terms, "extended": 7200.0}}, {}, {}),
        ({"lease": {}, "ended": 8.0, "price": 2.5}, {}, {}),
        ({"lease": terms}, {}, {}),
        # It writes what it changed itself, also beside what others changed meanwhile.
        (
            {"lease": {**terms, "extended": 60.0}},
            {"lease": {**terms, "held": "yes"}},
            {"lease": {**terms, "extended": 60.0, "held": "yes"}},
        ),
        ({"secrets": ("A", "WANDB_API_KEY")}, {}, {}),
        ({"secrets": ("A", "B")}, {"secrets": ("A", "C")}, {"secrets": ("A", "B", "C")}),
    ):
        before = registry.box_by_name("gpu")
        assert before is not None
        record.save_box(dataclasses.replace(before, **others))
        login.save(dataclasses.replace(login.known, **own).using("other-00000001"))
        after = registry.box_by_name("gpu")
        assert after is not None
        for name, value in {**others, **own, **kept}.items():
            found = getattr(after, name)
            assert {*value} <= {*found} if name == "secrets" else value == found, name
            assert getattr(login.known, name) == found
        assert after.last.key == "other-00000001"


def test_saving_a_box_record_of_the_same_version_does_not_delete_its_unknown_keys() -> None:
    values = {**WRITTEN, "v": VERSION, "novelty": [1], "extra": {"region": "eu", "secrets": "KEY"}}
    written = rewritten(write("gpu", values))
    assert written["novelty"] == [1]
    assert isinstance(written["extra"], dict)
    assert (written["extra"]["region"], written["extra"]["secrets"]) == ("eu", "KEY")


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("secrets", ["KEY", 3, None], ("KEY",)),
        ("secrets", "KEY", None),
        ("secrets", [], ()),
        ("workdir", 7, ""),
        ("workdir", None, ""),
        ("repositories", {"key": "a"}, ()),
        ("repositories", ["a", {"key": 7}, {"root": "b"}], ()),
        ("repositories", [{"key": "a", "root": 7}], (BoxRepository("a"),)),
        ("price", "0.5", 0.0),
        ("since", None, 0.0),
        ("ends", "soon", 0.0),
        ("lease", ["seconds"], {}),
        ("editor_settings", ["a"], {}),
    ],
)
def test_a_value_of_a_wrong_type_in_a_box_record_is_read_as_missing(
    name: str, value: object, read: object
) -> None:
    write("gpu", {"name": "gpu", "host_text": "gpu", "extra": {name: value}})
    assert getattr(registry.box_by_name("gpu"), name) == read


def test_a_malformed_route_in_a_box_record_is_read_as_missing() -> None:
    odd = {"identities": "x", "identities_only": 1, "jump": ["a"], "known_hosts": [1, "/kh"]}
    write("gpu", {"name": "gpu", "host_text": "gpu", "extra": odd})
    box = registry.box_by_name("gpu")
    assert box is not None
    assert box.route == Route(known_hosts=("/kh",))


@pytest.fixture
def newer() -> Path:
    """The record of a box that a later version wrote."""
    return write("gpu", {"v": VERSION + 1, "name": {"short": "gpu"}, "way": "another"})


def test_using_a_box_recorded_by_a_newer_boxstrap_is_wrong_usage_and_writes_nothing(
    newer: Path,
) -> None:
    before = newer.read_bytes()
    (newer.parent / "known_hosts").write_text("[1.2.3.4]:2222 ssh-ed25519 AAAA\n")
    sentence = (
        f"{newer}: a newer boxstrap wrote what is known of this box, so this one leaves it "
        "alone: update boxstrap."
    )
    named = parse_host("gpu")
    at_its_place = Endpoint("1.2.3.4", "1.2.3.4", "root", 2222)
    for attempt in (
        lambda: registry.box_by_name("gpu"),
        lambda: record.save_box(KnownBox("gpu", "gpu")),
        lambda: record.save_with_pin(KnownBox("gpu", "gpu"), "", is_new=False),
        lambda: registry.lookup("gpu"),
        lambda: registry.get_or_create(named, Endpoint("gpu", "9.9.9.9", "root", 22)),
        lambda: registry.get_or_create(parse_host("root@1.2.3.4:2222"), at_its_place),
        lambda: registry.resolve_box(BoxOptions(host="gpu"), print),
        lambda: registry.resolve_box(BoxOptions(), print),
    ):
        with pytest.raises(UsageError) as refused:
            attempt()
        assert str(refused.value) == sentence
    assert not record.save_with_pin(KnownBox("gpu", "gpu"), "", is_new=True)
    made = registry.get_or_create(parse_host("root@1.2.3.4:2222"), at_its_place, new_box=True)
    assert made.name == "1.2.3.4-2222"
    assert record.all_boxes() == []
    assert newer.read_bytes() == before


def test_a_setup_continues_with_a_warning_when_a_newer_boxstrap_wrote_the_box_record() -> None:
    said: list[str] = []
    box = KnownBox("gpu", "gpu")
    handle = login_to(box, None, said.append)
    newer = write("gpu", {"v": VERSION + 1})
    before = newer.read_bytes()
    for profile in ("vast", "runpod"):
        handle.save(dataclasses.replace(box, profile=profile))
    assert newer.read_bytes() == before
    assert len(said) == 1
    assert "update boxstrap" in said[0]


def test_the_record_of_a_box_that_another_command_forgot_is_not_created_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    box = KnownBox("gpu", "runpod:gpu", created=5.0)
    record.save_box(box)
    read, asides = record.read_box, []

    def another_is_faster(folder: Path) -> KnownBox | None:
        kept = read(folder)
        monkeypatch.setattr(record, "read_box", read)
        asides.append(record.retire(box))
        return kept

    monkeypatch.setattr(record, "read_box", another_is_faster)
    assert record.retire(dataclasses.replace(box, ended=7.0)) is None
    assert [*record.ended_folder().iterdir()] == asides != [None]
    for late in (record.save_box, lambda box, is_new: record.save_with_pin(box, "", is_new=is_new)):
        with pytest.raises(FileNotFoundError):
            late(box, is_new=False)
    endpoint = Endpoint("1.2.3.4", "1.2.3.4", "root", 2222)
    login_to(box, endpoint, said.append, host="gpu").save(box)
    assert len(said) == 1
    assert not box.folder.exists()


def test_boxes_lists_a_box_that_a_newer_boxstrap_recorded_and_forget_of_it_exits_with_2(
    user: User, newer: Path
) -> None:
    target = user.state / "boxes" / "gpu"
    target.mkdir(parents=True)
    (target / "box.json").write_bytes(newer.read_bytes())
    assert "gpu  was written by a newer boxstrap: update this one" in user.run("boxes").out
    refused = user.run("boxes", "--forget", "gpu").must(2)
    assert "update boxstrap" in refused.err
    assert (target / "box.json").is_file()
