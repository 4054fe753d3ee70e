"""Secrets from an environment, a `.env` and a command: sent once, redacted by the box, wiped."""

from tests.main_job.rented import Rented

PROFILE = """\
version: 1
gpu: {require: false}
env: {GREETING: "hello ' there"}
secrets: [FROM_ENV, FROM_FILE, FROM_COMMAND]
train: {command: python train.py}
"""
TRAIN = """\
import os, time
values = [os.environ[f"FROM_{name}"] for name in ("ENV", "FILE", "COMMAND")]
print("values", *values, os.environ["GREETING"], flush=True)
time.sleep(600)
"""
FILES = (
    "secrets",
    *(f"{at}env{kind}" for at in ("", "steps/*/") for kind in ("", ".fish", ".csh")),
)
LEAKS = (
    "env_abcdefghijklmnopqr",
    "other_abcdefghijklmnop",
    "file_'x y\"\\z-1234567",
    "cmd_abcdefghijklmnop",
)
HIDDEN = "values [FROM_ENV hidden] [FROM_FILE hidden] [FROM_COMMAND hidden] hello"


def test_setup_resends_changed_secrets_and_wipe_removes_them_from_the_box(rented: Rented) -> None:
    home = rented.user.home
    rented.user.repository(train__py=TRAIN)
    own = home / ".config/boxstrap/secrets"
    own.mkdir(parents=True)
    (own / "commands.yaml").write_text(f"FROM_COMMAND: printf . >>{home}/asked; echo {LEAKS[3]}\n")
    profile = home / "profiles/mine.yaml"
    profile.parent.mkdir()
    profile.write_text(PROFILE)
    (profile.parent / ".env").write_text('FROM_FILE="file_\'x y\\"\\\\z-1234567"\n')

    def asked() -> int:
        return len((home / "asked").read_text())

    def kept() -> str:
        """The contents of all files with secrets in boxstrap's folder on the box."""
        everything = f"cd {rented.folder} && cat {' '.join(FILES)} 2>/dev/null; true"
        return rented.as_user(everything)

    def setup(value: str = LEAKS[0], *more: str) -> str:
        done = rented.run("setup", "--profile", str(profile), *more, FROM_ENV=value).must(0)
        assert not [leak for leak in LEAKS if leak in done.text]
        return done.text

    first = setup()
    assert "FROM_ENV, FROM_FILE (from .env), FROM_COMMAND (from command)" in first
    assert HIDDEN in first
    assert asked() == 1
    assert all(leak in kept() for leak in (LEAKS[0], LEAKS[3]))

    # The environment's value has changed: this is noticed and sent, and the command is not run.
    listed = rented.run("secrets", "--profile", str(profile), "--json", FROM_ENV=LEAKS[1]).must(0)
    rows = {row["name"]: row for row in listed.json()["secrets"]}
    assert [rows[f"FROM_{name}"]["same"] for name in ("ENV", "FILE", "COMMAND")] == [
        *(False, True, True)
    ]
    second = setup(LEAKS[1])
    assert "FROM_ENV (changed), FROM_FILE (from .env)" in second
    assert "FROM_COMMAND (the box has it; its command is not asked)" in second
    assert "it still uses the earlier secrets" in second
    assert asked() == 1
    assert LEAKS[0] not in kept()
    assert all(leak in kept() for leak in (LEAKS[1], LEAKS[3]))
    assert "nothing to do" in setup(LEAKS[1])

    # The box redacts values that are missing here; it now holds another value of FROM_ENV.
    (profile.parent / ".env").rename(home / "put-away")
    assert HIDDEN in rented.run("logs", FROM_ENV=LEAKS[0]).must(0).out
    top = rented.run("top", "--looks", "1").must(0)
    assert not [leak for leak in LEAKS if leak in top.text]

    # A secret that the box claims to hold, but never got from here, is shown and not recorded.
    rented.as_user(f"printf 'HOME=/root\\0' >>{rented.folder}/secrets")
    claimed = rented.run("secrets", "--json").must(0).json()["secrets"]
    assert [row["held"] for row in claimed if row["name"] == "HOME"] == [True]
    (record,) = (rented.user.state / "boxes").glob("*/box.json")
    assert '"HOME"' not in record.read_text()

    # Wiped: the profile's own variables stay, and so do the values that the run started with.
    wiped = rented.run("secrets", "--wipe").must(0)
    assert "wiped FROM_ENV, FROM_FILE, FROM_COMMAND" in wiped.out
    assert "train-1 is running: its processes keep the values" in wiped.out
    left = kept()
    assert not [leak for leak in (*LEAKS, "FROM_") if leak in left]
    assert left.count("GREETING") == 6
    gone = rented.run("secrets", "--json").must(0).json()["secrets"]
    assert {row["name"]: (row["held"], row["boxes"]) for row in gone} == {}
    assert "FROM_COMMAND" in rented.run("logs").must(0).err

    # The next setup sends them again, and runs the command again, since the box lacks its value.
    (home / "put-away").rename(profile.parent / ".env")
    assert "FROM_COMMAND (from command)" in setup(LEAKS[1])
    assert asked() == 2
    assert all(leak in kept() for leak in (LEAKS[1], LEAKS[3]))
    assert rented.runs() == ["train-1"]
