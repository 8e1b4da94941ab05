"""A run on more and more chips, as one screen and as JSON."""

from collections.abc import Mapping
from typing import Any

from hwopt.evidence.intervals import Interval
from hwopt.report.layout import MODEL_ONLY, heading, wrapped
from hwopt.report.parts import number, numbers
from hwopt.report.plan_words import plan_document, plan_line
from hwopt.report.scaling_words import ends, headline, remedy, rule, sooner, why
from hwopt.report.token_prices import unit_of_work
from hwopt.study.scaling import Growth, Scaling, Size
from hwopt.units import pretty

METRICS = (
    "step_time_s",
    "mfu",
    "hfu",
    "goodput",
    "tokens_per_s",
    "memory_per_chip_bytes",
    "power_w",
    "cost_per_token_usd",
    "loss",
)
"""Numbers of a size as its report has them; time and money of the run are to one loss."""

_COLUMNS = 6
"""Parts of chip time that have a column."""

Around = Mapping[int, Interval | None]
"""Intervals of predictions by the number of chips."""


def scaling_document(answer: Scaling, around: Around, constants: str = "") -> dict[str, Any]:
    """An answer of `scale`: an entry a size, what each growth does, where it stops paying and why.

    **Arguments:** `around`: intervals; `constants` in use.
    """
    knee = answer.knee
    named = {"cheapest": answer.cheapest, "soonest": answer.soonest}
    return {
        "objective": answer.objective,
        "scaling": "weak" if answer.weak else "strong",
        "rule": rule(answer),
        "feasible": bool(answer.trained),
        "headline": headline(answer),
        "least_saving": answer.least_saving,
        "most_dearer": answer.most_dearer,
        "sooner": sooner(answer) or None,
        "knee": None if knee is None else _growth(knee, answer),
        **{name: None if size is None else size.chips for name, size in named.items()},
        "sizes": [_size(each, answer, around.get(each.chips)) for each in answer.sizes],
        "growths": [_growth(each, answer) for each in answer.growths],
        "constants": constants or None,
    }


def _size(size: Size, answer: Scaling, around: Interval | None) -> dict[str, Any]:
    fits = size.feasible
    report, search = (size.report, size.search) if size.search is not None else (None, None)
    known = report if fits else None
    within = around.times(float(known.step_time_s)) if known is not None and around is not None else (None, None)
    return {
        "chips": size.chips,
        "feasible": fits,
        "reason": size.reason or None,
        "violations": {} if report is None else report.violations(),
        "global_batch_sequences": number(size.run.global_batch_sequences),
        "tokens_needed": size.tokens_needed,
        "plan": None if known is None or search is None else plan_document(known, search.best.plan),
        **{name: None if known is None else number(getattr(known, name)) for name in METRICS},
        "step_time_interval_s": None if within[0] is None else list(within),
        "run_time_s": size.time_s if fits else None,
        "run_cost_usd": size.cost_usd if fits else None,
        "speedup": answer.speedup(size) if fits else None,
        "efficiency": answer.efficiency(size) if fits else None,
        "breakdown": None if known is None else numbers(known.breakdown._asdict()),
        "chip_time_s_per_token": size.chip_time if fits else None,
        "certificate": None if search is None else {"lower_bound": search.lower_bound, "gap": search.gap, "scope": search.scope},
        "examined": None if search is None else search.examined,
        "fitting": None if search is None else search.fitting,
    }  # fmt: skip


def _growth(each: Growth, answer: Scaling) -> dict[str, Any]:
    return {
        "from_chips": each.before.chips,
        "to_chips": each.after.chips,
        "saved_by_a_doubling": each.saved,
        "dearer_by_a_doubling": each.dearer,
        "usd_per_second_saved": each.usd_per_second_saved,
        "pays": answer.pays(each),
        "causes": {cause.name: cause.share for cause in each.causes},
        "why": why(each),
    }


def scaling_screen(answer: Scaling, title: str, around: Around, constants: str = "", recovery: str = "") -> str:
    """One screen for `scale`. **Arguments:** `title`: workload, chip and site; `recovery` in use; others as of the document."""
    lines = [title, f"  {rule(answer)}", "", wrapped(headline(answer), "", "")]
    if answer.knee is not None:
        said = (why(answer.knee), sooner(answer), remedy(answer, recovery))
        lines.append(wrapped(" ".join(each for each in said if each), "", ""))
    lines += [f"  {each}" for each in ends(answer)]
    if answer.trained:
        lines += ["", *table(answer, around), *_plans(answer), *_chip_time(answer)]
    if none := [each for each in answer.sizes if not each.feasible]:
        lines += heading("Sizes without an answer")
        lines += [wrapped(each.reason, f"  {each.chips:>9,}  ", " " * 13) for each in none]
    if not answer.trained:
        return "\n".join(lines)
    proof = "each size's plan is the best of all in its lattice, every one examined: gap 0"
    return "\n".join([*lines, "", wrapped(f"{proof}; {MODEL_ONLY}; constants: {constants}")])


def table(answer: Scaling, around: Around | None = None) -> list[str]:
    """A line for each size that trains. **Arguments:** `around` as of the document; without any there is no column for them."""
    around = around if around and any(around.values()) else {}  # nothing is known of models that nobody measured
    within = f"{'four in five':>17}  " if around else ""
    batch = f"{'batch':>9}  {'tokens':>6}  " if answer.weak else ""
    unit, _ = unit_of_work(answer.trained[0].run)
    lines = [
        f"  {'chips':>9}  {batch}{'step':>8}  {within}{'MFU':>6}  {'goodput':>7}  {'run':>10}  {'cost':>8}  {f'$/M{unit}':>8}  "
        f"{'speed-up':>8}  {'effic.':>6}  {'saved':>6}  {'dearer':>7}"
    ]
    grown = {each.after.chips: each for each in answer.growths}
    return [*lines, *(_line(each, answer, around, grown.get(each.chips)) for each in answer.trained)]


def _line(size: Size, answer: Scaling, around: Around, growth: Growth | None) -> str:
    report, own = size.report, around.get(size.chips)
    step = float(report.step_time_s)
    ends = "" if own is None else "{} .. {}".format(*(pretty(end, "s", 3) for end in own.times(step)))
    within = f"{ends:>17}  " if around else ""
    batch = f"{float(size.run.global_batch_sequences):>9,.0f}  {size.tokens_needed:>5.2f}x  " if answer.weak else ""
    per_million = 1e6 * size.cost_usd / float(size.run.tokens) * unit_of_work(size.run)[1]
    doubling = "" if growth is None else f"  {100 * growth.saved:>4.1f} %  {100 * growth.dearer:>+5.1f} %"
    return (
        f"  {size.chips:>9,}  {batch}{pretty(step, 's', 3):>8}  {within}{100 * float(report.mfu):>4.1f} %  "
        f"{100 * float(report.goodput):>5.1f} %  {pretty(size.time_s, 's', 3):>10}  {pretty(size.cost_usd, 'USD', 3):>8}  "
        f"{per_million:>8.4g}  {answer.speedup(size):>8.4g}  {100 * answer.efficiency(size):>4.0f} %{doubling}"
    ).rstrip()


def _plans(answer: Scaling) -> list[str]:
    lines = heading("The best plan of each size")
    for each in answer.trained:
        assert each.search is not None
        line = plan_line(each.report, each.search.best.plan)
        lines.append(wrapped(line, f"  {each.chips:>9,}  ", " " * 13))
    return lines


def _chip_time(answer: Scaling) -> list[str]:
    """Which share of chip time goes where, the largest at any size first."""
    shares = {each.chips: _shares(each) for each in answer.trained}
    most = lambda name: max(each.get(name, 0.0) for each in shares.values())
    names = sorted({name for each in shares.values() for name in each}, key=lambda name: -most(name))[:_COLUMNS]
    lines = heading("Where chip time goes, % of it")
    words = [name.replace("_", " ") for name in names]
    width = [max(len(word), 6) for word in words]
    head = "  ".join(f"{word:>{wide}}" for word, wide in zip(words, width, strict=True))
    lines.append(f"  {'chips':>9}  {head}  {'rest':>5}")
    for chips, share in shares.items():
        cells = [f"{100 * share.get(name, 0.0):>{wide}.1f}" for name, wide in zip(names, width, strict=True)]
        rest = 100 * (1.0 - sum(share.get(name, 0.0) for name in names))
        lines.append(f"  {chips:>9,}  {'  '.join(cells)}  {abs(rest):>5.1f}")
    return lines


def _shares(size: Size) -> dict[str, float]:
    whole = sum(size.chip_time.values())
    return {name: value / whole for name, value in size.chip_time.items()}
