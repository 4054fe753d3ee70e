"""Find the numbers that a training logs, as in `loss 0.42`, `val_loss=0.42`, `{"loss": 0.42}`.

Usual names are built in. If a profile has patterns (`train.metrics`), only these count: lines
of `NAME,NAME<TAB>EXPRESSION`, with a group for each name (`bootstrap/profile/schema.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

WORDS = (
    "loss|acc|accuracy|ppl|perplexity|reward|rewards|score|f1|bleu|rouge|wer|cer|auc|iou"
    "|miou|dice|map|psnr|ssim|fid|mae|mse|rmse|lr|learning_rate|grad_norm|bpb|nll|elbo"
)
NUMBER = r"([-+]?[0-9.][-+0-9.eE]*|[-+]?nan|[-+]?inf)"
LINE = (
    rf"({WORDS})([_./@-][a-z0-9_./@-]*|[0-9]+)?[\"']? *[:=]? *[\"']?"
    r"([-+]?[0-9.]|[-+]?nan|[-+]?inf)"
)
"""A line that doesn't match has no metric."""
LONGEST = 1000
"""Characters at the end of a line that are read; what is before them is not."""
STEPS = ("step", "epoch")

_CELL = r"[\w./@-]{0,60}"
_METRIC = re.compile(
    r"(?<![\w./@-])((?:(?:train|training|val|valid|validation|test|eval)[ ])?"
    rf"(?!-)(?:{_CELL}[_./@-])?(?:{WORDS})(?:[_./@-]{_CELL})?[0-9]{{0,3}})"
    rf"(?=[\"'\s:=])[\"']?\s{{0,4}}[:=]?\s{{0,4}}[\"']?{NUMBER}(?![\w/])",
    re.IGNORECASE,
)
_IN_OBJECT = re.compile(rf"[\"']([A-Za-z][\w./@ -]{{0,60}})[\"']\s{{0,4}}:\s{{0,4}}[\"']?{NUMBER}")
_IN_NAME = re.compile(
    "(?i:loss|accuracy|perplexity|reward|score)"
    rf"|(?:(?<![A-Za-z])|(?=[A-Z])|(?=acc))(?i:{WORDS})(?![a-z]|(?<=[A-Z]{{2}})[A-Z]{{2}})"
)
"""Makes a metric of a name in an object: in "valAcc", but not in "access", "ACCESS" and "power"."""
_STEP = {
    "step": re.compile(
        r"(?<![A-Za-z])(?:global_?)?(?:step|iter|iteration)s?[\"']?[ :=#\[]{0,4}(\d{1,15})", re.I
    ),
    "epoch": re.compile(r"(?<![A-Za-z])epoch[\"']?[ :=#\[]{0,4}(\d{1,9}(?:\.\d{1,9})?)", re.I),
}
SETTINGS = (
    "iters|steps|epochs|every|interval|weight|coef|scale|factor|decay|warmup|ratio|patience|samples"
)
"""A name that ends so is a setting, as lr_decay_iters: a configuration prints it."""
CONFIGURATION = (
    "^([^l]|l[^o]|lo[^s]|los[^s])*(batch_size|num_workers|seed|warmup_[a-z]+)[\"']? *[:=]"
)
"""A line that prints a configuration; one that tells a loss first is none."""
_CONFIGURATION = re.compile(CONFIGURATION, re.IGNORECASE)
_SETTING = re.compile(rf"_(?:{SETTINGS})$", re.IGNORECASE)
_RATE = re.compile(r"(?:.*[_/])?(?:lr|learning_rate)(?:_.*)?")
_ANY_WORD = WORDS.split("|")
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_MOST = 24
"""Metrics of a line that are taken at most."""


def read_patterns(text: str) -> list[Any]:
    """Parse the patterns that a run was started with; none for the usual names."""
    found: list[Any] = []
    for line in text.splitlines()[:100]:
        names, _, expression = line.partition("\t")
        try:
            compiled = re.compile(expression)
        except re.error:
            continue
        if expression and compiled.groups == len(names.split(",")):
            found.append((names.split(","), compiled))
    return found


def find_metrics(line: str, patterns: Sequence[Any] = ()) -> dict[str, float]:
    """Return the metrics of a line by name, with `step` and `epoch` if it has them; {} for none."""
    line = plain(line)
    found = _by_patterns(line, patterns) if patterns else _by_names(line)
    if not found.keys() - set(STEPS):
        return {}
    for name, expression in _STEP.items():
        step = expression.search(line)
        if step and name not in found:
            found[name] = float(step[1])
    # A learning rate alone is a setting too: a training logs it beside something else.
    return found if patterns or not all(map(_RATE.fullmatch, found)) else {}


def plain(line: str) -> str:
    """Return the part of a line that is read, without colours."""
    line = line[-LONGEST:]
    return _COLOUR.sub("", line) if "\x1b" in line else line


def newest(text: str, patterns: Sequence[Any] = ()) -> str:
    """Return the last line that has a metric; of a progress bar, its latest text; "" for none."""
    for line in reversed(text.replace("\r", "\n").split("\n")):
        if find_metrics(line, patterns):
            return plain(line).strip()
    return ""


def _by_patterns(line: str, patterns: Sequence[Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for names, expression in patterns:
        match = expression.search(line)
        for name, text in zip(names, match.groups()) if match else ():  # noqa: B905 - Python 3.8
            _take(found, name, text)
    return found


def _by_names(line: str) -> dict[str, float]:
    found: dict[str, float] = {}
    lower = line.lower()
    if not any(word in lower for word in _ANY_WORD):  # a fast way out for most lines of a log
        return found
    # In an object of JSON or Python all numbers are meant to be metrics, if one is called so.
    expression = _IN_OBJECT if line.lstrip()[:1] == "{" else _METRIC
    if _CONFIGURATION.search(line) and not (expression is _IN_OBJECT and "loss" in lower):
        return found
    matches = [*expression.finditer(line)]
    measured = [match for match in matches if not _SETTING.search(match[1])]
    if expression is _IN_OBJECT and not any(_IN_NAME.search(match[1]) for match in measured):
        return found
    for match in matches if expression is _IN_OBJECT else measured:
        _take(found, match[1], match[2])
        if len(found) == _MOST:
            break
    return found


def _take(found: dict[str, float], name: str, text: str) -> None:
    try:
        value = float(text.rstrip("eE.+-"))
    except ValueError:
        return
    name = name.strip().replace(" ", "_").lower()
    name = {"iteration": "step", "iter": "step", "global_step": "step"}.get(name, name)
    found.setdefault(name, value)
