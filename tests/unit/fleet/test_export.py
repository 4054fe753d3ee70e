"""Known boxes as files of other programs."""

import pytest
import yaml

from bootstrap.errors import UsageError
from bootstrap.fleet.export import export_boxes
from bootstrap.link import KnownBox, Route, save_box


@pytest.fixture(autouse=True)
def boxes() -> None:
    """Two virtual machines, and a container."""
    save_box(KnownBox("gpu-1", "ubuntu@198.51.100.1", "198.51.100.1", 22, "ubuntu"))
    port = KnownBox("gpu-2", "me@198.51.100.2:2222", "198.51.100.2", 2222, "me")
    save_box(KnownBox(**{**vars(port), "route": Route(identity="/home/me/.ssh/id_gpu")}))
    save_box(KnownBox("rented", "vast:12345678", "198.51.100.3", 4242, "root"))


def test_a_skypilot_pool_export_lists_the_boxes_by_ssh_name() -> None:
    text = export_boxes("skypilot-pool", ["gpu-1", "gpu-2"], "My Cluster")
    assert yaml.safe_load(text) == {"my-cluster": {"hosts": ["gpu-1", "gpu-2"]}}


def test_a_dstack_fleet_export_has_address_port_user_and_identity_of_each_box() -> None:
    fleet = yaml.safe_load(export_boxes("dstack-fleet", ["gpu-1", "me@198.51.100.2:2222"]))
    assert (fleet["type"], fleet["name"], fleet["placement"]) == ("fleet", "boxstrap", "cluster")
    first, second = fleet["ssh_config"]["hosts"]
    assert (first["hostname"], first["port"], first["user"]) == ("198.51.100.1", 22, "ubuntu")
    assert first["identity_file"].endswith("/.ssh/id_ed25519")
    assert second == {
        "hostname": "198.51.100.2",
        "port": 2222,
        "user": "me",
        "identity_file": "/home/me/.ssh/id_gpu",
    }


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        (["rented"], "a box of vast is a container, and dstack's fleets run Docker"),
        (["unknown"], "unknown is no known box"),
        ([], "which boxes"),
    ],
)
def test_export_to_a_dstack_fleet_is_wrong_usage_for_a_container_or_an_unknown_box(
    hosts: list[str], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        export_boxes("dstack-fleet", hosts)
