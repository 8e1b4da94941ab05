"""Whole-number designs around a relaxed one: what can be built and launched."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

from hwopt.design.problem import Problem
from hwopt.design.variables import Variable
from hwopt.plan import stage_layers

_WHOLE = ("chips", "scale_up_domain", "tp", "pp", "virtual_stages", "micro_batch", "global_batch_sequences")


_ROUNDED_UP = ("hbm_stacks", "dies")

_BATCH_REACH = 1.1
"""How far from the relaxed batch whole-number ones are looked for, as a ratio."""

_REPLICA_STEPS = 12
"""Counts of replicas tried between the fewest and the most that the batch's box allows."""


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [i for i in range(1, math.isqrt(number) + 1) if number % i == 0]
    return sorted({*small, *(number // i for i in small)})


def nearest(values: Iterable[int], target: float, count: int) -> list[int]:
    """The `count` values closest to `target` in ratio."""
    return sorted(values, key=lambda value: abs(math.log(value / target)))[:count]


def whole_designs(problem: Problem, relaxed: Mapping[str, float]) -> list[dict[str, float]]:
    """Valid whole-number settings near a relaxed design.

    Valid: t divides the heads; pipeline chunks are no more than layers (embedding and head may fill one each); every
    replica gets the same whole number of micro-batches, `B = d b m`; interleaved schedules have m >= p; the
    domain holds whole tensor-parallel groups; N = t p c d. A variable that the problem lacks keeps its template's value.

    **Arguments:** `relaxed` values by variable name, SI. **Returns:** values of all whole variables, each design with its
    `fullest_stage` and `last_stage`.
    """
    run, cluster, plan = problem.template[:3]
    apart = _apart(problem, relaxed)
    layers = round(apart.get("layers", float(run.model.layers)))
    heads = round(
        float(run.model.heads) * apart.get("hidden", 1.0) / (float(run.model.hidden) if "hidden" in apart else 1.0)
    )
    context = round(float(plan.cp))
    fixed = {
        "tp": plan.tp,
        "pp": plan.pp,
        "virtual_stages": plan.virtual_stages,
        "micro_batch": plan.micro_batch,
        "chips": cluster.chips,
        "scale_up_domain": cluster.network.size[0],
        "global_batch_sequences": run.global_batch_sequences,
    }
    target = {name: relaxed.get(name, float(fixed[name])) for name in _WHOLE}
    box = {name: (target[name] * (1 - 1e-9), target[name] * (1 + 1e-9)) for name in _WHOLE}
    box |= {each.name: (each.lower * (1 - 1e-9), each.upper * (1 + 1e-9)) for each in problem.variables if each.whole}
    lower, upper = box["global_batch_sequences"]
    batch = target["global_batch_sequences"]
    box["global_batch_sequences"] = (max(lower, batch / _BATCH_REACH), min(upper, batch * _BATCH_REACH))

    def choices(name: str, values: Iterable[int], count: int) -> list[int]:
        lower, upper = box[name]
        return nearest((value for value in values if lower <= value <= upper), target[name], count)

    found: dict[tuple, dict[str, float]] = {}
    for tp, pp, micro_batch in itertools.product(
        choices("tp", divisors(heads), 3),
        choices("pp", range(1, layers + 1), 8),
        choices("micro_batch", range(1, 1 + round(box["micro_batch"][1])), 2),
    ):
        model_parallel = tp * pp * context
        for chunks in choices("virtual_stages", range(1, (layers + 2) // pp + 1), 3):
            if chunks > 1 and pp == 1:
                continue
            step = pp if chunks > 1 else 1
            for dp, batch in _replicas(
                target["chips"] / model_parallel, micro_batch, step, box["global_batch_sequences"]
            ):
                if not box["chips"][0] <= dp * model_parallel <= box["chips"][1]:
                    continue
                if tp * context * dp % round(apart.get("ep", float(plan.ep))):
                    continue  # replicas hold whole sets of experts
                for domain in _domains(target["scale_up_domain"], box["scale_up_domain"], tp):
                    values = (dp * model_parallel, domain, tp, pp, chunks, micro_batch, batch)
                    fullest, last = stage_layers(layers, pp, chunks)
                    stages = {"fullest_stage": fullest, "last_stage": last}
                    found[values] = apart | dict(zip(_WHOLE, values, strict=True)) | stages
    return list(found.values())


def _apart(problem: Problem, relaxed: Mapping[str, float]) -> dict[str, float]:
    """Whole variables that no plan is built from, rounded to where limits that the relaxed design holds still hold.

    Down: chips in a rack, the model's shape (power, weight, memory). Up: HBM stacks and dies (memory, reticle).
    """
    others = [each for each in problem.variables if each.whole and each.name not in _WHOLE]

    def rounded(each: Variable) -> float:
        steps = relaxed[each.name] / each.step
        whole = math.ceil(steps * (1 - 1e-4)) if each.name in _ROUNDED_UP else math.floor(steps * (1 + 1e-9))
        least, most = math.ceil(each.lower / each.step), math.floor(each.upper / each.step)
        return min(max(whole, least), most) * each.step

    found = {each.name: rounded(each) for each in others}
    if "ep" in found:
        experts = round(float(problem.template.workload.model.experts))
        found["ep"] = float(nearest(divisors(experts), relaxed["ep"], 1)[0])
    return found


def _replicas(wanted: float, micro_batch: int, fewest: int, batch: tuple[float, float]) -> set[tuple[int, int]]:
    """(replicas, global batch) near the wanted replicas, with at least `fewest` micro-batches and the batch in its box."""
    lower, upper = batch
    count = (lower * upper) ** 0.5 / (micro_batch * max(wanted, 1.0))
    found = set()
    for micro_batches in {max(fewest, math.floor(count)), max(fewest, math.ceil(count))}:
        sequences = micro_batch * micro_batches  # of one replica
        least, most = max(1, math.ceil(lower / sequences)), math.floor(upper / sequences)
        steps = range(_REPLICA_STEPS + 1)
        for dp in {round(least + (most - least) * step / _REPLICA_STEPS) for step in steps} if least <= most else ():
            found.add((dp, dp * sequences))
    return found


def _domains(wanted: float, box: tuple[float, float], tp: int) -> list[int]:
    """Domains next to the wanted one that hold whole tensor-parallel groups; a fixed domain is itself."""
    lower, upper = box
    if upper / lower < 1 + 1e-6:
        return [round(wanted)]
    groups = wanted / tp
    around = {max(1, math.floor(groups + 1e-6)), max(1, math.ceil(groups - 1e-6))}
    return [tp * count for count in sorted(around) if lower <= tp * count <= upper] or [math.ceil(lower / tp) * tp]
