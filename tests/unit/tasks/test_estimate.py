"""`estimate` as it is typed: offline, with a profile or without, for people and for programs."""

import csv
import io
from pathlib import Path

import pytest

from tests.cli import User
from tests.waiting import slowness


@pytest.fixture
def at(user: User) -> User:
    user.repository()
    return user


def test_estimate_lists_the_cost_of_gpu_hours_at_each_provider_cheapest_first(at: User) -> None:
    done = at.run("estimate", "--gpu", "A100 40GB", "--hours", "50", "--experiments", "10").must(0)
    head, titles, *rows = done.out.partition("\n\n")[0].splitlines()
    assert head == "10 x 50 = 500 hours:"
    assert titles.split()[:2] == ["PROVIDER", "GPU"]
    assert [row.split()[0] for row in rows] == ["runpod", "lambda", "gcp", "gcp", "aws"]
    assert "$500.00" in rows[0]
    assert "8 GPUs are paid for" in rows[4]
    found = at.run("estimate", "--gpu", "A100 40GB", "--hours", "500", "--json").must(0).json()
    assert found["rows"][0]["total"] == 500
    assert all(row["date"] and row["source"] and not row["live"] for row in found["rows"])
    # Whom nothing is known of here is named: a missing row is no word that it can't be rented.
    assert {"vast", "paperspace"} <= {*found["left_out"]}
    assert not {"runpod", "lambda", "ec2"} & {*found["left_out"]}
    assert "no price here of vast, " in found["notes"]["left out"]
    assert "--live asks accounts" in done.err


def test_estimate_takes_what_is_not_given_from_the_profile_and_its_gpu_only_without_gpu_or_fit(
    at: User,
) -> None:
    (at.place / "boxstrap.yaml").write_text(
        "version: 1\ngpu: {name: H100, count: 8, min_memory_gib: 80}\nbox: {disk_gb: 100}\n"
        "lease: {hours: 12}\n"
    )
    found = at.run("estimate", "--json").must(0).json()
    assert found["usage"]["gpus"] == 8
    assert found["usage"]["hours"] == 12
    assert found["usage"]["disk_gb"] == 100
    assert all("H100" in row["gpu"] for row in found["rows"])
    for other in (("--gpu", "RTX 4090"), ("--fit", "1B")):
        rows = at.run("estimate", *other, "--json").must(0).json()["rows"]
        assert any("RTX 4090" in row["gpu"] for row in rows)
    nowhere = at.run("estimate", "--set", "gpu.name=V100", "--json").must(2).json()["error"]
    assert nowhere["where"] == "gpu"


@pytest.mark.parametrize(
    ("name", "size"), [("RTX 4090", 24), ("L40S", 48), ("A40", 48), ("A10", 24), ("T4", 16)]
)
def test_estimate_finds_a_gpu_by_its_nominal_memory_size(at: User, name: str, size: int) -> None:
    (at.place / "boxstrap.yaml").write_text(
        f"version: 1\ngpu: {{name: {name}, min_memory_gib: {size}}}\n"
    )
    rows = at.run("estimate", "--json").must(0).json()["rows"]
    assert {row["gpu"] for row in rows} == {f"{name} {size}GB"}


def test_estimate_works_outside_a_repository(user: User) -> None:
    user.run("estimate", "--hours", "10").must(0)


def test_estimate_with_a_model_to_fit_lists_only_gpus_with_enough_memory(at: User) -> None:
    found = at.run("estimate", "--fit", "70B", "--method", "qlora", "--json").must(0).json()
    assert min(row["memory_gb"] for row in found["rows"]) >= found["memory"]["high_gb"] * 0.96
    assert found["memory"]["low_gb"] < found["memory"]["gb"] < found["memory"]["high_gb"]
    shown = at.run("estimate", "--fit", "7B", "--method", "lora").must(0).out
    assert "of a GPU's memory" in shown


def test_estimate_lists_its_assumptions_each_with_the_option_that_changes_it(at: User) -> None:
    shown = at.run("estimate", "--fit", "7B").must(0).out
    for said in (
        *("full fine-tuning of 7B", "fp32 main weights (else --pure-bf16)"),
        *("computed again (else --keep-activations)", "--method lora about 1", "--count 2, 4, 8"),
    ):
        assert said in shown
    usual = at.run("estimate", "--fit", "7B", "--json").must(0).json()["memory"]
    for option, is_more in (("--pure-bf16", False), ("--keep-activations", True)):
        other = at.run("estimate", "--fit", "7B", option, "--json").must(0).json()["memory"]
        assert (other["gb"] > usual["gb"]) is is_more
    several = at.run("estimate", "--fit", "7B", "--count", "8", "--json").must(0).json()
    assert several["memory"]["gb"] == usual["sharded_gb"]["8"]
    assert all(row["paid_gpus"] == 8 for row in several["rows"])
    too_large = at.run("estimate", "--fit", "70B", "--method", "lora").must(2).err
    assert "--method qlora about" in too_large
    assert "--count 2, 4, 8" in too_large


def test_estimate_compares_buying_a_gpu_with_the_cheapest_rent(at: User) -> None:
    words = ["estimate", "--gpu", "RTX 4090", "--buy", "1600", "--watts", "0"]
    cheapest = at.run(*words, "--json").must(0).json()["rows"][0]["price"]
    assert f"cheaper after {1600 / cheapest:,.0f} hours of use" in at.run(*words).must(0).out


def test_estimate_writes_csv_and_an_svg_plot(at: User, tmp_path: Path) -> None:
    words = ["estimate", "--gpu", "H100", "--csv"]
    rows = list(csv.DictReader(io.StringIO(at.run(*words).must(0).out)))
    assert {row["provider"] for row in rows} >= {"aws", "runpod", "lambda"}
    file = tmp_path / "costs.svg"
    assert str(file) in at.run("estimate", "--gpu", "H100", "--plot", str(file)).must(0).out
    assert file.read_text().lstrip().startswith("<svg")


def test_estimate_answers_within_a_fraction_of_a_second_without_network_libraries(at: User) -> None:
    best = min(at.run("estimate", "--gpu", "H100").must(0).seconds for _ in range(5))
    assert best < 0.4 * slowness(), "0.2 s on an idle machine"
    imported = at.run("estimate", "--gpu", "H100", PYTHONPROFILEIMPORTTIME="1").must(0).imported
    assert (
        imported & {*("urllib3", "requests", "gpuhunt", "paramiko"), *("pydantic", "jinja2")}
        == set()
    )
