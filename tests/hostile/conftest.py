"""Boxes are rented as those of the main job are."""

from tests.main_job.conftest import rent

__all__ = ["rent"]
