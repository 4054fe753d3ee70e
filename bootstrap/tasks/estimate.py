"""estimate: what a training will cost at each provider, and which GPU holds it."""

from __future__ import annotations

import csv
import dataclasses
import io
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from bootstrap import paths
from bootstrap.errors import UsageError
from bootstrap.providers import NAMES
from bootstrap.sizes import dollars, duration, grouped_number
from bootstrap.tasks.command import JSON, SET, Call, command
from bootstrap.tasks.options import PROFILE, REPO, Option
from bootstrap.value import document

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile
    from bootstrap.providers.estimate import Asking, Found, Row, Usage
    from bootstrap.runs.known_runs import MeasuredRun
    from bootstrap.tasks.model_memory import Memory, Method, Model, Training


_SHARDS = (2, 4, 8)  # GPUs over which a training is often sharded
_SHOWN = 20  # rows shown as text


@command(
    Option("gpu", "The GPU, as in A100 40GB; default: the profile's, or with --fit any that fits."),
    Option("hours", "Hours of one experiment; default: the profile's lease, or 1."),
    Option("experiments", "How many experiments of so many hours.", 1),
    Option("count", "GPUs of the box; default: the profile's."),
    Option("disk", "GB of disk; default: the profile's."),
    Option("egress", "GB that come home after each experiment.", 0),
    Option("stopped", "Hours for which the box is kept stopped between experiments.", 0),
    Option("fit", "A model that must fit: 7B, a name as in llama-3.1-8b, or a config.json."),
    Option("method", "How it is trained: full, lora or qlora.", "full"),
    Option("precision", "bf16 or fp32.", "bf16"),
    Option("optimizer", "adamw, adamw8bit or sgd.", "adamw"),
    Option("keep_activations", "Activations are kept, not computed again (checkpointing).", False),
    Option("pure_bf16", "Weights, gradients and states all in bf16, no main weights.", False),
    Option("fused_loss", "The loss in parts: chunked cross-entropy, Liger, Unsloth.", False),
    Option("batch", "Sequences at once on a GPU.", 1),
    Option("sequence", "Tokens of a sequence.", 2048),
    Option("buy", "The price of a card of your own: says after how many hours it is cheaper."),
    Option("watts", "What that machine draws under load.", 450),
    Option("kwh", "Dollars a kWh.", "0.15"),
    Option("live", "Today's prices: of the accounts, and with boxstrap[prices] of clouds.", False),
    Option("csv", "The table as CSV.", False),
    Option("plot", "Write the totals as a picture, an SVG."),
    *(PROFILE, SET, REPO, JSON),
    changes=(),
)  # fmt: skip
def estimate(call: Call) -> None:
    """Say what a training will cost at each provider, and which GPU holds it; rents nothing.
    Example: boxstrap estimate --gpu "A100 40GB" --hours 50 --experiments 10"""
    from bootstrap.onbox.verdict import gpu_models
    from bootstrap.providers.estimate import Found, Usage, estimate_rows, shipped_prices, with_live

    profile, given = _profile(call), call.given
    lease = profile.lease.hours if profile and profile.lease else None
    usage = Usage(
        hours=_amount(given["hours"], "--hours") if given["hours"] else float(lease or 1.0),
        experiments=max(1, given["experiments"]),
        gpus=int(given["count"] or (profile.gpu.count if profile else 0) or 1),
        disk_gb=float(given["disk"] or (profile.box.disk_gb if profile else 0) or 0),
        egress_gb=float(given["egress"]),
        stopped_hours=float(given["stopped"]),
    )
    gpu, fit = given["gpu"] or "", _fit(call)
    ordered = profile.gpu if profile and not gpu and not fit else None
    names = (ordered.names if ordered else ()) or (gpu,)
    memory = fit.on(usage.gpus) if fit else None
    least = float((ordered.min_memory_gib if ordered else 0) or 0)
    found = Found(shipped_prices())
    if call.given["live"]:
        found = with_live(found.prices, asked_live(names, usage))
    rows = estimate_rows(
        [
            price
            for price in found.prices
            if any(map(price.is_a, names))
            and (
                price.shown_bytes >= memory.high
                if memory
                else gpu_models.holds(price.gpu, price.memory_gb, least)
            )
        ],
        usage,
    )
    if not rows:
        needed = memory.high / 2**30 if memory else least
        what = " or ".join(filter(None, names)) or "GPU"
        what += f" with {needed:.0f} GiB" if needed else ""
        there = f"There are: {', '.join(sorted({price.gpu for price in found.prices}))}."
        raise UsageError(
            f"no price of a {what} is known.",
            where="--gpu" if gpu else "--fit" if fit else "gpu",
            hint="\n".join([*fit.lines(usage.gpus), there] if fit else [there]),
        )
    _show(call, rows, found, usage, fit)


class _Fit(NamedTuple):
    """A training of a model that must fit."""

    model: Model
    training: Training

    def on(self, gpus: int, method: Method | None = None) -> Memory:
        """Return what it takes of each GPU, sharded if there are several."""
        from bootstrap.tasks.model_memory import memory_of

        training = dataclasses.replace(self.training, method=method or self.training.method)
        return memory_of(self.model, training).sharded(gpus)

    def others(self, gpus: int) -> dict[Method, float]:
        """Return what the cheaper methods take, in GB of a GPU."""
        from bootstrap.tasks.model_memory import METHODS

        cheaper = METHODS[METHODS.index(self.training.method) + 1 :]
        return {method: round(self.on(gpus, method).total / 1e9, 1) for method in cheaper}

    def shards(self) -> dict[int, float]:
        """Return what it takes of each of several GPUs, in GB."""
        return {gpus: round(self.on(gpus).total / 1e9, 1) for gpus in _SHARDS}

    def lines(self, gpus: int) -> list[str]:
        """Say what it takes, what is assumed, and what would take less."""
        memory, method = self.on(gpus), self.training.method
        what = "full fine-tuning" if method == "full" else f"fine-tuning by {method}"
        shared = f"each of {gpus} GPUs that share it (FSDP, ZeRO-3)"
        each = "a GPU's memory" if gpus == 1 else shared
        less = [f"--method {name} about {gb:.0f} GB" for name, gb in self.others(gpus).items()]
        if more := {count: gb for count, gb in self.shards().items() if count > gpus}:
            sizes = ", ".join(f"{gb:.0f}" for gb in more.values())
            less.append(
                f"--count {', '.join(map(str, more))} about {sizes} GB of each (FSDP, ZeRO-3)"
            )
        return [
            f"{what} of {self.model.name}, {self.model.parameters / 1e9:.3g}e9 parameters, takes "
            f"about {memory.total / 1e9:.0f} GB ({memory.low / 1e9:.0f} to "
            f"{memory.high / 1e9:.0f}) of {each}",
            f"assumed: {self.training.assumptions()}",
            *([f"less: {'; '.join(less)}"] if less else []),
        ]


def _show(call: Call, rows: Sequence[Row], found: Found, usage: Usage, fit: _Fit | None) -> None:
    from bootstrap.providers.estimate import HEAD, oldest
    from bootstrap.ui.layout import aligned, cut

    past = _past_runs(call)
    priced = {row.price.provider for row in rows}
    left_out = [name for name in NAMES if {"ec2": "aws"}.get(name, name) not in priced]
    data: dict[str, object] = {
        "usage": usage,
        "rows": rows,
        "failed": dict(found.failed),
        "oldest": oldest(row.price for row in rows).isoformat(),
        "past_runs": past,
        "left_out": left_out,
    }
    if left_out:
        more = "boxstrap up --dry-run shows offers of today"
        more = more if call.given["live"] else f"--live asks accounts, and {more}"
        call.screen.note("left out", f"no price here of {', '.join(left_out)}: {more}")
    if fit:
        memory = fit.on(usage.gpus)
        data["memory"] = {
            "gb": round(memory.total / 1e9, 1),
            "low_gb": round(memory.low / 1e9, 1),
            "high_gb": round(memory.high / 1e9, 1),
            "parameters": fit.model.parameters,
            "assumed": fit.training.assumptions(),
            "other_methods_gb": fit.others(usage.gpus),
            "sharded_gb": {str(gpus): gb for gpus, gb in fit.shards().items()},
        }
    if call.given["csv"]:
        text = io.StringIO()
        table = csv.DictWriter(text, list(document(rows[0])), lineterminator="\n")
        table.writeheader()
        table.writerows(map(document, rows))
        call.screen.result(data, text.getvalue().rstrip("\n"))
    else:
        body = aligned([HEAD, *(row.cells() for row in rows[:_SHOWN])])
        lines = [
            *(fit.lines(usage.gpus) if fit else []),
            f"{_title(usage)}:",
            *(cut(line, call.screen.width) for line in body),
        ]
        lines += [f"and {len(rows) - _SHOWN} more: --json has all"] if len(rows) > _SHOWN else []
        lines += [f"{name}: not asked, {why}" for name, why in found.failed.items()]
        lines += _sources(rows[:_SHOWN])
        lines += _past_lines(past, rows[:_SHOWN])
        lines += _buying(call, rows)
        call.screen.result(data, "\n".join(lines))
    if call.given["plot"]:
        from bootstrap.runs.page import write_page
        from bootstrap.ui.plots import cost_bars

        file = paths.expanded(call.given["plot"])
        totals = [(" ".join(row.cells()[:3]), row.cost.total) for row in rows[:_SHOWN]]
        write_page(file, cost_bars(totals, _title(usage)), "--plot")
        call.screen.result({"plot": str(file)}, f"picture: {file}")


def _title(usage: Usage) -> str:
    times = f"{usage.experiments} x {usage.hours:g} = " if usage.experiments > 1 else ""
    gpus = "" if usage.gpus == 1 else f", {usage.gpus} GPUs"
    disk = f", {usage.disk_gb:g} GB of disk" if usage.disk_gb else ""
    return f"{times}{usage.all_hours:g} hour{'' if usage.all_hours == 1 else 's'}{gpus}{disk}"


def _sources(rows: Sequence[Row]) -> list[str]:
    """Return where the shown prices are from, one line for each provider."""
    found: dict[str, list[str]] = {}
    for row in rows:
        sources = found.setdefault(row.price.provider, [])
        sources += [] if row.price.source in sources else [row.price.source]
    return ["", *(f"{provider}: {'; '.join(texts)}" for provider, texts in found.items())]


def _past_runs(call: Call) -> list[MeasuredRun]:
    from bootstrap.repo.local import current

    key, _ = current(call.place)
    if not key:
        return []
    from bootstrap.boxes.at_home import all_kept, kept_of_repository

    kept = kept_of_repository(all_kept(), key)
    if not kept:
        return []
    from bootstrap.runs.known_runs import measured

    return measured(kept)


def _past_lines(past: Sequence[MeasuredRun], rows: Sequence[Row]) -> list[str]:
    if not past:
        return []
    from bootstrap.runs.known_runs import same_run

    run, lines = past[0], ["", f"{past[0].line()}. The same run on"]
    for row in rows:
        same = same_run(run, row.price, past)
        name = f"  {row.price.gpu} at {row.price.provider}"
        if same.seconds is None:
            lines.append(f"{name}: can't be said, {same.why_not}")
        else:
            cost = same.seconds / 3600 * row.price.price * run.gpus
            lines.append(f"{name}: about {duration(same.seconds)}, {dollars(cost)}")
    return lines


def _buying(call: Call, rows: Sequence[Row]) -> list[str]:
    from bootstrap.providers.estimate import break_even_hours

    if call.given["buy"] is None:
        return []
    card, kwh = _amount(call.given["buy"], "--buy"), _amount(call.given["kwh"], "--kwh")
    rent, watts = rows[0].price.price, float(call.given["watts"])
    hours = break_even_hours(card, rent, watts=watts, kwh=kwh)
    power = f"{watts:.0f} W at {dollars(kwh)} a kWh"
    against = f"against {dollars(rent)} an hour ({rows[0].price.provider})"
    if hours is None:
        return ["", f"a card of {dollars(card)} is never cheaper {against}: {power} cost more"]
    after = f"is cheaper after {grouped_number(hours)} hours of use {against}"
    return ["", f"a card of {dollars(card)} {after}; {power}"]


def asked_live(names: Sequence[str], usage: Usage) -> dict[str, Asking]:
    """Return whom to ask for live prices: accounts with a key or open offers, then the clouds."""
    from bootstrap.providers.accounts import PROVIDERS, find_account
    from bootstrap.providers.cloud_account import CloudAccount
    from bootstrap.providers.estimate import CLOUDS, Price, catalogue_of, cheapest_of_each
    from bootstrap.providers.offer import RentOrder

    order = RentOrder(
        gpu_names=tuple(filter(None, names)), gpu_count=usage.gpus, disk_gb=round(usage.disk_gb)
    )

    def offers(account: CloudAccount) -> list[Price]:
        found = list[Price]()
        for offer in account.catalog(order):
            kind = "bid" if offer.bid is not None else "on demand"
            memory = offer.memory_gib or 0.0
            name = f"{offer.gpu} {memory:.0f}GB" if memory else offer.gpu
            price = Price(
                account.name,
                name,
                memory,
                offer.gpu_count,
                kind,
                offer.price / offer.gpu_count,
                time.strftime("%Y-%m-%d"),
                f"{account.title}'s offers",
                live=True,
                disk_included=True,
            )
            found += [price] if any(map(price.is_a, names)) else []
        return cheapest_of_each(found, usage.gpus)

    asked: dict[str, Asking] = {}
    for name, kind in PROVIDERS.items():
        account = find_account(name)
        if account is None and not kind.offers_need_key:
            account = kind(None)
        # Those of the first kind have a table's prices; AWS is asked by its catalogue.
        if account is not None and not (kind.rents_stopped or kind.is_ambient):
            asked[name] = partial(offers, account)
    return asked | {name: partial(catalogue_of, name, names, usage.gpus) for name in CLOUDS}


def _profile(call: Call) -> Profile | None:
    """Return the profile, if there is one; an estimate takes nothing that needs consent."""
    from bootstrap.repo.place import repository_root

    own = (repository_root(call.place) or call.place) / paths.PROFILE
    if not (call.given["profile"] or call.given["set_"] or own.exists()):
        return None  # it would be that of every box: it says nothing here, and takes long to read
    from bootstrap.profile.consent import load_profile

    try:
        return load_profile(call.options(), kinds=()).profile
    except UsageError:
        if call.given["profile"]:
            raise
        return None


def _fit(call: Call) -> _Fit | None:
    from bootstrap.tasks.model_memory import METHODS, OPTIMIZERS, PRECISIONS, Training, find_model

    given = call.given
    if not given["fit"]:
        return None
    for name, words in (("method", METHODS), ("precision", PRECISIONS), ("optimizer", OPTIMIZERS)):
        if given[name] not in words:
            raise UsageError(f"{given[name]!r} is none of {', '.join(words)}.", where=f"--{name}")
    if min(given["batch"], given["sequence"]) < 1:
        raise UsageError("it is 1 at the least.", where="--batch, --sequence")
    training = Training(
        *(given["method"], given["precision"], given["optimizer"]),
        given["batch"],
        given["sequence"],
        recomputes=not given["keep_activations"],
        pure=given["pure_bf16"],
        fused_loss=given["fused_loss"],
    )
    return _Fit(find_model(given["fit"]), training)


def _amount(text: object, option: str) -> float:
    try:
        amount = float(str(text).removeprefix("$"))
    except ValueError:
        amount = 0.0
    if not 0 < amount < 1e9:
        raise UsageError(f"{text!r} is no amount.", where=option, hint="As in: 0.60")
    return amount
