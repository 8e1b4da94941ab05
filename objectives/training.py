"""What all questions about training share: the run, the machine it starts from, the budgets an architect may name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import numpy as np

from hwopt import catalog
from hwopt.design.metrics import metric
from hwopt.design.problem import Budget, Problem
from hwopt.design.variables import KNOWN, Design, Variable, variable
from hwopt.errors import UserError, suggest
from hwopt.hardware.chip_project import ChipProject
from hwopt.units import pretty

BATCH_ROOM = 0.05
"""How far the global batch may move from the one asked for, so that it divides among the replicas (assumption: the
critical batch is known no better than that)."""

SOCKET_LIMIT_W = 3000.0
"""What a socket can feed a chip at design time (assumption, 2,000 to 5,000: 2,300 W is announced for Rubin). A datasheet's
power cap is a choice that a design is free to make again."""

NO_LIMIT = math.inf

_COUNTED_CHIPS = 16384
"""Chips that a fabric's switches and cables are counted for: its price a chip is that of so many, whatever the design."""

OFFLOADS = ("optimizer", "activations", "weights")

_BUDGETS = {
    "time_budget_s": "run_time_s",
    "cost_budget_usd": "run_cost_usd",
    "capex_budget_usd": "capex_usd",
    "power_budget_w": "peak_power_w",
    "energy_budget_j": "run_energy_j",
    "carbon_budget_kg": "run_carbon_kg",
    "site_power_budget_w": "site_power_w",
    "rack_power_budget_w": "rack_power_w",
    "chip_power_budget_w": "chip_power_w",
    "junction_budget_k": "junction_temperature_k",
    "die_area_budget_m2": "silicon_area_m2",
    "hbm_stacks_budget": "hbm_stacks",
    "package_area_budget_m2": "package_area_m2",
    "wafers_budget": "wafers",
    "loss_budget": "loss",
}
"""Field of a question -> the metric it limits."""

_STATED = {"hbm_stacks_budget": "memory_stacks", "package_area_budget_m2": "package_area", "wafers_budget": "wafers"}
"""Budget -> what a chip's file must state for it. A file may leave these out, and a stated 0 means that there is none."""

_CHOICES = {
    "chip": "its servers, links and software",
    "design": "a public design from which the chip is drawn anew: areas, stacks, dies, clock",
    "technology": "process that the design is ported to",
    "memory": "HBM generation that the design is ported to",
    "fabric": "topology outside the domain, counted out for 16,384 chips, else the chip's own links",
    "pool": "memory beyond HBM, else what the chip's servers have",
    "offload": "what waits there: none, or optimizer, activations, weights, with + between",
    "sites": "places that share the chips equally",
    "lines": "what joins them, else continental",
    "local_steps": "steps between their exchanges; 1 is synchronous",
    "cooling": "cooling technology, else what the chip's servers are built for",
    "reliability": "how often a fleet fails",
    "constants": "calibrated to published runs, literature, speed-of-light, or a .toml of `hwopt calibrate`",
    "law": "how loss follows from parameters, tokens and batch",
    "tokens": "of the whole run, where no loss is asked for",
    "global_batch": "sequences a step, where no loss is asked for",
}

_COLDEST_JUNCTION_K = 273.15  # freezing water; less is a temperature in degC

_PLAN = ("tp", "pp", "virtual_stages", "micro_batch", "fullest_stage", "last_stage")
_NETWORK = ("scale_up_domain", "scale_up_bandwidth_bytes_per_s", "scale_out_bandwidth_bytes_per_s")
_POOL = ("pool_capacity_bytes", "pool_bandwidth_bytes_per_s")
_CATALOGUE_CHIP = ("hbm_bandwidth_bytes_per_s", "hbm_capacity_bytes", "clock_ratio")
_DESIGNED_CHIP = ("compute_area_m2", "sram_bytes", "hbm_stacks", "dies", "enabled_fraction", "clock_hz")


@dataclass(frozen=True)
class TrainingQuestion:
    """Fields and default space of a question about one training run. Budgets at infinity are not asked for."""

    workload: str = "llama3.1-405b"
    chip: str = "h100-sxm"
    design: str = ""  # a public design from which the chip itself is drawn anew; none: the chip as it is sold
    technology: str = ""  # that the design is ported to
    memory: str = ""  # likewise
    stack: str = "nemo-2024"
    site: str = "us-average"
    fabric: str = ""
    pool: str = ""
    offload: str = "none"
    sites: float = 1.0
    lines: str = ""
    local_steps: float = 1.0
    cooling: str = ""
    reliability: str = "fleet-mean"
    prices: str = "default"
    constants: str = "calibrated"
    law: str = "chinchilla-epoch"
    precision: str = "bf16"
    recompute: str = "none"
    tokens: float = 15.6e12
    global_batch: float = 2048.0
    sequence_length: float = 8192.0
    time_budget_s: float = NO_LIMIT
    cost_budget_usd: float = NO_LIMIT
    capex_budget_usd: float = NO_LIMIT
    power_budget_w: float = NO_LIMIT
    energy_budget_j: float = NO_LIMIT
    carbon_budget_kg: float = NO_LIMIT
    site_power_budget_w: float = NO_LIMIT
    rack_power_budget_w: float = NO_LIMIT
    chip_power_budget_w: float = NO_LIMIT
    junction_budget_k: float = NO_LIMIT
    die_area_budget_m2: float = NO_LIMIT
    hbm_stacks_budget: float = NO_LIMIT
    package_area_budget_m2: float = NO_LIMIT
    wafers_budget: float = NO_LIMIT
    loss_budget: float = NO_LIMIT

    name: ClassVar[str] = ""
    minimised: ClassVar[str] = ""
    aim: ClassVar[str] = ""
    shape_is_free: ClassVar[bool] = False  # width and depth of the model are variables too
    meanings: ClassVar[Mapping[str, str]] = _CHOICES | {
        field: f"at most, {metric(name).meaning} ({metric(name).unit})" for field, name in _BUDGETS.items()
    }

    def __post_init__(self) -> None:
        if self.junction_budget_k < _COLDEST_JUNCTION_K:
            raise UserError(
                f"junction_budget_k = {self.junction_budget_k:g} K is colder than any climate: it is in kelvin, 85 degC is 358"
            )

    def _offloaded(self) -> dict[str, float]:
        """Shares of the plan that lie in the memory pool."""
        parts = [] if self.offload == "none" else [part.strip() for part in self.offload.split("+")]
        for part in parts:
            if part not in OFFLOADS:
                raise UserError(
                    f"offload = {self.offload!r}: {suggest(part, ('none', *OFFLOADS))}; several with + between"
                )
        return {f"{part}_offloaded": 1.0 for part in parts}

    def _local_steps(self) -> np.ndarray:
        """Steps between exchanges, a whole number; more than one only where there are exchanges."""
        steps = self.local_steps
        if steps < 1.0 or steps != round(steps) or (steps > 1.0 and self.sites == 1.0):
            raise UserError(
                f"local_steps = {steps:g} must be a whole number, and more than 1 only between 2 sites or more"
            )
        return np.asarray(steps, np.float64)

    def _workload_variables(self) -> tuple[Variable, ...]:
        """The batch next to the one asked for; where loss counts, tokens and the batch's size are free."""
        if self.minimised != "loss" and self.loss_budget == NO_LIMIT:
            low, high = (1 - BATCH_ROOM) * self.global_batch, (1 + BATCH_ROOM) * self.global_batch
            return (variable("global_batch_sequences", low, high),)
        shape = (KNOWN["hidden"], KNOWN["layers"]) if self.shape_is_free else ()
        return (variable("global_batch_sequences", 64.0, 65536.0), KNOWN["tokens"], *shape)

    def problem(self) -> Problem:
        """The question in mathematics, with numbers from the catalogue."""
        run = catalog.training_run(
            self.workload,
            sequence_length=self.sequence_length,
            global_batch=self.global_batch,
            precision=self.precision,
            tokens=self.tokens,
            law=self.law,
        )
        catalog.check_precision(self.chip, self.precision)
        cluster = catalog.cluster(
            self.chip,
            _COUNTED_CHIPS,
            stack=self.stack,
            site=self.site,
            fabric=self.fabric or None,
            pool=self.pool or None,
            sites=self.sites,
            lines=self.lines or None,
            cooling=self.cooling or None,
            reliability=self.reliability,
            prices=self.prices,
            constants=self.constants,
        )
        cluster = eqx.tree_at(lambda c: c.chip.power_cap_w, cluster, np.float64(SOCKET_LIMIT_W))
        plan = catalog.plan(run, 1, recompute=self.recompute, sequence_parallel="yes", **self._offloaded())
        plan = eqx.tree_at(lambda p: p.local_steps, plan, self._local_steps())
        project = self._project()
        # A pool in the price of the hosts is what it is; one that is paid for is sized.
        pooled = _POOL if self._offloaded() and float(cluster.pool.usd_per_byte) > 0.0 else ()
        names = (
            "chips", *(_DESIGNED_CHIP if project else _CATALOGUE_CHIP), *_NETWORK, *pooled, "chips_per_rack", *_PLAN
        )  # fmt: skip
        experts = float(run.model.experts)
        degrees = (variable("ep", 1.0, experts),) if experts > 1 else ()
        budgets = {field: getattr(self, field) for field in _BUDGETS if getattr(self, field) != NO_LIMIT}
        if not project:
            self._check_stated(budgets)
        return Problem(
            name=self.name,
            question=self._question(budgets),
            objective=metric(self.minimised),
            variables=(*(KNOWN[name] for name in names), *degrees, *self._workload_variables()),
            budgets=tuple(Budget(field, metric(_BUDGETS[field]), limit) for field, limit in budgets.items()),
            template=Design(run, cluster, plan, project),
            sources=tuple(self._sources()),
        )

    def _check_stated(self, budgets: Mapping[str, float]) -> None:
        """Refuses a budget on what is not known of the chip: it would hold whatever the design."""
        chip = catalog.record("chips", self.chip)
        for field in budgets:
            if field in _STATED and _STATED[field] not in chip.quantities:
                raise UserError(
                    f"{field}: chip '{chip.slug}' does not state '{_STATED[field]}': add it to the chip's file (0 if it has "
                    "none), or leave the budget out"
                )

    def _project(self) -> ChipProject | None:
        """The chip in the making, if the question asks for one."""
        if not self.design:
            if self.technology or self.memory:
                raise UserError(
                    "technology and memory say what a design is ported to: name the design too, such as h100-sxm"
                )
            return None
        project = catalog.chip_project(
            self.design, technology=self.technology or None, memory=self.memory or None, prices=self.prices
        )
        return eqx.tree_at(lambda p: p.design.power_cap_w, project, np.float64(SOCKET_LIMIT_W))

    def _question(self, budgets: dict[str, float]) -> str:
        """The question as a sentence."""
        asked = (
            f"{self.tokens:.3g} tokens"
            if KNOWN["tokens"] not in self._workload_variables()
            else "as many tokens as it takes"
        )
        model = f"a model in the proportions of {self.workload}" if self.shape_is_free else self.workload
        limits = (f"{field} {pretty(limit, metric(_BUDGETS[field]).unit)}" for field, limit in budgets.items())
        ported = " and ".join(str(each) for each in (self.technology, self.memory) if each)
        drawn = f"a chip drawn from {self.design}" + (f" on {ported}" if ported else "")
        chips = drawn if self.design else f"{self.chip}-class chips"
        return f"{self.aim}: {model}, {asked}, {chips}; within {', '.join(limits) or 'no budget'}"

    def _sources(self) -> list[str]:
        """Citations of every entry behind the template, and what its constants were fitted to."""
        held = catalog.calibration(self.constants)
        fitted = [f"Calibration: {held.title}"] if held is not None and held.runs else []
        return [*fitted, *self._citations()]

    def _network_records(self) -> list[catalog.Record]:
        """The entries behind what lies outside the domain."""
        if not self.fabric:
            return [catalog.record("links", str(catalog.record("chips", self.chip).text["scale_out"]))]
        fabric = catalog.record("fabrics", self.fabric)
        return [fabric, catalog.record("links", str(fabric.text["link"]))]

    def _citations(self) -> list[str]:
        chip = catalog.record("chips", self.chip)
        return catalog.sources_of(
            catalog.record("workloads", self.workload),
            chip,
            catalog.record("links", str(chip.text["scale_up"])),
            *self._network_records(),
            catalog.record("pools", self.pool or str(chip.text.get("pool", "none"))),
            catalog.record("storages", "shared-flash"),
            *([catalog.record("lines", self.lines or catalog.USUAL_LINES)] if self.sites > 1 else []),
            catalog.record("stacks", self.stack),
            catalog.record("sites", self.site),
            catalog.record("cooling", self.cooling or catalog.default_cooling(self.chip, self.site)),
            catalog.record("racks", "orv3"),
            catalog.record("reliability", self.reliability),
            catalog.record("laws", self.law),
            catalog.record("prices", self.prices),
            *(
                catalog.project_records(self.design, self.technology or None, self.memory or None)
                if self.design
                else ()
            ),
        )
