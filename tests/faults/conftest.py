"""Boxes for the table of faults, rented in the same way as for the main job."""

from tests.main_job.conftest import account, card, nvml_library, rent, rented

__all__ = ["account", "card", "nvml_library", "rent", "rented"]
