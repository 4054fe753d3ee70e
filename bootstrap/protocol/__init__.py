"""What is said between this machine and a box, over an established link.

A query is a short script in the argument of one command, so that the answer
is there after a single exchange. A box's answers are a stranger's words: they
are read with limits, and everything in them that is shown is sanitized first.
Who stands outside takes these names from here; each is imported when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap import front

if TYPE_CHECKING:
    from bootstrap.protocol.failure import Failure, find_failure
    from bootstrap.protocol.probe import BoxLease, BoxState, parse_lease
    from bootstrap.protocol.query import LaunchOptions, build_query
    from bootstrap.protocol.run import NodeOf, Run, Uploaded, select_runs
    from bootstrap.protocol.run_details import parse_details
    from bootstrap.protocol.run_history import BoxRecord, MetricCurve, RunHistory, Sample
    from bootstrap.protocol.transfer import BoxResults, GivenFile, Transfer, WantedFile
    from bootstrap.protocol.verdict import Verdict, read_verdict

__all__ = ["BoxLease", "BoxRecord", "BoxResults", "BoxState", "Failure", "GivenFile"]
__all__ += ["LaunchOptions", "MetricCurve", "NodeOf", "Run", "RunHistory", "Sample", "Transfer"]
__all__ += ["Uploaded", "Verdict", "WantedFile", "build_query", "find_failure", "parse_details"]
__all__ += ["parse_lease", "read_verdict", "select_runs"]
_MODULES = {"failure": "Failure find_failure", "probe": "BoxLease BoxState parse_lease"}
_MODULES |= {"query": "LaunchOptions build_query", "run": "NodeOf Run Uploaded select_runs"}
_MODULES |= {"run_details": "parse_details"}
_MODULES |= {"run_history": "BoxRecord MetricCurve RunHistory Sample"}
_MODULES |= {"transfer": "BoxResults GivenFile Transfer WantedFile"}
_MODULES |= {"verdict": "Verdict read_verdict"}
__getattr__ = front(__name__, _MODULES)
