"""`hwopt optimize`: the best cluster for a design question under its budgets; exit code 1 where infeasible."""

import argparse
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwopt import escape
from hwopt.cli.exports import EXPORT, check_export, launch_files
from hwopt.cli.flags import Flag
from hwopt.cli.output import is_watched
from hwopt.cli.paths import REPORT
from hwopt.cli.plan_args import LIMITS
from hwopt.cli.question import CHOICES, SEED, asked_objective
from hwopt.cli.runner import Rendered
from hwopt.cli.value_types import BOXES, CONFIDENCE, NAMES, POSITIVE, SHARES, SWITCH, one_of
from hwopt.errors import UserError

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

FREEZE = Flag(
    "--freeze",
    "variables or categories of variables to keep at their present values: scale_up_domain,chip,network",
    NAMES,
    (),
)
BOUNDS = Flag(
    "--bounds",
    "search ranges of variables, in SI units: tp=8:16,chips_per_rack=32:32 (default: those of the question)",
    BOXES,
    {},
)
SECONDS = Flag(
    "--seconds", "time limit of the search, s; then prints the best design found, with its optimality gap (default: no limit)",
    POSITIVE,
    math.inf,
)  # fmt: skip

FLAGS = (
    FREEZE,
    BOUNDS,
    CHOICES,
    Flag("--regime", "certified (global search over buildable designs, with a proof), relaxed (the same over continuous hardware) "
         "or local (quick, without a proof); default certified", one_of("certified", "relaxed", "local"), "certified"),
    Flag("--confidence", "chance constraint: probability with which all budgets must hold under uncertain step times, prices, "
         "failure rates and power, such as 0.9", CONFIDENCE),
    Flag("--vary", "value-of-information analysis: uncertain inputs, each with the share by which it may be off, such as "
         "hbm=30%%,electricity=30%%", SHARES, {}),
    Flag("--alternatives", "also compare hardware as sold, the buildable design nearest to the continuous relaxation, and "
         "a redesigned chip", SWITCH, False),
    Flag("--one-sided-prices", "shadow prices of each budget for 1 %% less and 1 %% more, with the whole design re-optimized",
         SWITCH, False),
    SECONDS,
    SEED,
    EXPORT,
    REPORT,
)  # fmt: skip


_LEAST_S = 1e-3
"""Minimum time limit of a search (s), used where time ran out before it began; it still evaluates a first design."""


def answer(options: argparse.Namespace) -> "Answer | Rendered":
    """Search for the best design of a question and return it, with the studies that the flags request."""
    objective = asked_objective(options)
    _check_together(options)
    from hwopt.design.portfolio import portfolio_of

    if portfolio_of(objective) is not None:
        return _list(options, objective)
    _check_export(options, objective)
    from hwopt.analysis.integrality_gap import LOOKED_AT, alternatives, integrality_gap
    from hwopt.calibration.intervals import question_interval
    from hwopt.output.answers.optimum import solution_answer
    from hwopt.solver.deadline import Deadline
    from hwopt.solver.optimize import optimize
    from hwopt.solver.options import SEARCH

    if options.vary:
        from hwopt.analysis.chance_constraints.value_of_information import varied_factors
        from hwopt.calibration.intervals import Interval

        asked = objective.problem()
        varied_factors(asked if options.regime == "certified" else asked.continuous, options.vary, Interval(time=1.0))
    deadline = Deadline(options.began + options.seconds - time.monotonic())
    how = {
        "seed": options.seed,
        "progress": is_watched(options),
        "regime": options.regime,
        "seconds": max(deadline.left, _LEAST_S),
        "freeze": options.freeze,
        "bounds": options.bounds,
        "choices": options.choices,
    }
    if options.confidence is None:
        solution = optimize(objective, **how)
    else:
        from hwopt.analysis.chance_constraints import confident

        solution = confident(objective, options.confidence, **how)
    objective = replace(objective, **solution.chosen)  # everything below is about the best combination of choices
    if options.export is not None and solution.feasible:
        return _launch_files(options, objective, solution)
    if options.one_sided_prices and solution.certificate.gap is not None:
        from hwopt.solver.budget_prices import with_one_sided_prices

        solution = with_one_sided_prices(solution, deadline=deadline)
    plain = options.confidence is None and not options.vary
    looked_at = SEARCH.tree.nodes if options.alternatives else LOOKED_AT
    price = integrality_gap(solution, deadline, looked_at) if options.regime == "certified" and plain else None
    others = alternatives(objective, solution, price, deadline) if options.alternatives and solution.feasible else []
    around = question_interval(solution), solution.problem.provenance.mode
    doubt = None
    if options.vary and solution.feasible:
        from hwopt.analysis.chance_constraints import regret

        doubt = regret(solution, options.vary, deadline=deadline, progress=is_watched(options))

    sensitivities, movable = None, []
    if options.report is not None:
        best = solution.chosen
        tried = [
            (each.name, solution if each.choice == best else each.solution, each.choice) for each in solution.choices
        ]
        movable = [(name, own, options.command_line, choice) for name, own, choice in tried if own is not None]
        movable = movable or [(options.objective, solution, options.command_line, best)]
    if options.report is not None and solution.feasible:
        from hwopt.analysis.sensitivity import parameters_of

        sensitivities = parameters_of(solution, deadline)
    return solution_answer(solution, *around, price, others, doubt, sensitivities, options.command_line, movable)


def _check_export(options: argparse.Namespace, objective: Any) -> None:
    """Raise `UserError` where launch settings are impossible: non-integer plans, custom chips, unsupported software."""
    if options.export is None:
        return
    if options.regime != "certified":
        raise UserError(
            f"--export {options.export}: launch settings need integer plans; leave out --regime {options.regime}"
        )
    for name in ("report", "vary", "alternatives", "one_sided_prices"):
        if name in options.given:
            raise UserError(
                f"--export prints launch settings alone: leave out --{name.replace('_', '-')}, or run the command twice"
            )
    free = getattr(objective, "free", "none")
    if getattr(objective, "design", "") or {*free.split("+")} - {"none", "nics", "racks"}:
        raise UserError(f"--export {options.export}: no software runs on a custom chip; name a chip as sold (--chip)")
    open_ = {name: options.choices[name][0] for name in ("chip", "decode_chip", "precision") if name in options.choices}
    one = replace(objective, **{name: value for name, value in open_.items() if value != "*"})
    if "*" not in open_.values():
        workload = one.problem().template.workload
        for chip in _chips(one):
            check_export(options.export, workload, chip, one.computed, {})


def _chips(objective: Any) -> tuple[str, ...]:
    """Return the names of a question's chips: one, or those of prefill and decode."""
    return getattr(objective, "chips_of_groups", (objective.chip,))


def _launch_files(options: argparse.Namespace, objective: Any, solution: Any) -> Rendered:
    """Return the launch settings of the best design, for the software of `--export`."""
    from hwopt import catalog
    from hwopt.planning.plan_search import best_plan
    from hwopt.planning.plan_table import PlanCandidate

    workload, cluster, plan = solution.inputs
    chips, count = _chips(objective), float(cluster.chips)
    for chip in chips:
        check_export(options.export, workload, chip, objective.computed, {})
    of = f"{count:,.0f} x {chips[0]}"
    if len(chips) > 1:
        of = f"{count:,.0f} chips, {chips[0]} for prefill and {chips[1]} for decode"
    name = objective.workload
    title = escape.line(f"{catalog.named(name)} on {of}, {objective.computed}")
    named = dict(zip(("chip", "decode_chip"), chips, strict=False))
    asked = lambda: {"workload": objective.workload, **named, "chips": round(count), "precision": objective.computed}
    best = PlanCandidate(plan, solution.report, solution.objective)
    limits = {each.metric.name: each.limit for each in solution.problem.budgets if each.metric.name in LIMITS.values()}
    again = lambda allowed: best_plan(
        workload, cluster, None, 0, limits=limits, disaggregate=plan.disaggregated, allowed=allowed
    )
    line = lambda best: options.command_line.partition(" --export")[0]
    return launch_files(options, title, name, (workload, cluster), best, again, chips, line, asked)


_OF_ONE = ("export", "confidence", "vary", "alternatives", "one_sided_prices", "regime", "seed")
"""Flags that apply to a single question, not to a portfolio."""


def _list(options: argparse.Namespace, objective: Any) -> "Answer":
    """Return the answer to a portfolio: several questions that share components."""
    for name in _OF_ONE:
        if name in options.given and not (name == "regime" and options.regime == "certified"):
            raise UserError(
                f"--{name.replace('_', '-')} applies to one question, not to a list: leave it out, or name a member: --only NAME"
            )
    from hwopt.output.answers.portfolio import portfolio_answer
    from hwopt.solver.optimize import optimize

    solution = optimize(
        objective, progress=is_watched(options), seconds=max(options.began + options.seconds - time.monotonic(), _LEAST_S),
        freeze=options.freeze, bounds=options.bounds, choices=options.choices,
    )  # fmt: skip
    return portfolio_answer(solution)


def _check_together(options: argparse.Namespace) -> None:
    """Raise `UserError` for flags that exclude `--confidence` or `--vary`, and for `--alternatives` with two chip types."""
    if options.alternatives and (getattr(options, "decode_chip", None) or "decode_chip" in options.choices):
        raise UserError("--alternatives redesigns one chip type: leave it out, or leave out --decode-chip")
    asked = "--confidence" if options.confidence is not None else "--vary" if options.vary else ""
    if not asked:
        return
    if options.confidence is not None and options.vary:
        raise UserError("--confidence and --vary cannot be combined: run the command twice")
    if options.regime == "local":
        raise UserError(f"{asked} needs a proved answer, and --regime local proves none; leave one of them out")
    if options.choices and options.vary:
        raise UserError(
            "--vary applies to one combination: leave out --choices, or run the command for each combination"
        )
    for flag, on in (("--alternatives", options.alternatives), ("--one-sided-prices", options.one_sided_prices)):
        if on:
            raise UserError(f"{asked} and {flag} cannot be combined: run the command twice")
