"""Rent, setup and teardown, with faults at any call: `make chaos` does 190 runs."""

import random
from pathlib import Path

import pytest

from tests.providers.renting_world import CREATES
from tests.providers.seeded_run import one_seeded_run

PROVIDERS_THAT_RENT = tuple(CREATES)
ON_A_FAKE_BOX = 3.8
"""Runs for each try of `--tries`; `make chaos` has 50 tries."""


def test_random_sequences_of_up_and_down_with_faults_leave_no_box_unrecorded_or_wrongly_destroyed(
    request: pytest.FixtureRequest, seeded: random.Random, tmp_path: Path
) -> None:
    tries = request.config.getoption("tries")
    for _ in range(round(tries * ON_A_FAKE_BOX) if tries > 1 else 2):
        seed = seeded.randrange(1_000_000)
        provider = PROVIDERS_THAT_RENT[seed % len(PROVIDERS_THAT_RENT)]
        with pytest.MonkeyPatch.context() as patched:
            try:
                one_seeded_run(provider, random.Random(seed), tmp_path / str(seed), patched)
            except Exception as error:
                raise AssertionError(f"seed {seed} at {provider}") from error
