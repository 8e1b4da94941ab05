"""Common parts of all questions about serving: the requests, their limits, the default search space."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from hwopt import catalog
from hwopt.catalog.load import leaf
from hwopt.design.design import Design, kinds_of_chips
from hwopt.design.metrics import metric
from hwopt.design.problem import Problem
from hwopt.design.provenance import DECODE
from hwopt.design.serving_layouts import LAYOUTS, with_layouts
from hwopt.design.variables import KNOWN, Variable, of_kind, variable
from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import ClusterPair
from hwopt.plan import Disaggregated, Plan, ServingLayout
from hwopt.units import separated
from hwopt.workload.service import Service
from hwopt.workload.transformer import cache_copies, tensor_degrees
from objectives.machine import BUDGETS, CHOICES, NO_LIMIT, MachineQuestion, meanings

_BUDGETS = {
    "ttft_budget_s": "time_to_first_token_s",
    "tpot_budget_s": "time_per_output_token_s",
    "request_budget_s": "request_time_s",
    "ttft_p95_limit_s": "time_to_first_token_p95_s",
    "ttft_p99_limit_s": "time_to_first_token_p99_s",
    "tpot_p95_limit_s": "time_per_output_token_p95_s",
    "tpot_p99_limit_s": "time_per_output_token_p99_s",
    "token_cost_budget_usd": "cost_per_token_usd",
    "token_energy_budget_j": "energy_per_token_j",
    **BUDGETS,
}
"""Field of a question -> the metric it limits."""

_CHOICES = CHOICES | {
    "stack": "software, else what usually serves on the chip",
    "input_tokens": "of the mean prompt",
    "output_tokens": "of the mean answer",
    "precision": "of the layers' GEMMs",
    "weights": "format of stored weights, else that of the GEMMs",
    "kv": "format of keys and values, else 8 bit beside narrow GEMMs",
    "cached_fraction": "share of prompt tokens whose keys and values are in the prefix cache",
    "decode_chip": "that generates answers, as sold, where it is another than chip, which then takes prompts",
    "split": "colocated: prompts beside answers; disaggregated: prompts on chips of their own",
    "load": "share of the time of chips for prompts alone that arrivals fill",
    "layouts": "what plans have besides: redundant_experts, two_batches, cache_split, joined by +, or none",
    "drafted_tokens": "tokens drafted a step by a draft model, 0: none",
    "acceptance": "probability that a drafted token is accepted",
    "requests_per_s": "arriving requests, over which the machine's cost is spread; 0: as many as it can answer",
    "arrival_scv": "variance of the times between requests over their squared mean, 1: Poisson, above: bursts",
    "input_scv": "the same of prompts' tokens",
    "output_scv": "the same of answers' tokens",
    "routing": "of requests to replicas: random or least-loaded",
    "peak_over_mean": "requests of the busiest hour over the day's mean; percentiles are of that hour",
    "day_curve": "a file of the requests of each hour, whose busiest says peak_over_mean: 24 rows of hour,requests (.csv, .toml)",
    "capacity_in_use": "largest share of the machine's capacity that mean arrivals may take, 1: no headroom",
}

_COLOCATED = ("tp", "pp", "batch", "fullest_stage", "last_stage", "replicas")
_DISAGGREGATED = (
    "prefill_tp", "prefill_pp", "prefill_batch", "prefill_fullest_stage", "prefill_last_stage", "prefill_replicas",
)  # fmt: skip
_SPLITS = {"colocated": False, "disaggregated": True, "together": False, "apart": True}
"""How phases share chips -> whether prefill has separate chips. The last two are deprecated synonyms of the first two."""


@dataclass(frozen=True)
class ServingQuestion(MachineQuestion):
    """Fields and default search space of a question about one service. An infinite budget means no limit."""

    workload: str = "llama3.1-70b"
    decode_chip: str = ""
    stack: str = ""
    precision: str = "fp8"
    weights: str = ""
    kv: str = ""
    input_tokens: float = 2048.0
    output_tokens: float = 512.0
    cached_fraction: float = 0.0
    split: str = "colocated"
    load: float = 0.7
    layouts: str = "none"
    drafted_tokens: float = 0.0
    acceptance: float = 0.8
    requests_per_s: float = 0.0
    arrival_scv: float = 1.0
    input_scv: float = 1.0
    output_scv: float = 1.0
    routing: str = "random"
    peak_over_mean: float = 1.0
    capacity_in_use: float = 1.0
    day_curve: str = ""
    ttft_budget_s: float = NO_LIMIT
    tpot_budget_s: float = NO_LIMIT
    request_budget_s: float = NO_LIMIT
    ttft_p95_limit_s: float = NO_LIMIT
    ttft_p99_limit_s: float = NO_LIMIT
    tpot_p95_limit_s: float = NO_LIMIT
    tpot_p99_limit_s: float = NO_LIMIT
    token_cost_budget_usd: float = NO_LIMIT
    token_energy_budget_j: float = NO_LIMIT

    limited: ClassVar[Mapping[str, str]] = _BUDGETS
    meanings: ClassVar[Mapping[str, str]] = meanings(_CHOICES, _BUDGETS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split not in _SPLITS:
            raise UserError(f"split = {self.split!r}: write colocated or disaggregated")
        for name in self._layouts:
            if name not in LAYOUTS:
                raise UserError(f"layouts = {self.layouts!r}: {suggest(name, ('none', *LAYOUTS))}")
        if self.requests_per_s < 0.0:
            raise UserError(f"requests_per_s = {self.requests_per_s:g} must not be negative")

    @property
    def _kinds(self) -> "dict[str, ServingQuestion]":
        """Return the question for each group of chips, by the prefix of its variables. A single type of chip has one
        group, without prefix.

        **Raises:** `UserError` for settings that do not support two types of chips.
        """
        if not self.decode_chip:
            return {"": self}
        where, slug = f"decode_chip = {self.decode_chip}:", lambda chip: catalog.record("chips", chip).slug
        if not _SPLITS[self.split]:
            raise UserError(f"{where} its chips generate answers beside others for prompts: split = disaggregated")
        if slug(self.decode_chip) == slug(self.chip):
            return {"": self}
        for name, none in (("design", ""), ("technology", ""), ("memory", ""), ("free", "none")):
            if getattr(self, name) != none:
                raise UserError(f"{where} two kinds of chips are asked as they are sold: leave out {name}")
        if self.sites != 1.0:
            raise UserError(
                f"{where} two groups of chips that hand over keys and values stand at one site: leave out sites"
            )
        return {"": replace(self, chip=self.decode_chip, decode_chip=""), "prefill_": replace(self, decode_chip="")}

    def problem(self) -> Problem:
        """Return the optimization problem over whole units of hardware.

        A problem with a single type of chip has a relaxation over continuous hardware.
        """
        return super().problem() if len(self._kinds) == 1 else self._stated(continuous=False)

    @property
    def chips_of_groups(self) -> tuple[str, ...]:
        """Return the names of the chips: one, or that of prefill and that of decode."""
        return (self.chip,) if len(self._kinds) == 1 else (self.chip, self.decode_chip)

    @property
    def _sold(self) -> str:
        return self.chip if len(self._kinds) == 1 else f"{self.chip} for prompts and {self.decode_chip} for answers"

    @property
    def _handed_over(self) -> str:
        """Describe the assumption that different prefill and decode software can exchange keys and values; empty for the
        same software.
        """
        software = [
            re.sub(r"-\d{4}$", "", each._software) for each in self._kinds.values()
        ]  # without the year of its release
        if len(set(software)) == 1:
            return ""
        return f"; that {software[1]} hands keys and values to {software[0]} is an assumption (stack)"

    def _records(self) -> dict[str, catalog.Record]:
        own, kinds = super()._records(), self._kinds
        if len(kinds) == 1:
            return own
        other = kinds[""]._records()
        return own | {f"{DECODE}{role}": each for role, each in other.items() if each.slug != own[role].slug}

    @property
    def _layouts(self) -> list[str]:
        return [] if self.layouts == "none" else separated("layouts", self.layouts, "+")

    def _names(self, experts: float, group: str) -> set[str]:
        """Return the layouts that apply to a group of chips."""
        names = {*self._layouts} - ({"cache_split"} if group else set())
        return names - (set() if experts > 1 else {"redundant_experts", "two_batches"})

    def _laid_out(self, plan: Plan, experts: float, group: str = "") -> Plan:
        """Return a plan of one chip with its layout, if any layout of the question applies to this group of chips."""
        if not (names := self._names(experts, group)):
            return plan
        values = {"expert_slots": max(experts, 1.0), "two_batches": float("two_batches" in names), "cache_split": 1.0}
        return replace(plan, layout=ServingLayout(**{name: leaf(value) for name, value in values.items()}))

    @property
    def _software(self) -> str:
        return self.stack or catalog.serving_stack(self.chip)

    def _service(self) -> Service:
        stated = self._fields("input_tokens", "output_tokens", "precision", "cached_fraction", "requests_per_s")
        stated |= self._fields(
            "load", "drafted_tokens", "acceptance", "arrival_scv", "input_scv", "output_scv", "routing"
        )
        stated |= self._fields("peak_over_mean", "capacity_in_use", "day_curve")
        return catalog.service(self.workload, weights=self.weights or None, kv=self.kv or None, **stated)

    def _variables(self, template: Design, continuous: bool) -> tuple[Variable, ...]:
        own, service, kinds = _SPLITS[self.split], template.workload, kinds_of_chips(template)
        names = (*_COLOCATED, *(_DISAGGREGATED if own else ()))
        experts = float(service.model.experts)
        degrees = ("ep", "prefill_ep")[: 1 + own] if experts > 1 else ()
        hardware = (
            self._hardware(template, continuous)
            if len(kinds) == 1
            else tuple(
                of_kind(each, group)
                for group, question in self._kinds.items()
                for each in question._hardware(kinds[group], continuous)
            )
        )
        more = []
        most = experts
        if self._layouts and experts > 1:
            most *= 2.0 if "redundant_experts" in self._layouts else 1.0
            slots = [f"{name}expert_slots" for name in ("", "prefill_")[: 1 + own] if self._names(experts, name)]
            more += [variable(name, 1.0, experts) for name in slots]
        if "cache_split" in self._layouts:
            copies = max(cache_copies(service.model, each) for each in tensor_degrees(service.model))
            more.append(variable("cache_split", 1.0, min(64.0, max(copies, 1))))
        return (*hardware, *(KNOWN[name] for name in names), *(variable(name, 1.0, most) for name in degrees), *more)

    def _stated(self, continuous: bool) -> Problem:
        service, kinds = self._service(), self._kinds
        each_own = [each._budgets() for each in kinds.values()]  # refuses quantities that one chip does not state
        budgets = each_own[0] if len(kinds) == 1 else replace(self, export_rule="", export_case="")._budgets()
        clusters = [with_layouts(each._machine(continuous), self._layouts) for each in kinds.values()]
        cluster = clusters[0] if len(clusters) == 1 else ClusterPair(decode=clusters[0], prefill=clusters[1])
        one, experts = catalog.serving_plan(service, 1), float(service.model.experts)
        plan: Plan | Disaggregated = self._laid_out(one, experts)
        if _SPLITS[self.split]:
            plan = Disaggregated(self._laid_out(one, experts, "prefill_"), plan)
        template = Design(service, cluster, plan, self._project())
        answers = f"{self.input_tokens:,.0f} tokens in, {self.output_tokens:,.0f} out"
        rate = f", {self.requests_per_s:g} requests a second" if self.requests_per_s else ""
        return Problem(
            name=self.name,
            question=f"{self.aim}: {catalog.named(self.workload)} in {self.precision}, {answers}{rate}, "
            f"{self._within(budgets, continuous)}" + self._handed_over,
            objective=metric(self.minimised),
            variables=self._variables(template, continuous),
            budgets=budgets,
            template=template,
            provenance=self._provenance(),
        )
