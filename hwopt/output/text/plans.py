"""Parallel plans in the syntax of `--plan`, and as dictionaries."""

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np

from hwopt.model.report import ServingReport, StageReport, TrainingReport, TrainServeReport
from hwopt.plan import OFFLOADED, Plan

_OF_SERVING = {"tp": "tp", "pp": "pp", "dp": "dp", "ep": "ep", "expert_tp": "expert_tp", "batch": "micro_batch"}
"""Keys of `--plan` for a service -> fields of a plan."""

_LAYOUTS = {"sequence_parallel": "sequence_parallel", "weights_gathered": "weights_sharded"}
"""Keys of layouts -> fields of a plan; shown where a plan uses them."""

_COUNTS = ("expert_slots", "cache_split")
"""Numbers of a layout. The first is shown where experts are distributed, the second where it is not 1."""


def chip_count(chips: float) -> str:
    """Return a number of chips in words."""
    return f"{chips:,.0f} {'chip' if chips == 1 else 'chips'}"


def replicas(plan: Any) -> str:
    """Return the replicas of a plan and their chips: `24 replicas of 4 chips`; those of prefill and of decode if apart."""
    groups = {"prefill ": plan.prefill, "decode ": plan.decode} if plan.disaggregated else {"": plan}
    each = lambda plan: f"{float(plan.dp):,.0f} replicas of {chip_count(float(plan.chips / plan.dp))}"
    return ", ".join(f"{name}{each(own)}" for name, own in groups.items())


@singledispatch
def plan_document(report: Any, plan: Any) -> dict[str, Any]:
    """Return a plan with the keys of `--plan`; integral values as integers.

    **Arguments:** `report`: its type selects the form.
    """
    raise TypeError(f"no words for the plan of a {type(report).__name__}")


@singledispatch
def plan_lines(report: Any, plan: Any) -> list[tuple[str, str]]:
    """Return (label, plan in `--plan` syntax) pairs, one per machine or group of chips."""
    raise TypeError(f"no words for the plan of a {type(report).__name__}")


def plan_line(report: Any, plan: Any) -> str:
    """Return a parallel plan in one line, in the syntax of `--plan`."""
    said = plan_lines(report, plan)
    return said[0][1] if len(said) == 1 else "; ".join(f"{what} {words}" for what, words in said)


def integral(values: Mapping[str, Any]) -> dict[str, float | int]:
    """Return numbers by name, integral ones as integers, without missing ones."""
    numbers = {name: float(np.asarray(value)) for name, value in values.items() if value is not None}
    return {name: int(value) if value.is_integer() else value for name, value in numbers.items()}


@plan_document.register(StageReport)
@plan_document.register
def _(report: TrainingReport, plan: Plan) -> dict[str, Any]:
    return integral(vars(plan))


@plan_document.register
def _(report: ServingReport, plan: Any) -> dict[str, Any]:
    if not plan.disaggregated:
        return _serving_document(plan)
    groups = {"prefill": plan.prefill, "decode": plan.decode}
    return {name: _serving_document(each) | {"chips": round(float(each.chips))} for name, each in groups.items()}


@plan_document.register
def _(report: TrainServeReport, plan: Any) -> dict[str, Any]:
    return {
        "training": plan_document(report.training, plan.training),
        "serving": plan_document(report.serving, plan.serving),
    }


def _serving_document(plan: Plan) -> dict[str, Any]:
    layouts = {name: "yes" for name, field in _LAYOUTS.items() if float(getattr(plan, field))}
    if plan.layout is not None:
        said = (float(plan.ep) > 1.0, float(plan.layout.cache_split) > 1.0)
        layouts |= integral({name: getattr(plan.layout, name) for name, so in zip(_COUNTS, said, strict=True) if so})
        layouts |= {"two_batches": "yes"} if float(plan.layout.two_batches) else {}
    return integral({name: getattr(plan, field) for name, field in _OF_SERVING.items()}) | layouts


@plan_lines.register(StageReport)
@plan_lines.register
def _(report: TrainingReport, plan: Plan) -> list[tuple[str, str]]:
    values = plan_document(report, plan)
    shown = ["tp", "pp", "dp", *(name for name in ("cp", "ep") if values[name] != 1)]
    shown += [*(["expert_tp"] if values["ep"] != 1 else []), "virtual_stages", "micro_batch"]
    words = [f"{name}={values[name]}" for name in shown]
    words += [f"{name}={values[name]:g}" for name in OFFLOADED if values[name]]
    words += [f"local_steps={values['local_steps']:g}"] if values["local_steps"] != 1 else []
    zero = int(values["optimizer_sharded"] + values["gradients_sharded"] + values["weights_sharded"])
    full, attention = values["recompute_full"], values["recompute_attention"]
    recompute = "full" if full == 1 else f"{full:g}" if full else "selective" if attention else "none"
    return [("plan", ", ".join([*words, f"zero={zero}", f"recompute={recompute}"]))]


@plan_lines.register
def _(report: ServingReport, plan: Any) -> list[tuple[str, str]]:
    document = plan_document(report, plan)
    if not plan.disaggregated:
        return [("plan", _serving_words(document))]
    return [
        (group, f"{_serving_words(document[group])} on {chip_count(document[group]['chips'])}")
        for group in ("prefill", "decode")
    ]


@plan_lines.register
def _(report: TrainServeReport, plan: Any) -> list[tuple[str, str]]:
    training, serving = plan_line(report.training, plan.training), plan_line(report.serving, plan.serving)
    return [("training", training), ("serving", serving)]


def _serving_words(values: dict[str, Any]) -> str:
    shown = ["tp", "pp", "dp", *(["ep", "expert_tp"] if values["ep"] != 1 else []), "batch"]
    shown += [name for name in (*_LAYOUTS, *_COUNTS, "two_batches") if name in values]
    return ", ".join(f"{name}={values[name]}" for name in shown)
