"""Common parts of all questions about a machine: chips, their surroundings, and the available budgets."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import numpy as np

from hwopt import catalog
from hwopt.design.anchored_question import AnchoredQuestion
from hwopt.design.design import Design
from hwopt.design.metrics import metric
from hwopt.design.problem import Budget, Problem
from hwopt.design.provenance import Provenance
from hwopt.design.variables import KNOWN, RECOVERIES, USED_CHIPS, Variable
from hwopt.errors import UserError, suggest
from hwopt.hardware.chip import Chip
from hwopt.hardware.chip_project import ChipProject
from hwopt.hardware.cluster import Cluster
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.units import pretty, separated
from hwopt.validation import number_of
from objectives import export_rules as export
from objectives.fields import BUDGETS, COUNTS, NO_LIMIT

SOCKET_LIMIT_W = 3000.0
"""Maximum power of a chip's socket at design time (assumption, 2,000 to 5,000: 2,300 W is announced for Rubin). A
datasheet's power cap is not a limit, because a new design may choose another."""

BEST = "best"
"""Setting that leaves a field to the search, like an empty one."""

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

_COLDEST_JUNCTION_K = 273.15  # freezing point of water; a smaller number is a temperature in degC

_CONTINUOUS_NETWORK = ("scale_up_domain", "scale_up_bandwidth_bytes_per_s", "scale_out_bandwidth_bytes_per_s")
_CONTINUOUS_CHIP = ("hbm_bandwidth_bytes_per_s", "hbm_capacity_bytes", "clock_ratio")
_DESIGNED_CHIP = ("compute_area_m2", "sram_bytes", "hbm_stacks", "dies", "enabled_fraction", "clock_hz")

BOUGHT = "bought"
"""Word for a volume: the chips of this machine alone pay for their design."""

FREE = {
    "hbm": "memory stacks", "links": "lanes of links", "domain": "chips of a domain", "clock": "clocks above the stock clock",
    "storage": "", "nics": "NICs per server", "racks": "chips per rack",
}  # fmt: skip
"""Components that the search may choose -> what is then not as the product is sold; empty where any choice is sold."""

COOLANT = "coolant"
"""Word in `free` that lets the search choose the coolant's supply temperature. It is not part of `all`: each whole degree has
its own node relaxations."""

REDESIGNED = ("hbm", "links")
"""Words of `FREE` that require a chip that is not sold."""

STOCK = "stock"
"""Word in `free` for the chip as it is sold, whose memory and links are not exchanged."""

OPENED = frozenset({"nics", "racks"})
"""Words of `FREE` that keep the stock chip and change only the composition of servers and racks."""

_SOLD_CLOCK = "half to all of the clock that it is sold with"

_SOLD_NICS, _SOLD_RACKS = (
    "that of the system as sold; --free nics opens it",
    "those of the system as sold; --free racks opens it",
)
"""Reasons for the bounds of NICs and racks."""

_USED_CHIPS = "chips of a whole rack that jobs use; the others are hot spares; --free racks opens it"

_MOST_LANES = 2.0
"""Maximum number of lanes of a redesigned chip over those of the stock chip (assumption: its edge has no room for more)."""


_OF_NICS = ("scale_out_bandwidth_bytes_per_s", "nics_per_server")


def _with_own(template: Design, name: str) -> Variable:
    """Return a variable whose bounds include its value in the template machine; NICs are at most as fast as the chip's link."""
    known, own = KNOWN[name], float(KNOWN[name].place.get(template))
    if own <= 0.0:
        return known
    known = known.bounded(min(known.lower, own), max(known.upper, own))
    link = float(template.cluster.chip.nic_link_bytes_per_s)
    if name not in _OF_NICS or template.project is not None or link == 0.0:
        return known
    most = own * link / float(template.cluster.network.bandwidth_bytes_per_s[1])
    most = float(math.floor(most * (1.0 + FEASIBILITY_TOLERANCE))) if known.integer else most
    words = f"{known.box_meaning}, at most the chip's link to its NICs"
    return replace(known.bounded(upper=min(known.upper, max(most, known.lower))), box_meaning=words)


def _with_stacks(chip: Chip, name: str, memory: str) -> Chip:
    """Return a stock chip with the same number of stacks of another memory; dies and all other power do not change.

    **Raises:** `UserError` for an unknown memory, and a chip without stacks.
    """
    stack, stacks = catalog.record("memories", memory), float(chip.hbm_stacks)
    if stacks == 0.0:
        raise UserError(f"memory = {memory}: '{name}' has no memory stacks to exchange")
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
        raise UserError(f"{error}; or {BOUGHT}, for this machine's chips only") from None


@dataclass(frozen=True)
class MachineQuestion:
    """Fields of a question about a machine. An infinite budget means no limit."""

    trains: ClassVar[bool] = False  # whether the software is training software
    openable: ClassVar[tuple[str, ...]] = (COOLANT,)  # what `free` may name in addition to components of hardware

    workload: str = "llama3.1-405b"
    chip: str = "h100-sxm"
    design: str = ""  # a public design that makes the chip parametric; empty: the stock chip
    technology: str = ""  # process that the design is ported to
    memory: str = ""  # memory that the design is ported to
    free: str = "none"  # redesigned components of the chip and its domain
    slice: str = ""  # torus of a scale-up domain; empty: chosen by the search
    stack: str = ""
    date: str = ""
    site: str = "us-average"
    fabric: str = ""
    sites: float = 1.0
    cooling: str = ""
    coolant_degc: float = 0.0
    reliability: str = "fleet-mean"
    recovery: str = ""
    storage: str = "shared-flash"
    operation: str = ""
    prices: str = "default"
    constants: str = "calibrated"
    anchor: str = ""
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
    chips: float = 0.0
    plan: str = ""

    name: ClassVar[str] = ""
    minimised: ClassVar[str] = ""
    aim: ClassVar[str] = ""
    limited: ClassVar[Mapping[str, str]] = BUDGETS  # field -> metric

    def __post_init__(self) -> None:
        for name in COUNTS & vars(self).keys():
            count = number_of(f"{self.name}: {name}", getattr(self, name))
            if count != NO_LIMIT and not count.is_integer():
                raise UserError(f"{self.name}: {name} = {count:g} must be an integer")
        if self.junction_budget_k < _COLDEST_JUNCTION_K:
            raise UserError(
                f"junction_budget_k = {self.junction_budget_k:g} K is below freezing: state kelvin; 85 degC is 358"
            )
        for field in BUDGETS:
            if field not in self.limited and getattr(self, field) != NO_LIMIT:
                raise UserError(f"{field} is not a budget of {self.name}; its budgets: {', '.join(self.limited)}")

    def anchored_run(self) -> AnchoredQuestion:
        """Return the run that `anchor` measures.

        **Raises:** `UserError` for a question about more than one machine or about a parametric chip.
        """
        apart = getattr(self, "decode_chip", "") or getattr(self, "split", "colocated") not in ("colocated", "together")
        state: Any = getattr(self, "_run" if self.trains else "_service", None)
        if state is None or apart or self.design:
            raise UserError(
                f"anchor = {self.anchor}: {self.name} is not about one machine of stock chips alone; remove it"
            )
        surroundings = self._fields(
            "site", "sites", "reliability", "storage", "prices", "constants", "date", "fabric", "cooling"
        )
        given: dict[str, Any] = {name: value or None for name, value in surroundings.items()} | {
            "stack": self._software
        }
        cluster = lambda operation: catalog.cluster(self.chip, round(self.chips), operation=operation, **given)
        return AnchoredQuestion(
            self.workload, state(), self.trains, self.chip, self._software, round(self.chips) or None, self.plan or None,
            self.operation or None, cluster,
        )  # fmt: skip

    def _budgets(self) -> tuple[Budget, ...]:
        """Return the specified budgets, including those of an export control rule."""
        if self.anchor and not catalog.Anchor.read(self.constants):
            raise UserError(
                f"anchor = {self.anchor}: state the question with hwopt.objective('{self.name}', anchor=...)"
            )
        asked = {field: limit for field, limit in self._fields(*self.limited).items() if limit != NO_LIMIT}
        for field, limit in export.limits(self).items():
            asked[field] = min(limit, asked.get(field, limit))
        if not self.design:
            self._check_stated(asked)
        return tuple(Budget(field, metric(self._limited_metric(field)), limit) for field, limit in asked.items())

    def _limited_metric(self, field: str) -> str:
        """Return the name of the metric that a budget limits."""
        return {**BUDGETS, **self.limited}[field]

    def left_open(self) -> dict[str, list[str]]:
        """Return the fields that the search has to choose, with their possible values: also the stock part of a redesigned one."""
        stock = [STOCK, *(name for name in (*FREE, *self.openable) if name in self._freed - {*REDESIGNED})]
        redesigned = bool(self._freed & {*REDESIGNED}) and not self.design
        rack, stated = min(catalog.rack_sizes(catalog.system_of(self.chip)), default=1), self.slice not in ("", BEST)
        sold = [each.shape for each in self._slices.values() if each.chips >= rack and not self.chips % each.chips]
        return export.left_open(self) | {
            **({"free": [self.free, "+".join(stock)]} if redesigned else {}),
            **({"slice": sold} if sold and not stated else {}),
        }

    @property
    def _slices(self) -> Mapping[str, catalog.Slice]:
        """Return the slices in which the chip's system is rented; none for a parametric chip, or where domain or racks are free."""
        return {} if self.design or self._opens_racks else catalog.slices(catalog.system_of(self.chip))

    @property
    def _slice(self) -> str:
        """Return the shape of the domain; one cube or pod where the search has not chosen it yet, empty without slices."""
        if self.slice in ("", BEST):
            own = round(catalog.system_of(self.chip).si("chips"))
            return next((each.shape for each in self._slices.values() if each.chips == own), "")
        if self._opens_racks or self.design:
            raise UserError(
                f"slice = {self.slice}: free domains or racks, or a design, are not as a slice is rented: remove it"
            )
        return catalog.slice_of(self.chip, self.slice).shape

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
    def computed(self) -> str:
        """Return the format of the GEMMs, of most of them where they have several."""
        return self.precision

    @property
    def _software(self) -> str:
        """Return the name of the software."""
        return self.stack or catalog.default_stack(self.chip, self.workload if self.trains else "", self.date)

    @property
    def _recovery(self) -> str:
        """Return the name of the failure recovery; where the search chooses one, of the one that includes the others."""
        return self.recovery if self.recovery not in ("", BEST) else RECOVERIES[-1 if self.trains else 0]

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
            if part not in (*FREE, *self.openable, "all", STOCK):
                known = ("none", *FREE, *self.openable, "all", STOCK)
                raise UserError(f"free = {self.free!r}: {suggest(part, known)}; join several with +")
        every = FREE if "all" in parts or self.design else ()
        return frozenset((*every, *(part for part in parts if part not in ("all", STOCK))))

    @property
    def _exchanged(self) -> str:
        """Return the memory that replaces that of a stock chip; empty where its own stays."""
        return "" if self.design or STOCK in self.free.split("+") else self.memory

    @property
    def _opens_racks(self) -> bool:
        """Return whether racks are not those of the chip's system: they are free, or the domain that they contain is."""
        return bool(self._freed & {"racks", "domain"})

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
        catalog.check_precision(self.chip, self.computed)
        surroundings = ("site", "sites", "reliability", "storage", "prices", "constants", "date")
        stated: dict[str, Any] = {"stack": self._software, "operation": self._operation, "recovery": self._recovery}
        stated |= self._fields(*surroundings) | peripherals
        cluster = catalog.cluster(
            self.chip,
            _COUNTED_CHIPS,
            fabric=self.fabric or None,
            cooling=self.cooling or None,
            coolant_degc=self.coolant_degc or None,
            slice=(not continuous and self._slice) or None,
            **stated,
        )
        if self._exchanged:
            cluster = eqx.tree_at(lambda c: c.chip, cluster, _with_stacks(cluster.chip, self.chip, self._exchanged))
        if not continuous and not self.design and self._freed & set(REDESIGNED):
            prices = catalog.record("prices", self.prices)
            charged = (np.float64(prices.si("redesign", 0.0)), np.float64(prices.si("least_order", 0.0)))
            cluster = eqx.tree_at(lambda c: (c.prices.redesign_usd, c.prices.least_order), cluster, charged)
        if self._opens_racks:
            cluster = eqx.tree_at(lambda c: c.rack.system_chips, cluster, cluster.rack.server_chips)
        if continuous or self._opens_racks:
            cluster = eqx.tree_at(lambda c: c.rack.sold_chips, cluster, np.zeros_like(cluster.rack.sold_chips))
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
        if COOLANT in self._freed:
            around = self.cooling or catalog.default_cooling(self.chip, self.site)
            storage += (KNOWN["coolant_degc"].bounded(*catalog.coolant_range(around, self.chip)),)
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
        nics, racks = own("nics_per_server"), own("chips_per_rack")
        if "nics" not in self._freed:
            sold = max(1.0, float(round(float(nics.place.get(template)))))
            nics = replace(nics, lower=sold, upper=sold, box_meaning=_SOLD_NICS)
        partly = float(template.cluster.groups[0].rack.sold_chips) > 0.0
        offers = catalog.used_chips if partly else catalog.rack_sizes
        if sizes := () if self._opens_racks else offers(catalog.system_of(self.chip)):
            racks = replace(
                racks, lower=float(min(sizes)), upper=float(max(sizes)), among=sizes, box_meaning=_SOLD_RACKS
            )
            if partly:
                racks = replace(racks, place=USED_CHIPS, box_meaning=_USED_CHIPS)
        return (*chip, *network, nics, racks, *storage)

    def _check_stated(self, budgets: Mapping[str, float]) -> None:
        """Refuse a budget on a quantity that the chip does not state: every design would satisfy it."""
        chip = catalog.record("chips", self.chip)
        for field in budgets:
            if field in _STATED and _STATED[field] not in chip.quantities:
                raise UserError(
                    f"{field}: chip '{chip.slug}' does not state '{_STATED[field]}': add it to the chip's file (0 if it has "
                    "none), or remove the budget"
                )

    def _project(self) -> ChipProject | None:
        """Return the parametric chip, if the question specifies one."""
        if not self.design:
            if self.technology:
                raise UserError(
                    "technology applies to a parametric chip only: add its design, such as --design h100-sxm"
                )
            if self._exchanged and "hbm" not in self._freed:
                raise UserError(
                    f"memory = {self.memory}: stock chip '{self.chip}' has fixed memory; add --free hbm to exchange its stacks, or "
                    "--design for a parametric chip"
                )
            if self.chip_volume:
                raise UserError(
                    "chip_volume applies to a parametric chip only: add its design, such as --design h100-sxm"
                )
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
        level = lambda name: "".join(
            f" at {at.replace('_', ' ')}" for at in re.findall(r"_(p\d\d|full_batch)_s$", name)
        )
        limits = (f"{each.name} {pretty(each.limit, each.metric.unit)}{level(each.metric.name)}" for each in budgets)
        ported = " and ".join(str(each) for each in (self.technology, self.memory) if each)
        drawn = f"a chip drawn from {self.design}" + (f" on {ported}" if ported else "")
        anew = [words for name, words in FREE.items() if words and name in self._freed]
        bought = f"{self._sold}, not a product: {' and '.join(anew)} are free" if anew else f"{self._sold} as sold"
        bought += f", stacks of {self._exchanged}" if self._exchanged else ""
        chips = drawn if self.design else f"{self.chip}-class chips, all hardware free" if continuous else bought
        outside = f"; outside export rule {self.export_rule}" if self.export_rule else ""
        operated = catalog.operation_words(self.constants, self.operation)
        dated = f"; date {self.date} ({self._software})" if self.date else ""
        return f"{chips}; within {', '.join(limits) or 'no budget'}{outside}{dated}{'; ' * bool(operated)}{operated}"

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
            "recovery": catalog.record("recoveries", self._recovery),
            "operation": catalog.record("operations", self._operation),
            "prices": catalog.record("prices", self.prices),
            "pool": catalog.record("pools", str(chip.text.get("pool", "none"))),
            "system": catalog.system_of(self.chip),
            "storage": catalog.record("storages", self.storage),
        }
        if self.fabric:
            records["fabric"] = catalog.record("fabrics", self.fabric)
            records["scale_out"] = catalog.record("links", str(records["fabric"].text["link"]))
        if self.export_rule:
            records["export_rule"] = catalog.record("export_rules", self.export_rule)
        if self.design:
            records |= catalog.project_records(self.design, self.technology or None, self.memory or None)
        elif self._exchanged:
            records["memory"] = catalog.record("memories", self.memory)
        return records

    def _provenance(self) -> Provenance:
        return Provenance(self._records(), self.constants)
