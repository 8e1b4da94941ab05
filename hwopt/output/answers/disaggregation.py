"""Answer to whether prefill and decode should be disaggregated: every split of the chips, ranked, as a table and as JSON."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hwopt.calibration.intervals import Interval
from hwopt.output.answers.plans import plan_search_document
from hwopt.output.text.layout import heading, wrapped
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
        return f"{float(plan.chips):,.0f}{named[0]} together"
    return f"{float(plan.prefill.chips):,.0f}{named[0]} + {float(plan.decode.chips):,.0f}{named[-1]}"


def _excess(each: PrefillDecodeSplit, best: PrefillDecodeSplit) -> float:
    return each.best.objective / best.best.objective - 1.0 if best.best.objective else 0.0


def answer(search: PlanSearch, splits: Sequence[PrefillDecodeSplit], chips: Chips | None = None) -> str:
    """Return whether to disaggregate, in a sentence. **Arguments:** `chips`: see `splits_lines`."""
    best, goal = splits[0], search.objective
    if not best.feasible:
        return f"Neither will do: no plan {'satisfies the limits' if best.fits else 'fits'}, together or apart."
    apart = best.best.plan.disaggregated
    other = next((each for each in splits if each.feasible and each.best.plan.disaggregated != apart), None)
    value, ways = best.best.objective, ("apart", "together") if apart else ("together", "apart")
    price = f"{PER * value:.4g} $ per million output tokens"
    said = price if goal.unit == "USD/token" else f"{goal.name} {pretty(value, goal.unit, 4)}"
    how = f"{_name(best, chips or {}).removesuffix(' together')}{'' if chips else ' chips'}, {said}"
    than = (
        f"{ways[1]} {100 * _excess(other, best):.3g} % more at best"
        if other
        else f"none {ways[1]} satisfies the limits"
    )
    if other and chips:
        than += f" ({_name(other, chips)})"
    return f"{'Yes' if apart else 'No'}: {ways[0]} is better: {how}; {than}."


def splits_document(
    search: PlanSearch, splits: Sequence[PrefillDecodeSplit], chips: Chips | None = None, **more: Any
) -> dict[str, Any]:
    """Return the answer as JSON: the best split as an answer of `plan`, then every split, the best first.

    **Arguments:** `more`: further arguments of `plan_search_document`.
    """
    return plan_search_document(search, **more) | {
        "answer": answer(search, splits, chips),
        "splits": [_row(each, splits[0], chips or {}, search.limits) for each in splits],
    }


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


def splits_lines(
    search: PlanSearch, splits: Sequence[PrefillDecodeSplit], around: Interval | None = None, chips: Chips | None = None
) -> list[str]:
    """Return a heading, the answer, and a line for each split, the best first.

    **Arguments:**

    - `around`: prediction interval of the colocated plan.
    - `chips`: chip names of each split, where there are several types of chip.
    """
    chips = chips or {}
    lines = [*heading("Should prefill and decode be apart?"), wrapped(answer(search, splits, chips))]
    if around is not None:
        low, high = (100 * (each - 1.0) for each in around.times(1.0))
        within = f"{low:+.0f} .. {high:+.0f} %"
        lines.append(
            f"  Measured steps together lie within {within} four times in five; two groups were never measured."
        )
    lines.append("")
    several = len({each.way for each in splits if each.best.plan.disaggregated}) > 1
    first = {each.way: each for each in reversed(splits)}  # the best of each split comes last here and is kept
    rows = [each for each in splits if not several or each is first[each.way]]
    width = max(17, *(len(_name(each, chips)) for each in rows[:MOST_SHOWN]))
    shown = _latencies(search.limits)
    first_, next_ = (name.split("_")[-2] if name.endswith(("p95_s", "p99_s")) else "" for name in shown)
    names = ("prefill + decode", "$ per million", "token/s", f"first {first_}".strip(), f"next {next_}".strip())
    lines.append(f"  {names[0]:<{width}}{names[1]:>14}{names[2]:>10}{names[3]:>11}{names[4]:>11}")
    lines.append(f"  {'chips':<{width}}{'output tokens':>14}{'a chip':>10}{'token':>11}{'tokens':>11}")
    lines += [_line(each, splits[0], chips, width, shown) for each in rows[:MOST_SHOWN]]
    if (more := len(rows) - MOST_SHOWN) > 0:
        lines.append(f"  and {more} more, none of them better; all with --json")
    if several:
        lines.append("  of each pair of chips its best split; all with --json")
    return lines


def _latencies(limits: Collection[str]) -> tuple[str, str]:
    """Return the names of the TTFT and the TPOT metric to show: the highest percentile that is limited, else the mean."""
    found = []
    for name in ("time_to_first_token", "time_per_output_token"):
        asked = (f"{name}_{level}_s" for level in ("p99", "p95"))
        found.append(next((each for each in asked if each in limits), f"{name}_s"))
    return found[0], found[1]


def _line(each: PrefillDecodeSplit, best: PrefillDecodeSplit, chips: Chips, width: int, shown: tuple[str, str]) -> str:
    report = each.best.report
    if not each.fits:
        return f"  {_name(each, chips):<{width}}  does not fit"
    price, rate = PER * float(report.cost_per_token_usd), float(report.tokens_per_s_per_chip)
    first, later = (pretty(float(getattr(report, name)), "s", 3) for name in shown)
    over = "" if each is best else f"+{100 * _excess(each, best):.3g} %"
    said = (
        over
        if each.feasible
        else "misses " + ", ".join(f"{name} by {100 * x:.3g} %" for name, x in each.missed.items())
    )
    plan = plan_line(report, each.best.plan)
    line = f"  {_name(each, chips):<{width}}{price:>14.4g}{rate:>10,.0f}{first:>11}{later:>11}  {said}"
    return f"{line.rstrip()}\n{'':{width + 2}}{plan}"
