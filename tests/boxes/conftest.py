"""The rig's own tests use its fixtures."""

from tests.boxes.fixtures import *  # noqa: F403
