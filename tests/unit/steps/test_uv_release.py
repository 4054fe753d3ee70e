"""The uv that boxes get: each kind of machine has a wheel of the one version."""

import re

from bootstrap.onbox.python import uv_release
from tools.uv_release import PLATFORMS


def test_each_supported_cpu_architecture_has_a_pinned_uv_wheel_of_the_same_version() -> None:
    assert set(uv_release.WHEELS) == set(PLATFORMS)
    for machine, (name, digest) in uv_release.WHEELS.items():
        assert name.startswith(f"uv-{uv_release.VERSION}-py3-none-")
        assert PLATFORMS[machine] in name
        assert re.fullmatch("[0-9a-f]{64}", digest)
