"""A multi-line secret that the training prints: redacted immediately, and by later commands."""

from tests.cli import User
from tests.faults.plugin import Faults
from tests.used_here import seem_set_up

PEM = (
    "-----BEGIN KEY-----\n" + "\n".join(f"line{n}" + "Ab3/" * 14 for n in range(6)) + "\n-----END\n"
)
PROFILE = """\
version: 1
extends: local
box: {workdir: ~/box}
secrets: [DEPLOY_KEY, HF_TOKEN]
train: {command: python train.py}
"""
TRAIN = """\
import os
print(os.environ["DEPLOY_KEY"], flush=True)
print("token", os.environ["HF_TOKEN"], flush=True)
raise SystemExit("no good: " + os.environ["HF_TOKEN"])
"""
VALUES = {"DEPLOY_KEY": PEM, "HF_TOKEN": "hf_abcdefghij"}
LEAKS = ("Ab3/", "hf_abcdefghij")


def test_logs_hides_a_secret_of_several_lines_that_this_machine_or_only_the_box_has(
    user: User, faults: Faults
) -> None:
    # With a profile outside the repository, whose own names no secrets.
    profile = user.home / "elsewhere.yaml"
    profile.write_text(PROFILE)
    seem_set_up(user, "box").repository(boxstrap__yaml="version: 1\n", train__py=TRAIN)
    setup = user.run("setup", "--host", "local", "--profile", str(profile), **VALUES)
    assert setup.rc in (0, 10), setup.text
    assert not [leak for leak in LEAKS if leak in setup.text]
    assert "[DEPLOY_KEY hidden]" in setup.text
    with faults.attempt("secret of several lines in a log"):
        for place in (user.home, user.place):
            user.place = place
            for task in (("logs",), ("logs", "-f"), ("logs", "--json")):
                shown = user.run(*task, "--host", "local", **VALUES)
                assert not [leak for leak in LEAKS if leak in shown.text]
                assert "token [HF_TOKEN hidden]" in shown.out
        # Only the names are kept.
        record = (user.state / "boxes/local/box.json").read_text()
        assert "HF_TOKEN" in record
        assert not [leak for leak in LEAKS if leak in record]
    # It is not here, or was changed here: the box has it.
    for values in ({"DEPLOY_KEY": PEM}, {"DEPLOY_KEY": PEM, "HF_TOKEN": "hf_another-value"}):
        shown = user.run("logs", "--host", "local", **values).must(0)
        assert "token [HF_TOKEN hidden]" in shown.out
        assert not [leak for leak in LEAKS if leak in shown.text]
        assert "can't be redacted" not in shown.err
    # It was replaced on the box, too: the log has the first one.
    changed = {"DEPLOY_KEY": PEM, "HF_TOKEN": "hf_another-value"}
    user.run("setup", "--host", "local", "--profile", str(profile), **changed).must(10)
    shown = user.run("logs", "--host", "local", **changed).must(0)
    assert "token [HF_TOKEN hidden]" in shown.out
    # A profile that names none came after: no run has them any more, and logs still show none.
    nothing = ("--set", "secrets=[]", "--set", "train=null")
    user.run("setup", "--host", "local", "--profile", str(profile), *nothing).must(0)
    shown = user.run("logs", "--host", "local").must(0)
    assert "token [HF_TOKEN hidden]" in shown.out
    assert "can't be redacted" not in shown.err
    # Another machine of the user's, which never gave it any, reads none either.
    elsewhere = {"XDG_STATE_HOME": str(user.home / "laptop")}
    user.run("setup", "--host", "local", "--profile", str(profile), *nothing, **elsewhere).must(0)
    for task in ("logs", "status"):
        shown = user.run(task, "--host", "local", **elsewhere).must(0)
        assert "[HF_TOKEN hidden]" in shown.text, shown.text
        assert not [leak for leak in LEAKS if leak in shown.text]
    user.run("pull", "--host", "local").must(0)
    (at_home,) = user.place.glob("boxstrap-results/*/*-1/boxstrap-run/log")
    assert "[DEPLOY_KEY hidden***" in at_home.read_text()
    assert not [leak for leak in LEAKS if leak in at_home.read_text()]
    assert user.run("secrets").must(0).out.count("held by local") == 2
    assert user.run("secrets", "--host", "local").must(0).out.count("the box holds it") == 2
    assert user.run("secrets").must(0).out.count("kept to redact logs, until secrets --wipe") == 2
    wiped = user.run("secrets", "--host", "local", "--wipe").must(0)
    assert "wiped HF_TOKEN, DEPLOY_KEY" in wiped.out
    assert "Not wiped: logs" in wiped.out
    assert not list(user.home.glob("box/.boxstrap/secrets.earlier"))
    shown = user.run("logs", "--host", "local", DEPLOY_KEY=PEM).must(0)
    assert shown.err.count("HF_TOKEN") == 1
    assert "given to this box before, " in shown.err
    assert "can't be redacted" in shown.err
    assert "DEPLOY_KEY" not in shown.err
    assert "Ab3/" not in shown.text
    pulled = user.run("pull", "--host", "local", DEPLOY_KEY=PEM)
    assert pulled.err.count("HF_TOKEN: given to this box before, ") == 1, pulled.text
    written = user.place / ".env"
    written.write_text("HF_TOKEN=hf_abcdefghij\n")
    shown = user.run("logs", "--host", "local", DEPLOY_KEY=PEM).must(0)
    assert not [leak for leak in LEAKS if leak in shown.text]
    assert "can't be redacted" not in shown.err
    written.unlink()
    # A report shows lines of a log only where the run failed.
    assert user.run("report", "--host", "local").must(0).err.count("can't be redacted") == 1
    user.run("run", "--host", "local", "--", "true").must(0)
    user.run("wait", "--host", "local").must(0)
    assert "can't be redacted" not in user.run("report", "--host", "local").must(0).err
