"""A box: the login to it, what is asked of it and how its answers are read, its secrets, its alias.

A box's answers are a stranger's words: they are read with limits, and everything in them that is
shown is sanitized first. Who stands outside takes these names from here; each is imported when
asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap import front

if TYPE_CHECKING:
    from bootstrap.boxes.failure import Failure, find_failure
    from bootstrap.boxes.probe import BoxLease, BoxState, parse_lease
    from bootstrap.boxes.run import NodeOf, Run, Uploaded, select_runs
    from bootstrap.boxes.run_details import parse_details
    from bootstrap.boxes.run_history import BoxRecord, MetricCurve, RunHistory, Sample
    from bootstrap.boxes.verdict import Verdict, read_verdict

__all__ = ["BoxLease", "BoxRecord", "BoxState", "Failure", "MetricCurve", "NodeOf", "Run"]
__all__ += ["RunHistory", "Sample", "Uploaded", "Verdict", "find_failure", "parse_details"]
__all__ += ["parse_lease", "read_verdict", "select_runs"]
_MODULES = {"failure": "Failure find_failure", "probe": "BoxLease BoxState parse_lease"}
_MODULES |= {"run": "NodeOf Run Uploaded select_runs", "run_details": "parse_details"}
_MODULES |= {"run_history": "BoxRecord MetricCurve RunHistory Sample"}
_MODULES |= {"verdict": "Verdict read_verdict"}
__getattr__ = front(__name__, _MODULES)
