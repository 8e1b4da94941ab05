"""Answer to whether prefill and decode should be disaggregated: every split of the chips, ranked, as a section and as JSON."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hwopt.calibration.intervals import Interval
from hwopt.output.answer import Lines, Section, Sentences, Table
from hwopt.output.answers.plans import latency_words
from hwopt.output.text.parts import number
from hwopt.output.text.plans import plan_document, plan_line
from hwopt.output.text.token_prices import PER, price_document
from hwopt.planning.plan_table import PlanSearch, PrefillDecodeSplit
from hwopt.units import pretty

MOST_SHOWN = 16
"""Maximum number of splits that a screen lists; the JSON has all."""

_MEASURES = (
    "cost_per_token_usd", "tokens_per_s_per_chip", "time_to_first_token_s", "time_per_output_token_s", "prefill_chips",
    "decode_chips",
)  # fmt: skip


Chips = Mapping[str, Sequence[str]]
"""Chip names of each split: one, or those of prefill and decode. Empty where all machines have the same chip."""


def _name(each: PrefillDecodeSplit, chips: Chips) -> str:
    """Return the chip counts and chip names of a split: of the prefill and the decode group, or of the colocated group."""
    plan, named = each.best.plan, [f" {name}" for name in chips.get(each.way, ())] or [""]
    if not plan.disaggregated:
        return f"{float(plan.chips):,.0f}{named[0]}"
    return f"{float(plan.prefill.chips):,.0f}{named[0]} + {float(plan.decode.chips):,.0f}{named[-1]}"


def _excess(each: PrefillDecodeSplit, best: PrefillDecodeSplit) -> float:
    return each.best.objective / best.best.objective - 1.0 if best.best.objective else 0.0


def _runner_up(splits: Sequence[PrefillDecodeSplit]) -> PrefillDecodeSplit | None:
    """Return the best split of the other kind than the best one: disaggregated if that is colocated, or the reverse."""
    apart = splits[0].best.plan.disaggregated
    return next((each for each in splits if each.feasible and each.best.plan.disaggregated != apart), None)


def answer(search: PlanSearch, splits: Sequence[PrefillDecodeSplit], chips: Chips | None = None) -> str:
    """Return whether to disaggregate, in a sentence. **Arguments:** `chips`: see `splits_section`."""
    best, goal = splits[0], search.objective
    if not best.feasible:
        return f"Neither: no plan {'satisfies the limits' if best.fits else 'fits'}, colocated or disaggregated."
    apart = best.best.plan.disaggregated
    other = _runner_up(splits)
    value, ways = best.best.objective, ("disaggregated", "colocated") if apart else ("colocated", "disaggregated")
    price = f"{PER * value:.4g} $ per million output tokens, input included"
    said = price if goal.unit == "USD/token" else f"{goal.name} {pretty(value, goal.unit, 4)}"
    verdict = f"{'Yes, disaggregate' if apart else 'No, colocate'}: {_name(best, chips or {})}{'' if chips else ' chips'}, {said}"
    if other is None:
        return f"{verdict}; no {ways[1]} plan satisfies the limits."
    which = f" ({_name(other, chips)})" if chips else ""
    return f"{verdict}; {100 * _excess(other, best):.3g} % more at best where {ways[1]}{which}."


def splits_document(
    search: PlanSearch, splits: Sequence[PrefillDecodeSplit], chips: Chips | None = None
) -> dict[str, Any]:
    """Return as JSON which split of the chips between prefill and decode is best, and the list of splits with the best first.

    **Arguments:**

    - `search`: the search over all splits.
    - `splits`: the splits, the best first.
    - `chips`: chip names of each split; None where all splits use the same chip.
    """
    rows = [_row(each, splits[0], chips or {}, search.limits) for each in splits]
    return {"answer": answer(search, splits, chips), "splits": rows}


def _row(each: PrefillDecodeSplit, best: PrefillDecodeSplit, chips: Chips, limits: Collection[str]) -> dict[str, Any]:
    report, fits, named = each.best.report, each.fits, chips.get(each.way, ())
    names = (*_MEASURES, *(name for name in limits if name not in _MEASURES))
    measures = {name: number(getattr(report, name)) if fits else None for name in names}
    return {
        "way": "disaggregated" if each.best.plan.disaggregated else "colocated",
        **({"chip": named[0], "decode_chip": named[-1]} if named else {}),
        "feasible": each.feasible,
        "missed": dict(each.missed),
        "objective": number(each.best.objective) if fits else None,
        "excess": number(_excess(each, best)) if each.feasible else None,
        **measures,
        **(price_document(report) if fits else {}),
        "plan": plan_document(report, each.best.plan),
    }


def splits_section(
    search: PlanSearch, splits: Sequence[PrefillDecodeSplit], around: Interval | None = None, chips: Chips | None = None
) -> Section:
    """Return the section that answers whether to disaggregate, with a row for each split, the best first.

    **Arguments:**

    - `around`: prediction interval of the colocated plan.
    - `chips`: chip names of each split, where there are several types of chip.
    """
    chips = chips or {}
    said = [answer(search, splits, chips)]
    if around is not None:
        low, high = around.times(1.0)
        within = f"{100 * (low - 1.0):+.0f} to {100 * (high - 1.0):+.0f} %"
        said.append(
            f"80 % prediction interval of colocated step times: {within}. Disaggregated step times were not measured."
        )
        other = _runner_up(splits)
        if other is not None and 1.0 + _excess(other, splits[0]) < max(high, 1.0 / low):
            said.append("The difference lies within this interval: measurements may reverse the answer.")
    if "time_to_first_token" not in " ".join(search.limits) and any(each.best.plan.disaggregated for each in splits):
        said.append(
            f"No limit of TTFT was stated: the batch of prefill prompts was chosen by {search.objective.name} alone. A first token "
            "waits for the whole batch."
        )
    several = len({each.way for each in splits if each.best.plan.disaggregated}) > 1
    first = {each.way: each for each in reversed(splits)}  # the best of each split comes last here and is kept
    rows = [each for each in splits if not several or each is first[each.way]]
    listed, shown = rows[:MOST_SHOWN], _latencies(search.limits)
    latencies = map(latency_words, shown)
    heads = (
        "prefill + decode chips",
        "$ per million output tokens, input included",
        "token/s per chip",
        *latencies,
        "",
    )
    cells = [_cells(each, splits[0], chips, shown) for each in listed]
    plans = [plan_line(each.best.report, each.best.plan) if each.fits else "" for each in listed]
    notes = (
        [f"and {len(rows) - MOST_SHOWN} more, all of them worse or equal; listed with --json"]
        if len(rows) > MOST_SHOWN
        else []
    )
    notes += ["the best split of each pair of chips; all splits with --json"] if several else []
    table = Table("splits", heads, cells, "lrrrrl", under=plans)
    return Section("Disaggregate prefill and decode?", [Sentences(said, later="  "), table, Lines(notes)])


def _latencies(limits: Collection[str]) -> tuple[str, str]:
    """Return the names of the TTFT and the TPOT metric to show: the highest level that is limited, else the mean."""
    found = []
    for name in ("time_to_first_token", "time_per_output_token"):
        asked = (f"{name}_{level}_s" for level in ("p99", "p95", "full_batch"))
        found.append(next((each for each in asked if each in limits), f"{name}_s"))
    return found[0], found[1]


def _cells(each: PrefillDecodeSplit, best: PrefillDecodeSplit, chips: Chips, shown: tuple[str, str]) -> list[str]:
    report = each.best.report
    name = f"{_name(each, chips)}{'' if each.best.plan.disaggregated else ' colocated'}"
    if not each.fits:
        return [name, *["-"] * 4, "does not fit"]
    price, rate = PER * float(report.cost_per_token_usd), float(report.tokens_per_s_per_chip)
    latencies = (pretty(float(getattr(report, metric)), "s", 3) for metric in shown)
    over = "" if each is best else f"+{100 * _excess(each, best):.3g} %"
    missed = ", ".join(f"{latency_words(metric)} by {100 * x:.3g} %" for metric, x in each.missed.items())
    return [name, f"{price:.4g}", f"{rate:,.0f}", *latencies, over if each.feasible else f"misses {missed}"]
