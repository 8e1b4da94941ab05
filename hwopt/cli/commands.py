"""What each command does: read its options, ask the rooms below, print an answer, return the exit code."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

from hwopt.errors import UserError, suggest

EXPORTS = ("megatron",)
"""Frameworks whose launch settings `plan` can print."""

MOST_ALTERNATIVES = 1000


def print_json(document: Any) -> None:
    """One strict JSON object on standard output."""
    print(json.dumps(document, indent=2, allow_nan=False))


def number(flag: str, text: str | None, *, whole: bool = False, least: float | None = None) -> Any:
    """A positive, finite number from a flag, or one of `least` and more; None where it was not given."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{flag} {text}: not a number") from None
    if not (math.isfinite(value) and (value > 0 if least is None else value >= least)):
        wanted = "positive, finite number" if least is None else f"finite number of at least {least:g}"
        raise UserError(f"{flag} {text}: must be a {wanted}")
    if whole and value != int(value):
        raise UserError(f"{flag} {text}: must be a whole number")
    return value


def names(text: str | None) -> list[str]:
    """Names of a flag, which stand between commas."""
    return [name.strip() for name in text.split(",")] if text else []


def flag(field: dataclasses.Field) -> str:
    """The flag of an objective's field."""
    return "--" + field.name.replace("_", "-")


def _workload(options: argparse.Namespace) -> Any:
    """The training run that the flags describe."""
    from hwopt import catalog

    return catalog.training_run(
        options.workload,
        sequence_length=number("--seq-len", options.seq_len, whole=True),
        global_batch=number("--global-batch", options.global_batch, whole=True),
        precision=options.precision,
        tokens=number("--tokens", options.tokens),
    )


def cluster(options: argparse.Namespace, chips: float, stack: str | None = None) -> Any:
    """The cluster that the flags describe, with some number of chips. **Arguments:** `stack` where no flag names one."""
    from hwopt import catalog

    return catalog.cluster(
        options.chip,
        chips,
        domain=number("--domain", options.domain, whole=True),
        stack=stack if options.stack is None else options.stack,
        site=options.site,
        cooling=options.cooling,
        rack_chips=number("--rack-chips", options.rack_chips, whole=True),
        reliability=options.reliability,
        prices=options.prices,
        constants=options.constants,
        scale_out_bytes_per_s=number("--scale-out-bytes-per-s", options.scale_out_bytes_per_s),
        fabric=options.fabric,
        pool=options.pool,
        storage=options.storage,
        sites=number("--sites", options.sites, whole=True) or 1.0,
        lines=options.lines,
        latency_tail_s=number("--latency-tail-s", options.latency_tail_s, least=0.0),
        bandwidth_spread=number("--bandwidth-spread", options.bandwidth_spread, least=0.0),
    )


def _question(options: argparse.Namespace) -> tuple[Any, Any, int]:
    """Training run, cluster and number of chips of a command on a fixed cluster."""
    from hwopt import catalog

    chips = number("--chips", options.chips, whole=True)
    run = _workload(options)
    catalog.check_precision(options.chip, options.precision)
    return run, cluster(options, chips), int(chips)


def _interval(options: argparse.Namespace, run: Any) -> Any:
    """How far a measured cluster of this kind may lie from the prediction."""
    from hwopt import catalog
    from hwopt.evidence.intervals import machine_interval

    return machine_interval(run, options.chip, options.stack, catalog.calibration(options.constants))


def title(options: argparse.Namespace, chips: int) -> str:
    """Workload and cluster in words."""
    return f"{options.workload} on {chips:,} x {options.chip}, {options.precision}, site {options.site}"


def question_document(options: argparse.Namespace, chips: int) -> dict[str, Any]:
    """Workload and cluster of a command on a fixed cluster."""
    return {"workload": options.workload, "chip": options.chip, "chips": chips, "precision": options.precision}


def run_estimate(options: argparse.Namespace) -> int:
    """Time, memory, power and money of one cluster under one plan; 1 where the plan does not fit."""
    from hwopt.cli import serving

    if serving.check_mode(options):
        return serving.run_estimate(options)
    import jax
    import numpy as np

    from hwopt import catalog
    from hwopt.model.estimate import estimate
    from hwopt.optim.quick_jit import quick_jit
    from hwopt.report.documents import plan_document, report_document
    from hwopt.report.screens import estimate_screen

    run, machine, chips = _question(options)
    if options.plan is None:
        from hwopt.optim.plan_search import best_plan

        plan, report, _ = best_plan(run, machine, alternatives=0).best
    else:
        plan = catalog.plan(run, chips, sites=float(machine.sites.count), **catalog.parse_plan(options.plan))
        with jax.enable_x64(True):
            report = jax.tree.map(np.asarray, quick_jit(estimate)(run, machine, plan))
    if options.json:
        around = report_document(report, _interval(options, run), options.constants)
        print_json(question_document(options, chips) | {"plan": plan_document(plan)} | around)
    else:
        print(estimate_screen(report, plan, title(options, chips), _interval(options, run), options.constants))
    return 0 if bool(report.feasible) else 1


def run_plan(options: argparse.Namespace) -> int:
    """The best whole-number plan of a fixed cluster; 1 where none fits."""
    from hwopt.cli import serving

    serves = serving.check_mode(options)
    if options.export is not None and options.export not in EXPORTS:
        raise UserError(f"--export {options.export}: no such framework: {suggest(options.export, EXPORTS)}")
    top = number("--top", options.top, whole=True)
    if top > MOST_ALTERNATIVES:
        raise UserError(f"--top {options.top}: at most {MOST_ALTERNATIVES}")
    if serves:
        return serving.run_plan(options, int(top))
    from hwopt import catalog
    from hwopt.optim.plan_search import best_plan, fitting_chips
    from hwopt.report.plans import plan_screen, plan_search_document

    run, machine, chips = _question(options)
    held = {
        name: number(f"--hold {name}", value, least=0.0)
        for name, value in catalog.parse_plan(options.hold or "").items()
    }
    search = best_plan(run, machine, options.objective, int(top), held)
    more = None
    if not search.feasible and list(search.best.report.violations()) == ["memory"]:
        more = fitting_chips(run, lambda count: cluster(options, count), chips)
    around = _interval(options, run)
    if search.feasible and options.export is not None:
        from hwopt.report import megatron

        settings = megatron.megatron_settings(run, search.best.plan)
        if options.json:
            print_json(question_document(options, chips) | megatron.megatron_document(settings))
        else:
            print(megatron.megatron_text(settings, title(options, chips)))
    elif options.json:
        print_json(question_document(options, chips) | plan_search_document(search, more, around, options.constants))
    else:
        print(plan_screen(search, title(options, chips), more, around, options.constants))
    return 0 if search.feasible else 1


def asked_objective(options: argparse.Namespace) -> Any:
    """The objective with the fields that were given."""
    if options.objective != options.asked:  # its flags are not the ones that were read
        raise UserError(f"write the objective first: hwopt {options.command} {options.objective} ...")
    given = {
        field.name: value if isinstance(field.default, str) else number(flag(field), value)
        for field in dataclasses.fields(options.kind)
        if (value := getattr(options, field.name)) is not None
    }
    return options.kind(**given)


def run_sources(options: argparse.Namespace) -> int:
    """References behind a question's numbers."""
    problem = asked_objective(options).problem()
    if options.json:
        print_json({"question": problem.question, "sources": list(problem.sources)})
    else:
        print("\n".join([problem.question, "", *(f"- {text}" for text in problem.sources)]))
    return 0


def boxes(text: str | None) -> dict[str, tuple[float, float]]:
    """`name=low:high,...` as boxes; one number is a box of no width."""
    made = {}
    for part in text.split(",") if text else ():
        name, equals, box = part.partition("=")
        ends = box.split(":")
        if not equals or len(ends) > 2:
            raise UserError(f"--bounds {part}: write name=low:high, such as tp=8:16")
        low, high = (number(f"--bounds {name}", end) for end in (ends[0], ends[-1]))
        made[name.strip()] = (low, high)
    return made


def page_path(options: argparse.Namespace) -> Path | None:
    """Where the page of `--report` goes, known to be writable before anything long starts; None without the flag."""
    if options.report is None:
        return None
    from hwopt.report.page.files import writable

    return writable("--report", options.report)


def run_optimize(options: argparse.Namespace) -> int:
    """The best design of a question; 1 where none holds its budgets."""
    if options.seed < 0:
        raise UserError(f"--seed {options.seed}: must not be negative")
    objective = asked_objective(options)
    path = page_path(options)
    import jax

    from hwopt.evidence.intervals import question_interval
    from hwopt.optim.optimize import optimize
    from hwopt.report.documents import solution_document
    from hwopt.report.screens import solution_screen

    seconds = number("--seconds", options.seconds)
    solution = optimize(
        objective,
        seed=options.seed,
        progress=not options.json and sys.stderr.isatty(),
        regime=options.regime,
        seconds=math.inf if seconds is None else seconds,
        freeze=names(options.freeze),
        bounds=boxes(options.bounds),
    )
    if options.one_sided_prices and solution.certificate.gap is not None:
        from hwopt.optim.certified import with_one_sided_prices

        with jax.enable_x64(True):
            solution = with_one_sided_prices(solution)
    around, mode = (
        question_interval(objective, solution),
        str(getattr(objective, "constants", "as the objective built them")),
    )
    if path is not None:
        from hwopt.report.page.files import write
        from hwopt.report.page.optimum import optimum_page
        from hwopt.study.sensitivity import owed

        write(path, optimum_page(solution, options.command_line, around, mode, owed(solution, objective)))
    if options.json:
        print_json(solution_document(solution, around, mode))
    else:
        print(solution_screen(solution, around, mode))
    return 0 if solution.feasible else 1


def run_sensitivity(options: argparse.Namespace) -> int:
    """What the best design of a question hangs on; 1 where none holds its budgets."""
    top = int(number("--top", options.top, whole=True))
    if options.seed < 0:
        raise UserError(f"--seed {options.seed}: must not be negative")
    objective = asked_objective(options)
    from hwopt.report.sensitivity import sensitivity_document, sensitivity_screen
    from hwopt.study.sensitivity import NoOptimum, check_metrics, sensitivity

    metrics = names(options.metrics)
    check_metrics(metrics, objective.problem().template.workload)
    try:
        shown = not options.json and sys.stderr.isatty()
        found = sensitivity(objective, metrics=metrics, seed=options.seed, progress=shown)
    except NoOptimum as reason:
        if options.json:
            print_json({"feasible": False, "message": str(reason)})
        else:
            print(reason)
        return 1
    if options.figure:
        from hwopt.plot.tornado import plot_tornado

        plot_tornado(found, options.figure)
    if options.json:
        print_json(sensitivity_document(found) | {"constants": str(getattr(objective, "constants", "")) or None})
    else:
        print(sensitivity_screen(found, top))
    return 0


def run_validate(options: argparse.Namespace) -> int:
    """Measured against predicted."""
    from hwopt.evidence.validation import screen, validate

    result = validate(options.file, constants=options.constants)
    if options.figure:
        from hwopt.plot.accuracy import plot_accuracy

        plot_accuracy(result, options.figure)
    if options.json:
        print_json(result)
    else:
        print(screen(result))
    return 0


def run_calibrate(options: argparse.Namespace) -> int:
    """Constants fitted to measured runs."""
    from hwopt.evidence.calibration import calibrate, screen

    only = names(options.only)
    result = calibrate(options.file, options.out, only=only, constants=options.constants)
    if options.json:
        print_json(result)
    else:
        print(screen(result))
    return 0


def run_catalog(options: argparse.Namespace) -> int:
    """Kinds, entries of a kind, or one entry with its sources."""
    from hwopt import catalog
    from hwopt.report import listings

    if options.kind is None:
        document, text = listings.kinds()
    elif options.name is None:
        document, text = listings.entries(options.kind)
    else:
        document, text = listings.entry(catalog.record(options.kind, options.name))
    if options.json:
        print_json(document)
    else:
        print(text)
    return 0
