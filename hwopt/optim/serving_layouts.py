"""Layouts of plans that serve which few software stacks have: their integers, and what these make of a plan."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hwopt.design.plan_lattice import named, plan_relations, serving_sizes
from hwopt.design.serving_layouts import LAYOUTS
from hwopt.design.variables import count_of
from hwopt.integers.enumeration import divisors
from hwopt.integers.relations import Relation, When, at_least, at_most
from hwopt.plan import Disaggregated, ServingLayout
from hwopt.stack import Stack
from hwopt.workload.service import Service
from hwopt.workload.transformer import cache_copies, tensor_degrees

_MOST_COPIES = 2.0
"""Chips that share a set of experts, over the experts (the search's own limit: beyond, whole sets again)."""


def layout_integers(service: Service, stack: Stack, chips: int) -> tuple[dict[str, range], list[Relation]]:
    """Values of the integers of the layouts that a stack has, where they can matter, and their relations.

    `slots`: 1 where ranks hold as few copies as it takes to fill all of them, 2 with one more each; `halves` of a batch;
    `cache_split` divides the ranks that would hold the same keys and values: `t`, or `t / k`.
    """
    has = {name: float(getattr(stack, name)) > 0.0 for name in LAYOUTS}
    model = service.model
    experts = count_of(model.experts)
    values: dict[str, range] = {}
    relations: list[Relation] = []
    if has["redundant_experts"] and experts and chips > 1:
        values["slots"] = range(1, 3)
        relations += [at_most(("slots",), 1.0, over=("ep",)), When("slots", 2, at_most(("ep",), float(experts)))]
    if has["two_batches"] and experts and chips > 1:
        values["halves"] = range(1, 3)
        relations += [When("halves", 2, at_least((name,), 2.0)) for name in ("ep", "batch")]
    most = max(cache_copies(model, each) for each in tensor_degrees(model) if chips % each == 0)
    if has["cache_split"] and float(service.decodes) and most > 1:
        values["cache_split"] = range(1, most + 1)
        relations += plan_relations(serving_sizes(service, stack, named("tp", "cache_split")), "cache_split")
    return values, relations


def spread_degrees(experts: int, chips: int, redundant: bool) -> list[int]:
    """Expert parallel degrees: divisors of the experts, or with redundant ones of the chips."""
    if redundant:
        return [each for each in divisors(chips) if each <= _MOST_COPIES * experts]
    return divisors(max(experts, 1))


def laid_out(rows: Mapping[str, np.ndarray], experts: int) -> dict[str, Any]:
    """The layout of plans by the columns of their integers; nothing where there are none."""
    if not {"slots", "halves", "cache_split"} & rows.keys():
        return {}
    ones = np.ones(len(rows["tp"]))
    column = lambda name: np.asarray(rows.get(name, ones), np.float64)
    ep = column("ep")
    slots = np.ceil(experts / ep) + column("slots") - 1.0 if "slots" in rows else experts / ep
    leaves: dict[str, Any] = {
        "expert_slots": slots,
        "two_batches": column("halves") - 1.0,
        "cache_split": column("cache_split"),
    }
    return {"layout": ServingLayout(**leaves)}


def without_plain(plan: Any, experts: float) -> Any:
    """A plan of one group or two, without a layout that says nothing: each expert once, whole batches, keys and values whole."""
    if isinstance(plan, Disaggregated):
        return Disaggregated(*(without_plain(each, experts) for each in (plan.prefill, plan.decode)))
    layout = plan.layout
    if layout is None or float(layout.two_batches) or float(layout.cache_split) != 1.0:
        return plan
    spread = experts > 0.0 and round(float(layout.expert_slots) * float(plan.ep)) != round(experts)
    return plan if spread else replace(plan, layout=None)


def layout_words(names: Collection[str]) -> list[str]:
    """What the layouts of a search are, in words; redundant experts stand beside their degrees."""
    words = {
        "halves": "batches whole or in two halves",
        "cache_split": "keys and values of a head on one rank, or by token on the ranks that share it",
    }
    return [each for name, each in words.items() if name in names]
