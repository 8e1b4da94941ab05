"""Schema of the data files: keys of each type of entry with their SI units, and the required ones. Most are module fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hwopt.hardware.chip import Chip
from hwopt.hardware.chip_project import ChipDesign, ChipProject
from hwopt.hardware.deployment import Deployment
from hwopt.hardware.export_rule import FIGURES, PARAGRAPHS
from hwopt.hardware.facility import Cooling, Facility, Rack
from hwopt.hardware.network import Network
from hwopt.hardware.peripherals import MemoryPool, Operation, Recovery, Reliability, Sites, Storage
from hwopt.hardware.prices import Prices
from hwopt.hardware.process import Process
from hwopt.hardware.technology import Technology
from hwopt.hardware.topology import Crossbar, Dragonfly, FatTree, FullMesh, Parts, Torus
from hwopt.quantity import Quantity, quantities
from hwopt.stack import DOCUMENTED, Capabilities, Stack
from hwopt.types import PRECISIONS
from hwopt.workload.blueprint import StatedClaim
from hwopt.workload.learning import LossLaw
from hwopt.workload.operators import Operators
from hwopt.workload.training import TrainingRun
from hwopt.workload.transfer import Transfer
from hwopt.workload.transformer import Transformer

ARCHITECTURES = (
    "default", "volta", "ampere", "ada", "hopper", "blackwell", "rubin", "cdna2", "cdna3", "cdna4", "cdna5", "tpu", "trainium",
    "gaudi", "ascend", "maia", "wafer", "lpu", "ipu",
)  # fmt: skip
"""Chip families for which a stack may state separate values."""

_COMMON = ("title", "vendor", "note", "unsupported")


Tables = dict[str, tuple[tuple[str, ...], str]]
"""Key of a table -> its members, and their SI unit."""


@dataclass(frozen=True)
class Entry:
    """The keys of one type of catalog entry."""

    noun: str  # of one entry, for messages
    meaning: str  # what the entries describe
    text: tuple[str, ...]
    quantities: dict[str, str]  # key -> SI unit
    required: tuple[str, ...] = ()
    tables: Tables = field(default_factory=dict)
    lists: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # key of a list -> keys that an entry with this list must state


def _stated(kind: type, of: str) -> list[Quantity]:
    return [each for each in quantities(kind).values() if each.key and each.of == of]


def keys(kind: type, of: str = "") -> dict[str, str]:
    """Return the scalar fields of a module that a file states, as key -> SI unit.

    **Arguments:** `kind`: the module's class; `of`: the file, where a module's fields are spread over several.
    """
    return {str(each.key): each.stated or each.unit or "1" for each in _stated(kind, of) if not each.elements}


def _required(kind: type, of: str = "") -> tuple[str, ...]:
    """Return the keys of a module that a file must state."""
    return tuple(
        str(each.key) for each in _stated(kind, of) if each.default is None and not (each.follows or each.absent)
    )


def _by_unit(words: Mapping[str, str]) -> dict[str, str]:
    """Return key -> SI unit, from SI unit -> keys."""
    return {key: unit for unit, each in words.items() for key in each.split()}


def _entry(
    noun: str,
    meaning: str,
    kind: type,
    of: str = "",
    *,
    texts: str = "",
    optional_texts: str = "",
    numbers: Mapping[str, str] = MappingProxyType({}),
    optional: Mapping[str, str] = MappingProxyType({}),
    tables: Tables | None = None,
    optional_tables: Tables | None = None,
    alternatives: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Entry:
    """Return the keys of an entry that states the fields of a module.

    **Arguments:**

    - `noun`: name of one entry, for messages.
    - `meaning`: the things that the entries describe.
    - `kind`, `of`: the module's class, and the part of its fields that this file states.
    - `texts`, `numbers`, `tables`: required keys in addition to the module's.
    - `optional_texts`, `optional`, `optional_tables`: optional ones.
    - `alternatives`: key of a list -> keys that an entry with this list must state, instead of all required ones.
    """
    lists = {str(each.key): (each.elements, each.unit or "1") for each in _stated(kind, of) if each.elements}
    return Entry(
        noun,
        meaning,
        (*_COMMON, *texts.split(), *optional_texts.split()),
        {**keys(kind, of), **numbers, **optional},
        (*texts.split(), *_required(kind, of), *numbers, *(tables or ())),
        lists | (tables or {}) | (optional_tables or {}),
        dict(alternatives),
    )


OPERATORS = "operators"
"""Key of the list of operators in a workload entry. A workload states either this list or the shape of a transformer."""

CAUSES = ("dies", "stacks", "hosts", "links", "switches", "racks", "cooling", "software")
"""Causes of job interruptions: failing parts of a machine."""

ENTRIES: Mapping[str, Entry] = {
    "chips": _entry(
        "chip",
        "accelerators: compute, memory, power, price",
        Chip,
        texts="architecture native scale_up scale_out",
        optional_texts="process topology memory_type form_factor half_of default_stack cooling pool system",
        numbers=_by_unit(
            {"W": "tdp", "1": "idle_fraction leakage_fraction", "chip": "scale_up_domain", "B/s": "scale_out_bandwidth"}
        ),
        optional=_by_unit(
            {
                "1": "year dies transistors scale_up_efficiency memory_sites flat_rings nic_on_host_link",
                "chip": "server_chips",
                "Hz": "nominal_clock",
                "B": "register_file local_sram",
                "B/s": "scale_up_bandwidth",
                "USD": "price host_price",
                "W": "host_power",
                "degC": "junction_limit",
            }
        ),
    ),
    "systems": Entry(
        "system",
        "servers, racks and slices as they are sold",
        (*_COMMON, "chip", "cooling", "rack", "systems_per_rack", "used_chips", "slices", "price_date"),
        _by_unit(
            {
                "chip": "chips scale_up_domain",
                "1": "hosts compute_nics management_nics rack_units racks wrap_side",
                "B": "dram local_storage",
                "B/s": "dram_bandwidth nic_rate",
                "W": "typical_power maximum_power",
                "USD": "price",
                "degC": "coolant_limit",
            }
        ),
        ("chip", "cooling", "chips", "compute_nics", "nic_rate", "scale_up_domain"),
    ),
    "links": Entry(
        "link",
        "scale-up and scale-out links, with switches and NICs",
        (*_COMMON, "role", "topology"),
        {key: each.unit or "1" for each in quantities(Network).values() if (key := each.key or each.follows)}
        | keys(Rack, "scale_up")
        | _by_unit(
            {
                "USD": "domain_usd_per_chip",
                "USD/(B/s)": "price core_price optics_price",
                "1": "in_network_reduction oversubscription radix switch_price_share core_switch_price_share "
                "switch_power_share core_switch_power_share",
                "s": "core_latency",
                "J/B": "core_energy optics_energy",
            }
        ),
        ("role", "bandwidth", "efficiency", "latency", "energy", "price"),
    ),
    "fabrics": Entry(
        "fabric",
        "network topologies outside the scale-up domain",
        (*_COMMON, "topology", "link"),
        {
            key: unit
            for each in (Parts, Crossbar, Dragonfly, FatTree, FullMesh, Torus)
            for key, unit in keys(each).items()
        },
        ("topology", "link", *_required(Parts)),
    ),
    "pools": _entry("memory pool", "memory beyond HBM: host memory, CXL, pooled memory", MemoryPool),
    "storages": _entry("storage", "storage of data and checkpoints", Storage),
    "lines": _entry("line", "WAN links between sites", Sites),
    "workloads": _entry(
        "workload",
        "models to train or serve",
        Transformer,
        optional_texts="family parameter_count_reason approximations batch_ramp sample unit_of_work predicts stack "
        "checkpoint config",
        numbers={"sequence_length": "token"},
        alternatives={OPERATORS: ("hidden", "sequence_length")},
        optional=keys(TrainingRun)
        | keys(Operators)
        | _by_unit({"1": "year", "token": "context_length", "parameter": "parameters active_parameters"}),
    ),
    "stacks": _entry(
        "stack",
        "software: achieved efficiencies, overlap and overheads",
        Stack,
        optional_texts="framework purpose family runs_on zero recompute sequence_parallel pads_heads stages cache "
        "in_network_reduction formats dispatchers expert_overlap cuda_graphs compilation released follows",
        tables={key: (ARCHITECTURES, unit) for key, unit in keys(Stack, "family").items()},
        optional_tables={DOCUMENTED: (tuple(quantities(Capabilities)), "1")},
    ),
    "cooling": _entry("cooling", "cooling technologies", Cooling),
    "racks": _entry("rack", "racks: power, weight, cables, space", Rack),
    "sites": _entry(
        "site",
        "climate, electricity price, carbon intensity, building cost",
        Facility,
        optional_texts="cooling",
        numbers={"pue": "1"},
    ),
    "prices": _entry(
        "price list",
        "price lists: purchase, rental, manufacturing cost",
        Prices,
        numbers=keys(ChipProject)
        | {"price_factor": "1", "chip_usd_per_bf16_flops": "USD/(FLOP/s)", "chip_base_floor_fraction": "1"},
        optional=_by_unit(
            {
                "USD": "redesign",
                "chip": "least_order",
                "B": "host_dram host_flash",
                "USD/B": "listed_hbm_usd_per_byte dram_usd_per_byte flash_usd_per_byte",
                "USD/(B/s)": "listed_hbm_usd_per_byte_per_s",
            }
        ),
    ),
    "reliability": _entry(
        "reliability",
        "failure rates, measured on fleets",
        Reliability,
        optional_texts="counted_on",
        numbers={"storage_bandwidth": "B/s", "failures": "1/s"},
        optional={"rack_chips": "chip", "oversubscription": "1"},
        optional_tables={"causes": (CAUSES, "1")},
    ),
    "recoveries": _entry("recovery", "how jobs resume after a failure", Recovery),
    "deployments": _entry("deployment", "data halls: time and cost to build, convert or rent", Deployment),
    "operations": _entry(
        "operation",
        "slowdowns of production runs against benchmarks",
        Operation,
        numbers={"latency_tail": "s", "bandwidth_spread": "1"},
    ),
    "laws": _entry("law", "scaling laws of the training loss", LossLaw, numbers={"text_stock": "token"}),
    "transfers": _entry("transfer", "laws of transfer learning: data that pre-training replaces", Transfer),
    "processes": _entry("process", "semiconductor processes: wafer price, defects, carbon", Process),
    "technologies": _entry(
        "technology",
        "logic, SRAM and link interfaces of parametric chips, by process",
        Technology,
        texts="memory template",
        optional_texts="process",
        numbers={"speed": "1", "energy": "1"},
    ),
    "memories": _entry("memory", "HBM generations of parametric chips", Technology, "memory"),
    "datapaths": _entry(
        "datapath", "transistors and energy of a compute unit in parametric chips", Technology, "datapath"
    ),
    "designs": _entry(
        "design",
        "public chip designs from which parametric chips start",
        Technology,
        "design",
        texts="die technology memory",
        optional_texts="chip",
        numbers=keys(ChipDesign)
        | _by_unit({"1": "year", "m2": "die_area", "FLOP/s": "peak", "B/s": "memory_bandwidth", "W": "tdp"}),
        optional=keys(ChipProject, "design")
        | _by_unit({"B": "sram_on_die", "1": "memory_sites memory_efficiency", "m2": "other_area"}),
        optional_tables=dict.fromkeys(("matmul_efficiency", "format_ratio"), (PRECISIONS, "1")),
    ),
    "blueprints": _entry(
        "blueprint",
        "claims about machines to check, see hwopt check",
        StatedClaim,
        optional_texts="workload chip precision plan stack site cooling fabric scale_out prices operation",
    ),
    "export_rules": Entry(
        "export rule",
        "export-control rules for chips",
        (*_COMMON, "effective", "replaced"),
        {},
        ("effective",),
        {figure: (PARAGRAPHS, unit or "1") for figure, unit in FIGURES.items()},
    ),
}
"""The keys of every type of catalog entry; the types are the folders of `hwopt/data`."""

KINDS = tuple(ENTRIES)

COUNTS = frozenset({
    *keys(Capabilities),
    "chips", "racks", "rack_chips", "server_chips", "scale_up_domain", "dies", "memory_stacks", "memory_sites", "layers", "experts",
    "heads", "vocab", "sequence_length", "global_batch", "global_batch_sequences", "steps", "radix", "rails", "planes", "hosts",
    "routers", "dimensions", "wrap_side",
})  # fmt: skip
"""Quantities that must be integers; others, such as key-value heads, may be means over layers."""

NEVER_ZERO = frozenset({
    "sram", "tdp", "memory_capacity", "memory_bandwidth", "memory_efficiency", "peak", "matmul_efficiency",
    "scale_up_bandwidth", "scale_up_efficiency", "scale_up_domain", "scale_out_bandwidth", "bandwidth", "efficiency",
    "reduction_factor", "in_network_reduction", "oversubscription", "pod", "gemm_efficiency_factor", "expert_gemm_factor",
    "gather_efficiency", "attention_forward_efficiency", "attention_backward_efficiency", "pue", "construction_lifetime",
    "server_lifetime", "reference_domain", "die_area", "occupancy", "supply_efficiency", "distribution_efficiency",
    "wet_bulb_spread", "range", "room_range", "chiller_cop",
    "heat_flux", "area_resistance", "busbar_limit", "weight_limit", "failures",
    "snapshot_bandwidth", "storage_bandwidth", "irreducible_loss", "parameter_coefficient", "parameter_exponent",
    "token_coefficient", "token_exponent", "critical_batch_tokens", "critical_reference_tokens", "repetition_epochs",
    "text_stock", "wafer_diameter", "clustering", "interposer_clustering", "die_bond_yield", "stack_bond_yield",
    "substrate_yield", "fab_yield", "logic_density", "speed", "dies", "enabled_fraction", "clock", "matrix_per_vector",
    "matrix_transistors", "radix", "rails", "planes", "ports", "hosts", "routers", "global_links", "reticle", "package_limit",
    "usable_edge", "cable_limit", "capacity", "update_bandwidth", "checkpoint_bandwidth", "input_bandwidth",
    "dimensions", "links", "loop_racks", "tariff_load_factor", "medium_voltage", "hall_voltage", "bus_voltage",
    "high_bus_voltage", "bus_density", "wrap_side",
})  # fmt: skip
"""Quantities and tables that the model divides by."""
