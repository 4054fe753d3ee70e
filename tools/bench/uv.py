"""Fetching uv alone, until it has run once, compared with a plain download of its wheel.

It calls the setup script's own functions in the box, each way in turn.
"""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Sequence
from statistics import median
from urllib.parse import urljoin
from urllib.request import urlopen

from bootstrap.onbox.python.uv_release import WHEELS
from tools.bench import clock, quiet
from tools.bench.clock import BenchError
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

GROUP = "uv: fetched, digested, unpacked, run once"
_MORE_S, _OF_CURL = 1.0, 1.15
_PLAIN, _PYTHON, _CURL = "plain", "python3", "curl"
_PROFILE = "version: 1\nextends: vast\ngpu:\n  require: false\n"
_TRIES = """
set -- "$@" "$(mktemp)"
{ head -n -3 /workspace/.boxstrap/setup.sh; echo '}'; } >"$4"
. "$4"
begin_script
STEP=agent STEP_LOG=/dev/null UV=$BOX_HOME/bin/uv
cd /tmp
plain() { curl -fsSo wheel "$link" && sha256sum wheel >sum; }
python3_way() { fetch_uv && "$UV" --version; }
curl_way() (python3() { return 1; }; python3_way)
timed() {
  local began
  rm -f "$BOX_HOME/bin/uv"
  began=${EPOCHREALTIME/./}
  "$1" >/dev/null
  printf '%s %s\\n' "$2" $((${EPOCHREALTIME/./} - began))
}
link=$1
for ((turn = 0; turn <= $2; turn++)); do
  for way in $3; do
    case $way in plain) timed plain plain ;; *) timed "${way}_way" "$way" ;; esac
  done
done
"""


def measure(stage: Stage, runs: int, patience: float) -> list[BenchRow]:
    """Measure with Python and with curl alone on a *vast* box, with Python on a *bare* one."""
    link = wheel_link(stage)
    repository = stage.repository("nothing", {"boxstrap.yaml": _PROFILE})
    found: dict[str, Sequence[float]] = {}
    for kind, ways in (("vast-nouv", (_PLAIN, _PYTHON, _CURL)), ("bare", (_PYTHON,))):
        place = stage.box(kind)
        words = ("setup", "--host", place.host, "--identity", str(place.box.identity))
        call = stage.boxstrap(*words, state=place.ssh_config.stem, repository=repository)
        clock.run(call, stage.file("uv.out"))
        quiet.wait(patience)
        for way, seconds in _tries(place, link, runs, ways).items():
            found[f"{way}, {kind.removesuffix('-nouv')} box"] = seconds
        place.box.stop()
        tell(f"uv on a {kind} box: {runs} times")
    plain = found.pop(f"{_PLAIN}, vast box")
    most = max(_MORE_S, _OF_CURL * median(plain))
    bar = Bar(most, f"{_MORE_S:g} s, or {_OF_CURL} of curl and sha256sum")
    rows = [BenchRow(GROUP, name, values, bar=bar) for name, values in found.items()]
    return [*rows, BenchRow(GROUP, "curl and sha256sum of its wheel", plain)]


def wheel_link(stage: Stage) -> str:
    """Return the mirror's URL of uv's wheel for this machine."""
    page = f"{stage.rig.mirror.index_url}uv/"
    name = WHEELS[f"{platform.system()}-{platform.machine()}"][0]
    with urlopen(page) as answer:
        found = re.search(rf'href="([^"#]*{re.escape(name)})', answer.read().decode())
    if found is None:
        raise BenchError(f"{page} has no {name}")
    return urljoin(page, str(found[1]))


def _tries(place: StagePlace, link: str, runs: int, ways: Sequence[str]) -> dict[str, list[float]]:
    """Return the seconds of each way; the first turn, which warms the mirror, is left out."""
    words = map(shlex.quote, (link, str(runs), " ".join(ways)))
    said = place.box.run(f"set -- {' '.join(words)}\n{_TRIES}", timeout=600)
    took: dict[str, list[float]] = {way: [] for way in ways}
    for line in said.splitlines():
        way, microseconds = line.split()
        took[way].append(int(microseconds) / 1e6)
    return {way: seconds[1:] for way, seconds in took.items()}
