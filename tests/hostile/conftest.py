"""Rents boxes in the same way as the tests of the main job."""

from tests.main_job.conftest import rent, rented

__all__ = ["rent", "rented"]
