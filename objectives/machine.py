"""Common parts of all questions about a machine: chips, their surroundings, and the available budgets."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import numpy as np

from hwopt import catalog
from hwopt.design.design import Design
from hwopt.design.metrics import metric
from hwopt.design.problem import Budget, Problem
from hwopt.design.provenance import Provenance
from hwopt.design.variables import KNOWN, Variable
from hwopt.errors import UserError, suggest
from hwopt.hardware.chip import Chip
from hwopt.hardware.chip_project import ChipProject
from hwopt.hardware.cluster import Cluster
from hwopt.units import pretty, separated
from hwopt.validation import number_of
from objectives import export_rules as export

SOCKET_LIMIT_W = 3000.0
"""Maximum power of a chip's socket at design time (assumption, 2,000 to 5,000: 2,300 W is announced for Rubin). A
datasheet's power cap is not a limit, because a new design may choose another."""

NO_LIMIT = math.inf

NOT_LIMITED = "not a budget of this question"
"""Help text of budgets that only other questions about a machine have."""

_COUNTED_CHIPS = 16384
"""Number of chips for which a fabric is priced. Its price per chip is that of a fabric of this size, for every design."""

_STATED = {
    "hbm_stacks_budget": "memory_stacks",
    "package_area_budget_m2": "package_area",
    "wafers_budget": "wafers",
    "io_rate_budget_bytes_per_s": "host_bandwidth",
}
"""Budget -> the key that a chip's file must state for it. A file may omit the key; a stated 0 means that the chip has
none."""

BUDGETS = {
    "capex_budget_usd": "capex_usd",
    "power_budget_w": "peak_power_w",
    "site_power_budget_w": "site_power_w",
    "rack_power_budget_w": "rack_power_w",
    "chip_power_budget_w": "chip_power_w",
    "junction_budget_k": "junction_temperature_k",
    "die_area_budget_m2": "silicon_area_m2",
    "hbm_stacks_budget": "hbm_stacks",
    "package_area_budget_m2": "package_area_m2",
    "wafers_budget": "wafers",
    "floor_area_budget_m2": "floor_area_m2",
    "heat_flux_budget_w_per_m2": "heat_flux_w_per_m2",
    "tpp_budget": "total_processing_performance",
    "performance_density_budget_per_m2": "performance_density_per_m2",
    "io_rate_budget_bytes_per_s": "io_rate_bytes_per_s",
}
"""Budget fields of all machine questions -> the metric that each limits."""

COUNTS = frozenset({"sites", "local_steps", "global_batch", "sequence_length", "drafted_tokens", "hbm_stacks_budget"})
"""Fields that must be integers; numbers of tokens may be means or computed values."""

CHOICES = {
    "workload": "a model of the catalogue, a .toml or a Hugging Face config.json",
    "chip": "chip of the catalogue, with its servers, links and software",
    "design": "a public design that a parametric chip starts from: areas, stacks, dies, clock",
    "technology": "process that the design is ported to",
    "memory": "stacks by generation, height and speed: of a design, or with --free hbm of a chip that is sold with others",
    "free": "what is redesigned: none (the chip as sold), or hbm, links, domain, clock, storage, with + between, or all",
    "stack": "software, an entry of hwopt catalog stacks, else what the chip usually runs",
    "site": "climate, electricity and its carbon, an entry of hwopt catalog sites",
    "prices": "list of prices: default, hyperscale, on-premise, rented, at-cost",
    "precision": "format of the GEMMs: bf16, fp16, fp8, fp4, int8, tf32, fp32",
    "fabric": "topology outside the scale-up domain, dimensioned for 16,384 chips, else the chip's own links",
    "sites": "sites that share the chips equally",
    "cooling": "cooling technology, else what the chip's servers are built for",
    "reliability": "failure rates of the fleet",
    "recovery": "how jobs resume after a failure: from-storage, hot-spares or in-memory",
    "storage": "storage of data and checkpoints",
    "operation": "production (slower by what long runs lose) or benchmark, else as the runs behind the constants",
    "export_rule": "export rule that the chip must not fall under, an entry of hwopt catalog export_rules",
    "export_case": "figures by which the chip stays outside of the rule, such as tpp-1600; else the best of all ways",
    "chip_volume": "chips over which the design cost of a parametric chip is spread: a number, or bought (this "
    "machine's alone), else as the price list says",
    "constants": "calibrated to published runs, literature, speed-of-light, or a .toml of `hwopt calibrate`",
}

_COLDEST_JUNCTION_K = 273.15  # freezing point of water; a smaller number is a temperature in degC

_CONTINUOUS_NETWORK = ("scale_up_domain", "scale_up_bandwidth_bytes_per_s", "scale_out_bandwidth_bytes_per_s")
_CONTINUOUS_CHIP = ("hbm_bandwidth_bytes_per_s", "hbm_capacity_bytes", "clock_ratio")
_DESIGNED_CHIP = ("compute_area_m2", "sram_bytes", "hbm_stacks", "dies", "enabled_fraction", "clock_hz")

BOUGHT = "bought"
"""Word for a volume: the chips of this machine alone pay for their design."""

FREE = ("hbm", "links", "domain", "clock", "storage")
"""Components that the search may choose: HBM stacks of the package, lanes of its links, chips of a domain, clocks above
the stock clock, and the rate of storage."""

REDESIGNED = ("hbm", "links")
"""Those of `FREE` that require a chip that is not sold."""

_SOLD_CLOCK = "half to all of the clock that it is sold with"

_MOST_LANES = 2.0
"""Maximum number of lanes of a redesigned chip over those of the stock chip (assumption: its edge has no room for more)."""


def _with_own(template: Design, name: str) -> Variable:
    """Return a variable whose bounds include its value in the template machine."""
    known, own = KNOWN[name], float(KNOWN[name].place.get(template))
    return known if own <= 0.0 else known.bounded(min(known.lower, own), max(known.upper, own))


def _with_stacks(chip: Chip, name: str, memory: str) -> Chip:
    """Return a stock chip with the same number of stacks of another memory; dies and all other power do not change.

    **Raises:** `UserError` for an unknown memory, and a chip without stacks.
    """
    stack, stacks = catalog.record("memories", memory), float(chip.hbm_stacks)
    if stacks == 0.0:
        raise UserError(f"memory = {memory}: '{name}' has no stacks of memory to exchange")
    where = lambda c: (c.hbm_capacity_bytes, c.hbm_bandwidth_bytes_per_s, c.hbm_energy_j_per_byte)
    new = (stacks * stack.si("capacity"), stacks * stack.si("bandwidth"), stack.si("energy"))
    return eqx.tree_at(where, chip, tuple(map(np.float64, new)))


def _volume(text: str) -> float:
    """Return the number of chips that pay for a design.

    **Raises:** `UserError` for a text that is not a number of chips.
    """
    try:
        return catalog.positive(text, "chip_volume", least=1.0)
    except UserError as error:
        raise UserError(f"{error}; or {BOUGHT}, for those of this machine alone") from None


def meanings(choices: Mapping[str, str], budgets: Mapping[str, str]) -> dict[str, str]:
    """Return the description of each field for the help of a command."""
    limits = {field: f"at most, {metric(name).meaning} ({metric(name).unit})" for field, name in budgets.items()}
    return dict.fromkeys(BUDGETS, NOT_LIMITED) | dict(choices) | limits


@dataclass(frozen=True)
class MachineQuestion:
    """Fields of a question about a machine. An infinite budget means no limit."""

    trains: ClassVar[bool] = False  # whether the software is training software

    workload: str = "llama3.1-405b"
    chip: str = "h100-sxm"
    design: str = ""  # a public design that makes the chip parametric; empty: the stock chip
    technology: str = ""  # process that the design is ported to
    memory: str = ""  # memory that the design is ported to
    free: str = "none"  # redesigned components of the chip and its domain
    stack: str = ""
    site: str = "us-average"
    fabric: str = ""
    sites: float = 1.0
    cooling: str = ""
    reliability: str = "fleet-mean"
    recovery: str = "from-storage"
    storage: str = "shared-flash"
    operation: str = ""
    prices: str = "default"
    constants: str = "calibrated"
    precision: str = "bf16"
    capex_budget_usd: float = NO_LIMIT
    power_budget_w: float = NO_LIMIT
    site_power_budget_w: float = NO_LIMIT
    rack_power_budget_w: float = NO_LIMIT
    chip_power_budget_w: float = NO_LIMIT
    junction_budget_k: float = NO_LIMIT
    die_area_budget_m2: float = NO_LIMIT
    hbm_stacks_budget: float = NO_LIMIT
    package_area_budget_m2: float = NO_LIMIT
    wafers_budget: float = NO_LIMIT
    floor_area_budget_m2: float = NO_LIMIT
    heat_flux_budget_w_per_m2: float = NO_LIMIT
    tpp_budget: float = NO_LIMIT
    performance_density_budget_per_m2: float = NO_LIMIT
    io_rate_budget_bytes_per_s: float = NO_LIMIT
    export_rule: str = ""
    export_case: str = ""  # the case by which the chip stays outside the rule
    chip_volume: str = ""  # chips over which a parametric chip's design cost is spread

    name: ClassVar[str] = ""
    minimised: ClassVar[str] = ""
    aim: ClassVar[str] = ""
    limited: ClassVar[Mapping[str, str]] = BUDGETS  # field -> metric

    def __post_init__(self) -> None:
        for name in COUNTS & vars(self).keys():
            count = number_of(f"{self.name}: {name}", getattr(self, name))
            if count != NO_LIMIT and not count.is_integer():
                raise UserError(f"{self.name}: {name} = {count:g} must be an integer: it counts things")
        if self.junction_budget_k < _COLDEST_JUNCTION_K:
            raise UserError(
                f"junction_budget_k = {self.junction_budget_k:g} K is colder than any climate: it is in kelvin, 85 degC is 358"
            )
        for field in BUDGETS:
            if field not in self.limited and getattr(self, field) != NO_LIMIT:
                raise UserError(f"{field}: {self.name} does not limit it; its budgets: {', '.join(self.limited)}")

    def _budgets(self) -> tuple[Budget, ...]:
        """Return the specified budgets, including those of an export control rule."""
        asked = {field: limit for field, limit in self._fields(*self.limited).items() if limit != NO_LIMIT}
        for field, limit in export.limits(self).items():
            asked[field] = min(limit, asked.get(field, limit))
        if not self.design:
            self._check_stated(asked)
        metrics = {**BUDGETS, **self.limited}
        return tuple(Budget(field, metric(metrics[field]), limit) for field, limit in asked.items())

    def left_open(self) -> dict[str, list[str]]:
        """Return the fields that the search has to choose, with their possible values."""
        return export.left_open(self)

    @property
    def frees_links(self) -> bool:
        """Return whether the search chooses the chip's links."""
        return "links" in self._freed

    @property
    def _sold(self) -> str:
        """Return the name of the stock chips."""
        return self.chip

    def _fields(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    @property
    def _software(self) -> str:
        """Return the name of the software."""
        return self.stack or catalog.default_stack(self.chip, self.workload if self.trains else "")

    @property
    def _operation(self) -> str:
        """Return the name of the operation mode: production or benchmark."""
        return self.operation or catalog.usual_operation(self.constants)

    @property
    def _freed(self) -> frozenset[str]:
        """Return the components to redesign.

        **Raises:** `UserError` for an unknown component.
        """
        parts = [] if self.free == "none" else separated("free", self.free, "+")
        for part in parts:
            if part not in (*FREE, "all"):
                raise UserError(
                    f"free = {self.free!r}: {suggest(part, ('none', *FREE, 'all'))}; several with + between"
                )
        return frozenset(FREE if "all" in parts or self.design else parts)

    def problem(self) -> Problem:
        """Return the optimization problem over whole units of hardware, with its relaxation over continuous hardware."""
        return replace(self._stated(continuous=False), relaxation=self._stated(continuous=True))

    def _stated(self, continuous: bool) -> Problem:
        """Return the optimization problem, over whole units of hardware or over continuous hardware."""
        raise NotImplementedError

    def _machine(self, continuous: bool, **peripherals: Any) -> Cluster:
        """Return the machine that the search starts from. A stock chip has its TDP as power limit, a new chip that of a
        socket.
        """
        catalog.check_precision(self.chip, self.precision)
        surroundings = ("site", "sites", "reliability", "recovery", "storage", "prices", "constants")
        stated: dict[str, Any] = {"stack": self._software, "operation": self._operation}
        stated |= self._fields(*surroundings) | peripherals
        cluster = catalog.cluster(
            self.chip, _COUNTED_CHIPS, fabric=self.fabric or None, cooling=self.cooling or None, **stated
        )
        if self.memory and not self.design:
            cluster = eqx.tree_at(lambda c: c.chip, cluster, _with_stacks(cluster.chip, self.chip, self.memory))
        if not continuous and not self.design and self._freed & set(REDESIGNED):
            prices = catalog.record("prices", self.prices)
            charged = (np.float64(prices.si("redesign", 0.0)), np.float64(prices.si("least_order", 0.0)))
            cluster = eqx.tree_at(lambda c: (c.prices.redesign_usd, c.prices.least_order), cluster, charged)
        if self._paid_once:
            paid = self._drawn_project()
            nre = paid.process.nre_usd + paid.technology.stacked * paid.base_process.nre_usd
            cluster = eqx.tree_at(lambda c: c.prices.redesign_usd, cluster, paid.price_over_bill * nre)
        if not continuous and "clock" not in self._freed:
            return cluster
        return eqx.tree_at(lambda c: c.chip.power_cap_w, cluster, np.float64(SOCKET_LIMIT_W))

    def _hardware(self, template: Design, continuous: bool) -> tuple[Variable, ...]:
        """Return the variables of chips, links and racks.

        **Arguments:** `template`: a design that all bounds include; `continuous`: whether hardware is continuous.
        """
        own = partial(_with_own, template)
        storage = (own("storage_bytes_per_s_per_chip"),) if "storage" in self._freed and not self.design else ()
        if continuous:
            chip = _DESIGNED_CHIP if self.design else _CONTINUOUS_CHIP
            return (*map(own, (*chip, *_CONTINUOUS_NETWORK, "chips_per_rack")), *storage)
        if self.design:
            chip = tuple(map(own, _DESIGNED_CHIP))
        else:
            clock = own("clock_ratio")
            chip = (clock if "clock" in self._freed else replace(clock, upper=1.0, box_meaning=_SOLD_CLOCK),)
            if "hbm" in self._freed:
                entry = catalog.record("chips", self.chip)
                sites = max(entry.si("memory_sites", 0.0), entry.si("memory_stacks", 0.0))
                chip += (own("hbm_stacks").bounded(1.0, sites),) if sites else ()
        network: tuple[Variable, ...] = ()
        if "domain" in self._freed:
            network += (own("scale_up_domain"),)
        if "links" in self._freed:
            lanes = own("scale_up_lanes")
            sold = float(lanes.place.get(template))
            network += (lanes.bounded(1.0, max(1.0, round(_MOST_LANES * sold))),)
        return (*chip, *network, own("nics_per_server"), own("chips_per_rack"), *storage)

    def _check_stated(self, budgets: Mapping[str, float]) -> None:
        """Refuse a budget on a quantity that the chip does not state: every design would satisfy it."""
        chip = catalog.record("chips", self.chip)
        for field in budgets:
            if field in _STATED and _STATED[field] not in chip.quantities:
                raise UserError(
                    f"{field}: chip '{chip.slug}' does not state '{_STATED[field]}': add it to the chip's file (0 if it has "
                    "none), or leave the budget out"
                )

    def _project(self) -> ChipProject | None:
        """Return the parametric chip, if the question specifies one."""
        if not self.design:
            if self.technology:
                raise UserError("technology says what a design is ported to: name the design too, such as h100-sxm")
            if self.memory and "hbm" not in self._freed:
                raise UserError(
                    f"memory = {self.memory}: '{self.chip}' is sold with its own; --free hbm puts other stacks on it, --design "
                    "draws a chip around them"
                )
            if self.chip_volume:
                raise UserError("chip_volume says who pays for a drawn chip: name the design too, such as h100-sxm")
            return None
        project = self._drawn_project()
        if self._paid_once:
            costs = lambda p: (p.process.nre_usd, p.base_process.nre_usd)
            project = eqx.tree_at(costs, project, (np.float64(0.0), np.float64(0.0)))
        elif self.chip_volume:
            project = eqx.tree_at(lambda p: p.volume, project, np.float64(_volume(self.chip_volume)))
        return eqx.tree_at(lambda p: p.design.power_cap_w, project, np.float64(SOCKET_LIMIT_W))

    def _drawn_project(self) -> ChipProject:
        """Return the parametric chip from the catalog, unchanged."""
        return catalog.chip_project(
            self.design, technology=self.technology or None, memory=self.memory or None, prices=self.prices
        )

    @property
    def _paid_once(self) -> bool:
        """Return whether this machine alone pays for a parametric chip's design: as capital, not as a share of each chip's
        price.
        """
        return bool(self.design) and self.chip_volume == BOUGHT

    def _within(self, budgets: tuple[Budget, ...], continuous: bool) -> str:
        """Describe chips and limits, for the end of the question's sentence."""
        limits = (f"{each.name} {pretty(each.limit, each.metric.unit)}" for each in budgets)
        ported = " and ".join(str(each) for each in (self.technology, self.memory) if each)
        drawn = f"a chip drawn from {self.design}" + (f" on {ported}" if ported else "")
        anew = sorted(self._freed - {"storage"})
        redesigned = f"{self.chip} with {', '.join(anew)} redesigned" if anew else f"{self._sold} as sold"
        redesigned += f", stacks of {self.memory}" if self.memory else ""
        chips = drawn if self.design else f"{self.chip}-class chips" if continuous else redesigned
        outside = f"; outside export rule {self.export_rule}" if self.export_rule else ""
        operated = catalog.operation_words(self.constants, self.operation)
        return f"{chips}; within {', '.join(limits) or 'no budget'}{outside}{'; ' * bool(operated)}{operated}"

    def _records(self) -> dict[str, catalog.Record]:
        """Return the catalog entries behind the template, by role (`workload`, `chip`, `stack`, ...)."""
        chip = catalog.record("chips", self.chip)
        records = {
            "workload": catalog.record("workloads", self.workload),
            "chip": chip,
            "scale_up": catalog.record("links", str(chip.text["scale_up"])),
            "scale_out": catalog.record("links", str(chip.text["scale_out"])),
            "stack": catalog.record("stacks", self._software),
            "site": catalog.record("sites", self.site),
            "cooling": catalog.record("cooling", self.cooling or catalog.default_cooling(self.chip, self.site)),
            "rack": catalog.record("racks", "orv3"),
            "reliability": catalog.record("reliability", self.reliability),
            "recovery": catalog.record("recoveries", self.recovery),
            "operation": catalog.record("operations", self._operation),
            "prices": catalog.record("prices", self.prices),
            "pool": catalog.record("pools", str(chip.text.get("pool", "none"))),
            "storage": catalog.record("storages", self.storage),
        }
        if self.fabric:
            records["fabric"] = catalog.record("fabrics", self.fabric)
            records["scale_out"] = catalog.record("links", str(records["fabric"].text["link"]))
        if self.export_rule:
            records["export_rule"] = catalog.record("export_rules", self.export_rule)
        if self.design:
            records |= catalog.project_records(self.design, self.technology or None, self.memory or None)
        elif self.memory:
            records["memory"] = catalog.record("memories", self.memory)
        return records

    def _provenance(self) -> Provenance:
        return Provenance(self._records(), self.constants)
