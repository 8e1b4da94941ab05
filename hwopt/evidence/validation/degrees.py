"""Plans that a row may have had which states none: degrees that divide its chips and its batch."""

from dataclasses import replace
from itertools import product

from hwopt.evidence.columns import MeasuredRun

_TP, _PP, _CP = (1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2)
"""Degrees that are tried (assumption: powers of two, tensor groups of at most a server)."""

_LONG = 8192
"""Tokens of a sequence from which on context parallelism is tried (assumption, 4,096 to 32,768)."""

_RARER = 0.5
"""Weight of context parallelism over none, where it is tried (assumption, 0.1 to 1)."""


def states_no_plan(row: MeasuredRun) -> bool:
    """Whether degrees are blank that chips and replicas leave open."""
    blank = any(name in row.columns and getattr(row, name) is None for name in ("tp", "pp"))
    return blank and row.num_gpus != 1 and row.dp != row.num_gpus


def plans(row: MeasuredRun) -> list[tuple[MeasuredRun, float]]:
    """The row with the degrees of every plan that it may have had, and how usual each is; the least split first.

    **Arguments:** `row` with chips, batch and sequence.
    """
    assert row.num_gpus and row.global_batch_sequences and row.seq_len
    experts = row.moe_experts or 0
    tried = (
        (row.tp,) if row.tp else _TP,
        (row.pp,) if row.pp else _PP,
        (row.cp,) if row.cp else _CP if row.seq_len >= _LONG else (1,),
        (row.ep,) if row.ep else tuple(sorted({1, min(experts, 8), experts} - {0})),
    )
    found = []
    for tp, pp, cp, ep in product(*tried):
        dp, left = divmod(row.num_gpus, tp * pp * cp)
        whole = not left and dp and row.dp in (None, dp) and row.global_batch_sequences % dp == 0
        if whole and tp * cp * dp % ep == 0 and pp <= (row.layers or pp):
            found.append((replace(row, tp=tp, pp=pp, cp=cp, ep=ep, dp=dp), _RARER if cp > 1 else 1.0))
    return sorted(found, key=lambda each: (each[0].tp or 1) * (each[0].pp or 1) * (each[0].cp or 1))
