"""What the model makes of a blueprint: the run, the cluster, the plan that is stated or the best one, and their report."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import numpy as np

from hwopt import catalog
from hwopt.errors import UserError
from hwopt.evidence.intervals import Circumstances, Interval, machine_interval
from hwopt.integers.enumeration import divisors
from hwopt.jaxprs.kept import estimated
from hwopt.model.estimate import estimate
from hwopt.optim.plan_search import best_plan
from hwopt.optim.plan_table import reports
from hwopt.study.blueprint.lines import ROUNDED
from hwopt.study.blueprint.statement import Blueprint
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import active_parameters, total_parameters

BATCH_LEEWAY = 0.07
"""By which a batch may differ that nobody states, for the sake of whole replicas (assumption)."""

FAMILY = ("llama3.1-8b", "llama3.1-70b", "llama3.1-405b")
"""Whose width a model of a stated size has, with as many layers as make that size."""

POWERED = "llama3.1-8b"
"""What a machine runs whose workload is not known: power and price of a machine at full load do not follow from its work."""

BATCHES = 3
"""Batches tried where none is stated."""

GRID = {
    "recompute": ("none", "selective", "full"),
    "zero": (1, 2, 3),
    "virtual_stages": (1, 2, 3, 4, 8, 16, 32),
    "micro_batch": (1, 2, 4),
}
"""What is tried of a stated plan where it is silent."""


@dataclass(frozen=True)
class Judged:
    """What the model says of a blueprint.

    **Arguments:** `plan` and `report` of `run` on `cluster`, whose racks are filled as far as they can be; `racked`: the report
    with as many chips in a rack as are stated; `interval` of the prediction; `taken`: what was assumed, in
    sentences; whether a `run` was known, else report and plan say of power and price alone; `refused`: why a plan or batch cannot
    be, by the stated number's name, with what would do; `settings` of a stated plan with all that it left open.
    """

    run: TrainingRun
    cluster: Any
    plan: Any
    report: Any
    racked: Any
    interval: Interval | None
    taken: tuple[str, ...]
    runs: bool = True
    refused: dict[str, tuple[str, tuple[float, ...]]] = field(default_factory=dict)
    settings: str = ""

    @property
    def fits(self) -> bool:
        return bool(self.report.feasible)

    @property
    def chips(self) -> float:
        return float(self.cluster.chips)


def workload_of(b: Blueprint) -> tuple[TrainingRun | None, str]:
    """The run that is stated, and what was assumed of it; None where nothing says what is trained, with why."""
    settings: dict[str, Any] = {"precision": b.word("precision") or "bf16"}
    settings |= {} if math.isnan(b.tokens) else {"tokens": b.tokens}
    settings |= {"sequence_length": b["sequence_length"]} if b.has("sequence_length") else {}
    name = b.word("workload")
    if name is None:
        if not b.has("parameters"):
            return None, "neither a workload nor parameters are stated"
        if b.has("active_parameters") and b["active_parameters"] < 0.9 * b["parameters"]:
            return None, "the shape of a model with experts does not follow from its parameters: name a workload"
        name = min(FAMILY, key=lambda each: abs(math.log(_parameters(each) / b["parameters"])))
    elif not name.lower().endswith(".json"):
        record = catalog.record("workloads", name)
        if "unsupported" in record.text:
            return None, f"{name}: {record.text['unsupported']}"
    run = catalog.training_run(name, **settings)
    if b.word("workload") is None:
        per_layer = _parameters(name, 2.0) - _parameters(name, 1.0)
        layers = max(1.0, round((b["parameters"] - _parameters(name, 0.0)) / per_layer))
        run = eqx.tree_at(lambda each: each.model.layers, run, np.float64(layers))
        words = f"the model has the width of {name} and {layers:.0f} layers"
        if math.isnan(b.tokens):
            run = eqx.tree_at(lambda each: each.tokens, run, np.float64(20.0 * b["parameters"]))
            words += "; tokens: 20 a parameter"
        return _with_batch(run, b), words
    words = "" if not math.isnan(b.tokens) else f"{float(run.tokens):.4g} tokens, as the catalogue's entry of {name}"
    return _with_batch(run, b), words


def _with_batch(run: TrainingRun, b: Blueprint) -> TrainingRun:
    stated = b["global_batch"] if b.has("global_batch") else b["batch_tokens"] / float(run.sequence_length)
    if math.isnan(stated):
        return run
    return eqx.tree_at(lambda each: each.global_batch_sequences, run, np.float64(max(round(stated), 1)))


def _parameters(name: str, layers: float | None = None) -> float:
    model = catalog.transformer(name)
    model = model if layers is None else eqx.tree_at(lambda each: each.layers, model, np.float64(layers))
    return float(total_parameters(model))


def flops_per_token(b: Blueprint) -> float:
    """`6 N` of the parameters that a token meets, as stated or of the run's model; NaN where neither is known."""
    for key in ("active_parameters", "parameters"):
        if b.has(key):
            return 6.0 * b[key]
    run, _ = workload_of(b)
    if run is None:
        return math.nan
    return 6.0 * float(active_parameters(run.model))


def judge(b: Blueprint) -> Judged | str:
    """What the model makes of a blueprint; a sentence on why it makes nothing."""
    chip = b.word("chip")
    if chip is None:
        return "no chip is named"
    if "unsupported" in (text := catalog.record("chips", chip).text):
        return f"{chip}: {text['unsupported']}"
    if math.isnan(b.chips):
        return "the number of chips is not stated"
    if b.chips < 1:
        return "there is no whole chip"
    run, words = workload_of(b)
    taken = [words] if words else []
    taken += ["the network that the chip is sold with"] if beyond_host(b) else []
    if run is None:
        return _machine_alone(b, words)
    stated_batch = b.has("global_batch") or not math.isnan(b["batch_tokens"])
    if b.word("plan") is not None:
        return _of_plan(b, run, stated_batch, taken)
    return _of_best(b, run, stated_batch, taken)


def beyond_host(b: Blueprint) -> bool:
    """Whether the stated network is faster than a chip's host takes: the machine then has the one it is sold with."""
    entry = catalog.record("chips", str(b.word("chip")))
    return b.has("scale_out_bandwidth") and b["scale_out_bandwidth"] > (1.0 + ROUNDED) * entry.si(
        "host_bandwidth", math.inf
    )


def _cluster(b: Blueprint, chips: float, racks: bool = False) -> Any:
    settings: dict[str, Any] = {
        name: b.word(name) for name in ("site", "cooling", "fabric", "stack", "scale_out", "prices", "operation")
    }
    settings |= {"rack_chips": min(b["rack_chips"], chips) if racks and b.has("rack_chips") else None}
    if b.has("scale_out_bandwidth") and not beyond_host(b):
        settings["scale_out_bytes_per_s"] = b["scale_out_bandwidth"]
    settings |= {"oversubscription": b["oversubscription"] if b.has("oversubscription") else None}
    return catalog.cluster(
        str(b.word("chip")), chips, **{name: value for name, value in settings.items() if value is not None}
    )


def _racked(b: Blueprint, run: TrainingRun, plan: Any, report: Any, chips: float) -> Any:
    """The report of the same machine with the stated racks."""
    return estimated(estimate, run, _cluster(b, chips, racks=True), plan) if b.has("rack_chips") else report


def _around(b: Blueprint, run: TrainingRun, report: Any, chips: float) -> Interval | None:
    of = Circumstances(max(float(report.mfu), 1e-3), chips)
    return machine_interval(run, str(b.word("chip")), b.word("stack"), catalog.calibration(catalog.CALIBRATED), of)


def _machine_alone(b: Blueprint, why: str) -> Judged | str:
    """Power, racks and price of a machine whose run is not known."""
    run = catalog.training_run(POWERED, global_batch=b.chips, precision="bf16")
    cluster = _cluster(b, b.chips)
    plan = catalog.plan(run, b.chips)
    report = estimated(estimate, run, cluster, plan)
    racked = _racked(b, run, plan, report, b.chips)
    return Judged(run, cluster, plan, report, racked, None, (f"the run is not known: {why}",), runs=False)


def _of_plan(b: Blueprint, run: TrainingRun, stated_batch: bool, taken: list[str]) -> Judged | str:
    """By the stated plan, and the best of what it leaves open; on the most chips that it divides."""
    asked = catalog.parse_plan(str(b.word("plan")))
    refused: dict[str, tuple[str, tuple[float, ...]]] = {}
    replica = math.prod(int(asked.get(name, 1)) for name in ("tp", "pp", "cp"))
    dp = int(asked.get("dp", max(b.chips // replica, 1)))
    chips = replica * dp
    if chips != b.chips:
        near = (float(chips),) if "dp" in asked else (float(chips), float(replica * (dp + 1)))
        degrees = " x ".join(f"{name}{asked[name]}" for name in ("tp", "pp", "cp", "dp") if name in asked)
        refused["chips"] = (
            f"{b.chips:,.0f} chips are {b.chips / (chips if 'dp' in asked else replica):.4g} times {degrees}",
            near,
        )
    if chips > 1e9:
        return "the plan takes more chips than anyone makes"
    batch, least = float(run.global_batch_sequences), dp * int(asked.get("micro_batch", 1))
    if batch % least:
        near = max(round(batch / least), 1) * least
        if stated_batch:
            refused["global_batch"] = f"{batch:,.0f} sequences do not divide among {dp:,} replicas", (float(near),)
        taken.append(f"a batch of {near:,} sequences, which {dp:,} replicas share")
        run = eqx.tree_at(lambda each: each.global_batch_sequences, run, np.float64(near))
    if "chips" in refused:
        taken.append(f"judged on {chips:,} chips, which the plan divides")
    cluster = _cluster(b, chips)
    plan, report, settings = _completed(run, cluster, chips, asked)
    open_ = [name for name in GRID if name not in asked]
    if open_:
        taken.append(f"of what the plan leaves open the best of {len(_trials(run, asked)):,}: {', '.join(open_)}")
    racked = _racked(b, run, plan, report, chips)
    return Judged(
        run,
        cluster,
        plan,
        report,
        racked,
        _around(b, run, report, chips),
        tuple(taken),
        refused=refused,
        settings=_text(settings),
    )


def _text(settings: dict[str, Any]) -> str:
    """A plan's settings as text."""
    return ",".join(f"{name}={value}" for name, value in settings.items())


def _trials(run: TrainingRun, asked: dict[str, str]) -> list[dict[str, Any]]:
    free = {name: values for name, values in GRID.items() if name not in asked}
    return [dict(zip(free, each, strict=True)) for each in itertools.product(*free.values())]


def _completed(run: TrainingRun, cluster: Any, chips: int, asked: dict[str, str]) -> tuple[Any, Any, dict[str, Any]]:
    """The fastest plan that fits of a stated one and all tried where it is silent; else the one with the most room.

    **Raises:** `UserError` where none of them is a plan.
    """
    plans, settings, refusal = [], [], UserError("plan: nothing fits these degrees")
    for trial in _trials(run, asked):
        if int(asked.get("pp", 1)) > 1 and trial.get("zero", 1) > 1:
            continue
        try:
            both: dict[str, Any] = asked | trial
            plans.append(catalog.plan(run, chips, **both))
            settings.append(both)
        except UserError as error:
            refusal = error
    if not plans:
        raise refusal
    if len(plans) == 1:
        return plans[0], estimated(estimate, run, cluster, plans[0]), settings[0]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *plans)
    whole = reports(run, cluster, stacked)
    fits = np.asarray(whole.feasible) > 0
    rank = np.where(fits, whole.step_time_s, whole.memory_per_chip_bytes)
    at = int(np.lexsort((rank, ~fits))[0])
    return plans[at], jax.tree.map(lambda leaf: leaf[at], whole), settings[at]


def _of_best(b: Blueprint, run: TrainingRun, stated_batch: bool, taken: list[str]) -> Judged | str:
    """By the best plan, on as many chips as are stated; of a batch that nobody states, a near one that divides."""
    chips, batch = round(b.chips), round(float(run.global_batch_sequences))
    batches = [batch] if stated_batch else _batches(chips, batch)
    found: list[tuple[bool, float, Any, TrainingRun]] = []
    cluster = _cluster(b, chips)
    refusal = ""
    for each in batches:
        trial = eqx.tree_at(lambda one: one.global_batch_sequences, run, np.float64(each))
        try:
            search = best_plan(trial, cluster, alternatives=0)
        except UserError as error:
            refusal = str(error)
            continue
        found.append((not search.feasible, float(search.best.report.run_time_s), search.best, trial))
    if not found:
        return f"no plan was found: {refusal}"
    _, _, best, chosen = min(found, key=lambda each: each[:2])
    if not stated_batch:
        size = float(chosen.global_batch_sequences)
        taken.append(f"a batch of {size:,.0f} sequences, {size * float(chosen.sequence_length) / 1e6:.3g} M tokens")
    taken.append("by the best plan of all")
    racked, around = _racked(b, chosen, best.plan, best.report, chips), _around(b, chosen, best.report, chips)
    return Judged(chosen, cluster, best.plan, best.report, racked, around, tuple(taken))


def _batches(chips: int, batch: int) -> list[int]:
    """Batches near one, which as many replicas as can be share; those first that most share."""
    near = {}
    for each in divisors(chips):
        size = max(round(batch / each), 1) * each
        if abs(size / batch - 1.0) <= BATCH_LEEWAY:
            near[size] = max(near.get(size, 0), each)
    ranked = sorted(near, key=lambda size: (-near[size], abs(size - batch)))
    return [batch] if near.get(batch) == max(near.values(), default=0) else ranked[:BATCHES]
