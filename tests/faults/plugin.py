"""Records tries of faults and prints their table at the end of a run.

A test takes the fixture `faults`:

    with faults.attempt("link black-holed", at="python") as attempt:
        ...
        attempt.noticed(seconds, at_most=20)

A test that fails inside, or afterwards, is a FAILED try. `seeded` is a random.Random made from this
run's `--seed` and the test: the same seed makes the same choices, in any order of tests.
"""

import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from tests.faults.table import FAILED, FaultRow, Try, lines, rows
from tests.waiting import slowness

_Row = TypeVar("_Row")
_MARK = "faults"
_SAMPLED = "sampled"
# What a test's report sends to the controller: that it is a row, and each of its tries.
_IS_ROW = ("row of the table of faults", "yes")
_TRY = "fault"


class Attempt:
    """A try that is under way."""

    def __init__(self, fault: str, at: str | None) -> None:
        self.record = Try(fault, at)
        self._began = time.monotonic()

    def begin(self) -> None:
        """Start the time for `noticed()` now, when the fault hits; else it starts with the try."""
        self._began = time.monotonic()

    def noticed(self, seconds: float | None = None, *, at_most: float | None = None) -> None:
        """Record after how many seconds (until now, unless given) it was noticed; fail if late.

        `at_most` holds on an idle machine; others get longer.
        """
        took = time.monotonic() - self._began if seconds is None else seconds
        self.record = replace(self.record, noticed_s=took)
        late = at_most is not None and took > at_most * slowness()
        assert not late, f"noticed after {took:.1f} s, not {at_most:g} s"

    def outcome(self, words: str) -> None:
        """Set the outcome, if there is more to say than that it held."""
        self.record = replace(self.record, outcome=words)


class Faults:
    """The recorder of one test."""

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self._properties = properties

    @contextmanager
    def attempt(self, fault: str, at: str | None = None) -> Iterator[Attempt]:
        """Record one try of a fault; `at` says where or when it hit."""
        under_way = Attempt(fault, at)
        try:
            yield under_way
        except pytest.skip.Exception:
            raise
        except BaseException:
            under_way.outcome(FAILED)
            self._keep(under_way)
            raise
        self._keep(under_way)

    def _keep(self, attempt: Attempt) -> None:
        self._properties.append((_TRY, attempt.record.as_data()))


@pytest.fixture
def faults(request: pytest.FixtureRequest) -> Faults:
    """Records what this test tried."""
    return Faults(request.node.user_properties)


@pytest.fixture
def seeded(request: pytest.FixtureRequest) -> random.Random:
    """Random choices that repeat with the same `--seed`, different for each test."""
    return random.Random(f"{request.config.getoption('seed')} {request.node.nodeid}")


Drawn = Callable[[Iterable[_Row]], list[_Row]]


@pytest.fixture
def drawn(seeded: random.Random, pytestconfig: pytest.Config) -> Drawn[Any]:
    """A third of a table's rows in a usual run, others with another seed; all with `--every`."""

    def some(rows: Iterable[_Row]) -> list[_Row]:
        table = list(rows)
        every = pytestconfig.getoption("every")
        return table if every else seeded.sample(table, -(-len(table) // 3))

    return some


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed", type=int, default=None, help="what `seeded` is made from; printed, else random"
    )
    parser.addoption(
        "--tries", type=int, default=1, help="how often each kill at a random moment is tried"
    )
    parser.addoption(
        "--every", action="store_true", help="every row of the tables that a usual run samples"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{_MARK}: a row of the table of faults")
    config.addinivalue_line("markers", f"{_SAMPLED}: a usual run takes a part of the cases")
    given = getattr(config, "workerinput", {})  # in a worker of xdist
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    config.option.whole = given.get("whole", not named)
    if config.option.seed is None:
        config.option.seed = given.get("seed", random.SystemRandom().randrange(1_000_000))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give all workers the seed that is printed, so that they take the same cases."""
    node.workerinput["seed"] = node.config.option.seed
    node.workerinput["whole"] = node.config.option.whole


def pytest_report_header(config: pytest.Config) -> str:
    again = f"the same choices again: --seed {config.option.seed}"
    return f"seed: {config.option.seed} ({again}; each case of the tables: --every)"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test that uses `faults` as a row of the table, for `-m faults`."""
    for item in items:
        if "faults" in getattr(item, "fixturenames", ()):
            item.add_marker(_MARK)
            item.user_properties.append(_IS_ROW)
    if not (config.option.every or config.option.keyword):
        items[:] = _sample(items, config.option.seed, whole=config.option.whole)


def _sample(items: list[pytest.Item], seed: int, *, whole: bool) -> list[pytest.Item]:
    """Keep the first case of each sampled test and a twelfth of the others, equal in all workers.

    `sampled(of="module")` takes the module's tests as the cases of one, unless files were named.
    """
    seen = Counter[tuple[object, ...]]()
    kept = []
    for item in items:
        mark = item.get_closest_marker(_SAMPLED)
        of_module = mark is not None and mark.kwargs.get("of") == "module"
        if of_module and not whole:
            mark = None
        name = item.path.name if of_module else getattr(item, "originalname", "")
        test = (item.path, name)
        seen[test] += 1
        # A different part for each test, so that each seed leaves out about as many cases.
        left_out = (seen[test] + seed + zlib.crc32(name.encode())) % 12
        if mark is None or seen[test] == 1 or not left_out:
            kept.append(item)
    return kept


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table, and count the tests that never came to a try."""
    ended = [one for reports in terminalreporter.stats.values() for one in reports]
    reports = [one for one in ended if isinstance(one, pytest.TestReport)]
    tests = [one for one in reports if _IS_ROW in map(tuple, one.user_properties)]
    tried = [one for test in tests if test.when == "call" for one in _tries(test)]
    failed = sum(test.failed and not _tries(test) for test in tests)
    skipped = sum(test.skipped for test in tests)
    table = rows(tried)
    if not (table or failed):
        return
    terminalreporter.section("faults")
    for row, line in zip([None, *table], lines(table), strict=True):
        terminalreporter.write_line(line, red=isinstance(row, FaultRow) and FAILED in row.outcome)
    for count, words in ((failed, "failed before the first try"), (skipped, "left out")):
        if count:
            terminalreporter.write_line(f"tests of this table {words}: {count}")


def _tries(report: pytest.TestReport) -> list[Try]:
    """Return a test's tries; if it failed after all of them, the last one is marked FAILED."""
    found = [Try(**data) for name, data in report.user_properties if name == _TRY]  # type: ignore[arg-type]
    if found and report.failed and all(one.outcome != FAILED for one in found):
        found[-1] = replace(found[-1], outcome=FAILED)
    return found
