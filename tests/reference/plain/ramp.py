"""A run whose batch grows: its steps counted, stage by stage."""

from __future__ import annotations

from tests.reference.plain.rack import replaced
from tests.reference.plain.step import step


def stages(run) -> list[tuple[float, float]]:
    """Share of the tokens and batch over the last one, of each stage."""
    if run.ramp is None:
        return [(1.0, 1.0)]
    early = [(float(w), float(f)) for w, f in zip(run.ramp.token_shares, run.ramp.batch_fractions, strict=True)]
    return [*early, (1.0 - sum(share for share, _ in early), 1.0)]


def steps(run, cluster, plan) -> tuple[list[dict], dict]:
    """A step of each stage, and what the last batch's tokens take on average, counted over all steps of the run."""
    each, whole = [], run.global_batch_sequences * run.sequence_length
    total = dict.fromkeys(("step", "busy", "hbm", "slowdown", "energy"), 0.0)
    for share, part in stages(run):
        one = step(replaced(run, global_batch_sequences=part * run.global_batch_sequences), cluster, plan)
        count = share * run.tokens / (part * whole)
        for name in ("step", "busy", "hbm"):
            total[name] += count * one[name]
        for name in ("slowdown", "energy"):  # of the arithmetic, which goes with tokens
            total[name] += share * one[name]
        each.append(one)
    batches = run.tokens / whole
    return each, total | {name: total[name] / batches for name in ("step", "busy", "hbm")}


def learnt_part(run) -> float:
    """The one batch that wastes as many tokens, over the last one: least steps to a share c of the tokens go as c^(1 - a)."""
    reached, wasted, power = 0.0, 0.0, 1.0 - run.law.critical_token_exponent
    for share, part in stages(run):
        wasted += part * ((reached + share) ** power - reached**power)
        reached += share
    return wasted


def rows(run, each: list[dict], mean: dict, mfu: float) -> dict[str, list[float]]:
    """The report's numbers of the stages; none without a ramp."""
    if run.ramp is None:
        return {}
    names = ("tp_comm_s", "cp_comm_s", "ep_comm_s", "pp_comm_s", "dp_comm_s", "sites_comm_s")
    pairs = list(zip(stages(run), each, strict=True))
    table = {
        "batch_sequences": [part * run.global_batch_sequences for (_, part), _ in pairs],
        "tokens": [share * run.tokens for (share, _), _ in pairs],
        "step_time_s": [one["step"] for _, one in pairs],
        "time_share": [share / part * one["step"] / mean["step"] for (share, part), one in pairs],
        "mfu": [mfu * mean["step"] / one["step"] * part for (_, part), one in pairs],
        "bubble_share": [one["parts"]["pp_bubble_s"] / one["step"] for _, one in pairs],
        "exposed_share": [sum(one["parts"][name] for name in names) / one["step"] for _, one in pairs],
    }
    return {f"stages.{name}": values for name, values in table.items()}
