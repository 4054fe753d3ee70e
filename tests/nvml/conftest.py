"""One rig for all scenarios: the stand-in reads its scenario when it is loaded."""

import sys

import pytest

from tests.nvml import stub


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> stub.NvmlRig:
    if sys.platform != "linux":
        pytest.skip(
            "NVML's stand-in is for Linux: every test of the GPU check on a box is left out"
        )
    if stub.compiler() is None:
        pytest.skip("no C compiler: every test of the GPU check against NVML is left out")
    return stub.make_rig(tmp_path_factory.mktemp("nvml"), compiled=True)
