"""Candidate plans for a training row that states none: degrees that divide its chips and its batch."""

import math
from dataclasses import replace

from hwopt.calibration.measured.columns import MeasuredRun
from hwopt.design.plan_lattice import Sizes, named, plan_points, plan_relations

_TP, _PP, _CP = (1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2)
"""Candidate degrees (assumption: powers of two, tensor-parallel groups within one server)."""

_LONG = 8192
"""Sequence length in tokens from which context parallelism is considered (assumption, 4,096 to 32,768)."""

_RARER = 0.5
"""Relative weight of context parallelism, where it is considered (assumption, 0.1 to 1)."""


def states_no_plan(row: MeasuredRun) -> bool:
    """Return whether tp or pp is blank and does not follow from chips and replicas."""
    blank = any(name in row.columns and getattr(row, name) is None for name in ("tp", "pp"))
    return blank and row.num_gpus != 1 and row.dp != row.num_gpus


def possible_plans(row: MeasuredRun) -> list[tuple[MeasuredRun, float]]:
    """Return a row completed by every candidate plan, with the plan's prior weight; plans with the least splitting first.

    **Arguments:** `row` with chips, batch and sequence length.
    """
    assert row.num_gpus and row.global_batch_sequences and row.seq_len
    experts, chips, batch = row.moe_experts or 0, row.num_gpus, row.global_batch_sequences
    values = {
        "tp": (row.tp,) if row.tp else _TP,
        "pp": (row.pp,) if row.pp else _PP,
        "cp": (row.cp,) if row.cp else _CP if row.seq_len >= _LONG else (1,),
        "ep": (row.ep,) if row.ep else tuple(sorted({1, min(experts, 8), experts} - {0})),
        "dp": range(1, chips + 1) if row.dp is None else (row.dp,),
        "micro_batches": range(1, math.ceil(batch) + 1),
    }
    sizes = Sizes(named(*values), (chips, chips), (batch, batch), chunks=row.layers or math.inf)
    found = plan_points(values, plan_relations(sizes, "chips", "batch", "chunks", "experts"))
    found.sort(key=lambda each: each["tp"] * each["pp"] * each["cp"])
    own = lambda each: {name: each[name] for name in ("tp", "pp", "cp", "ep", "dp")}
    return [(replace(row, **own(each)), _RARER if each["cp"] > 1 else 1.0) for each in found]
