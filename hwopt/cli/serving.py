"""`estimate` and `plan` of a service: their flags, and what they do with them."""

from __future__ import annotations

import argparse
from typing import Any

from hwopt.cli import commands
from hwopt.errors import UserError, suggest

MODES = ("train", "serve", "prefill", "decode")

REQUESTS = (
    ("--input-tokens", "tokens of a mean prompt (default 2048)"),
    ("--output-tokens", "tokens of a mean answer (default 512)"),
    ("--weights", "format of stored weights (default: --precision)"),
    ("--kv", "format of keys and values (default: 8 bit where GEMMs are narrower than 16, else theirs)"),
    ("--cached-fraction", "share of prompts whose keys and values are kept from earlier requests (default 0)"),
    ("--requests-per-s", "requests that arrive, and pay for the machine (default: as many as it answers)"),
    ("--load", "share of the time of chips for prompts alone that arrivals fill (default 0.7)"),
    ("--drafted-tokens", "tokens guessed by a draft model and checked in one pass (default 0)"),
    ("--acceptance", "chance that a guessed token is accepted (default 0.8)"),
    ("--draft-fraction", "time of a draft model's pass over the model's (default 0.05)"),
)
"""Flags of a service, all of which are numbers but for two formats."""

_LIMITS = {"--ttft-limit-s": "time_to_first_token_s", "--tpot-limit-s": "time_per_output_token_s"}

_SERVING = (*(name for name, _ in REQUESTS), "--prefill-plan", "--prefill-chips", "--disaggregate", *_LIMITS)
_TRAINING = ("--global-batch", "--seq-len", "--tokens", "--sites", "--lines", "--hold", "--export")


def add_mode(command: argparse.ArgumentParser) -> None:
    """The mode, and the flags of a service."""
    command.add_argument("--mode", default="train", help=f"{', '.join(MODES)} (default train)")
    group = command.add_argument_group("a service (modes serve, prefill, decode)")
    for name, meaning in REQUESTS:
        group.add_argument(name, help=meaning)


def add_groups(command: argparse.ArgumentParser) -> None:
    """Flags of `estimate`: a group of chips for prompts."""
    group = command.add_argument_group(
        "two groups of chips (mode serve); --plan is then the plan of the one for answers"
    )
    group.add_argument("--prefill-plan", help="plan of the chips for prompts: tp=4,batch=1")
    group.add_argument("--prefill-chips", help="how many of the chips these are")


def add_search(command: argparse.ArgumentParser) -> None:
    """Flags of `plan`: limits of latency, and two groups."""
    group = command.add_argument_group("plans of a service")
    group.add_argument("--ttft-limit-s", help="the most that the time to the first token may be, s (default: no limit)")
    group.add_argument("--tpot-limit-s", help="the most that the time per output token may be, s (default: no limit)")
    group.add_argument("--disaggregate", action="store_true", help="two groups of chips, prompts apart from answers")


def check_mode(options: argparse.Namespace) -> bool:
    """Whether a service is asked for. **Raises:** `UserError` for an unknown mode and for flags of the other kind of work."""
    if options.mode not in MODES:
        raise UserError(f"--mode {options.mode}: {suggest(options.mode, MODES)}")
    serves = options.mode != "train"
    for name in _TRAINING if serves else _SERVING:
        if getattr(options, name[2:].replace("-", "_"), None) not in (None, False):
            kind, wanted = ("training", "mode train") if serves else ("a service", "--mode serve, prefill or decode")
            raise UserError(f"{name} is a flag of {kind}, not of mode {options.mode}: leave it out, or use {wanted}")
    return serves


def _service(options: argparse.Namespace) -> Any:
    """The service that the flags describe."""
    from hwopt import catalog

    given: dict[str, Any] = {}
    for name, _ in REQUESTS:
        field = name[2:].replace("-", "_")
        text = getattr(options, field)
        if text is not None:
            given[field] = text if name in ("--weights", "--kv") else commands.number(name, text, least=0.0)
    return catalog.service(options.workload, mode=options.mode, precision=options.precision, **given)


def _question(options: argparse.Namespace) -> tuple[Any, Any, int]:
    """Service, cluster and number of chips."""
    from hwopt import catalog

    chips = commands.number("--chips", options.chips, whole=True)
    asked = _service(options)
    catalog.check_precision(options.chip, options.precision)
    return asked, cluster(options, chips), int(chips)


def cluster(options: argparse.Namespace, chips: float) -> Any:
    """The cluster that the flags describe, with software that serves."""
    from hwopt import catalog

    return commands.cluster(options, chips, catalog.serving_stack(options.chip))


def _plan(options: argparse.Namespace, asked: Any, chips: int) -> Any:
    """The plan, or the two plans, of the flags; None without one."""
    from hwopt import catalog
    from hwopt.plan import Disaggregated

    if options.prefill_plan is None and options.prefill_chips is None:
        if options.plan is None:
            return None
        return catalog.serving_plan(asked, chips, **catalog.parse_serving_plan(options.plan))
    if options.mode != "serve":
        raise UserError(
            f"--prefill-plan: two groups share both phases, mode {options.mode} is one of them: use mode serve"
        )
    if options.plan is None or options.prefill_plan is None or options.prefill_chips is None:
        raise UserError("two groups of chips take three flags: --plan (of answers), --prefill-plan and --prefill-chips")
    apart = int(commands.number("--prefill-chips", options.prefill_chips, whole=True))
    if apart >= chips:
        raise UserError(f"--prefill-chips {apart}: must be less than the {chips} chips: the others generate answers")
    prefill, decode = (catalog.parse_serving_plan(text) for text in (options.prefill_plan, options.plan))
    return Disaggregated(
        prefill=catalog.serving_plan(asked, apart, **prefill),
        decode=catalog.serving_plan(asked, chips - apart, **decode),
    )


def _interval(options: argparse.Namespace, asked: Any, plan: Any) -> Any:
    """How far a measured service of this kind may lie from the prediction; None for two groups: none of those was measured."""
    from hwopt import catalog
    from hwopt.evidence.intervals import serving_interval
    from hwopt.plan import Disaggregated

    if isinstance(plan, Disaggregated):
        return None
    architecture = str(catalog.record("chips", options.chip).text.get("architecture", ""))
    return serving_interval(asked, architecture, catalog.calibration(options.constants))


def _title(options: argparse.Namespace, asked: Any, chips: int) -> str:
    from hwopt.report.serving_screens import requests_line

    return f"{commands.title(options, chips)}, mode {options.mode}\n{requests_line(asked)}"


def _document(options: argparse.Namespace, asked: Any, chips: int) -> dict[str, Any]:
    from hwopt.report.serving import service_document

    return commands.question_document(options, chips) | service_document(asked, options.mode)


def run_estimate(options: argparse.Namespace) -> int:
    """What one cluster serves under one plan; 1 where the plan does not fit."""
    import jax
    import numpy as np

    from hwopt.model.estimate import estimate
    from hwopt.report.serving import serving_plan_document, serving_report_document
    from hwopt.report.serving_screens import serving_screen

    asked, machine, chips = _question(options)
    plan = _plan(options, asked, chips)
    if plan is None:
        from hwopt.optim.plan_search import best_plan

        plan, report, _ = best_plan(asked, machine, alternatives=0).best
    else:
        with jax.enable_x64(True):
            report = jax.tree.map(np.asarray, estimate(asked, machine, plan))
    around = _interval(options, asked, plan)
    if options.json:
        document = {"plan": serving_plan_document(plan)} | serving_report_document(report, around, options.constants)
        commands.print_json(_document(options, asked, chips) | document)
    else:
        print(serving_screen(report, plan, _title(options, asked, chips), around, options.constants))
    return 0 if bool(report.feasible) else 1


def run_plan(options: argparse.Namespace, top: int) -> int:
    """The best whole-number plan of a service; 1 where none fits and holds the limits."""
    from hwopt.optim.plan_search import best_plan, fitting_chips
    from hwopt.report.plans import plan_screen, plan_search_document

    asked, machine, chips = _question(options)
    limits = {
        metric: commands.number(name, text)
        for name, metric in _LIMITS.items()
        if (text := getattr(options, name[2:].replace("-", "_"))) is not None
    }
    search = best_plan(asked, machine, options.objective, top, limits=limits, disaggregate=options.disaggregate)
    more = None
    if list(search.best.report.violations()) == ["memory"] and not options.disaggregate:
        more = fitting_chips(asked, lambda count: cluster(options, count), chips)
    around = _interval(options, asked, search.best.plan)
    if options.json:
        document = plan_search_document(search, more, around, options.constants)
        commands.print_json(_document(options, asked, chips) | document)
    else:
        print(plan_screen(search, _title(options, asked, chips), more, around, options.constants))
    return 0 if search.feasible else 1
