"""Integrality gap of an answer, and its alternatives compared, in words."""

from collections.abc import Sequence

from hwopt.analysis.integrality_gap import AnswerAlternative, IntegralityGap
from hwopt.output.answer import Section, Table
from hwopt.output.text.customary_units import amount

_SHOWN = (
    "chips",
    "hbm_stacks",
    "scale_up_lanes",
    "scale_up_domain",
    "nics_per_server",
    "chips_per_rack",
    "clock_ratio",
)
"""Machine variables shown in a row of the table of alternatives."""


PROVED = 1e-3
"""Optimality gap of the relaxed answer up to which the integrality gap is printed as a single figure."""


def price_words(price: IntegralityGap, unit: str) -> str:
    """Return the integrality gap, the extra cost of buying whole units, in a line."""
    relaxed, share = amount(price.relaxed.objective, unit, 4), f"{100 * price.share:.3g} % over continuous hardware"
    if price.gap > PROVED:
        return f"at least {share} ({relaxed}, the best of a short search; --alternatives searches longer)"
    return f"{share} ({relaxed}, optimality gap {100 * price.gap:.2g} %)"


def alternative_section(rows: Sequence[AnswerAlternative], unit: str) -> Section:
    """Return the table of alternative answers: the objective and the variables of the machine of each."""
    return Section("Alternatives: hardware as sold, nearest buildable, redesigned", [Table(
        "the alternatives", ("alternative", "objective", "hardware"), [_cells(each, unit) for each in rows], "lrl"
    )] if rows else [])  # fmt: skip


def _cells(each: AnswerAlternative, unit: str) -> list[str]:
    if each.objective is None or each.design is None:
        return [each.name, "", "no feasible design found"]
    parts = [f"{name} {each.design[name]:,.4g}" for name in _SHOWN if name in each.design]
    return [each.name, amount(each.objective, unit, 5), ", ".join(parts)]
