"""The arithmetic itself: both libraries' engines on a CPU, with the same checks."""

import json
from pathlib import Path
from typing import Any

import pytest

from bootstrap.onbox import MAIN
from bootstrap.onbox.smoke import stress
from tests.programs import captured

ASK = """
import json, sys
sys.path[0] = sys.argv[1]
import onbox
del sys.path[0]
import warnings; warnings.simplefilter("ignore")
from onbox.smoke import stress
if sys.argv[2] == "torch":
    engine = stress.Torch("cpu")
else:
    import numpy
    engine = stress.Cupy(numpy)
engine.memory = lambda: (1 << 24, 1 << 24)
mode = stress.MODES["full"]._replace(seconds=0.01, repeats=3, rounds=1)
found = {name: part(engine, mode) for name, part in stress.PARTS.items()}
pattern = engine.pattern(4096)
block = engine.salted(pattern, -7)
found["whole"] = engine.wrong(block, pattern, -7)
found["other salt"] = engine.wrong(block, pattern, -8)
block[100] ^= 1
block[4095] ^= 1 << 30
found["two bits"] = engine.wrong(block, pattern, -7)
a, b = engine.signs(64, 1), engine.signs(64, 2)
c = engine.product(a, b, "fp32")
found["right rows"] = engine.rows_wrong(a, b, c, 3)
c[5, 6] -= 1
c[9, 0] += 1
found["wrong rows"] = engine.rows_wrong(a, b, c, 3)
zero = engine.noise(8, 1) * 0
found["signed zeros differ"] = not engine.same(zero, -abs(zero))
print(json.dumps(found))
"""

# CuPy's array copies to and from the host by methods; NumPy's has a `device` too, since NumPy 2.
BUS = """
import sys
sys.path[0] = sys.argv[1]
import numpy
from onbox.smoke import stress
from types import SimpleNamespace
class Card:
    device = "cuda"
    def __init__(self, data): self.data = data
    def set(self, host): self.data[...] = host
    def get(self, out): out[...] = self.data
engine = stress.Cupy(numpy)
engine.xp = SimpleNamespace(ndarray=Card)
host, card, back = numpy.arange(5), Card(numpy.zeros(5, int)), numpy.zeros(5, int)
engine.copy(card, host)
engine.copy(back, card)
print(hasattr(host, "device"), *back)
"""


def test_the_cupy_smoke_test_copies_numpy_arrays_to_the_gpu_and_back(torch_python: Path) -> None:
    done = captured([torch_python, "-c", BUS, str(Path(MAIN).parents[1])], timeout=120, check=False)
    assert done.stdout == "True 0 1 2 3 4\n", done.stderr


@pytest.fixture(scope="module", params=["torch", "numpy"])
def found(request: pytest.FixtureRequest, torch_python: Path) -> dict[str, Any]:
    done = captured(
        [torch_python, "-c", ASK, str(Path(MAIN).parents[1]), request.param],
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def test_the_smoke_test_finds_nothing_wrong_on_a_healthy_gpu(found: dict[str, Any]) -> None:
    assert found["memory"]["wrong"] == found["whole"] == found["right rows"] == 0
    assert set(found["product"]["wrong"].values()) == {0}
    assert set(found["stable"]["different"].values()) == {0}
    assert found["speed"]["fp32"] > 1e6
    assert min(found["bandwidth"].values()) > 1e6


def test_the_smoke_test_reports_how_many_bits_in_memory_and_rows_of_a_product_are_wrong(
    found: dict[str, Any],
) -> None:
    assert found["two bits"] == 2
    assert found["other salt"] == 4096
    assert found["wrong rows"] == 2
    assert found["signed zeros differ"]


def test_the_full_smoke_test_takes_over_80_percent_of_the_gpu_memory(found: dict[str, Any]) -> None:
    memory = found["memory"]
    assert memory["bytes"] / memory["total"] > 0.8


class Counted:
    """An engine that counts the bytes it holds at the same time."""

    def __init__(self, total: int, free: int) -> None:
        self.total, self.free = total, free
        self.held = self.most = 0

    def memory(self) -> tuple[int, int]:
        return self.free, self.total

    def pattern(self, words: int) -> list[int]:
        self.held += words * 4
        return [words]

    def salted(self, pattern: list[int], salt: int) -> tuple[int, int]:
        self.held += pattern[0] * 4
        self.most = max(self.most, self.held)
        return pattern[0], salt

    def wrong(self, block: tuple[int, int], pattern: list[int], salt: int) -> int:
        assert block == (pattern[0], salt)
        self.held -= block[0] * 4
        return 0

    def sync(self) -> None: ...

    def release(self) -> None: ...


@pytest.mark.parametrize("gib", [4, 8, 16, 24, 80, 141, 180])
def test_the_full_smoke_test_fills_most_of_the_memory_of_gpus_of_4_to_180_gib_and_fits_into_it(
    gib: int,
) -> None:
    total = gib << 30
    engine = Counted(total, total - (600 << 20))  # what a CUDA context takes
    found = stress.memory(engine, stress.MODES["full"]._replace(rounds=1))
    block = min(stress.BLOCK, int(total * 0.85) // 64)
    assert engine.most + 2 * block < engine.free
    assert found["bytes"] / total > (0.8 if gib > 4 else 0.65)
    quick = stress.memory(engine, stress.MODES["quick"])
    assert quick["bytes"] <= min(total // 4, 8 << 30)
