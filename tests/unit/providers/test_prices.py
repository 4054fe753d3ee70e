"""The shipped table: each price with its source and date; live prices replace a provider's rows."""

import dataclasses
import json
import threading
from datetime import date
from pathlib import Path

import pytest

from bootstrap.errors import UnreachableError
from bootstrap.providers import estimate
from bootstrap.providers.estimate import (
    Found,
    Price,
    Usage,
    catalogue_of,
    estimate_rows,
    machine_prices,
    oldest,
    shipped_prices,
    with_live,
)
from bootstrap.ui.plots import cost_bars
from tests.plain_environment import HERE
from tests.programs import captured
from tools.prices import renewed


def price(provider: str = "vast", **changes: object) -> Price:
    own = {"gpu": "A100 SXM 80GB", "memory_gb": 80, "gpus": 1, "kind": "on demand", "price": 1.0}
    return Price(provider, **{**own, "date": "2026-11-01", "source": "x", **changes})  # type: ignore[arg-type]


def test_each_shipped_price_row_has_a_source_a_date_and_a_plausible_price() -> None:
    for row in shipped_prices():
        assert row.source.strip(), row
        assert date(2026, 1, 1) < date.fromisoformat(row.date) <= date(2100, 1, 1), row
        assert row.kind in {"on demand", "spot", "bid", "community", "secure", "marketplace"}, row
        assert 0.05 < row.price < 30, row
        assert row.gpus >= 1, row
        assert not row.live, row
        assert row.is_a(""), row
        alone = (row.provider, row.kind, row.gpus) == ("gcp", "on demand", 1)
        assert not (alone and "H100" in row.gpu), row


def test_the_shipped_price_table_has_each_provider_gpu_and_kind_once() -> None:
    places = [(row.provider, row.gpu, row.kind) for row in shipped_prices()]
    assert len(places) == len(set(places))


def test_the_shipped_price_table_is_at_most_180_days_older_than_the_last_commit() -> None:
    """A release is made of a fresh commit; an old checkout is judged by its own date."""
    shown = ["git", "-C", str(HERE), "log", "-1", "--format=%cs"]
    done = captured(shown, check=False)
    if done.returncode:
        pytest.skip("this is no git checkout")
    machines = date.fromisoformat(machine_prices("gcp").date)
    age = date.fromisoformat(done.stdout.strip()) - min(oldest(shipped_prices()), machines)
    assert age.days <= 180, "make prices"


def test_shipped_gcp_spot_prices_are_plausible_and_not_above_on_demand_prices() -> None:
    found = machine_prices("gcp")
    assert found.source.strip()
    for region, row in (each for rows in found.families.values() for each in rows.items()):
        gpu, vcpu, spot_gpu, spot_vcpu = row
        assert "-" in region
        assert 0.05 < spot_gpu < gpu < 30
        assert 0 <= spot_vcpu <= vcpu < 0.1


@pytest.mark.parametrize(
    ("asked", "name", "fits"),
    [
        ("A100 40GB", "A100 SXM 40GB", True),
        ("a100-40gb", "A100 SXM 40GB", True),
        ("A100 40 GB", "A100 SXM 40GB", True),
        ("A100", "A100 PCIe 80GB", True),
        ("A100 40GB", "A100 SXM 80GB", False),
        ("A10", "A100 SXM 80GB", False),
        ("RTX4090", "RTX 4090 24GB", True),
        ("4090", "RTX 4090 24GB", True),
        ("", "T4 16GB", True),
    ],
)
def test_a_gpu_name_finds_prices_in_any_spelling_but_not_of_another_memory_size(
    asked: str, name: str, fits: bool
) -> None:
    of_size = int(name.rsplit(maxsplit=1)[-1].removesuffix("GB"))
    assert price(gpu=name, memory_gb=of_size).is_a(asked) is fits


def test_estimate_uses_live_prices_and_for_a_failed_provider_the_shipped_prices() -> None:
    table = [price("vast"), price("lambda"), price("runpod")]

    def fails() -> list[Price]:
        raise UnreachableError("no route", where="lambda")

    def without() -> list[Price]:
        raise ModuleNotFoundError("gpuhunt")

    live = price("vast", price=0.5, live=True)
    found = with_live(table, {"vast": lambda: [live], "lambda": fails, "aws": without})
    assert sorted(one.provider for one in found.prices) == ["lambda", "runpod", "vast"]
    assert live in found.prices
    assert found.failed["lambda"] == "no route"
    assert "boxstrap[prices]" in found.failed["aws"]


def test_estimate_uses_shipped_prices_if_a_provider_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(estimate, "PATIENCE_S", 0.2)
    over = threading.Event()
    found = with_live([price("vast")], {"vast": lambda: over.wait(600) and []})
    over.set()
    assert [one.provider for one in found.prices] == ["vast"]
    assert "no answer" in found.failed["vast"]


def test_estimate_charges_all_gpus_of_a_box_and_lists_the_cheapest_first() -> None:
    eight, one = price("aws", gpus=8, price=2.0), price("vast", price=5.0)
    first, second = estimate_rows([eight, one], Usage(hours=10))
    assert (first.price.provider, first.cost.total) == ("vast", 50)
    assert (second.gpus, second.cost.total) == (8, 160)
    assert "8 GPUs are paid for" in second.cells()[-1]
    assert estimate_rows([eight], Usage(hours=10, gpus=9))[0].gpus == 16


def test_the_cost_chart_has_a_bar_with_dollars_for_each_row_and_escapes_html() -> None:
    drawn = cost_bars([("vast A<b>", 10.0), ("lambda A100", 20.0)], "10 hours & more")
    assert "$10.00" in drawn
    assert "$20.00" in drawn
    assert "A<b>" not in drawn
    assert "&amp; more" in drawn
    assert "<script" not in drawn


def test_renewing_the_price_table_replaces_only_providers_with_live_prices() -> None:
    live = price("aws", gpu="T4 16GB", memory_gb=16, price=0.526, live=True)
    kept = [one for one in shipped_prices() if one.provider != "aws"]
    text = renewed(estimate.TABLE.read_text(encoding="utf-8"), Found([*kept, live]))
    rows = [Price(**row) for row in json.loads(text)["prices"]]
    assert sorted(rows, key=str) == sorted([*kept, dataclasses.replace(live, live=False)], key=str)
    for key in ("rates", "machines"):
        assert json.loads(text)[key] == json.loads(estimate.TABLE.read_text())[key]
    again = renewed(text, Found(rows))
    assert again == text


@pytest.mark.filterwarnings("ignore")  # gpuhunt leaves its file open
def test_cloud_prices_come_from_gpuhunts_catalogue_without_fractional_gpus_and_free_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real gpuhunt, over a catalogue of this test in its own format."""
    rows = [
        "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor",
        "g4dn.xlarge,us-east-1,0.526,4,16,1,T4,16,False,,nvidia",
        "g4dn.xlarge,eu-west-1,0.6,4,16,1,T4,16,False,,nvidia",
        "g4dn.12xlarge,us-east-1,1.2,48,192,4,T4,16,True,,nvidia",
        "p5.48xlarge,us-west-2,314.64,192,2048,8,H100,80,False,,nvidia",
        "p5.4xlarge,us-west-2,68.80,16,256,1,H100,80,False,,nvidia",
        "free,us-west-2,0.0,16,256,1,H100,80,False,,nvidia",
        "g6f.large,us-east-1,0.2,2,8,1,L4,3,False,,nvidia",
    ]
    (tmp_path / "aws.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "gcp.csv").write_text(
        f"{rows[0]}\na3-highgpu-1g,x,9.0,26,234,1,H100,80,False,,nvidia\n"
    )
    monkeypatch.setenv("GPUHUNT_CATALOG_DIR", str(tmp_path))
    found = {one.kind: one for one in catalogue_of("aws", ["T4"])}
    assert found["on demand"].price == 0.526
    assert found["spot"].price == pytest.approx(0.3)
    assert found["spot"].gpus == 4
    assert catalogue_of("aws", ["A100"]) == []
    # What is paid for counts, parts of a card and rows at $0 are no offers, and nobody gets these.
    assert [(one.gpus, one.price) for one in catalogue_of("aws", ["H100"])] == [(1, 68.80)]
    assert [one.gpus for one in catalogue_of("aws", ["H100"], 8)] == [8]
    assert catalogue_of("aws", ["L4"]) == catalogue_of("gcp", ["H100"]) == []
