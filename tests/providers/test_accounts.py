"""What a user's accounts list, and boxes that are named by their id in an account."""

import dataclasses
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bootstrap.errors import UsageError
from bootstrap.profile.load import read_profile
from bootstrap.providers import NAMES, PROVIDERS, api_key, find_account, find_rented
from bootstrap.renting import account_of, accounts_for
from tests.boxes.loopback import LoopbackBox
from tests.cli import User
from tests.doors.terminal import terminal
from tests.providers.accounts import KEY, STARTED, SimulatedAccount, SimulatedBox, simulated
from tests.providers.azure_account import config_folder
from tests.providers.renting_world import renting_world

ACCOUNTS = ("vast", "runpod", "lambda", "paperspace")


def test_the_tests_of_accounts_include_every_provider() -> None:
    assert tuple(PROVIDERS) == NAMES


def test_boxes_all_lists_every_box_of_every_account_with_its_price(
    user: User, accounts: dict[str, SimulatedAccount]
) -> None:
    accounts["vast"].boxes = [SimulatedBox(str(1000 + n), price=0.25) for n in range(60)]
    accounts["vast"].boxes[3].state = "stopped"
    accounts["runpod"].boxes = [SimulatedBox("pod-a", price=1.0), SimulatedBox("pod-b", "starting")]
    accounts["lambda"].boxes = [SimulatedBox("0920582c7ff041399e34823a0be62549", price=2.0)]
    accounts["paperspace"].boxes = [SimulatedBox(f"ps{n}", "stopped") for n in range(5)]
    said = user.run("boxes", "--all", "--json").must(0).json()
    boxes = {box["host"]: box for box in said["boxes"]}
    assert len(boxes) == len(said["boxes"]) == 68
    assert boxes["vast:1000"]["state"] == "running"
    assert (boxes["vast:1003"]["state"], boxes["vast:1003"]["stopped_price"]) == ("stopped", 0.0025)
    assert boxes["runpod:pod-a"]["since"] == STARTED
    assert boxes["vast:1000"]["since"] == pytest.approx(STARTED, abs=2)
    assert boxes["vast:1003"]["spent"] is None
    assert boxes["runpod:pod-a"]["spent"] > 1000
    assert boxes["runpod:pod-b"]["state"] == "starting"
    assert {box["known_as"] for box in boxes.values()} == {""}
    # 59 running and one stopped; two pods, one of them at the default price; one of Lambda.
    assert said["price"] == pytest.approx(59 * 0.25 + 0.0025 + 1.5 + 2.0)
    assert {one["provider"]: one["balance"] for one in said["accounts"]}["vast"] == 12.5
    text = user.run("boxes", "--all").must(0).out
    assert "not known on this machine: boxstrap does not manage it" in text
    assert "$0.25/h" in text
    assert "price unknown" in text
    assert "and 5 with unknown price" in text
    assert "Vast.ai: $12.50 left" in text


def test_boxes_all_without_an_api_key_says_where_each_provider_looks_for_one(user: User) -> None:
    said = user.run("boxes", "--all").must(2).err
    assert "VAST_API_KEY or ~/.config/vastai/vast_api_key" in said
    assert "Paperspace: PAPERSPACE_API_KEY" in said
    assert "your account at Lambda" in user.run("status", "--host", "lambda:abc").must(2).err


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("paperspace", ".paperspace/credentials.toml", f'[keys]\nme = "{KEY}"\nteam = "another"\n'),
        ("vast", ".config/vastai/vast_api_key", f"{KEY}\n"),
        ("vast", ".vast_api_key", KEY),
        ("runpod", ".runpod/config.toml", f'[default]\napi_key = "{KEY}"\n'),
        ("runpod", ".runpod/config.toml", f"apikey = '{KEY}'\napiurl = 'https://x'\n"),
        ("lambda", ".lambda_cloud/lambda_keys", f"api_key = {KEY}\n"),
        ("paperspace", ".paperspace/credentials.toml", f'version = 1\n\n[keys]\nme = "{KEY}"\n'),
        ("paperspace", ".paperspace/config.json", f'{{"apiKey": "{KEY}", "name": "x"}}'),
    ],
)
def test_boxstrap_reads_the_api_key_from_the_file_where_each_providers_own_program_saves_it(
    own_home: Path, name: str, file: str, text: str
) -> None:
    assert find_account(name) is None
    own_home.joinpath(file).parent.mkdir(parents=True, exist_ok=True)
    own_home.joinpath(file).write_text(text)
    key = PROVIDERS[name].keys.find()
    assert (key and key.value) == (None if "team" in text else KEY)  # which of several is unknown


def test_boxstrap_reads_the_hugging_face_token_from_the_file_in_the_huggingface_cache(
    own_home: Path,
) -> None:
    """In a process of its own: that library looks where the home is when it is imported."""
    file = own_home / ".cache/huggingface/token"
    file.parent.mkdir(parents=True)
    file.write_text(KEY)
    code = "from bootstrap.providers import PROVIDERS; print(PROVIDERS['hf'].keys.find().value)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == f"{KEY}\n"


def test_boxes_all_lists_the_boxes_of_other_accounts_when_one_account_fails(
    user: User, accounts: dict[str, SimulatedAccount]
) -> None:
    accounts["runpod"].boxes = [SimulatedBox("pod-a")]
    # Temporary errors are retried.
    accounts["runpod"].faults = [(500, {}), (429, {"title": "x", "status": 429, "detail": "slow"})]
    accounts["lambda"].faults = [(403, {"error": {"message": f"no \x1b[31m {KEY}"}})]
    accounts["vast"].faults = [(200, {"instances": [{"id": "none"}]})]
    accounts["paperspace"].faults = [(200, b"<html>")]
    ended = user.run("boxes", "--all")
    assert ended.rc in {2, 3}
    assert "runpod:pod-a" in ended.out
    assert "instances.0.id is not what its API promises" in ended.out
    assert "Lambda: it refuses the key of LAMBDA_API_KEY" in ended.out
    assert "\x1b" not in ended.text
    assert KEY not in ended.text
    assert [path.partition("?")[0] for path in accounts["runpod"].asked] == [
        *("/v2/pods",) * 3,
        "/v2/clusters",
    ]


def test_boxes_all_does_not_say_nothing_is_rented_when_accounts_answer_404(
    user: User, accounts: dict[str, SimulatedAccount]
) -> None:
    for account in accounts.values():
        account.faults = [(404, {})]
    ended = user.run("boxes", "--all").must(3)
    assert ended.out.count("it answers with 404") == len(ACCOUNTS)
    assert "nothing is rented" not in ended.out


def test_an_api_address_from_the_environment_is_used_only_if_it_is_loopback(user: User) -> None:
    user.env |= {"VAST_API_KEY": KEY, "BOXSTRAP_VAST_API": "http://example.invalid:80"}
    user.env["HTTPS_PROXY"] = "http://127.0.0.1:1"
    ended = user.run("boxes", "--all").must(3)
    assert "vast" in ended.text
    assert "example.invalid" not in ended.text


def rented(box: LoopbackBox, box_id: str = "pod-a") -> SimulatedBox:
    return SimulatedBox(box_id, port=box.port, user=box.user)


def test_status_reaches_a_box_by_its_account_id_also_after_its_address_changed(
    user: User, accounts: dict[str, SimulatedAccount], there: LoopbackBox
) -> None:
    pods = accounts["runpod"]
    pods.boxes = [rented(there)]
    words = ("--host", "runpod:pod-a", "--identity", str(there.identity))
    shown = user.run("status", *words).must(0).text
    assert "runpod-pod-a" in shown
    assert "$0.50 an hour: about $" in shown
    assert "since it was started" in shown
    (box,) = user.run("boxes", "--json").must(0).json()["boxes"]
    assert box["price"] == 0.5
    assert box["dollars"] == pytest.approx((time.time() - STARTED) / 3600 * 0.5, rel=0.01)
    # A known box needs no request to its account.
    asked = len(pods.asked)
    user.run("status", *words).must(0)
    user.run("status", "--host", "runpod-pod-a", *words[2:]).must(0)
    assert len(pods.asked) == asked
    found = user.run("boxes", "--all", "--json").must(0).json()["boxes"]
    assert [box["known_as"] for box in found] == ["runpod-pod-a"]
    # It was restarted, and has another port.
    there.move()
    pods.boxes = [dataclasses.replace(rented(there), price=0.75)]
    assert (
        f"runpod:pod-a is at 127.0.0.1:{there.port} now" in user.run("status", *words).must(0).err
    )
    again = user.run("status", *words).must(0)
    assert "is at" not in again.err
    assert "$0.75 an hour" in again.out
    # The account now gives the address of another box, which has another host key.
    other = LoopbackBox()
    try:
        pods.boxes = [rented(other), rented(other, "pod-b")]
        there.kill_sshd()
        said = user.run("status", *words).must(4).err
        assert "its host key changed" in said
        # A box with another id is another box, even at an address that was in use before.
        pods.boxes = [rented(other, "pod-b")]
        user.run("status", "--host", "runpod:pod-b", "--identity", str(other.identity)).must(0)
    finally:
        other.stop()


def test_status_says_why_a_box_of_an_account_can_not_be_reached(
    user: User, accounts: dict[str, SimulatedAccount]
) -> None:
    def status(host: str, rc: int) -> str:
        return user.run("status", "--host", host).must(rc).err

    accounts["vast"].boxes = [SimulatedBox("1", "stopped"), SimulatedBox("2", "offline")]
    accounts["runpod"].boxes = [SimulatedBox("pod-a", "starting")]
    assert "it is stopped" in status("vast:1", 3)
    assert "At a terminal this command offers to start it" in status("vast:1", 3)
    assert "What is stopped still costs its disk, $0.0050 an hour." in status("vast:1", 3)
    assert "it is broken (offline)" in status("vast:2", 3)
    assert "Wait a minute" in status("runpod:pod-a", 3)
    for host in ("vast:3", "vast:x", "runpod:none", "lambda:none", "paperspace:none"):
        assert f"has no box {host.partition(':')[2]}" in status(host, 2)


def test_status_of_a_box_deleted_at_its_provider_exits_with_3_and_suggests_boxes_forget(
    user: User, accounts: dict[str, SimulatedAccount], there: LoopbackBox
) -> None:
    accounts["runpod"].boxes = [rented(there)]
    words = ("--host", "runpod:pod-a", "--identity", str(there.identity))
    user.run("status", *words).must(0)
    accounts["runpod"].boxes = []
    there.kill_sshd()
    for host in ((), words):
        said = user.run("status", *host).must(3).err
        assert "runpod:pod-a: your account at RunPod has no box pod-a" in said
        assert "--host:" not in said
        assert "boxes --forget runpod-pod-a" in said


def test_a_host_like_vast_2222_is_refused_as_ambiguous_when_ssh_config_has_an_alias_vast(
    user: User, accounts: dict[str, SimulatedAccount]
) -> None:
    config = user.home / ".ssh/config"
    config.parent.mkdir(mode=0o700, exist_ok=True)
    config.write_text("Host vast\n  HostName 127.0.0.1\nHost runpod:pod-a\n  User me\n")
    accounts["vast"].boxes = [SimulatedBox("2222", "stopped"), SimulatedBox("222222", "stopped")]
    said = user.run("status", "--host", "vast:2222").must(2).err
    assert "is ambiguous: the box 2222 of your account at vast, or port 2222 of vast" in said
    assert "ssh://vast:2222" in said
    assert "is ambiguous" in user.run("status", "--host", "runpod:pod-a").must(2).err
    assert "it is stopped" in user.run("status", "--host", "vast:222222").must(3).err
    assert accounts["runpod"].asked == []


def test_a_command_on_a_terminal_offers_to_start_a_stopped_box_and_then_goes_on(
    user: User, accounts: dict[str, SimulatedAccount], there: LoopbackBox, tmp_path: Path
) -> None:
    vast = accounts["vast"]
    vast.loading_s = 0.0
    vast.boxes = [dataclasses.replace(rented(there, "77"), state="stopped")]
    words = (*("boxstrap", "status", "--host", "vast:77"), "--identity", str(there.identity))
    for answer, shown, started in (("no", "it is stopped", []), ("yes", "vast-77", ["77"])):
        argv = ["env", *(f"{name}={value}" for name, value in user.env.items()), *words]
        (tmp_path / answer).mkdir()
        with terminal(
            tmp_path / answer, [*argv[: -len(words)], "sh", "-c", f"{shlex.join(words)}; sleep 60"]
        ) as seen:
            seen.wait_for("vast:77 is stopped. Start it at $0.50 an hour? (yes/no)")
            seen.type_lines(answer)
            seen.wait_for(shown)
        assert vast.started == started
    # Without a terminal nothing is started, nor is by --dry.
    vast.boxes[0].state = "stopped"
    there.kill_sshd()
    assert "it is stopped" in user.run("status", *words[2:]).must(3).err
    assert vast.started == ["77"]


@pytest.mark.parametrize(("provider", "extra"), [("ec2", "aws"), ("gcp", "gcp"), ("hf", "hf")])
def test_a_provider_without_its_optional_package_is_refused_with_the_pip_command(
    provider: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with simulated(provider, used_by=monkeypatch):
        assert find_account(provider)
        monkeypatch.setattr(api_key, "find_spec", lambda _: None)
        assert find_account(provider) is None
        loaded = read_profile("ssh")
        for ask in (
            lambda: find_rented(f"{provider}:71"),
            lambda: account_of(f"{provider}:71"),
            lambda: accounts_for(provider, loaded),
        ):
            with pytest.raises(UsageError, match="isn't installed") as error:
                ask()
            assert error.value.hint == f"Install it: pip install 'boxstrap[{extra}]'"


@pytest.mark.parametrize(
    ("provider", "library"), [("ec2", "botocore"), ("gcp", "google.auth"), ("azure", "azure.core")]
)
def test_finding_the_credentials_of_a_cloud_imports_none_of_its_heavy_libraries(
    provider: str, library: str, user: User
) -> None:
    """Whoever rents elsewhere would wait for it with each command."""
    find = "import sys; from bootstrap.providers.accounts import find_account;"
    asked = f"{find} assert find_account({provider!r}); assert {library!r} not in sys.modules"
    with simulated(provider) as account:
        env = {**user.env, **account.environment()}
        subprocess.run([sys.executable, "-c", asked], env=env, check=True)
        if provider == "azure":
            assert not (config_folder(account.url) / "bin/calls").exists()


@pytest.mark.parametrize(
    ("provider", "gpu"), [("ec2", "T4"), ("gcp", "L4"), ("azure", "T4"), ("hf", "T4")]
)
def test_up_does_not_ask_a_cloud_for_offers_unless_its_provider_is_named(
    provider: str, gpu: str, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    with renting_world(provider, monkeypatch) as world:
        user.env |= world.simulation.environment()
        user.repository(**{"train.py": "print(1)\n", "boxstrap.yaml": "version: 1\n"})
        assert "no key of an account was found" in user.run("up", "--max-price", "1").must(2).err
        assert world.simulation.asked == []
        named = user.run("up", "--provider", provider, "--dry-run", "--max-price", "1").must(0)
        assert gpu in named.out
