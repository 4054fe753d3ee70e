"""Another program sets boxes up: the example of docs/library.md, word for word."""

import re
import shutil
import subprocess
import sys

from tests.cli import OWN_MACHINE, User
from tests.main_job.conftest import Rent
from tests.plain_environment import HERE
from tests.programs import captured
from tests.used_here import seem_set_up

HEAVY = (
    "bootstrap.link", "bootstrap.setup.sequence", "invoke", "git", "jinja2", "paramiko", "pydantic",
)  # fmt: skip


EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROFILE = OWN_MACHINE + "train: {command: %s, results: [out/]}\n"
TRAIN = """\
from pathlib import Path

print('step 1')
Path('out').mkdir(exist_ok=True)
Path('out/a').write_text('1')
"""


def test_the_documented_python_example_runs_waits_and_pulls_on_this_machine(user: User) -> None:
    """The first example, on this machine."""
    made = seem_set_up(user).repository(boxstrap__yaml=PROFILE % "'true'", train__py=TRAIN)
    example, _ = EXAMPLE.findall((HERE / "docs/library.md").read_text(encoding="utf-8"))
    assert '"root@203.0.113.7:46769", repo="homework"' in example
    example = example.replace('"root@203.0.113.7:46769"', '"local"')
    more = (
        "from bootstrap.errors import UsageError\n"
        "assert run.log() == 'step 1\\n', run.log()\n"
        "assert [one.name for one in box.runs()] == ['train-2', 'train-1']\n"
        "assert (run.state().state, box.host) == ('finished', 'local')\n"
        "assert {one.run.name for one in box.status().runs} == {'train-1', 'train-2'}\n"
        "try:\n    box.run('')\nexcept UsageError as error:\n    print(error.what)\n"
        "try:\n    box.run('echo no; exit 3').wait()\n"
        "except TrainingFailedError as error:\n    print(error.what)\n"
        "box.run(['python', '-c', 'print(4)']).wait()\n"
        "try:\n    type(run)(box, 'train-9').wait()\n"
        "except UsageError as error:\n    print(error.what.partition('; ')[0])\n"
    )
    said = _run(example.replace("given_back =", more + "given_back ="), user)
    assert said.stderr == ""
    home = made.root / "boxstrap-results/local/train-2"
    first, *lines = said.stdout.splitlines()
    assert first == f"train-2 is in {home}"
    assert lines[0] == "the command is empty."
    assert lines[1].startswith("train-3 ended with exit code 3 after")
    assert lines[2].startswith("there is no run train-9 on this box")
    assert lines[3].startswith("nothing would be lost, and it keeps running: ")
    assert (home / "out/a").read_text() == "1"


def test_the_documented_python_example_sets_up_two_boxes_at_once(rent: Rent) -> None:
    boxes = [rent("vast", used=True), rent("vast", used=True)]
    user = boxes[0].user
    made = user.repository()
    (user.home / ".ssh").mkdir(mode=0o700)
    shutil.copy(boxes[0].box.identity, user.home / ".ssh/id_ed25519")
    text = (HERE / "docs/library.md").read_text(encoding="utf-8")
    _, example = EXAMPLE.findall(text)
    named = re.findall(r'"(root@[0-9.:]+)"', example)
    assert len(named) == len(boxes)
    for host, rented in zip(named, boxes, strict=True):
        example = example.replace(host, rented.box.host_string)

    said = _run(example, user)
    assert said.stderr == ""
    lines = said.stdout.splitlines()
    assert len({line.split(":")[0] for line in lines}) == 2
    for line, rented in zip(lines, boxes, strict=True):
        assert re.search(r": train-1 is (running|finished), \('step 1 loss 0.5 -'", line), line
        assert rented.runs() == ["train-1"]
        head = rented.as_user(f"cat '{rented.folder}'/runs/*/train-1/commit").strip()
        assert head == made.head
    assert {box["box"] for box in user.run("status", "--json").must(0).json()["boxes"]} == {
        line.split(":")[0] for line in lines
    }


def test_the_python_library_raises_usage_error_without_exiting_or_importing_invoke(
    user: User,
) -> None:
    """They don't exit the process, and Invoke is not imported."""
    said = _run(
        "import sys\n"
        "from bootstrap.errors import UsageError\n"
        "from bootstrap.setup import SetupRequest, run_setup\n"
        "try:\n"
        "    run_setup(SetupRequest(host='local'))\n"
        "except UsageError as error:\n"
        "    print(error.what, 'invoke' in sys.modules)\n",
        user,
    )
    assert (said.stdout, said.stderr) == (
        "this is not a git repository, nor inside one. False\n",
        "",
    )


def test_importing_the_python_library_loads_no_heavy_module(user: User) -> None:
    said = _run("import sys, bootstrap, bootstrap.setup\nprint(*sys.modules)", user)
    loaded = set(said.stdout.split())
    assert "bootstrap.setup" in loaded
    assert loaded.isdisjoint(HEAVY)


def _run(program: str, user: User) -> subprocess.CompletedProcess[str]:
    return captured(
        [sys.executable, "-c", program],
        cwd=user.home,
        env=user.env,
        stdin=subprocess.DEVNULL,
        timeout=170,
        check=False,
    )
