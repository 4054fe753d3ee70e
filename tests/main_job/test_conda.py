"""`python.conda`: an environment of conda packages on boxes, from a channel that the test makes."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.boxes.conda_channel import make_channel
from tests.boxes.places import locked
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.waiting import slowness

pytestmark = pytest.mark.sampled(of="module")

PROFILE = """\
version: 1
gpu: {require: false}
python: {conda: envs/environment.yml, packages: [iniconfig]}
prepare: ['test "$WHO" = "it''s me" && python -c "import of_conda"']
train: {command: python train.py}
"""
FILE = """\
channels: [ours]
dependencies:
  - python=3
  - of_conda=1.*
  - pip:
    - -r more.txt
variables: {WHO: "it's me"}
"""
TRAIN = """\
import os, sys, importlib.metadata as m, of_conda, iniconfig
found = sorted(each.name for each in m.distributions())
print("step 1", sys.prefix, os.environ["CONDA_PREFIX"], of_conda.__file__, *found)
"""
PLACE = "/workspace/homework/.venv"
OF_CONDA = {
    "of_conda.py": b"",
    "of_conda-1.0.dist-info/METADATA": b"Name: of_conda\nVersion: 1.0\n",
}


@pytest.fixture(scope="session")
def channel(shared_folder: Path) -> Path:
    """The folder of a channel `ours`."""
    folder = shared_folder / "channels"
    with locked(shared_folder / "channels.lock"):
        if not folder.exists():
            make_channel(folder / "ours", {"of_conda": OF_CONDA})
    return folder


@pytest.fixture
def alias(channel: Path, mirror_rig: Rig) -> Iterator[str]:
    """The lines of a condarc with which boxes reach the channel."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Log nothing."""

    handler = partial(Quiet, directory=str(channel))
    server = ThreadingHTTPServer((mirror_rig.mirror.host, 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://{mirror_rig.mirror.host}:{server.server_port}/"
    yield f"channel_alias: {address}\nchannels: [ours]\n"
    server.shutdown()
    server.server_close()


def test_setup_leaves_the_conda_environment_unchanged_if_the_new_one_can_not_be_solved(
    rented: Rented, alias: str
) -> None:
    rented.box.write("/etc/conda/condarc", alias)
    repository = rented.user.repository(boxstrap__yaml=PROFILE, train__py=TRAIN)
    more = {"envs/more.txt": "pathspec\n", "requirements.txt": "no-such-package-anywhere\n"}
    repository.commit({"envs/environment.yml": FILE.replace("ours", "ours, nodefaults"), **more})
    done = rented.run("setup").must(0)
    own = f"step 1 {PLACE} {PLACE} {PLACE}/lib/python3"
    assert own in done.out
    assert done.out.split("of_conda.py ")[1].split("\n")[0] == "iniconfig of_conda pathspec"
    assert "of_conda 1.0 0" in rented.run("logs", "--step", "python").must(0).out
    entered = rented.run("exec", "--", "sh", "-c", "python -c 'import of_conda'; echo $WHO")
    assert "it's me" in entered.must(0).out
    assert "nothing to do" in rented.run("setup").must(0).out
    # An unsatisfiable file changes nothing; what is no longer required is not in a new one.
    wrong = FILE.replace("of_conda=1.*", "of_conda=2.*").replace("ours", "ours, nodefaults")
    repository.commit({"envs/environment.yml": wrong})
    failed = rented.run("setup").must(7)
    assert "the requirements can't be satisfied: versions disagree" in failed.err
    assert "of_conda" in failed.err
    assert "no environment satisfies envs/environment.yml" in failed.err
    rented.box.run(f"cd /; {PLACE}/bin/python -c 'import of_conda'")
    repository.commit({"envs/environment.yml": wrong.replace("2.*", "1.*").split("  - pip")[0]})
    done = rented.run("setup", "--set", "prepare=[]").must(0)
    assert done.out.split("of_conda.py ")[1].split("\n")[0] == "iniconfig of_conda"
    # Without python.conda uv makes the environment again, and nothing of conda's is left.
    plain = ("--set", "python.conda=null", "--set", "python.requirements=[]")
    train = ("--set", "train.command=python -c 'import sys; print(sys.prefix, sys.path)'")
    rented.run("setup", "--set", "prepare=[]", *plain, *train).must(0)
    assert not rented.box.exists(f"{PLACE}/conda-meta")
    assert rented.box.exists(f"{PLACE}/pyvenv.cfg")


def test_python_conda_builds_on_a_bare_box_but_never_changes_an_existing_environment(
    rent: Rent, alias: str
) -> None:
    rented = rent("bare")
    rented.box.write("/etc/conda/condarc", alias)
    repository = rented.user.repository(boxstrap__yaml=PROFILE, train__py=TRAIN)
    repository.commit({"envs/environment.yml": FILE, "envs/more.txt": "pathspec\n"})
    rented.box.run("mkdir -p /other/bin && touch /other/bin/python && chmod +x /other/bin/python")
    failed = rented.run("setup", "--set", "python.venv=/other").must(7)
    assert "python.conda makes an environment of its own" in failed.err
    rented.box.run("sed -i s/ours/nowhere/ /etc/conda/condarc")
    failed = rented.run("setup").must(7)
    assert failed.seconds < 30 * slowness(), "it was tried again"
    assert "could not find subdir" in failed.err
    rented.box.run("sed -i s/nowhere/ours/ /etc/conda/condarc")
    done = rented.run("setup").must(0)
    assert "iniconfig of_conda pathspec" in done.out
