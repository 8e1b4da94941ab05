"""Chip comparison: the certified answer of a question for each chip, and the break-even conditions of the losers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import equinox as eqx
import numpy as np

from hwopt import catalog
from hwopt.calibration.intervals import Interval, question_interval
from hwopt.catalog.schema import StatedQuantity
from hwopt.declared import Result, Results
from hwopt.design.choices import every_choice, named_values
from hwopt.design.design import Design
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.progress import counted
from hwopt.solver.deadline import Deadline
from hwopt.solver.optimize import optimize
from hwopt.solver.options import SearchOptions
from hwopt.solver.solution import Branch, BranchOutcome, Solution
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.validation import check_question, check_seconds, names_of
from hwopt.workload.service import Service

MOST_CHIPS = 64
"""Maximum number of chips to compare; each takes a search of some seconds."""

FASTEST = 0.1
"""Smallest share of today's step time in the break-even search. A tenfold speedup is beyond what software can do."""


@dataclass(frozen=True)
class Candidate(Result):
    """One of several candidates for an answer, such as a chip, compared with the best one.

    **Arguments:**

    - `name`: name of the candidate.
    - `solution`: None where the question cannot be posed for it (`refused`) or time ran out.
    - `refused`: reason for a missing solution.
    - `share`: extra cost over the best candidate, relative to the best objective; None without a feasible design.
    - `around`: prediction interval of the step time; None where unknown.
    - `tied`: whether the difference from the best lies within both prediction intervals: `log(1 + share)^2 <= a^2 + b^2`, with
      their half widths a and b in log units.
    """

    name: str
    solution: Solution | None
    refused: str = ""
    share: float | None = None
    around: Interval | None = None
    tied: bool = False

    @property
    def feasible(self) -> bool:
        return self.solution is not None and self.solution.feasible

    @property
    def trains(self) -> bool:
        """Return whether the answer is a training run and thus has steps that could be shorter."""
        return self.solution is not None and not isinstance(self.solution.built.workload, Service)

    def beside(self, best: Solution | None) -> Self:
        """Return the candidate with its distance from the best, its interval, and whether the two tie."""
        if self.solution is None or not self.solution.feasible or best is None:
            return self
        share, around, other = (
            self.solution.objective / best.objective - 1.0,
            *map(question_interval, (self.solution, best)),
        )
        if self.solution is best or share <= 0.0:
            return replace(self, share=0.0, around=around)
        tied = around is not None and other is not None and math.log1p(share) <= math.hypot(around.time, other.time)
        return replace(self, share=share, around=around, tied=tied)


def candidates_of(choices: Sequence[Branch]) -> list[Candidate]:
    """Return combinations of choices as candidates.

    Slices of one torus do not tie: they have the same chip and software, so that the model's error is the same for them.

    **Arguments:** `choices`: their outcomes, the best first.
    """
    best = next((each for each in choices if each.fate is BranchOutcome.best), None)
    candidates = [Candidate(each.name, each.solution, each.refused).beside(best and best.solution) for each in choices]
    apart = lambda each: [pair for pair in each.chosen if pair[0] != "slice"]
    return [
        replace(found, tied=found.tied and best is not None and apart(each) != apart(best))
        for each, found in zip(choices, candidates, strict=True)
    ]


@dataclass(frozen=True)
class ChipResult(Candidate):
    """Answer of a question for one chip.

    **Arguments:**

    - `price`: price of the chip as its catalog file states it.
    - `winning_price_usd`: price of one chip at which this design ties with the best; None where no price does.
    - `winning_level`: total step time over today's at which this design ties with the best; None where no speed does.
    """

    price: StatedQuantity | None = None
    winning_price_usd: float | None = None
    winning_level: float | None = None

    @property
    def chip(self) -> str:
        """Name of the chip."""
        return self.name


def compare(
    objective: Any,
    chips: Sequence[str],
    *,
    seconds: float = math.inf,
    freeze: Iterable[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    progress: bool = False,
    options: SearchOptions | None = None,
) -> list[ChipResult]:
    """Answer a design question for each of several chips, each with its own certificate.

    **Arguments:**

    - `objective`: a question about a machine.
    - `chips`: names of chips of the catalog; `["*"]` for all.
    - `seconds`: time limit for all chips together.
    - `freeze`, `bounds`, `progress`, `options`: as in `optimize`.

    **Returns:** a row for each chip, the best first. Chips without a feasible design, and those that cannot be posed, are last.

    **Raises:** `UserError` for an unknown chip, and for a question that names none.
    """
    check_question(objective, "compare")
    if not hasattr(objective, "chip"):
        raise UserError(
            "compare: the question names no chip; ask about a machine, such as hwopt.objective('train_cost')"
        )
    if getattr(objective, "decode_chip", ""):
        raise UserError(
            "compare: chips of one kind each; pairs are ranked by hwopt optimize --choices 'chip=a|b,decode_chip=c|d'"
        )
    chips = names_of("compare: chips", chips)
    every = list(chips) == ["*"]
    deadline = Deadline(check_seconds(seconds, "compare"))
    names = [dict(each)["chip"] for each in every_choice({"chip": named_values("chip", chips)}, MOST_CHIPS)]
    records = [catalog.record("chips", name) for name in names]  # raises for unknown chips before any work
    rows = []
    for name, record in counted([*zip(names, records, strict=True)], "chip"):
        price = record.quantities.get("price")
        if deadline.over:
            rows.append(ChipResult(name, None, "not reached within the time limit", price=price))
            continue
        try:
            solution = optimize(
                replace(objective, chip=name),
                seconds=deadline.left,
                freeze=freeze,
                bounds=bounds,
                progress=progress,
                options=options,
            )
        except UserError as error:
            if not every:
                raise
            rows.append(ChipResult(name, None, str(error), price=price))
            continue
        rows.append(ChipResult(name, solution, price=price))
    return _ranked(rows)


def _ranked(rows: Sequence[ChipResult]) -> list[ChipResult]:
    """Return the rows with break-even conditions, the best first."""
    answers = [row.solution for row in rows if row.solution is not None and row.feasible]
    best = min(answers, key=_order, default=None)
    done = [_with_break_even(row.beside(best), best) for row in rows]
    return Results(
        sorted(done, key=lambda row: (row.share is None, _order(row.solution) if row.solution else (math.inf,)))
    )


def _order(solution: Solution) -> tuple[float, ...]:
    """Return the sort key of an answer: the objective, and among equal ones the capital, then the number of chips."""
    return float(f"{solution.objective:.7g}"), float(solution.report.capex_usd), float(solution.built.cluster.chips)


def _with_break_even(row: ChipResult, best: Solution | None) -> ChipResult:
    """Return the row with its break-even price and speed, unless it is the best or has no design."""
    if not row.share or row.solution is None or best is None:
        return row
    price = _winning_price(row.solution, row.price, best.objective)
    level = _winning_level(row.solution, best.objective) if row.trains else None
    return replace(row, winning_price_usd=price, winning_level=level)


def _value(solution: Solution, design: Design) -> float:
    """Return the objective of a design by the exact model."""
    return float(solution.problem.objective.value(evaluate_in_numpy(estimate, *design.inputs)))


def _winning_price(solution: Solution, price: StatedQuantity | None, best: float) -> float | None:
    """Return the chip price at which a design costs as little as the best; None where no positive price does.

    Costs are linear in the price. The result is a price as the chip's file states it, of which a price list may charge a share.
    The price of memory stays at its value in the list.
    """
    base = lambda design: design.cluster.prices.chip_base_usd
    design, now = solution.built, solution.objective
    own = float(base(design))
    if price is None or own <= 0.0 or solution.chip is not None:
        return None
    halved = _value(solution, eqx.tree_at(base, design, np.float64(0.5 * own)))
    per_dollar = (now - halved) / (0.5 * own)
    if per_dollar <= 0.0 or (less := (now - best) / per_dollar) >= own:
        return None
    return price.si - less / solution.problem.provenance.records["prices"].si("price_factor")


def with_faster_steps(design: Design, share: float) -> Design:
    """Return the design with training steps of `share` of their present time.

    Kernels, collectives, host, input data and the links to the memory pool and between sites get faster at the same power and
    cost.
    """
    shorter = lambda c: (
        c.stack.level, c.stack.step_overhead_s, c.sites.latency_s, c.pool.energy_j_per_byte, c.pool.usd_per_byte_per_s,
    )  # fmt: skip
    wider = lambda c: (
        c.pool.bandwidth_bytes_per_s, c.pool.update_bandwidth_bytes_per_s, c.storage.input_bytes_per_s_per_chip,
        c.sites.efficiency,
    )  # fmt: skip
    cluster = eqx.tree_at(shorter, design.cluster, tuple(np.float64(share * x) for x in shorter(design.cluster)))
    cluster = eqx.tree_at(wider, cluster, tuple(np.float64(x / share) for x in wider(cluster)))
    return eqx.tree_at(lambda d: d.cluster, design, cluster)


def _winning_level(solution: Solution, best: float) -> float | None:
    """Return the step time over today's at which the same machine and plan tie with the best; None below `FASTEST`."""
    above = lambda share: _value(solution, with_faster_steps(solution.built, share)) - best
    if above(FASTEST) > 0.0:
        return None
    from scipy.optimize import root_scalar

    return float(root_scalar(above, bracket=(FASTEST, 1.0), rtol=1e-9).root)
