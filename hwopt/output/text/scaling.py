"""Scaling study in sentences: where more chips stop paying, and which components of the step grew there."""

from collections.abc import Sequence

from hwopt.analysis.chip_time import FAILURES, RECOMPUTED, WASTED
from hwopt.analysis.scaling import PRICE, GrowthCause, Scaling, ScalingStep
from hwopt.output.text.parts import STEP
from hwopt.output.text.plans import chip_count
from hwopt.units import pretty

CAUSES = STEP | {
    RECOMPUTED: "recomputation",
    FAILURES: "failures",
    WASTED: "tokens that the larger batch wastes",
    PRICE: "cost of a chip-hour (network and power included)",
}
"""Cause of cost growth from one size to the next -> its description."""

SLOWEST_RECOVERY = "from-storage"
"""Name of the slowest failure recovery, from which the others save time."""

_NAMED = 4
"""Maximum number of causes that a sentence names."""

_WORTH_NAMING = 0.05
"""Share of the total growth above which a cause is named."""


def leading(causes: Sequence[GrowthCause]) -> list[GrowthCause]:
    """Return the causes that explain most of the growth, at most `_NAMED`."""
    grown = sum(each.share for each in causes if each.share > 0.0)
    return [each for each in causes if each.share > _WORTH_NAMING * grown > 0.0][:_NAMED]


def points(share: float) -> str:
    """Return a share in percentage points with its sign."""
    text = f"{100 * share:+.1f}" if abs(share) < 0.0995 else f"{100 * share:+.0f}"
    return "0" if text in ("+0.0", "-0.0") else text


def effect(growth: ScalingStep) -> str:
    """Return the effect on time and cost of doubling the chips, in words."""
    time = (
        f"save {100 * growth.saved:.1f} % of the run time"
        if growth.saved > 0
        else f"take {-100 * growth.saved:.1f} % longer"
    )
    money = "more" if growth.dearer >= 0 else "less"
    return f"{time} and cost {abs(100 * growth.dearer):.1f} % {money}"


def headline(answer: Scaling) -> str:
    """Return where adding chips stops paying, in a sentence or two."""
    if not answer.trained:
        return "No size fits." if all(each.search is not None for each in answer.sizes) else "No size has an answer."
    least, most = f"{100 * answer.least_saving:.3g} %", f"{100 * answer.most_dearer:.3g} %"
    asked = f"required of a doubling: at least {least} of the run time saved, at most {most} more cost"
    last = answer.trained[-1]
    if answer.knee is not None:
        growth = answer.knee
        return f"Adding chips stops paying at {growth.before.chips:,}: twice as many {effect(growth)} ({asked})."
    if len(answer.trained) == 1:
        return f"Only {last.chips:,} chips have an answer; there is nothing to compare."
    beyond = [each for each in answer.sizes if each.chips > last.chips]
    if beyond:
        what = "no plan fits" if all(each.search is not None for each in beyond) else "there is no answer"
        return f"Adding chips pays up to {last.chips:,}; beyond, {what} ({beyond[0].chips:,}: {beyond[0].reason})."
    return f"Adding chips pays up to {last.chips:,}, the largest size requested ({asked})."


def sooner(answer: Scaling) -> str:
    """Return the cost of finishing a day sooner, before and beyond the knee; empty without a knee or without a cost.

    The knee is the first increase in size that does not pay.
    """
    if answer.knee is None:
        return ""
    place = answer.growths.index(answer.knee)
    sides = answer.growths[max(place - 1, 0) : place + 1]
    prices = [(each, 86400.0 * (each.usd_per_second_saved or 0.0)) for each in sides]
    said = [
        f"{pretty(usd, 'USD', 3)} from {each.before.chips:,} to {each.after.chips:,}"
        for each, usd in prices
        if usd > 0.0
    ]
    return f"Finishing a day sooner costs {', '.join(said)}." if said else ""


def remedy(answer: Scaling, recovery: str) -> str:
    """Return the recovery options to try where failures grow most; else empty. **Arguments:** `recovery`: the one in use."""
    if answer.knee is None or answer.knee.causes[0].name != FAILURES or recovery != SLOWEST_RECOVERY:
        return ""
    return "Failures are the largest cause: try faster recovery with --recovery in-memory or hot-spares."


def why(growth: ScalingStep) -> str:
    """Return the components whose growth explains the change of cost between two sizes, in a sentence."""
    ratio = growth.after.cost_usd / growth.before.cost_usd - 1.0
    between = f"from {growth.before.chips:,} to {growth.after.chips:,} chips"
    named = leading(growth.causes)
    if ratio <= 0.0 or not named:
        return f"The run costs {abs(100 * ratio):.1f} % less {between}."
    parts = ", ".join(f"{CAUSES[each.name]} {points(each.share)}" for each in named)
    return f"The run costs {100 * ratio:.3g} % more {between}, in percentage points: {parts}."


def ends(answer: Scaling) -> list[str]:
    """Return the cheapest and the fastest size, a line each."""
    cheapest, soonest = answer.cheapest, answer.soonest
    if cheapest is None or soonest is None:
        return []
    said = lambda size: f"{chip_count(size.chips)}, {pretty(size.time_s, 's', 3)} for {pretty(size.cost_usd, 'USD', 4)}"
    return [f"cheapest: {said(cheapest)}", f"fastest: {said(soonest)}"]


def rule(answer: Scaling) -> str:
    """Return how the batch size depends on the number of chips (weak or strong scaling), in words."""
    base = answer.sizes[0]
    batch = float(base.run.global_batch_sequences)
    if answer.weak:
        share = batch / base.chips
        return (
            f"weak scaling: {share:.4g} sequences per chip at every size ({batch:,.0f} on {base.chips:,}); time and cost are "
            f"counted to the loss that {base.chips:,} chips reach"
        )
    return f"strong scaling: {batch:,.0f} sequences per step at every size"
