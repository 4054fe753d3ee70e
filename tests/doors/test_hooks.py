"""Start-up hooks on boxes, run as their providers run them: as root, at every boot."""

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.boxes import RigBox
from tests.cli import User
from tests.doors.conftest import Hosted
from tests.main_job.conftest import Rent

pytestmark = pytest.mark.sampled(of="module")

HOME = "/home/ubuntu"
PLACES = ["/root", "/home", "/etc"]


def boot(box: RigBox, hook: str) -> str:
    """Run the hook as at a boot; its output."""
    box.write("/var/tmp/hook", hook)
    return box.run("cd / && exec bash /var/tmp/hook </dev/null 2>&1")


def runs(box: RigBox) -> list[str]:
    return box.run(f"ls {HOME}/.boxstrap/runs/*").split()


def test_a_start_up_script_does_nothing_at_later_boots_unless_at_boot_is_restart_or_resume(
    rent: Rent, hosted: Hosted, user: User
) -> None:
    box = rent("lambda").box
    hosted(box, more="", extends="lambda")
    resume = "train.resume=python train.py --goes-on"
    words = ("render", "--for", "gcp", "--set", "env.LINGER=600", "--set", resume)
    hook = user.run(*words)
    assert "train ok" in boot(box, hook.must(0).out)
    assert runs(box) == ["train-1"]
    assert box.run(f"stat -c %U {HOME}/.boxstrap/runs/*/train-1").strip() == "ubuntu"
    # Python writes bytecode while it imports, and so does the compiler in the background; the
    # monitor begins a moment after the run.
    run = f"{HOME}/.boxstrap/runs/*/train-1"
    begun = f"grep -q step {run}/log && test -e {run}/samples && ! pgrep -f 'python[.]bytecode'"
    box.run(f"until {begun}; do sleep 0.1; done", timeout=120)
    before = box.listing(PLACES)
    assert "nothing to do" in boot(box, hook.out)
    changed = set(box.listing(PLACES).splitlines()) ^ set(before.splitlines())
    # The run goes on: its log and the times at which that grew, and a sample every ten seconds.
    own = ("/train-1/log", "/train-1/times", "/train-1/samples")
    assert [line for line in changed if not any(name in line for name in own)] == []
    other = user.run(*words, "--set", "train.command=python train.py --other").must(0).out
    box.write("/var/tmp/other", other)
    said = box.run("cd / && bash /var/tmp/other </dev/null 2>&1; echo exit $?")
    assert "and this was not started" in said
    assert said.endswith("exit 8\n")
    assert runs(box) == ["train-1"]
    # After a reboot a run that died is not started again, unless the profile says so.
    box.power_off()
    box.power_on()
    boot(box, hook.out)
    assert runs(box) == ["train-1"]
    revive = user.run(*words, "--set", "train.at_boot=restart").must(0).out
    boot(box, revive)
    assert runs(box) == ["train-1", "train-2"]
    boot(box, revive)
    assert runs(box) == ["train-1", "train-2"]
    # Or the newest run is resumed, once; an earlier one that was restarted is not.
    box.power_off()
    box.power_on()
    goes_on = user.run(*words, "--set", "train.at_boot=resume").must(0).out
    for _ in range(2):
        boot(box, goes_on)
        assert runs(box) == ["train-1", "train-2", "train-3"]
        assert box.run("pgrep -fc 'bin/python train[.]py --goes-on'").strip() == "1"
    resumed = box.run(f"cat {HOME}/.boxstrap/runs/*/train-3/resumes").strip()
    assert resumed.endswith("/train-2")


def test_the_runpod_hook_starts_the_services_of_the_pod_even_if_the_setup_fails(
    rent: Rent, hosted: Hosted, user: User
) -> None:
    box = rent("runpod").box
    hosted(box, extends="runpod")
    box.write("/start.sh", "#!/bin/bash\necho services\n")
    box.run("chmod 755 /start.sh")
    hook = user.run("render", "--for", "runpod").must(0).out
    assert boot(box, hook) == "services\n"
    box.run("until grep -q 'train ok' /var/log/boxstrap.log; do sleep 0.2; done", timeout=120)
    assert boot(box, hook.replace("H4sI", "H4sJ", 1)).splitlines()[-1] == "services"


def test_a_hugging_face_job_that_is_stopped_asks_its_training_to_end(
    rent: Rent, hosted: Hosted, user: User
) -> None:
    """The job's first process is ours, and it alone is told."""
    box = rent("vast", used=True).box
    hosted(box, more="", extends="vast")
    hook = user.run("render", "--for", "hf-jobs", "--set", "env.LINGER=600").must(0).out
    box.write("/var/tmp/hook", hook)
    hf = '#!/bin/bash\nwhile [ "$1" != bash ]; do shift; done\nexec "$@"\n'
    box.write("/usr/local/bin/hf", hf, mode="0755")
    job = box.run("setsid bash /var/tmp/hook </dev/null >/var/tmp/said 2>&1 & echo $!").strip()
    run = "/workspace/.boxstrap/runs/*/train-1"
    box.run("until grep -q step /var/tmp/said; do sleep 0.1; done", timeout=120)
    box.run(f"kill -TERM {job}; while kill -0 {job}; do sleep 0.1; done 2>/dev/null", timeout=120)
    assert box.run(f"cat {run}/ended").startswith("interrupted container ")


def test_a_pasted_command_runs_nothing_when_the_script_at_its_url_was_changed(
    rent: Rent, hosted: Hosted, user: User, tmp_path: Path
) -> None:
    box = rent("vast", used=True).box
    hosted(box, extends="vast")
    folder = tmp_path / "served"
    folder.mkdir()
    gateway = box.address.rpartition(".")[0] + ".1"
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    server = ThreadingHTTPServer((gateway, 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    file = folder / "box.sh"
    url = f"http://{gateway}:{server.server_address[1]}/box.sh"
    paste = user.run("oneliner", "--url", url, "--output", str(file)).must(0).out
    whole = file.read_text()
    before = box.listing(["/root", "/workspace"])
    file.write_text(whole.replace("train-", "trajn-", 1) + "\n")
    assert "FAILED" in box.run(f"{paste.strip()} 2>&1", check=False)
    assert box.listing(["/root", "/workspace"]) == before
    file.write_text(whole)
    quiet = box.run(paste)
    assert "train ok" in quiet
    assert "step 1" not in quiet  # a hook's output, which nobody waits for
    shown = box.run(["script", "-qec", paste.strip(), "/dev/null"])
    assert "nothing to do" in shown
    assert "step 1" in shown
    assert "train-1: finished 0" in shown
    assert "its terminal: tmux -L boxstrap attach" in shown
    server.shutdown()
    server.server_close()
