"""On rented boxes: a fake git host is refused, noise does no harm."""

import re

import pytest

from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.main_job.test_enter import PROFILE, exec_and_shell_work

pytestmark = pytest.mark.sampled(of="module")


def test_setup_refuses_a_fake_github_even_where_the_image_trusts_its_host_key(
    rented: Rented, faults: Faults
) -> None:
    """The box's own sshd answers as github.com; the image may have its key in known_hosts."""
    rented.user.repository()
    rented.box.run("echo '127.0.0.1 github.com' >>/etc/hosts")
    line = f"github.com {rented.box.host_key}"
    rented.box.write("/etc/ssh/ssh_known_hosts", f"{line}\n")
    rented.box.write("/root/.ssh/known_hosts", f"{line}\n", mode="0600")
    url = ("git.access=url", "git.url=git@github.com:me/homework.git", f"git.ref={'a' * 40}")
    sets = [word for value in url for word in ("--set", value)]
    for planted in ("planted", ""):
        if not planted:
            rented.box.run("rm /etc/ssh/ssh_known_hosts /root/.ssh/known_hosts")
        with faults.attempt("fake github sshd", at=planted):
            refused = rented.run("setup", *sets).must(7)
            assert "the step repo failed" in refused.err
            log = rented.run("logs", "--step", "repo").must(0).out
            assert "host key" in log.lower(), log
            assert "127.0.0.1" not in rented.box.run(
                "grep -E 'Accepted|Failed|publickey' /var/log/sshd.log | grep -F ' git ' || true"
            )
            assert not rented.box.exists(f"{rented.tree}/.git")


def test_setup_revokes_the_old_host_key_of_github_on_the_box(
    rented: Rented, faults: Faults
) -> None:
    """An image from before March 2023 trusts it, and so anybody with its private key."""
    from bootstrap.steps.shell import known_hosts

    rented.user.repository()
    (revoked,) = (line for line in known_hosts() if line.startswith("@revoked github.com"))
    old = revoked.removeprefix("@revoked ")
    rented.box.write("/root/.ssh/known_hosts", f"{old}\n", mode="0600")
    with faults.attempt("old RSA key of github.com"):
        rented.run("setup").must(0)
        lines = rented.box.read("/root/.ssh/known_hosts").splitlines()
        assert revoked in lines
        listed = rented.box.run("ssh-keygen -l -F github.com -f /root/.ssh/known_hosts")
        # SHA256 of the key that was withdrawn, as GitHub's blog gave it on 24 March 2023.
        assert "nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8" in listed
        assert "REVOKED" in listed


QUIET = {"lambda": ("fish", "tcsh"), "vast-nouv": ("noisy",)}
"""Kinds, and those that differ in the shell alone."""


def result_of(rented: Rented) -> dict[str, str]:
    """Describe what a setup made of a box, without what differs between equal boxes."""
    tree, folder = rented.tree, rented.folder
    prune = r"\( -path ./.git -o -path ./.venv -o -name __pycache__ \) -prune -o"
    own = r"\( -path ./setups -o -path ./cache -o -name '*.pyc' -o -path './agent/*' \) -prune -o"
    own += r" \( -path './store/*/objects' -o -name '*.packs' \) -prune -o"
    run = f"cd {folder}/runs/*/train-1"
    asked = {
        "tree": f"cd {tree} && find . {prune} -printf '%p %M %u\\n' | sort",
        "files": f"cd {tree} && find . {prune} -type f -print0 | sort -z | xargs -0 sha256sum",
        "git": f"cd {tree} && export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory"
        " GIT_CONFIG_VALUE_0='*' && git rev-parse HEAD && git config --local --list | sort"
        " && git --no-optional-locks status --porcelain --untracked-files=no",
        "packages": f"ls {tree}/.venv/lib/python3*/site-packages",
        "own": f"cd {folder} && find . {own} -printf '%p %M\\n' | sort",
        "environment": f"cat {folder}/env",
        "run": f"{run} && cat command commit dir exit log session venv",
        "auto-tmux": f"ls {rented.box.home}/.no_auto_tmux",
    }
    return {name: rented.box.run(script) for name, script in asked.items()}


def told(text: str) -> str:
    """What the user was shown, without times, the box's name and its host key."""
    text = re.sub(r"SHA256:\S+|10\.\d+\.\d+\.\d+|[0-9:.]+ ?(?:s|ms|min|MB|kB|B)\b", "*", text)
    lines = (line.partition("  ")[2] for line in text.splitlines() if "..." not in line)
    return "\n".join(sorted(line for line in lines if line))


@pytest.mark.sampled
@pytest.mark.parametrize("quiet", QUIET)
def test_setup_leaves_equal_boxes_whether_the_login_shell_is_bash_fish_tcsh_or_noisy(
    quiet: str, rent: Rent, faults: Faults
) -> None:
    found = {}
    for name in (quiet, *QUIET[quiet]):
        rented = rent(name)
        if name == quiet:  # the same commit for all
            rented.user.repository(boxstrap__yaml=PROFILE, requirements__txt="iniconfig>=2\n")
        done = rented.run("setup").must(0)
        again = rented.run("setup").must(0)
        assert "nothing to do" in again.out, again.text
        found[name] = {**result_of(rented), "told": told(done.out), "again": told(again.out)}
        with faults.attempt("noisy rc, fish, tcsh, auto-tmux", at=name):
            assert found[name] == found[quiet]
            if name in ("fish", "tcsh"):
                exec_and_shell_work(rented)


EVIL = "http://127.0.0.1:9/simple"
LEADS = {
    "uv.toml": "no-index = true\n",
    "pyproject.toml": '[project]\nname = "x"\nversion = "0"\nrequires-python = "==3.99"\n'
    "[tool.uv]\nno-index = true\n",
    ".python-version": "3.99\n",
    "pip.conf": f"[global]\nindex-url = {EVIL}\n",
    ".env": f"UV_DEFAULT_INDEX={EVIL}\n",
}
"""Files in which a repository can name a package source or a Python version."""


@pytest.mark.parametrize("by", ["files", "env"])
def test_uv_and_pip_settings_of_a_repository_lead_to_no_other_index_for_boxstraps_own_tools(
    rent: Rent, faults: Faults, by: str
) -> None:
    """Neither by such files in the folder where a setup starts, nor by its profile's `env`."""
    rented = rent("vast", used=by == "env")  # env rebuilds the agent: a used box will do
    profile = "version: 1\ngpu: {require: false}\ntrain: {command: echo step 1}\n"
    if by == "env":
        profile += f'env: {{UV_DEFAULT_INDEX: "{EVIL}", PIP_INDEX_URL: "{EVIL}"}}\n'
    rented.user.repository(boxstrap__yaml=profile)
    for name, text in LEADS.items() if by == "files" else ():
        rented.box.write(f"/root/{name}", text)
    with faults.attempt("repository leads our own tools", at=by):
        if by == "env":
            rented.run("setup").must(0)
            rented.box.run("rm -rf /workspace/.boxstrap/agent /workspace/.boxstrap/cache")
        rented.run("setup").must(0)
        rented.box.run("/workspace/.boxstrap/agent/bin/python -c 'import psutil, pynvml'")
