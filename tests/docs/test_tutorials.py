"""Tutorials are done by their own commands, on a simulated account and boxes of the rig.

What differs from the pages: the boxes have no GPU, so what is trained is a line that is fitted, its
output as the page's program writes it, and what only a person ends is ended after one look. The
paste is tried in tests/doors/test_paste.py.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from bootstrap.paths import shipped
from tests.boxes import Rig
from tests.cli import User
from tests.providers import demo
from tests.providers.accounts import SimulatedOffer, simulated
from tools.docs.generate import ROOT

pytestmark = pytest.mark.sampled(of="module")
REDUCE = (ROOT / "tests/main_job/reduce.py").read_text("utf-8")
TRAIN = (shipped("templates") / "demo/train.py").read_text("utf-8") + demo.RESULT
PRINTS = re.compile(r"^<!-- prints: (.*?) -->\n```\n(?:(?!```).*\n)*```$", re.MULTILINE)
WATCHING = {"top": ["--looks", "1"], "sync --watch": None, "tunnel": None}
"""What is added to a command that goes on until a person ends it; None: it is left out."""
CELL = """\
import sys, time
given = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
print(f"step 1 val_loss {float(given['lr']) * (1 + int(given['seed']))}", flush=True)
time.sleep(2)
"""


class Tutorial:
    """A page, and what its commands said when `user` typed them."""

    def __init__(self, name: str, user: User) -> None:
        self.page = (ROOT / f"docs/tutorials/{name}.md").read_text(encoding="utf-8")
        self.user, self.place = user, Path(user.place)
        self.said: dict[str, str] = {}
        self.instead: dict[str, str] = {}
        self.printed: dict[str, str] = {}
        """The first output of each command."""

    def profile(self, instead: Mapping[str, str] | None = None, *, takes: bool = True) -> None:
        """Write the page's profile for boxes without GPUs, and agree to what it takes."""
        (text,) = re.findall(r"^```yaml\n(.*?)^```$", self.page, re.MULTILINE | re.DOTALL)
        text = replaced(text, instead or {})
        if "gpu: {" in text:
            text = text.replace("gpu: {", "gpu: {require: false, ")
        else:
            text += "gpu: {require: false}\n"
        (self.place / "boxstrap.yaml").write_text(text)
        if takes:
            self.user.agree()

    def do(self, instead: Mapping[str, str], *, but: str = "") -> None:
        """Type every command but `init`, with these words instead of the page's."""
        self.instead |= instead
        for line in re.findall(r"^boxstrap .*$", replaced(self.page, instead), re.MULTILINE):
            words = shlex.split(line, comments=True)[1:]
            typed = " ".join(words)
            added = [more for what, more in WATCHING.items() if typed.startswith(what)]
            if words[0] == "init" or None in added or (but and typed.startswith(but)):
                continue
            done = self.user.run(*words, *(added[0] or [] if added else [])).must(0)
            self.said[typed] = self.said.get(typed, "") + done.out + done.err
            self.printed.setdefault(typed, done.out)

    def compare(self, name: str, request: pytest.FixtureRequest) -> None:
        """Compare the page's blocks of output with what was printed, but for ids and numbers.

        With --update-golden: write them anew.
        """

        def block(found: re.Match[str]) -> str:
            out = self.printed[found[1]].strip("\n").replace(str(self.place), "~/homework")
            for was, now in self.instead.items():
                out = out.replace(now, was)
            return f"<!-- prints: {found[1]} -->\n```\n{out}\n```"

        made, count = PRINTS.subn(block, self.page)
        assert count
        if request.config.getoption("--update-golden"):
            (ROOT / f"docs/tutorials/{name}.md").write_text(made, encoding="utf-8")
        else:
            assert told_alike(self.page) == told_alike(made)


def told_alike(text: str) -> str:
    """Return the text without what differs from day to day: ids, numbers, widths, how far it is."""
    text = re.sub(r"\b(running|finished)\b", "STATE", text)
    text = re.sub(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{7,}\b", "ID", text)
    amount = r"\d[\d.:,-]*( (s|ms|min|h|B|kB|MB|GB|GiB)\b)?"
    return re.sub(r"[ -]+", " ", re.sub(rf"{amount}( {amount})*", "N", text))


def replaced(text: str, instead: Mapping[str, str]) -> str:
    """Return the text with other words; each must be there."""
    for was, now in instead.items():
        assert was in text, was
        text = text.replace(was, now)
    return text


def let_in(user: User, rig: Rig) -> None:
    """Give the user the key that the rig's boxes let in, as their own."""
    ssh = Path(user.env["HOME"]) / ".ssh"
    ssh.mkdir(mode=0o700, exist_ok=True)
    for suffix in ("", ".pub"):
        shutil.copy(f"{rig.identity}{suffix}", ssh / f"id_ed25519{suffix}")


def without_commits(user: User) -> None:
    """Leave one empty commit; the files are there, and git knows none of them."""
    for words in (
        ("update-ref", "-d", "HEAD"),
        ("rm", "-q", "-r", "--cached", "."),
        ("commit", "-q", "--allow-empty", "-m", "Begin"),
    ):
        subprocess.run(["git", *words], cwd=user.place, check=True, env=user.env)
    (Path(user.place) / "boxstrap.yaml").unlink()
    user.run("init").must(0)


def test_the_commands_of_the_fine_tune_tutorial_work_with_nothing_committed(
    mirror_rig: Rig, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with demo.rentable(mirror_rig, tmp_path / "home", TRAIN) as (user, account):
        without_commits(user)
        page = Tutorial("fine-tune", user)
        page.profile(takes=False)
        agreed = user.run("up", "--json").must(2).json()["error"]["digest"]
        page.do({"boxstrap up\n": f"boxstrap up --consent {agreed}\n"})
        page.compare("fine-tune", request)
        assert account.rented == account.destroyed == ["9001"]
        assert "Sweden, SE" in page.said["up --dry-run"]
        assert "4 new" in page.said[f"up --consent {agreed}"]
        assert "train-2" in page.said["run"]
        assert "train-2 finished" in page.said["wait --all"]
        assert "nothing is rented" in page.said["boxes --all"]
        results = sorted(page.place.glob("boxstrap-results/*/train-*/out/line.txt"))
        assert [path.parts[-3] for path in results] == ["train-1", "train-2"]


def test_the_commands_of_the_overnight_tutorial_bring_the_results_home_and_destroy_the_box(
    mirror_rig: Rig, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    line = 'f"step {step:3}  loss {loss:.4f}  y = {slope:.2f} x + {offset:.2f}", '
    train = replaced(TRAIN, {line: 'f"iter {step}: loss {loss:.4f}, time 18.31ms, mfu 14.08%", '})
    with demo.rentable(mirror_rig, tmp_path / "home", train) as (user, account):
        page = Tutorial("overnight", user)
        data = page.place / "data/shakespeare_char"
        data.mkdir(parents=True)
        (data / "prepare.py").write_text(f'open("{data.relative_to(page.place)}/made", "w")\n')
        packages = "[torch, numpy, transformers, datasets, tiktoken, tqdm]"
        page.profile({packages: "[tqdm]"})
        page.do({}, but="wait --detach")  # tests/main_job/test_wait.py has a receiver
        page.compare("overnight", request)
        assert account.rented == account.destroyed == ["9001"]
        assert "right: boxstrap.yaml" in page.said["profiles --validate boxstrap.yaml"]
        assert "held by the box" in page.said["up --max-price 0.80"]
        assert "loss" in page.said["logs -f"]
        assert "train-1" in page.said["runs"]
        assert [*page.place.glob("boxstrap-results/*/train-1/out/line.txt")]


def test_the_commands_of_the_sweep_tutorial_run_and_compare_a_sweep_on_two_boxes(
    mirror_rig: Rig, user: User, request: pytest.FixtureRequest
) -> None:
    boxes = [mirror_rig.start(demo.KIND) for _ in range(2)]
    let_in(user, mirror_rig)
    user.repository(train__py=CELL, requirements__txt="tqdm\n")
    page = Tutorial("sweep", user)
    (cells,) = re.findall(r"^```\n(name: lr\n.*?)^```$", page.page, re.MULTILINE | re.DOTALL)
    (page.place / "lr.yaml").write_text(cells)
    with simulated("vast") as account:
        account.loading_s = 0.0
        account.offers = [SimulatedOffer(str(11 + at), price=0.4) for at in range(2)]
        account.addresses = [(box.address, box.port, box.user) for box in boxes]
        user.env |= account.environment()
        page.profile()
        page.do({})
        page.compare("sweep", request)
        assert sorted(account.rented) == sorted(account.destroyed) == ["9001", "9002"]
    assert "6 queued now" in page.said["run --hosts seeds --sweep lr.yaml"]
    assert "nothing to queue" in page.said["run --hosts seeds --sweep lr.yaml"]
    assert "least at the end: 0.0003 of lr=3e-4,seed=0" in page.said["report --sweep lr.yaml"]
    assert (page.place / "boxstrap-results/sweeps/lr.html").is_file()
    for box in boxes:
        box.stop()


def test_the_commands_of_the_nodes_tutorial_train_on_two_boxes_together(
    mirror_rig: Rig, user: User, request: pytest.FixtureRequest
) -> None:
    """The boxes have no torch: a stand-in for torchrun adds numbers up between them."""
    boxes = [mirror_rig.start("lambda") for _ in range(2)]
    let_in(user, mirror_rig)
    line = 'print(f"rank {rank} of {count}: sum {total}", '
    reduce = replaced(REDUCE, {line: 'rank or print(f"step 0 nodes_sum {count}", '})
    user.repository(reduce__py=reduce, requirements__txt="tqdm\n")
    page = Tutorial("nodes", user)
    page.profile({"torchrun train.py": "python reduce.py 1 4"}, takes=False)
    (group,) = re.findall(r"^cluster: .*$", page.page, re.MULTILINE)
    at = {f"ubuntu@198.51.100.1{n}": f"{box.user}@{box.address}" for n, box in enumerate(boxes, 1)}
    config = Path(user.env["XDG_CONFIG_HOME"]) / "boxstrap"
    config.mkdir(parents=True, exist_ok=True)
    (config / "groups.yaml").write_text(replaced(f"{group}\n", at))
    page.instead |= at
    page.do({"torchrun train.py --lr 3e-4": "python reduce.py 2"}, but="up ")
    page.compare("nodes", request)
    assert page.said["setup --hosts cluster"].count("train-1") >= 2
    first = page.place / f"boxstrap-results/{boxes[0].address}-{boxes[0].port}"
    sums = [(first / f"train-{n}/out/sum.txt").read_text() for n in (1, 2)]
    assert sums == ["3.0\n", "5.0\n"]
    for box in boxes:
        box.stop()


def test_the_commands_of_the_editor_tutorial_work_from_setup_to_down(
    mirror_rig: Rig, user: User, request: pytest.FixtureRequest
) -> None:
    box = mirror_rig.start(demo.KIND)
    user.repository(train__py=TRAIN, requirements__txt="tqdm\n")
    page = Tutorial("editor", user)
    page.profile(takes=False)
    typed = f"ssh -i {mirror_rig.identity} -p {box.port} {box.user}@{box.address}"
    user.env["BOXSTRAP_SSH_CONFIG"] = str(Path(user.env["HOME"]) / ".ssh/config")
    page.do({"ssh -p 46769 root@203.0.113.7": typed})
    page.compare("editor", request)
    assert "vscode" in page.said["code --host my-box"]
    assert "my-box" in page.said["sync --back --host my-box"]
    assert [*page.said][-1] == "down --host my-box"
    box.stop()
