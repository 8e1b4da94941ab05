"""Common parts of all questions about serving: the requests, their limits, the default search space."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from hwopt import catalog
from hwopt.catalog.load import leaf
from hwopt.design.design import Design, kinds_of_chips
from hwopt.design.metrics import metric
from hwopt.design.problem import Problem
from hwopt.design.provenance import DECODE
from hwopt.design.serving_layouts import LAYOUTS, with_layouts
from hwopt.design.stated_plan import with_plan
from hwopt.design.variables import KNOWN, Variable, of_kind, variable
from hwopt.errors import UserError, suggest
from hwopt.hardware.cluster import ClusterPair
from hwopt.model.serving.tails import FIRST
from hwopt.plan import Disaggregated, Plan, ServingLayout
from hwopt.units import separated
from hwopt.workload.service import Service
from hwopt.workload.transformer import cache_copies, tensor_degrees
from objectives.fields import BUDGETS, CHOICES, NO_LIMIT, meanings
from objectives.machine import OPENED, MachineQuestion

_BUDGETS = {
    "ttft_budget_s": "time_to_first_token_full_batch_s",
    "tpot_budget_s": "time_per_output_token_full_batch_s",
    "request_budget_s": "request_time_full_batch_s",
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
    "stack": "software stack of the catalog, as listed by hwopt catalog stacks; default the chip's usual serving software",
    "input_tokens": "mean number of tokens in a prompt",
    "output_tokens": "mean number of tokens in an answer",
    "precision": "number format of the matrix multiplications: bf16, fp16, fp8, fp4, int8, tf32 or fp32; default that of the "
    "published checkpoint, fp8 if it is in 16 bits",
    "weights": "number format of stored weights; default that of --precision, else the published checkpoint's",
    "kv": "number format of the KV cache; default the published checkpoint's, else 8 bits if --precision is below 16 bits, else "
    "that of --precision",
    "cached_fraction": "fraction of prompt tokens that is found in the prefix cache",
    "decode_chip": "stock chip of the decode group, if it differs from --chip, which then does prefill; default the same chip",
    "split": "colocated (prefill and decode on the same chips) or disaggregated (a group of chips for each)",
    "load": "utilization of the prefill chips in disaggregated serving",
    "layouts": "further layouts that the search may use, joined by +: redundant_experts, two_batches, cache_split; or none",
    "drafted_tokens": "tokens per step that a draft model proposes (speculative decoding); 0 disables it",
    "ttft_percentile": "percentile of TTFT in the busiest hour that --ttft-budget-s limits: 50, 95 or 99; or mean, that of a "
    "full batch without waiting; default 95 where requests_per_s is positive, else mean, and over continuous hardware mean",
    "acceptance": "probability that a drafted token is accepted",
    "requests_per_s": "arrival rate of requests, which share the machine's cost; 0 is the machine's capacity",
    "arrival_scv": "squared coefficient of variation of inter-arrival times: 1 is a Poisson process, more is bursty",
    "input_scv": "squared coefficient of variation of prompt lengths",
    "output_scv": "squared coefficient of variation of answer lengths",
    "routing": "assignment of requests to replicas: random or least-loaded",
    "peak_over_mean": "requests in the busiest hour, relative to the mean hour; latency percentiles refer to the busiest hour",
    "day_curve": "file of requests by hour (24 rows of hour,requests, .csv or .toml), from which peak_over_mean is computed; "
    "default none",
    "capacity_in_use": "maximum share of the machine's capacity that mean arrivals may use; less than 1 leaves headroom",
}

MEAN, PERCENTS, USUAL_PERCENT = "mean", ("50", "95", "99"), "95"
"""Values of `ttft_percentile`, and its default where requests arrive at a stated rate."""

_USUAL_PRECISION = "fp8"
"""Format of the GEMMs, unless stated, of a checkpoint in 16 bit."""

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
    precision: str = ""
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
    ttft_percentile: str = ""
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
        if self.ttft_percentile not in ("", MEAN, *PERCENTS):
            raise UserError(
                f"ttft_percentile = {self.ttft_percentile!r}: {suggest(self.ttft_percentile, (*PERCENTS, MEAN))}"
            )
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
            raise UserError(f"{where} a second type of chip needs split = disaggregated")
        if slug(self.decode_chip) == slug(self.chip):
            return {"": self}
        for name in ("design", "technology", "memory", "free"):
            if self._freed - OPENED if name == "free" else getattr(self, name):
                raise UserError(f"{where} with two types of chips, both are stock chips: remove {name}")
        if self.sites != 1.0:
            raise UserError(f"{where} prefill and decode chips exchange KV caches within one site: remove sites")
        return {
            "": replace(self, chip=self.decode_chip, decode_chip="", slice=""),
            "prefill_": replace(self, decode_chip=""),
        }

    def _limited_metric(self, field: str) -> str:
        if field != "ttft_budget_s":
            return super()._limited_metric(field)
        level = self.ttft_percentile or (USUAL_PERCENT if self.requests_per_s > 0.0 else MEAN)
        return super()._limited_metric(field) if level == MEAN else FIRST.format(f"p{level}")

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
        return self.chip if len(self._kinds) == 1 else f"{self.chip} for prefill and {self.decode_chip} for decode"

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
        return self.stack or catalog.serving_stack(self.chip, self.date)

    @cached_property
    def _stored(self) -> catalog.Formats | None:
        """Return the formats of the published checkpoint; None where they are stated otherwise, or in 16 bit."""
        return None if self.precision else catalog.stored_formats(self.workload, self.chips_of_groups)

    @property
    def computed(self) -> str:
        return self.precision or (self._stored.precision if self._stored else _USUAL_PRECISION)

    def _service(self) -> Service:
        stated = self._fields("input_tokens", "output_tokens", "cached_fraction", "requests_per_s")
        stated |= {"precision": None if self._stored else self.computed, "chips": self.chips_of_groups}
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
        if (
            continuous and not self.ttft_percentile
        ):  # continuous hardware cannot be divided until a percentile is proved
            return replace(self, ttft_percentile=MEAN)._stated(continuous)
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
        problem = Problem(
            name=self.name,
            question=f"{self.aim}: {catalog.named(self.workload)} in {self.computed}, {answers}{rate}, "
            f"{self._within(budgets, continuous)}"
            + self._handed_over
            + (f"; {self._stored.words}" if self._stored else ""),
            objective=metric(self.minimised),
            variables=self._variables(template, continuous),
            budgets=budgets,
            template=template,
            provenance=self._provenance(),
        )
        if self.chips and plan.disaggregated:
            raise UserError(f"chips = {self.chips:g}: two groups of chips share no total here; bound replicas instead")
        return with_plan(problem, self.chips, catalog.parse_serving_plan(self.plan) if self.plan else {})
