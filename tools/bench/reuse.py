"""Set up torch on a box whose image has it, with a slow index: reused, or fetched."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from statistics import median

from tests.boxes import RigBox
from tools.bench import clock, quiet
from tools.bench.clock import BenchError
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

GROUP = "reuse: a setup without training, the index at 10 MB/s, torch in the image"
_MB_S = 10.0
_OF_TIME, _OF_BYTES = 0.8, 0.95
_BROUGHT = "torch numpy"
_REQUIRED = "torch\nnumpy\ntqdm\n"
_PROFILE = "version: 1\nextends: vast\ngpu: {require: false}\n"
_ENVIRONMENT = "/workspace/reused/.venv"
_ASK = "import torch, numpy, tqdm, sympy, jinja2; print(torch.ones(2).sum(), torch.__file__)"


def measure(stage: Stage, runs: int, patience: float) -> list[BenchRow]:
    """Alternate setups on fresh boxes of one image; the bars come from the size of its wheels."""
    layer, held = _image(stage)
    root = stage.repository("reused", {"requirements.txt": _REQUIRED, "boxstrap.yaml": _PROFILE})
    took: dict[str, list[float]] = {"auto": [], "never": []}
    fetched: dict[str, list[float]] = {"auto": [], "never": []}
    _setup(stage, layer, root, "never")  # the mirror has all of it from here on
    stage.rig.mirror.limit(_MB_S)
    try:
        for turn in range(runs):
            for reuse in ("auto", "never") if turn % 2 else ("never", "auto"):
                quiet.wait(patience)
                seconds, size = _setup(stage, layer, root, reuse)
                tell(f"python.reuse: {reuse}: {seconds:.1f} s, {size / 1e6:.0f} MB fetched")
                took[reuse].append(seconds)
                fetched[reuse].append(size / 1e6)
    finally:
        stage.rig.mirror.limit(0)
    saved = [a - b for a, b in zip(took["never"], took["auto"], strict=True)]
    spared = [a - b for a, b in zip(fetched["never"], fetched["auto"], strict=True)]
    time_bar = Bar(_OF_TIME * held / _MB_S, f"{_OF_TIME} of what they take", at_least=True)
    byte_bar = Bar(_OF_BYTES * held, f"{_OF_BYTES} of the image's wheels", at_least=True)
    ratio = f"{median(took['auto']) / median(took['never']):.2f} of the time without"
    return [
        BenchRow(GROUP, "all of it fetched", took["never"]),
        BenchRow(GROUP, "the image's reused", took["auto"], note=ratio),
        BenchRow(GROUP, "time saved", saved, bar=time_bar),
        BenchRow(GROUP, "bytes not fetched", spared, unit="MB", bar=byte_bar),
    ]


def _image(stage: Stage) -> tuple[Path, float]:
    """Return a layer with torch in /venv/main, and the megabytes of its wheels."""
    place = stage.box("vast")
    install = "/venv/main/bin/python -m pip install -q --no-cache-dir --report /tmp/report"
    place.box.run(f"{install} {_BROUGHT} && /venv/main/bin/python -c 'import torch'", timeout=900)
    report = json.loads(place.box.read("/tmp/report"))
    wheels = [one["download_info"]["url"].split("#")[0] for one in report["install"]]
    layer = stage.file("with-torch")
    place.box.keep(layer)
    place.box.stop()
    return layer, sum(map(_size, wheels)) / 1e6


def _size(url: str) -> int:
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as answer:
        return int(answer.headers["Content-Length"])


def _setup(stage: Stage, layer: Path, root: Path, reuse: str) -> tuple[float, int]:
    """Do one setup on its own box; return the seconds, and the bytes that the box received."""
    place = stage.box("vast", on=layer)
    before, image = _received(place.box), _digest(place.box) if reuse == "auto" else ""
    words = ("setup", "--host", place.host, "--identity", str(place.box.identity))
    call = stage.boxstrap(
        *words, "--set", f"python.reuse={reuse}", state=place.ssh_config.stem, repository=root
    )
    log = stage.file("reuse.out")
    seconds = clock.run(call, log)
    size = _received(place.box) - before
    if reuse == "auto":
        _prove(place, log.read_text(), image)
    place.box.stop()
    return seconds, size


def _prove(place: StagePlace, said: str, image: str) -> None:
    """Check that the image was reused and left unchanged, and torch works. Raises BenchError."""
    if "of the image are reused" not in said:
        raise BenchError(f"nothing was reused:\n{said[-2000:]}")
    place.box.run(f"uv pip check --python {_ENVIRONMENT}/bin/python")
    where = place.box.run(f"cd /; {_ENVIRONMENT}/bin/python -c '{_ASK}'", timeout=120)
    if f"tensor(2.) {_ENVIRONMENT}/" not in where:
        raise BenchError(f"torch comes from elsewhere: {where}")
    if _digest(place.box) != image:
        raise BenchError("the image's environment is not what it was")


def _digest(box: RigBox) -> str:
    """Return a digest of all files of the image's environment, with their modes and times."""
    files = "find /venv/main -printf '%p %m %T@ %l\\n' | sort; find /venv/main -type f -print0"
    return box.run(f"({files} | sort -z | xargs -0 sha256sum) | sha256sum", timeout=120)


def _received(box: RigBox) -> int:
    """Return the bytes that its network card received."""
    lines = Path(f"/proc/{box._alive()}/net/dev").read_text().splitlines()
    (card,) = (line.split(":")[1].split() for line in lines if line.strip().startswith("eth0:"))
    return int(card[0])
