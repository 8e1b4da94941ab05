"""A claim about a machine and its training run; every number may be left open."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwopt import renamed
from hwopt.quantity import quantity


def _stated(unit: str, meaning: str, **settings: Any) -> Any:
    """Declare a number that a claim may state."""
    return quantity(unit, meaning, default=math.nan, **settings)


@dataclass(frozen=True)
class StatedClaim:
    """Numbers that a claim may state, in SI. Their meanings complete "the blueprint states ..."."""

    parameters: float = _stated("parameter", "parameters of the model")
    active_parameters: float = _stated("parameter", "parameters that one token meets")
    tokens: float = _stated("token", "tokens of the run")
    batch_tokens: float = _stated("token", "tokens of a step")
    global_batch: float = _stated("sequence", "sequences of a step")
    sequence_length: float = _stated("token", "tokens of a sequence")
    steps: float = _stated("", "steps of the run")
    chips: float = _stated("chip", "chips")
    racks: float = _stated("", "racks")
    rack_chips: float = _stated("chip", "chips of a rack")
    chip_power_w: float = _stated("W", "power of a chip alone")
    rack_power_w: float = _stated("W", "power that a rack is given")
    power_w: float = _stated("W", "power that the machine is given, at the meter")
    pue: float = _stated("", "power at the meter over IT power")
    chip_memory_bytes: float = _stated("B", "memory of a chip")
    peak_flops_per_s: float = _stated("FLOP/s", "peak of a chip in the precision of the run")
    scale_out_bytes_per_s: float = _stated("B/s", "network outside the scale-up domain, a chip and direction",
                                           key="scale_out_bandwidth")  # fmt: skip
    oversubscription: float = _stated("", "links to chips over links beyond a pod")
    time_s: float = _stated("s", "time of the run")
    chip_hours_s: float = _stated("s", "chips times time", key="chip_hours")
    mfu: float = _stated("", "model FLOPs over the peak")
    goodput: float = _stated("", "share of time that failures leave")
    communication: float = _stated("", "share of a step that waits for communication")
    chip_hour_price: float = _stated("USD/s", "price of a chip by the hour")
    run_cost_usd: float = _stated("USD", "cost of the run")
    capex_usd: float = _stated("USD", "cost of building the machine")
    energy_j: float = _stated("J", "energy of the run at the meter")


if not TYPE_CHECKING:  # old public names
    __getattr__ = renamed.getter(__name__)
