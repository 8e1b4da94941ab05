"""Whole-number designs around a relaxed one: what can be built and launched."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

from hwopt.design.problem import Problem
from hwopt.plan import stage_layers

_WHOLE = ("chips", "scale_up_domain", "tp", "pp", "virtual_stages", "micro_batch")


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [i for i in range(1, math.isqrt(number) + 1) if number % i == 0]
    return sorted({*small, *(number // i for i in small)})


def nearest(values: Iterable[int], target: float, count: int) -> list[int]:
    """The `count` values closest to `target` in ratio."""
    return sorted(values, key=lambda value: abs(math.log(value / target)))[:count]


def whole_designs(problem: Problem, relaxed: Mapping[str, float]) -> list[dict[str, float]]:
    """Valid whole-number settings near a relaxed design.

    Valid: t divides the heads; pipeline chunks are no more than layers; every replica gets the same whole number of
    micro-batches, `B = d b m`; interleaved schedules have m a multiple of p; the domain holds whole tensor-parallel
    groups; N = t p c d.

    **Arguments:** `relaxed` values by variable name, SI. **Returns:** values of the whole variables that the problem
    has, each with its `fullest_stage` and `last_stage`.
    """
    run, plan = problem.template.workload, problem.template.plan
    batch, layers = round(float(run.global_batch_sequences)), round(float(run.model.layers))
    heads, context = round(float(run.model.heads)), round(float(plan.cp))
    box = {each.name: (each.lower, each.upper) for each in problem.variables}
    defaults = {"tp": plan.tp, "pp": plan.pp, "virtual_stages": plan.virtual_stages, "micro_batch": plan.micro_batch}
    defaults |= {"chips": problem.template.cluster.chips, "scale_up_domain": problem.template.cluster.network.size[0]}

    def choices(name: str, values: Iterable[int], count: int) -> list[int]:
        if name not in box:
            return [round(float(defaults[name]))]
        lower, upper = box[name]
        return nearest((v for v in values if lower * (1 - 1e-9) <= v <= upper * (1 + 1e-9)), relaxed[name], count)

    found: dict[tuple, dict[str, float]] = {}
    for tp, pp, micro_batch in itertools.product(
        choices("tp", divisors(heads), 3),
        choices("pp", range(1, layers + 1), 8),
        choices("micro_batch", range(1, batch + 1), 2),
    ):
        if batch % micro_batch:
            continue
        wanted = relaxed.get("chips", defaults["chips"]) / (tp * pp * context)
        for dp in nearest(divisors(batch // micro_batch), wanted, 3 if "chips" in box else 1):
            chips = tp * pp * context * dp
            if "chips" in box and not box["chips"][0] <= chips <= box["chips"][1]:
                continue
            if "chips" not in box and chips != round(float(defaults["chips"])):
                continue
            micro_batches = batch // (micro_batch * dp)
            for chunks in choices("virtual_stages", range(1, layers // pp + 1), 3):
                if chunks > 1 and (micro_batches % pp or pp == 1):
                    continue
                fullest, last = stage_layers(layers, pp, chunks)
                for domain in _domains(relaxed, box, tp, float(defaults["scale_up_domain"])):
                    values = (chips, domain, tp, pp, chunks, micro_batch)
                    found[values] = dict(zip(_WHOLE, values, strict=True)) | {
                        "fullest_stage": fullest,
                        "last_stage": last,
                    }
    return list(found.values())


def _domains(
    relaxed: Mapping[str, float], box: Mapping[str, tuple[float, float]], tp: int, default: float
) -> list[int]:
    """Domains next to the relaxed one that hold whole tensor-parallel groups."""
    if "scale_up_domain" not in box:
        return [round(default)]
    groups = relaxed["scale_up_domain"] / tp
    around = {max(1, math.floor(groups + 1e-6)), max(1, math.ceil(groups - 1e-6))}
    lower, upper = box["scale_up_domain"]
    return [tp * count for count in around if lower <= tp * count <= upper] or [round(upper // tp) * tp or tp]
