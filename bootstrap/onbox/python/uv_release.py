"""The uv that boxstrap installs on a box without one: version, and SHA-256 of each wheel.

The Linux wheels are those for glibc: the static ones take a third longer. Updated by
`make uv-release`, which uses pip's configured index.
"""

from __future__ import annotations

import os

from ..short_program import run

VERSION = "0.13.8"

OLDEST = "0.8.0"  # the oldest uv on a box that is used as it is: it supports UV_TORCH_BACKEND

WHEELS: dict[str, tuple[str, str]] = {
    "Linux-x86_64": (
        "uv-0.13.8-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984",
    ),
    "Linux-aarch64": (
        "uv-0.13.8-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl",
        "0b3e8b1a4f5e405e31e2ff33de8af4744831e9f7338539671efbd8c3c94e791d",
    ),
    "Darwin-arm64": (
        "uv-0.13.8-py3-none-macosx_11_0_arm64.whl",
        "62b6943c7fd64fac6854f780bea6e0359e5a5bc3241f83ee357bb38276afac49",
    ),
    "Darwin-x86_64": (
        "uv-0.13.8-py3-none-macosx_10_12_x86_64.whl",
        "b7124ca1956ec2e476a1003ea5715a15f0266afaec37f4dc9c6972ba8183e6d1",
    ),
}
"""`uname -s`-`uname -m` -> (file name, SHA-256)."""


def wheel_here() -> tuple[str, str]:
    """Return file name and SHA-256 for this machine; empty if none is known."""
    named = run(["uname", "-sm"], os.environ).output.decode("utf-8", "replace")
    return WHEELS.get("-".join(named.split()), ("", ""))


def release_rows() -> list[str]:
    """Return the table for a box without Python: machine|file|sha256. A Mac never is one."""
    rows = WHEELS.items()
    return [f"{machine}|{file}|{sha}" for machine, (file, sha) in rows if machine[:5] == "Linux"]
