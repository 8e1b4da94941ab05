from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from hwopt import catalog
from hwopt.design.metrics import metric
from hwopt.design.portfolio import Member, Portfolio, parts_of, with_joint_budgets
from hwopt.design.problem import Budget, Problem
from hwopt.errors import UserError, suggest
from hwopt.units import pretty
from objectives.fields import BUDGETS, CHOICES, NO_LIMIT
from objectives.member_list import SHARED, TOGETHER, StatedMember, read_list

EXAMPLE = Path(__file__).with_name("portfolio.toml")
"""Default list of members: one model is trained, another is served, and a third is trained further."""

_OVERRIDING = (
    "chip",
    "site",
    "fabric",
    "cooling",
    "storage",
    "recovery",
    "reliability",
    "operation",
    "prices",
    "constants",
    "date",
)

_MEANINGS = {name: f"{CHOICES[name].split('; default ')[0]}; default as in the file" for name in _OVERRIDING} | {
    "members": "TOML file of the workloads: shared fields, then a table [members.NAME] for each; default an example of three",
    "capex_budget_usd": "maximum capital cost of all members' machines together (USD); default as in the file, else no limit",
    "power_budget_w": "maximum peak facility power of all members' machines together (W); default as in the file, else no limit",
    "only": "name of a single member, to be answered as a question of its own; default all",
}


@dataclass(frozen=True)
class PortfolioQuestion:
    """The cheapest machines for a list of workloads, all built from the same parts, within joint budgets.

    minimize    sum over members of weight x cost: runs x cost of a run, or served tokens x cost of a token
    over        shared parts (chip if given as choices, clock, NICs per server, chips per rack); number of chips and plan of each
                member
    subject to  deadlines and budgets of each member's question (`train_cost` or `serve_cost`)
                capital cost of all members' machines         <= capex_budget_usd
                peak facility power of all members' machines  <= power_budget_w

    Every member gets a cluster of its own, built from the same parts. The list is a TOML file, described in
    `objectives.member_list`.
    """

    members: str = ""
    only: str = ""
    chip: str = ""
    site: str = ""
    fabric: str = ""
    cooling: str = ""
    storage: str = ""
    recovery: str = ""
    reliability: str = ""
    operation: str = ""
    prices: str = ""
    constants: str = ""
    date: str = ""
    capex_budget_usd: float = NO_LIMIT
    power_budget_w: float = NO_LIMIT

    name: ClassVar[str] = "portfolio"
    meanings: ClassVar[Mapping[str, str]] = _MEANINGS

    def _read(self) -> tuple[dict[str, Any], tuple[StatedMember, ...]]:
        """Return the shared fields, with flags overriding the file, and the members."""
        shared, members = read_list(self.members or EXAMPLE)
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name in SHARED}
        return shared | {name: value for name, value in own.items() if value}, members

    def _together(self, shared: dict[str, Any]) -> tuple[Budget, ...]:
        """Remove the joint budgets from the shared fields and return them, with flags overriding the file."""
        stated = {name: shared.pop(name, NO_LIMIT) for name in TOGETHER}
        limits = {name: own if (own := getattr(self, name)) != NO_LIMIT else stated[name] for name in TOGETHER}
        return tuple(Budget(name, metric(BUDGETS[name]), limit) for name, limit in limits.items() if limit != NO_LIMIT)

    def problem(self) -> Problem:
        """Return the problem of the single member in `only`.

        **Raises:** `UserError` where no member is named.
        """
        shared, members = self._read()
        if self.only:
            self._together(shared)
            return self._member(shared, members).problem
        names = ", ".join(each.name for each in members)
        raise UserError(
            "portfolio: only hwopt optimize answers all members together; for this command, select one of them with "
            f"--only NAME ({names})"
        )

    def portfolio(self) -> Portfolio | None:
        """Return the portfolio of all members; None where `only` names a single member."""
        shared, members = self._read()
        together = self._together(shared)
        if self.only:
            self._member(shared, members)
            return None
        stated = tuple(_stated(each, shared) for each in members)
        stated = tuple(replace(each, problem=with_joint_budgets(each.problem, together)) for each in stated)
        within = ", ".join(f"{each.name} {pretty(each.limit, each.metric.unit)}" for each in together)
        names = ", ".join(f"{each.name} ({catalog.named(each.asked(shared).workload)})" for each in members)
        chip = stated[0].problem.provenance.records["chip"].slug
        return Portfolio(
            self.name,
            f"One machine's parts for {len(stated)} workloads: {names}; {chip} as sold"
            + (f"; all together within {within}" if within else ""),
            "USD",
            stated,
            together,
        )

    def _member(self, shared: Mapping[str, Any], members: tuple[StatedMember, ...]) -> Member:
        known = {each.name: each for each in members}
        if self.only not in known:
            raise UserError(f"only = {self.only!r}: no member of that name: {suggest(self.only, known)}")
        return _stated(known[self.only], shared)


def _stated(each: StatedMember, shared: Mapping[str, Any]) -> Member:
    """Return a member as an optimization problem, with the bounds of its own plan."""
    try:
        problem = each.asked(shared).problem()
        for name in each.bounds:
            if name in parts_of(problem):
                raise UserError(f"'{name}' is shared by all members: bound it with --bounds {name}=... instead")
        problem = problem.narrowed(each.bounds)
    except UserError as error:
        raise UserError(f"{each.where}: {error}") from None
    question = f"{each.name}: {problem.question}"
    return Member(each.name, replace(problem, question=question), each.weight, each.counted)
