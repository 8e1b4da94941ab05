"""Export control rules in design questions: limits on the chip, and the alternatives that are left to the search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import jax

from hwopt import catalog
from hwopt.errors import UserError, suggest
from hwopt.hardware.export_rule import Case, ExportRule
from hwopt.model.chip import export_limits
from hwopt.units import pretty


class Question(Protocol):
    """The fields of a machine question that an export control rule uses."""

    @property
    def export_rule(self) -> str: ...
    @property
    def export_case(self) -> str: ...
    @property
    def chip(self) -> str: ...
    @property
    def design(self) -> str: ...
    @property
    def frees_links(self) -> bool: ...


FIELDS = {
    "tpp": "tpp_budget",
    "density": "performance_density_budget_per_m2",
    "io": "io_rate_budget_bytes_per_s",
}
"""Metric of a rule -> the budget that limits it."""

CASE = "export_case"


def figures_of(chip: str) -> dict[str, float]:
    """Return the metrics of a stock chip, in SI. The I/O rate is left out where the chip's file does not state its host
    link.
    """
    entry = catalog.record("chips", chip)
    with jax.enable_x64(True):
        sold = catalog.chip(chip)
        figures = {
            "tpp": float(export_limits.total_processing_performance(sold)),
            "density": float(export_limits.performance_density_per_m2(sold)),
        }
        if "host_bandwidth" in entry.quantities:
            figures["io"] = float(export_limits.io_rate_bytes_per_s(sold, catalog.network(chip)))
    return figures


def limits(question: Question) -> dict[str, float]:
    """Return the upper limits that keep the chip outside the export control rule named in a design problem.

    A rule can be avoided in several ways, its cases. Each case is a set of limits on chip metrics. The result is empty where
    no rule is named.

    **Arguments:** `question`: the design problem.

    **Returns:** budget field of the problem, such as `tpp_budget` -> its limit in SI units.

    **Raises:** `UserError` in any of these cases:

    - the rule or the case is unknown, or a case is named without a rule;
    - a catalog chip falls under the rule, or does not meet the named case;
    - several cases are possible, none is named, and the search may change the chip or its links.
    """
    if not question.export_rule:
        if question.export_case:
            raise UserError(f"{CASE} = {question.export_case} needs a rule: add --export-rule october-2023")
        return {}
    rule = catalog.export_rule(question.export_rule)
    if question.export_case and question.export_case not in rule.cases:
        raise UserError(
            f"{CASE}: {rule.name} has no '{question.export_case}': {suggest(question.export_case, rule.cases)}"
        )
    ways = _open_cases(question, rule)
    if question.export_case:
        if question.export_case not in ways:
            raise UserError(f"{CASE} = {question.export_case}: {_caught(question, rule)}")
        ways = {question.export_case: ways[question.export_case]}
    if not ways:
        raise UserError(f"export_rule = {rule.name}: {_caught(question, rule)}")
    if len(ways) > 1 and _chosen(question):
        raise UserError(
            f"export_rule = {rule.name} allows {len(ways)} sets of limits: choose one with --export-case {next(iter(ways))}, "
            f"or let the search choose: --choices '{CASE}={'|'.join(ways)}'"
        )
    way = next(iter(ways.values()))
    return {FIELDS[name]: each.limit for name, each in way.items()}


def left_open(question: Question) -> dict[str, list[str]]:
    """Return the field `export_case` with its possible values, where several cases remain and none is named; else an empty
    table.
    """
    if not question.export_rule or question.export_case or not _chosen(question):
        return {}
    ways = _open_cases(question, catalog.export_rule(question.export_rule))
    return {CASE: list(ways)} if len(ways) > 1 else {}


def _chosen(question: Question) -> bool:
    """Return whether the search chooses any metric that a rule limits."""
    return bool(question.design) or question.frees_links


def _open_cases(question: Question, rule: ExportRule) -> Mapping[str, Case]:
    """Return the cases that a question's chip can meet: all for a parametric chip, else those whose limits the chip's
    metrics meet.
    """
    if question.design:
        return rule.cases
    figures = figures_of(question.chip)
    if question.frees_links and "io" in figures:
        figures["io"] = 0.0  # the search may reduce the link rate as far as needed
    holds = lambda case: all(name in figures and figures[name] < each.value for name, each in case.items())
    return {name: case for name, case in rule.cases.items() if holds(case)}


def _caught(question: Question, rule: ExportRule) -> str:
    """Describe a stock chip's metrics and the paragraphs that apply to it."""
    figures = figures_of(question.chip)
    words = f"'{question.chip}' has TPP {figures['tpp']:,.0f} ({figures['density'] / 1e6:.2f} per mm2)"
    words += (
        f", {pretty(figures['io'], 'B/s')} to other chips" if "io" in figures else ", unknown bandwidth to other chips"
    )
    caught = rule.caught_by(figures)
    by = (
        f"paragraph 3A090.{', .'.join(caught)} of {rule.name} applies"
        if caught
        else "the rule does not apply, but by another case"
    )
    return f"{words}: {by}; cases of the rule: {', '.join(rule.cases)}"
