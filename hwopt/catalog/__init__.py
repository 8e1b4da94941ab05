"""The catalog: data files with sources, read into modules of the model. The only place where floats become arrays."""

from typing import TYPE_CHECKING

from hwopt import renamed
from hwopt.catalog.batch_ramps import NONE as NO_RAMP
from hwopt.catalog.batch_ramps import stated_ramp
from hwopt.catalog.calibrations import (
    CALIBRATED,
    LITERATURE,
    MODES,
    OTHERS,
    SPEED_OF_LIGHT,
    Anchor,
    Calibration,
    calibration,
    forget_calibrations,
    line_of,
    machine_key,
    operation_words,
    software_family,
    usual_operation,
    with_constants,
)
from hwopt.catalog.checkpoints import Formats, stored_formats
from hwopt.catalog.chips import check_precision, chip, default_stack, stack, with_words
from hwopt.catalog.clusters import cluster, cluster_pair, prices
from hwopt.catalog.export_rules import export_rule
from hwopt.catalog.fabrics import fabric_tiers, parts, topology
from hwopt.catalog.facilities import coolant_range, cooling, default_cooling, facility
from hwopt.catalog.fields import KINDS as kinds
from hwopt.catalog.load import config_file, leaf, positive, record, sources_of
from hwopt.catalog.names import find, names
from hwopt.catalog.networks import network
from hwopt.catalog.peripherals import (
    BENCHMARK,
    PRODUCTION,
    USUAL_LINES,
    deployment,
    memory_pool,
    operation,
    recovery,
    reliability,
    sites,
    spot,
    storage,
)
from hwopt.catalog.plans import parse_plan, plan
from hwopt.catalog.schema import Record, StatedQuantity
from hwopt.catalog.services import parse_serving_plan, service, serving_plan, serving_stack
from hwopt.catalog.silicon import chip_project, project_records
from hwopt.catalog.systems import Slice, largest_slice, rack_sizes, slice_of, slice_words, slices, system_of, used_chips
from hwopt.catalog.workloads import (
    approximations,
    checkpoint,
    entry_ramp,
    has_experts,
    loss_law,
    model_config,
    model_of,
    named,
    parameter_counts,
    routed,
    training_run,
    transfer,
    transformer,
)

__all__ = [
    "BENCHMARK",
    "CALIBRATED",
    "LITERATURE",
    "MODES",
    "NO_RAMP",
    "OTHERS",
    "PRODUCTION",
    "SPEED_OF_LIGHT",
    "USUAL_LINES",
    "Anchor",
    "Calibration",
    "Formats",
    "Record",
    "Slice",
    "StatedQuantity",
    "approximations",
    "calibration",
    "check_precision",
    "checkpoint",
    "chip",
    "chip_project",
    "cluster",
    "cluster_pair",
    "config_file",
    "coolant_range",
    "cooling",
    "default_cooling",
    "default_stack",
    "deployment",
    "entry_ramp",
    "export_rule",
    "fabric_tiers",
    "facility",
    "find",
    "forget_calibrations",
    "has_experts",
    "kinds",
    "largest_slice",
    "leaf",
    "line_of",
    "loss_law",
    "machine_key",
    "memory_pool",
    "model_config",
    "model_of",
    "named",
    "names",
    "network",
    "operation",
    "operation_words",
    "parameter_counts",
    "parse_plan",
    "parse_serving_plan",
    "parts",
    "plan",
    "positive",
    "prices",
    "project_records",
    "rack_sizes",
    "record",
    "recovery",
    "reliability",
    "routed",
    "service",
    "serving_plan",
    "serving_stack",
    "sites",
    "slice_of",
    "slice_words",
    "slices",
    "software_family",
    "sources_of",
    "spot",
    "stack",
    "stated_ramp",
    "storage",
    "stored_formats",
    "system_of",
    "topology",
    "training_run",
    "transfer",
    "transformer",
    "used_chips",
    "usual_operation",
    "with_constants",
    "with_words",
]

if not TYPE_CHECKING:  # old public names
    __getattr__ = renamed.getter(__name__)
