"""`--second-try`: what went red in a whole run is tried once more, alone, if it is little.

Tests that start programs wait for real links and clocks beside a dozen others. One that is green
alone is named, as a race to find; more than a few, or one of functions alone, is a fault at once.
"""

from collections.abc import Generator

import pytest

MOST = 3
"""Tests that may be tried again."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--second-try",
        action="store_true",
        help="with --last-failed: only if at most three tests failed, each with programs",
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.second_try:
        return
    waits = ("boxes", "slow")
    units = [one for one in session.items if "unit" in one.path.parts]  # others start some
    without = [one for one in units if not any(map(one.get_closest_marker, waits))]
    if without or len(session.items) > MOST:
        told = f"{len(session.items)} tests failed, {len(without)} of them start no program"
        raise pytest.UsageError(f"no second try: {told}; it is for {MOST} that do at most")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.config.option.second_try and report.skipped:
        report.outcome, report.longrepr = "failed", "it went red and is left out now"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    green = terminalreporter.getreports("passed")
    if terminalreporter.config.option.second_try and green:
        terminalreporter.section("red beside others, green alone: a race each, to be found")
        terminalreporter.write_line("\n".join(report.nodeid for report in green))
