"""Model evaluation of a claim: training run, cluster, plan (as stated or the best one), and report."""

import math
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import numpy as np

from hwopt import catalog
from hwopt.analysis.claim_check.check_line import ROUNDED
from hwopt.analysis.claim_check.planning import (
    GRID,
    best_claim_plan,
    completed_plan,
    nearby_batches,
    open_plan_settings,
    plan_text,
)
from hwopt.analysis.claim_check.statement import Blueprint
from hwopt.calibration.intervals import Interval, PredictionContext, machine_interval
from hwopt.catalog.chips import nic_link
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import active_parameters, total_parameters

WHOLE_PARTS = (8, 16, 32, 64, 128, 2)
"""Multiples to which the number of chips is rounded down where no plan divides the stated one."""

FAMILY = ("llama3.1-8b", "llama3.1-70b", "llama3.1-405b")
"""Models that provide the width for a stated parameter count; the number of layers is then fitted to that count."""

POWERED = "llama3.1-8b"
"""Model that stands in for an unknown workload: power and price at full load do not depend on the workload."""


@dataclass(frozen=True)
class ModelledClaim:
    """Model results for a claim.

    **Arguments:**

    - `run`, `cluster`, `plan`, `report`: training run, cluster with racks filled as far as possible, plan and report.
    - `racked`: report with the stated number of chips per rack.
    - `interval`: prediction interval.
    - `taken`: assumptions, as sentences.
    - `runs`: whether the training run is known. If not, the report is valid for power and price only.
    - `refused`: for each stated number that is invalid, the reason and the nearest valid values.
    - `settings`: text of the stated plan, completed with its best open settings.
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
    """Return the stated training run and the assumptions about it; None and the reason where the workload is unknown."""
    settings: dict[str, Any] = {"precision": b.word("precision") or "bf16"}
    settings |= {} if math.isnan(b.tokens) else {"tokens": b.tokens}
    settings |= {"sequence_length": b["sequence_length"]} if b.has("sequence_length") else {}
    name = b.word("workload")
    if name is None:
        if not b.has("parameters"):
            return None, "neither a workload nor parameters are stated"
        if b.has("active_parameters") and b["active_parameters"] < 0.9 * b["parameters"]:
            return None, "the shape of a mixture-of-experts model does not follow from its parameters: state a workload"
        name = min(FAMILY, key=lambda each: abs(math.log(_parameters(each) / b["parameters"])))
    record = catalog.record("workloads", name)
    if "unsupported" in record.text:
        return None, f"{name}: {record.text['unsupported']}"
    run = catalog.training_run(name, **settings)
    if b.word("workload") is None:
        per_layer = _parameters(name, 2.0) - _parameters(name, 1.0)
        layers = max(1.0, round((b["parameters"] - _parameters(name, 0.0)) / per_layer))
        run = eqx.tree_at(lambda each: each.model.layers, run, np.float64(layers))
        words = f"model: the width of {name}, {layers:.0f} layers"
        if math.isnan(b.tokens):
            run = eqx.tree_at(lambda each: each.tokens, run, np.float64(20.0 * b["parameters"]))
            words += "; tokens: 20 per parameter"
        return _with_batch(run, b), words
    said = f"as {name} in the catalog" if "training_tokens" in record.quantities else "20 per parameter"
    tokens = [f"{float(run.tokens):.4g} tokens, {said}"] if math.isnan(b.tokens) else []
    return _with_batch(run, b), "; ".join([*tokens, *record.words("approximations")])


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
    """Return `6 N` of the active parameters per token, as stated or of the run's model; NaN where neither is known."""
    for key in ("active_parameters", "parameters"):
        if b.has(key):
            return 6.0 * b[key]
    run, _ = workload_of(b)
    if run is None:
        return math.nan
    return 6.0 * float(active_parameters(run.model))


def model_claim(b: Blueprint) -> ModelledClaim | str:
    """Evaluate a claim with the model, or return a sentence that says why it cannot be evaluated."""
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
    taken += ["network: as the chip is sold"] if beyond_host(b) else []
    if run is None:
        return _machine_alone(b, words)
    stated_batch = b.has("global_batch") or not math.isnan(b["batch_tokens"])
    if b.word("plan") is not None:
        return _of_plan(b, run, stated_batch, taken)
    return _of_best(b, run, stated_batch, taken)


def beyond_host(b: Blueprint) -> bool:
    """Return whether the stated network is faster than a chip's link to its NICs. The chip's stock network is then assumed."""
    most = nic_link(catalog.record("chips", str(b.word("chip")))) or math.inf
    return b.has("scale_out_bandwidth") and b["scale_out_bandwidth"] > (1.0 + ROUNDED) * most


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
    """Return the report of the same machine with the stated number of chips per rack."""
    return evaluate_in_numpy(estimate, run, _cluster(b, chips, racks=True), plan) if b.has("rack_chips") else report


def _around(b: Blueprint, run: TrainingRun, report: Any, chips: float) -> Interval | None:
    of = PredictionContext(max(float(report.mfu), 1e-3), chips)
    return machine_interval(run, str(b.word("chip")), b.word("stack"), catalog.calibration(catalog.CALIBRATED), of)


def _machine_alone(b: Blueprint, why: str) -> ModelledClaim | str:
    """Return power, racks and price of a machine whose training run is unknown."""
    run = catalog.training_run(POWERED, global_batch=b.chips, precision="bf16")
    cluster = _cluster(b, b.chips)
    plan = catalog.plan(run, b.chips)
    report = evaluate_in_numpy(estimate, run, cluster, plan)
    racked = _racked(b, run, plan, report, b.chips)
    return ModelledClaim(run, cluster, plan, report, racked, None, (f"training run unknown: {why}",), runs=False)


def _of_plan(b: Blueprint, run: TrainingRun, stated_batch: bool, taken: list[str]) -> ModelledClaim | str:
    """Evaluate the stated plan with the best values of its open settings, on the largest number of chips that it divides."""
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
        return "the plan takes more than a billion chips"
    batch, least = float(run.global_batch_sequences), dp * int(asked.get("micro_batch", 1))
    if batch % least:
        near = max(round(batch / least), 1) * least
        if stated_batch:
            refused["global_batch"] = f"{batch:,.0f} sequences do not divide among {dp:,} replicas", (float(near),)
        taken.append(f"batch of {near:,} sequences, a multiple of {dp:,} replicas")
        run = eqx.tree_at(lambda each: each.global_batch_sequences, run, np.float64(near))
    if "chips" in refused:
        taken.append(f"evaluated on {chips:,} chips, a multiple of the plan's")
    cluster = _cluster(b, chips)
    plan, report, settings = completed_plan(run, cluster, chips, asked)
    open_ = [name for name in GRID if name not in asked]
    if open_:
        taken.append(
            f"settings that the plan leaves open, best of {len(open_plan_settings(asked)):,} combinations: {', '.join(open_)}"
        )
    racked = _racked(b, run, plan, report, chips)
    return ModelledClaim(
        run,
        cluster,
        plan,
        report,
        racked,
        _around(b, run, report, chips),
        tuple(taken),
        refused=refused,
        settings=plan_text(settings),
    )


def _of_best(b: Blueprint, run: TrainingRun, stated_batch: bool, taken: list[str]) -> ModelledClaim | str:
    """Evaluate the best plan on the stated number of chips, or on the largest smaller number that some plan divides."""
    refused: dict[str, tuple[str, tuple[float, ...]]] = {}
    stated, refusal = round(b.chips), ""
    for step in (1, *WHOLE_PARTS):
        chips = stated // step * step
        if chips < 1 or (step > 1 and chips == stated):
            continue
        found, why = _best_on(b, run, stated_batch, chips)
        refusal = refusal or why
        if found is not None:
            break
    else:
        return f"no parallel plan found: {refusal}"
    plan, report, chosen, words = found
    if chips != stated:
        refused["chips"] = f"no plan divides {stated:,} chips", (float(chips),)
        taken.append(f"evaluated on {chips:,} chips, which parallel plans divide")
    if not stated_batch:
        size = float(chosen.global_batch_sequences)
        taken.append(f"batch of {size:,.0f} sequences, {size * float(chosen.sequence_length) / 1e6:.3g} M tokens")
    taken.append(words)
    racked, around = _racked(b, chosen, plan, report, chips), _around(b, chosen, report, chips)
    return ModelledClaim(chosen, _cluster(b, chips), plan, report, racked, around, tuple(taken), refused=refused)


def _best_on(b: Blueprint, run: TrainingRun, stated_batch: bool, chips: int) -> tuple[Any, str]:
    """Return the best plan on some chips, its report, the run with its batch, and a description.

    If no batch size is stated, nearby divisible ones are tried. Without a valid plan, return None and the reason.
    """
    batch, refusal = round(float(run.global_batch_sequences)), ""
    cluster, found = _cluster(b, chips), []
    for each in [batch] if stated_batch else nearby_batches(chips, batch):
        trial = eqx.tree_at(lambda one: one.global_batch_sequences, run, np.float64(each))
        try:
            plan, report, words = best_claim_plan(trial, cluster)
        except UserError as error:
            refusal = str(error)
            continue
        found.append((not bool(report.feasible), float(report.run_time_s), (plan, report, trial, words)))
    return (min(found, key=lambda one: one[:2])[2] if found else None), refusal
