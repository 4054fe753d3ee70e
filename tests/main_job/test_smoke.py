"""The smoke test of GPU and environment together, on boxes whose driver is NVML's stand-in."""

import io
import zipfile

import pytest

from tests.faults.plugin import Faults
from tests.main_job.conftest import Card
from tests.main_job.rented import Rented
from tests.main_job.test_after import TRAIN
from tests.nvml import scenarios

pytestmark = pytest.mark.sampled(of="module")

PROFILE = "version: 1\ntrain: {command: python train.py}\n"
# A torch that can be imported but can't start CUDA; the smoke test needs no more of it then.
SICK_TORCH = {
    "torch/__init__.py": "from torch import cuda, version\n__version__ = '2.6.0'\n"
    "def device(name): return name\n",
    "torch/version.py": "__version__ = '2.6.0'\ncuda: str = '12.4'\n",
    "torch/cuda.py": "def init(): raise RuntimeError('CUDA error: system not yet initialized')\n",
    "torch-2.6.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.6.0\n",
    "torch-2.6.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "torch-2.6.0.dist-info/RECORD": "",
}


def wheel(files: dict[str, str]) -> bytes:
    """A wheel of these files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def with_torch(rented: Rented, files: dict[str, str]) -> None:
    """A repository that brings its own torch."""
    name = "torch-2.6.0-py3-none-any.whl"
    repository = rented.user.repository(boxstrap__yaml=PROFILE, requirements__txt=f"./{name}\n")
    (repository.root / name).write_bytes(wheel(files))
    repository.commit({}, "A torch of our own")


@pytest.fixture
def with_gpu(rented: Rented, card: Card) -> Rented:
    """A box that was set up before and shows a healthy A100, whose driver runs CUDA 12.4."""
    card(rented, scenarios.A100)
    return rented


def test_setup_without_torch_smoke_tests_gpus_by_nvml_alone(with_gpu: Rented) -> None:
    with_gpu.user.repository(boxstrap__yaml=PROFILE, train__py=TRAIN)
    fresh = with_gpu.run("verify", "--json").must(0).json()["verdict"]
    assert [row for row in fresh["checks"] if row["check"] == "smoke"] == []
    first = with_gpu.run("setup", "--json").must(0).json()
    assert {step["step"]: step["state"] for step in first["steps"]}["smoke"] == "ok"
    assert "nothing to do" in with_gpu.run("setup").must(0).out
    # No GPU is tested while a run is alive; afterwards, with the environment built last.
    busy = with_gpu.run("verify", "--json").must(0).json()
    assert {step["step"]: step.get("why") for step in busy["steps"]}["smoke"] == "a run is alive"
    with_gpu.run("stop").must(0)
    quiet = with_gpu.run("verify", "--json").must(0).json()["verdict"]
    (row,) = [row for row in quiet["checks"] if row["check"] == "smoke"]
    assert (row["outcome"], row["gpu"]) == ("n/a", None)
    assert row["read"].startswith("NVML alone")


def test_setup_exits_with_6_if_a_gpu_fails_the_smoke_test_but_trains_with_gpu_checks_smoke_warn(
    with_gpu: Rented,
) -> None:
    with_torch(with_gpu, SICK_TORCH)
    told = with_gpu.run("setup").must(6)
    assert "CUDA can't start on it" in told.err
    assert "Nothing was built" not in told.err
    assert with_gpu.trainings() == 0
    # A GPU that failed is tested again, and reported again.
    again = with_gpu.run("setup", "--json").must(6).json()
    assert again["verdict"]["reasons"][0]["code"] == "smoke-failed"
    # The user can turn it into a warning.
    with_gpu.run("setup", "--set", "gpu.checks.smoke=warn").must(0)
    assert with_gpu.runs() == ["train-1"]


@pytest.mark.faults
def test_setup_refuses_a_torch_too_new_for_the_driver_before_its_download_and_one_without_cuda(
    with_gpu: Rented, faults: Faults
) -> None:
    with_gpu.user.repository(
        "first", boxstrap__yaml=PROFILE, requirements__txt="torch==2.9.0+cu130\n"
    )
    with faults.attempt("driver too old for torch") as attempt:
        told = with_gpu.run("setup").must(7)
        attempt.noticed()
    assert "torch needs a newer CUDA than the driver runs, which is 12.4" in told.err
    assert "cu126" in told.err
    version = {"torch/version.py": "__version__ = '2.6.0'\ncuda: Optional[str] = None\n"}
    with_torch(with_gpu, {**SICK_TORCH, **version})
    with faults.attempt("torch without CUDA", at="once it is there") as attempt:
        late = with_gpu.run("setup").must(7)
        attempt.noticed()
    assert "torch 2.6.0 is built without CUDA, and the box has a GPU" in late.text
    assert "python.torch_backend: cu126" in late.err
    # If no GPU is required, it is accepted.
    with_gpu.run("setup", "--set", "gpu.require=false").must(0)
    assert with_gpu.runs() == ["train-1"]
