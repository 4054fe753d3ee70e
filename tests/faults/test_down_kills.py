"""Kill `down`, its login or the box's power at random moments: the box is destroyed once, and only
after all that was made there is at home; nothing is trained again, and nothing here is overwritten.
"""

import random
import time

import pytest

from tests.boxes.startup import BOX_ID
from tests.cli import RESULTS, Completed, Running, User, UserRepository
from tests.faults.kills import kill_power
from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.providers.accounts import SimulatedAccount, SimulatedBox

TRAIN = """\
import os, signal, sys, time
with open(os.path.expanduser("~/begun"), "a") as file:
    file.write("begun\\n")
os.makedirs("out/small", exist_ok=True)
def end(*_):
    open("out/last.pt", "w").write("saved at the end")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open("out/large.pt", "wb").write(bytes(range(256)) * 80_000)
for number in range(60):
    open(f"out/small/{number}.pt", "w").write(str(number) * 200)
print("step 1", flush=True)
while True:
    time.sleep(0.1)
"""
PLACES = ("program", "login", "program", "power", "program at the account")


def holds(rented: Rented) -> dict[str, bytes]:
    """Return the results that are on the box, by their name."""
    out = rented.box.root / rented.tree[1:] / "out"
    return {str(each.relative_to(out)): each.read_bytes() for each in out.rglob("*.pt")}


def is_home(repository: UserRepository, results: dict[str, bytes]) -> bool:
    """Whether the results, the log and the edits are on the user's machine."""
    home = repository.root / "boxstrap-results/gpu/train-1"
    made = {str(each.relative_to(home / "out")): each.read_bytes() for each in home.rglob("*.pt")}
    edits = repository.git("for-each-ref", "refs/boxstrap/gpu/edits")
    return made == results and "step 1" in (home / "boxstrap-run/log").read_text() and bool(edits)


def entries(user: User) -> str:
    return "".join(each.read_text() for each in user.state.glob("ssh/*") if each.is_file())


def lose(what: str, rented: Rented, going: Running, chance: random.Random) -> bool:
    """Take it from a `down` under way; return whether there was something to take."""
    if going.process.poll() is not None:
        return False
    if what.startswith("program"):
        going.kill()
    elif what == "login":
        return "cut" in rented.box.run("pkill -9 -f '^sshd: [^/]' && echo cut || true")
    else:
        kill_power(rented, going, None, chance)  # type: ignore[arg-type]
    return True


def test_down_killed_at_random_moments_destroys_the_box_once_with_all_results_at_home(
    rent: Rent,
    account: SimulatedAccount,
    seeded: random.Random,
    faults: Faults,
    request: pytest.FixtureRequest,
) -> None:
    for number in range(max(1, request.config.getoption("tries") // 4)):
        rented = rent("vast", used=True)
        user, box = rented.user, rented.box
        user.env |= account.environment()
        account.boxes = [SimulatedBox(BOX_ID, address=box.address, port=box.port)]
        account.destroyed.clear()
        repository = user.repository(f"work{number}", boxstrap__yaml=RESULTS, train__py=TRAIN)
        user.env["BOXSTRAP_SSH_CONFIG"] = str(user.home / ".ssh/config")
        rented.run("setup", "--name", "gpu").must(0)
        assert "Host gpu" in entries(user)
        rented.as_user(f"cd {rented.tree} && echo '# more' >>train.py && echo new >notes.txt")
        mine = repository.root / "boxstrap-results/gpu/train-1/out/mine.txt"
        mine.parent.mkdir(parents=True)
        mine.write_text("mine")
        results = dict[str, bytes]()
        ends, hits = list[Completed](), 0
        kills = [*PLACES]
        seeded.shuffle(kills)
        while not ends or ends[-1].rc != 0:
            assert len(ends) < len(PLACES) + 4, "\n".join(end.text for end in ends)
            what = kills.pop() if kills else ""
            account.fault_on = {"DELETE ": "cut"} if what == "program at the account" else {}
            going = user.begin("down", "--host", "gpu", "--stop-runs")
            if what:
                # The first one hits early enough to hit at all.
                time.sleep(seeded.uniform(0.3, 4.0 if hits else 1.0))
            if what and not account.destroyed and lose(what, rented, going, seeded):
                hits += 1
                with faults.attempt(f"{what} lost", at="down") as attempt:
                    ends.append(going.end())
                    attempt.outcome(f"exit {ends[-1].rc}, then all came home")
            else:
                ends.append(going.end())
            assert ends[-1].rc in {0, 3, 7, 9, -9}, ends[-1].text
            assert "Traceback" not in ends[-1].text
            results = holds(rented)
            if account.destroyed:
                assert is_home(repository, results), ends[-1].text
        assert hits
        assert account.destroyed == [BOX_ID]
        assert is_home(repository, results)
        assert mine.read_text() == "mine"
        assert box.read("/root/begun") == "begun\n"
        # Its ssh entry and host key pin are gone.
        assert "Host gpu" not in entries(user)
        assert not [*user.state.glob("boxes/*")]
        assert len([*user.state.glob("ended/gpu-*/box.json")]) == number + 1
        assert len([*user.state.glob("ended/gpu-*/receipts/*/train-1.json")]) == number + 1
        # Its run is shown from home.
        missing = user.run("logs", "--host", "gpu", "--run", "train-9").must(2).err
        assert "it was given back, and of its runs came home:" in missing
        logs = user.run("logs", "--run", "train-1").must(0)
        assert (logs.out, "from home, as of " in logs.err) == ("step 1\n", True)
