"""Searches a box for this machine's secrets, after setups that succeed, fail or are killed."""

import base64
from collections import Counter
from pathlib import Path

from tests.boxes import RigBox
from tests.boxes.keys import make_key
from tests.cli import PROFILE, User, UserRepository
from tests.hostile.leaks import Leak, Planted, leaks, of_the_training, processes
from tests.main_job.own_backend import PROJECT, backend
from tests.main_job.rented import Rented
from tests.main_job.slow import BUILD
from tests.waiting import wait_until

TRAIN = """\
import os, time
print("step 1 loss 0.5", len(os.environ.get("HF_TOKEN", "")), flush=True)
limit = time.monotonic() + 300
while not os.path.exists("/tmp/end") and time.monotonic() < limit:
    time.sleep(0.05)
"""
GIVEN = {"HF_TOKEN": "hf_canary+of/a:token=9f3b71d0", "DEPLOY_KEY": ""}
"""Secrets that a profile sends to a box: a token with odd characters, and a multi-line key."""
LOOSE = r"""
cd "$1" || exit
find . -maxdepth 0 ! -perm 0700 -ls
find setups -mindepth 1 -maxdepth 1 -type d ! -perm 0700 -ls
find setups -type f \( -name setup.sh -o -name secrets -o -name '*.json' \) ! -perm 0600 -ls
"""
"""Lists what others could read: boxstrap's folder itself, and what it keeps of setups."""
TOKEN = "ghp_canary0123456789abcdefghijABCDEF"


def private_key(folder: Path, name: str) -> str:
    """Make a key pair; return its private key."""
    make_key(folder / name, name)
    return (folder / name).read_text()


def plant_here(user: User, box: RigBox) -> tuple[UserRepository, dict[str, str]]:
    """Plant secrets that are common in a home, in the environment and in a repository."""
    ssh = user.home / ".ssh"
    ssh.mkdir(mode=0o700)
    values = {
        "the key that logs in": box.identity.read_text(),
        "another key": private_key(ssh, "id_ed25519"),
        "netrc": "netrc-canary-77f0a1b2c3",
        "git-credentials": "cred-canary-1d2e3f4a5b",
        "GITHUB_TOKEN": TOKEN,
        "AWS_SECRET_ACCESS_KEY": "aws+canary/wJalrXUtnFEMI",
        "remote": "remote-canary-66aa77bb",
        ".env": "dotenv-canary-0011223344",
    }
    (user.home / ".netrc").write_text(f"machine github.com login me password {values['netrc']}\n")
    stored = f"https://me:{values['git-credentials']}@github.com\n"
    (user.home / ".git-credentials").write_text(stored)
    (user.home / ".gitconfig").write_text("[credential]\n\thelper = store\n")
    for name in ("GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        user.env[name] = values[name]
    repository = user.repository(train__py=TRAIN)
    repository.commit({".gitignore": ".env\n"})
    address = f"https://me:{values['remote']}@github.com/me/homework.git"
    repository.git("remote", "add", "origin", address)
    repository.write({".env": f"TOKEN={values['.env']}\n"})
    return repository, values


def await_no_login(box: RigBox) -> None:
    """Wait until sshd has closed every connection: the buffers of a live one may hold secrets."""
    wait_until(lambda: Counter(processes(box).values())["sshd"] <= 1, lambda: processes(box))


def held_in(box: RigBox) -> list[str]:
    """The only files that may hold secrets: the environment files of the repository and of the
    last setup, and what keeps them to redact them."""
    own = "/workspace/.boxstrap"
    return box.run(f"ls {own}/secrets* {own}/env* {own}/steps/*/env* | grep -v ids$").split()


def outside(box: RigBox, found: list[Leak]) -> list[Leak]:
    may_hold = held_in(box)
    return [leak for leak in found if not (leak.kind == "disk" and leak.where in may_hold)]


def test_secrets_are_only_in_the_env_files_and_the_training_after_good_failed_or_killed_setups(
    rented: Rented,
) -> None:
    user, box = rented.user, rented.box
    repository, here = plant_here(user, box)
    given = {**GIVEN, "DEPLOY_KEY": private_key(user.home, "deploy")}
    planted = Planted({**here, **given})
    user.env.update(given)

    def scan() -> list[Leak]:
        await_no_login(box)
        return leaks(box, planted)

    # Without secrets in the profile, none are on the box while the training runs.
    rented.run("setup").must(0)
    assert rented.trainings() == 1
    assert scan() == []

    # A successful setup: only the environment files, private to their user, and the training. An
    # earlier one was killed before any step took its secrets.
    repository.commit({"boxstrap.yaml": PROFILE + "secrets: [HF_TOKEN, DEPLOY_KEY]\n"})
    killed = f"{rented.folder}/setups/20260101-000000-abcdef"
    box.write(f"{killed}/secrets", f"HF_TOKEN={given['HF_TOKEN']}", mode="0600")
    box.run(f"chmod 700 {killed}; touch -d '-1 hour' {killed}/secrets")
    user.agree()
    assert (
        f"step 1 loss 0.5 {len(given['HF_TOKEN'])}" in rented.run("setup", "--restart").must(0).out
    )
    found = scan()
    assert outside(box, found) == []
    assert {(leak.where, leak.name) for leak in found} == {
        (file, name) for file in held_in(box) for name in given
    }
    modes = box.run(f"stat -c %a {' '.join(held_in(box))}").split()
    assert modes == ["600"] * 7
    assert box.run(["/bin/bash", "-c", LOOSE, "bash", rented.folder]) == ""
    assert sum(map(of_the_training, processes(box))) >= 1
    steps = (f"logs --step {step}" for step in ("shell", "train", "python"))
    told = [rented.run(*task.split()).text for task in ("status", "status --json", "logs", *steps)]
    assert not [text for text in told if any(value in text for value in given.values())]

    # A failed setup, over a login that now has the secrets in its environment.
    rented.run("stop").must(0)
    repository.commit({"requirements.txt": "no-such-package-anywhere\n"})
    rented.run("setup").must(7)
    assert outside(box, scan()) == []

    # A setup killed here and on the box, which leaves running what it had started.
    changed = {"HF_TOKEN": "hf_canary+changed/b:token=77e1"}
    user.env.update(changed)
    files = {"requirements.txt": "-e .\n", "pyproject.toml": PROJECT.format(name="slow")}
    files["backend.py"] = backend("slow", f"open('/tmp/building', 'w').close()\n{BUILD}")
    repository.commit(files)
    going = rented.begin("setup")
    wait_until((box.root / "tmp/building").exists, going.said)
    box.run("pkill -KILL -f 'setups/[^ ]*/setup.sh'")
    going.kill()
    going.end()
    await_no_login(box)
    both = Planted({**here, **given, "changed": changed["HF_TOKEN"]})
    assert "uv" in processes(box).values()  # what the setup started continues
    assert outside(box, leaks(box, both)) == []


PLACES = r"""
cd /tmp && mkdir -p deep/er && umask 077
printf '%s' "$1" >deep/er/plain
printf '%s' "$2" >/dev/shm/coded
printf 'x' >"name-$3"
ln -s "/nowhere/$4" link
git init -q /tmp/repo && cd /tmp/repo && printf '%s' "$5" >file && git add file && rm file
printf '%s' "$6" | gzip >/tmp/deep/log.gz
tmux -L planted -f /dev/null new-session -d -s one "printf '%s\n' \"$7\"; seq 500; exec sleep 300"
tmux -L planted set-buffer "$8"
tmux -L planted set-environment -t one CANARY "$9"
exec 7>/tmp/gone; printf '%s' "${10}" >&7; rm /tmp/gone
setsid env ENVIRON="${11}" sleep 300 7>&- </dev/null >/dev/null 2>&1 &
setsid bash -c 'sleep 300; :' "${12}" 7>&- </dev/null >/dev/null 2>&1 &
setsid sleep 300 </dev/null >/dev/null 2>&1 &
"""
HEAP = "import sys, time; kept = sys.stdin.buffer.read() * 3; print(flush=True); time.sleep(300)"


def test_the_scan_for_leaked_secrets_finds_a_planted_secret_in_each_place(rented: Rented) -> None:
    values = {f"place {n}": f"canary{n:02}+/{'é' * 2}:{n * 7919:08}=" for n in range(1, 14)}
    coded = {"place 2": base64.b64encode(b"xx" + values["place 2"].encode()).decode()}
    box = rented.box
    assert leaks(box, Planted(values)) == []
    words = [{**values, **coded}[f"place {n}"] for n in range(1, 13)]
    names = {3: "canary-in-a-name-31337", 4: "canary-in-a-link-31338"}
    for n, name in names.items():
        words[n - 1] = values[f"place {n}"] = name
    box.run(["bash", "-c", PLACES, "bash", *words])
    box.write("/tmp/heap.py", HEAP)
    box.write("/tmp/heap.txt", values["place 13"])
    start = "setsid python3 /tmp/heap.py </tmp/heap.txt >/tmp/heap.out 2>&1 &"
    box.run(f"{start} until [ -s /tmp/heap.out ]; do sleep 0.05; done; rm /tmp/heap.txt")
    found = leaks(box, Planted(values))
    kinds = {leak.name: set() for leak in found}  # type: dict[str, set[str]]
    for leak in found:
        kinds[leak.name].add(leak.kind)
    must = {
        **{f"place {n}": "disk" for n in (1, 2, 3, 4, 5, 6)},
        **{f"place {n}": "tmux" for n in (7, 8, 9)},
        **{"place 10": "deleted", "place 11": "environ", "place 12": "cmdline"},
        "place 13": "memory",
    }
    assert {name: kind in kinds.get(name, ()) for name, kind in must.items()} == dict.fromkeys(
        must, True
    ), found
