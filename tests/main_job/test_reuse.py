"""Packages of the image's environment are copied if that is quicker than fetching them."""

import json
import re

from tests.boxes import Rig
from tests.doors.static_index import StaticIndex, static_index
from tests.main_job.rented import Rented
from tests.main_job.test_environments import ENVIRONMENT, PROJECT, lock

BROUGHT = "pytest==8.3.4 pluggy==1.5.0 iniconfig==2.0.0 packaging pathspec==0.11.0"
NEVER = ("--set", "python.reuse=never")


def wheels(index: StaticIndex) -> set[str]:
    """The projects of which a wheel was fetched since the last call."""
    asked = {path.split("/")[2] for path in index.asked if path.endswith(".whl")}
    index.asked.clear()
    return asked


def image(rented: Rented) -> str:
    """The image's environment, byte for byte, with modes and times."""
    files = rented.box.run("find /venv/main -printf '%p %m %T@ %l\\n' | sort")
    sums = rented.box.run("find /venv/main -type f -print0 | sort -z | xargs -0 sha256sum")
    return files + sums


def imports(rented: Rented, environment: str) -> str:
    """Where pytest is imported from, once all packages can be imported and uv's check passes."""
    rented.box.run(f"uv pip check --python {environment}/bin/python")
    rented.box.run(f"{environment}/bin/pytest --version && head -1 {environment}/bin/pytest")
    ask = "import iniconfig, packaging, pluggy, pytest; print(pytest.__file__)"
    return rented.box.run(f"cd /; {environment}/bin/python -c '{ask}'")


def test_setup_copies_packages_of_the_image_when_downloading_them_would_be_slower(
    rented: Rented, mirror_rig: Rig
) -> None:
    box, gateway = rented.box, rented.box.address.rpartition(".")[0] + ".1"
    install = "/venv/main/bin/pip install -q --no-cache-dir"
    box.run(f"{install} {BROUGHT} && /venv/main/bin/python -c 'import pytest, pathspec'")
    before = image(rented)
    # Make the measured download so slow that these are worth copying.
    verdict = f"{rented.folder}/gpu.json"
    document = json.loads(box.read(verdict))
    (index,) = (row for row in document["checks"] if row["check"] == "index")
    index["read"] = "0.1 MB/s from an index"
    box.write(verdict, json.dumps(document))
    repository = rented.user.repository(requirements__txt="pytest>=8\npathspec>=0.12\n")
    with static_index(gateway, mirror_rig.mirror.index_url) as index:
        pip = f"[global]\nindex-url = {index.url}\ntrusted-host = {gateway}\n"
        box.write("/etc/pip.conf", pip)
        done = rented.run("setup").must(0)
        assert re.search(r"4 packages of the image are reused: about \d+ MB and \d+ s", done.err)
        assert wheels(index) == {"pathspec"}
        rented.box.run(f"cd /; {ENVIRONMENT}/bin/python -c 'import pathspec'")
        assert imports(rented, ENVIRONMENT).startswith(ENVIRONMENT)
        assert f"#!{ENVIRONMENT}/bin/python" in box.read(f"{ENVIRONMENT}/bin/pytest")
        assert "reused: pytest 8.3.4" in rented.run("logs", "--step", "python").must(0).out
        assert image(rented) == before
        assert "4 packages of the image are reused: about" in rented.run("plan").must(0).out
        assert "nothing to do" in rented.run("setup").must(0).out
        # It is the same work, wherever its packages come from.
        done = rented.run("setup", *NEVER).must(0)
        assert "of the image" not in done.err
        assert {"pytest", "pluggy", "iniconfig", "packaging", "pathspec"} <= wheels(index)
        assert rented.runs() == ["train-1"]
        assert "nothing to do" in rented.run("setup", *NEVER).must(0).out
        # A lock that pins another version gets that version.
        pinned = PROJECT.replace("dependencies = []", 'dependencies = ["pytest==8.3.4"]')
        repository = rented.user.repository("second", pyproject__toml=pinned)
        lock(repository, rented, mirror_rig)
        done = rented.run("setup").must(0)
        assert re.search(r"\d packages of the image are reused", done.err)
        second = ENVIRONMENT.replace("homework", "second")
        assert imports(rented, second).startswith(second)
        there = rented.box.run(f"ls {second}/lib/python3*/site-packages")
        text = (repository.root / "uv.lock").read_text()
        locked = dict(re.findall(r'name = "(\w+)"\nversion = "([\d.]+)"', text))
        assert locked["iniconfig"] != "2.0.0"
        for name in ("pytest", "pluggy", "iniconfig"):
            assert f"{name}-{locked[name]}.dist-info" in there
        assert image(rented) == before
