"""Value of a 10 % improvement of each input: keys of JSON, and sections by part of the machine."""

from __future__ import annotations

from collections.abc import Iterator

from hwopt.analysis.sensitivity import Sensitivity
from hwopt.analysis.sensitivity.improvement import ImprovementValue, PartImprovement, improvement_values
from hwopt.analysis.sensitivity.ranges import UNSTATED_K
from hwopt.design.template_inputs import Input
from hwopt.output.answer import Section, Sentences, Table
from hwopt.output.html import components
from hwopt.output.schema.elements import NUMBER, TEXT, YES_OR_NO, listed, maybe
from hwopt.output.schema.keys import Keys
from hwopt.output.text.customary_units import amount, shown

_LEAST = 5e-7
"""Saving as a share of the objective below which an input is named without a line of its own."""

_BOUGHT = ("cluster.storage.capacity_bytes", "cluster.storage.checkpoint_bytes_per_s_per_chip")
"""Sizes that are bought. Where less of one saves, its cost outweighs its use."""

_READING = (
    "Improved means changed to the side that saves, up or down. The tables list every input of the cooling and of a chip's "
    "technology, and at most {most} of any other part."
)

_INPUT = Keys({
    "name": (TEXT, lambda row, _: row.parameter.input.name),
    "value": (NUMBER, lambda row, _: row.parameter.input.value),
    "unit": (TEXT, lambda row, _: row.parameter.input.unit),
    "better": (NUMBER, lambda row, _: row.parameter.input.value * row.factor),
    "elasticity": (maybe(NUMBER), lambda row, _: row.parameter.elasticity),
    "share": (maybe(NUMBER), lambda row, _: row.share),
    "saves": (maybe(NUMBER), lambda row, _: row.saves),
    "saves_unit": (TEXT, lambda _, unit: unit),
})  # fmt: skip
WORTH = Keys({
    "part": (TEXT, lambda part, _: part.part),
    "technology": (YES_OR_NO, lambda part, _: part.is_technology),
    "share": (maybe(NUMBER), lambda part, _: part.share),
    "saves": (maybe(NUMBER), lambda part, _: part.saves),
    "saves_unit": (TEXT, lambda _, unit: unit),
    "numbers": (listed(_INPUT.schema), lambda part, unit: [_INPUT.document(row, unit) for row in part.rows]),
    "idle": (listed(TEXT), lambda part, _: [each.name for each in part.idle]),
})  # fmt: skip
"""Keys of a part of the machine. `saves` is in the objective's unit, `share` is relative to it."""


def worth_sections(answer: Sensitivity, top: int) -> Iterator[Section]:
    """Yield the savings of all parts, then those of all inputs of a technology and of the first `top / 4` of other parts.

    The requirements of the question itself are left out.
    """
    parts, goal = _parts(answer), answer.problem.objective
    unit, of_goal, most = goal.unit, f"of the {components.words(goal.name, goal.unit)}", max(1, top // 4)
    totals = [[part.part, amount(part.saves, unit, 4), f"{100 * part.share:.3f} %"] for part in parts if part.rows]
    if not totals:
        return
    yield Section(
        f"Savings from a 10 % improvement ({UNSTATED_K:g} K for temperatures), by the slope at the optimum",
        [
            Table("parts", ("all inputs together of", "saving", of_goal), totals),
            Sentences([_READING.format(most=most)]),
        ],
    )
    for part in parts:
        rows = _listed(part, top)
        heads = (part.part, "now -> improved", "saving", of_goal, "")
        table = Table(part.part, heads, [_cells(row, unit) for row in rows], "lrrrl")
        yield Section(part.part, [*([table] if rows else []), Sentences(_nothing(part))], titled=False)


def listed_inputs(answer: Sensitivity, top: int) -> list[Input]:
    """Return the inputs that have a line in `worth_sections`, in its order."""
    return [row.parameter.input for part in _parts(answer) for row in _listed(part, top)]


def _parts(answer: Sensitivity) -> list[PartImprovement]:
    """Return the parts of the machine without the requirements of the question itself."""
    return [part for part in improvement_values(answer) if part.part != "what is asked"]


def _listed(part: PartImprovement, top: int) -> list[ImprovementValue]:
    """Return the inputs of a part that have a line: all with an effect for a technology, else the first `top / 4`."""
    rows = [row for row in part.rows if row.share >= _LEAST]
    return rows if part.is_technology else rows[: max(1, top // 4)]


def _cells(row: ImprovementValue, unit: str) -> list[str]:
    each = row.parameter.input
    now, better = (shown(each, factor) for factor in (1.0, row.factor))
    mark = "~" if row.parameter.kinked else ""
    saved = f"{100 * row.share:.3f} %{mark}"
    return [_name(each.name), f"{now} -> {better}", amount(row.saves, unit, 4), saved, _remark(row)]


def _remark(row: ImprovementValue) -> str:
    """Return a remark on an improvement that is not a tenth more of something good; empty for most inputs."""
    each = row.parameter.input
    if row.factor > 1.0 and row.factor == each.quantity.most / each.value:
        return f"{100 * (row.factor - 1.0):.1f} % only: its limit"
    return "requirement reduced: less to buy" if row.factor < 1.0 and each.name in _BOUGHT else ""


def _name(name: str) -> str:
    """Return an input's name without the module that its part's title already states."""
    return name.removeprefix("cluster.").removeprefix("project.")


def _nothing(part: PartImprovement) -> list[str]:
    """Return a sentence that names the inputs of a technology without effect here."""
    small = [row.parameter.input for row in part.rows if row.share < _LEAST]
    names = [each.name.rpartition(".")[2] for each in (*small, *part.idle)] if part.is_technology else []
    return [f"no effect on this optimum: {', '.join(names)}"] if names else []
