"""Models and packages that a training downloads outlive its tree and, on a volume, its box."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.data_server import COMMIT, DataServer
from tests.main_job.conftest import Rent

pytestmark = pytest.mark.sampled(of="module")

# The real client of Hugging Face, against a hub of the tests.
TRAIN = """\
import os
from huggingface_hub import hf_hub_download
with open(hf_hub_download("org/model", "weights.bin")) as file:
    print("step 1", len(file.read()), os.environ["HF_HOME"], flush=True)
"""
NOTE = "downloads of models and packages are kept in the working folder"
CACHE = "/workspace/.boxstrap/cache"


@pytest.fixture
def hub(mirror_rig: Rig, tmp_path: Path) -> Iterator[DataServer]:
    made = DataServer(mirror_rig.mirror.host, tmp_path)
    made.add("org/model/resolve/main/weights.bin", b"w" * 70_000)
    made.odd = {"X-Repo-Commit": COMMIT}
    yield made
    made.close()


def profile(hub: DataServer) -> str:
    return f"""\
version: 1
gpu: {{require: false}}
env:
  HF_ENDPOINT: {hub.address}
  SSL_CERT_FILE: /etc/hub.pem
  HF_HUB_DISABLE_XET: "1"
train: {{command: python train.py}}
"""


def test_a_second_box_with_the_same_volume_trains_with_the_cached_model_without_a_download(
    rent: Rent, hub: DataServer
) -> None:
    first = rent("runpod")
    first.user.repository(
        "tuning",
        train__py=TRAIN,
        requirements__txt="huggingface-hub\n",
        boxstrap__yaml=profile(hub),
    )
    first.box.write("/etc/hub.pem", hub.certificate.read_text())
    done = first.run("setup").must(0)
    assert f"step 1 70000 {CACHE}/huggingface" in done.out
    assert done.err.count(NOTE) >= 1
    sent = hub.sent
    assert sent >= 70_000
    # Another tree, and the note is not given again.
    again = first.run("run", "--beside", "--", "python train.py").must(0)
    assert "step 1 70000" in again.out
    assert NOTE not in first.run("setup", "--restart").must(0).err
    second = rent("runpod")
    second.box.write("/etc/hub.pem", hub.certificate.read_text())
    volume = first.box.run("tar -C /workspace -cf - .boxstrap/cache | base64 -w0")
    second.box.write("/root/volume", volume)
    second.box.run("base64 -d /root/volume | tar -C /workspace -xf -")
    assert "step 1 70000" in second.run("setup").must(0).out
    assert hub.sent == sent


def test_setup_sets_no_cache_variable_that_the_box_or_profile_already_sets(rent: Rent) -> None:
    rented = rent("vast")
    rented.user.repository("plain", train__py="print('step 1', flush=True)\n")
    rented.box.run("echo HF_HOME=/models >>/etc/environment")
    rented.box.run("mkdir -p /root/.cache/torch/hub && touch /root/.cache/torch/hub/model")
    done = rented.run("setup", "--set", "env.PIP_CACHE_DIR=/pip").must(0)
    env = rented.box.read("/root/.boxstrap/env")
    assert f"UV_CACHE_DIR='{CACHE}/uv'" in env
    assert "PIP_CACHE_DIR='/pip'" in env
    assert "HF_HOME" not in env
    assert "TORCH_HOME" not in env
    assert NOTE in done.err
