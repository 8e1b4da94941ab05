"""The parser: commands, flags, an objective's fields as flags, and errors of one line."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NoReturn

from hwopt import registry
from hwopt.cli import serving
from hwopt.cli.commands import (
    EXPORTS,
    flag,
    run_calibrate,
    run_catalog,
    run_estimate,
    run_optimize,
    run_plan,
    run_sensitivity,
    run_sources,
    run_validate,
)
from hwopt.cli.examples import ANSWERS, EXITS, FIRST, PROGRAM, epilog, examples, filled
from hwopt.cli.sweep import SWITCHES, add_flags, run_sweep
from hwopt.errors import UserError, suggest

DEFAULT_OBJECTIVE = "train_cost"

_SWITCHES = ("--json", "--one-sided-prices", *SWITCHES)


class OneLineParser(argparse.ArgumentParser):
    """argparse with errors of one line that name the likely intent. Chosen over tyro, whose error boxes span lines."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: "):
            wrong = next(iter(message.removeprefix("unrecognized arguments: ").split()), "")
            if not wrong.startswith("-"):
                raise UserError(f"'{wrong}' is one argument too many (see {self.prog} --help)")
            parsers = [self, *(p for action in self._actions if action.choices for p in _parsers_in(action))]
            flags = {flag for parser in parsers for action in parser._actions for flag in action.option_strings}
            known = wrong.split("=")[0] in flags
            intent = "write it behind the command it belongs to" if known else suggest(wrong.split("=")[0], flags)
            message = f"unknown argument '{wrong}': {intent}"
        elif "invalid choice: " in message:
            wrong = message.split("invalid choice: '")[-1].split("'")[0]
            choices = next((action.choices for action in self._actions if action.choices), [])
            message = f"unknown command '{wrong}': {suggest(wrong, choices)}"
        raise UserError(f"{message} (see {self.prog} --help)")


def _parsers_in(action: argparse.Action) -> list[argparse.ArgumentParser]:
    """Parsers of the commands of a sub-command action."""
    return list(action.choices.values()) if isinstance(action, argparse._SubParsersAction) else []


def build_parser(objective: str, kind: type | None) -> OneLineParser:
    """The parser; `kind` of an objective makes its fields flags of the commands that ask a design question."""
    questions = f"Design questions: {', '.join(registry.names())}; hwopt optimize QUESTION --help lists their budgets."
    parser = OneLineParser(
        prog="hwopt",
        description=filled(PROGRAM),
        epilog=f"{epilog(FIRST, questions)}\n\n{filled(EXITS)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    names = parser.add_subparsers(dest="command", metavar="COMMAND")

    def add(name: str, help_text: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        command = names.add_parser(
            name,
            help=help_text,
            description=filled(ANSWERS[name]),
            epilog=epilog(examples(name, objective), EXITS),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_argument(
            "--json", action="store_true", help="print one JSON object on standard output, nothing else there"
        )
        command.set_defaults(run=run, parser=command)
        return command

    optimize = add("optimize", "The best cluster for a design question, under budgets.", run_optimize)
    optimize.add_argument(
        "--freeze", help="variables or categories held as they are, comma-separated: scale_up_domain,chip,network"
    )
    optimize.add_argument("--bounds", help="boxes of one's own in SI units: tp=8:16,chips_per_rack=32:32")
    optimize.add_argument(
        "--regime",
        default="certified",
        help="certified (proved over whole numbers) or relaxed (quick look); default certified",
    )
    optimize.add_argument(
        "--one-sided-prices",
        action="store_true",
        help="prices of each budget 1 %% down and up, whole numbers free again",
    )
    optimize.add_argument(
        "--seconds", help="stop the certified search after so many seconds, with an honest gap (default: no limit)"
    )
    optimize.add_argument("--seed", type=int, default=0, help="seed of the starts (default 0)")
    sources = add("sources", "The references behind exactly the numbers of a design question.", run_sources)
    sensitivity = add(
        "sensitivity", "What the best cluster hangs on: elasticities, shadow prices, ranges.", run_sensitivity
    )
    sensitivity.add_argument("--figure", help="also draw what each input's range is worth to this image file")
    sensitivity.add_argument("--metrics", help="numbers of the report to tabulate: step_time_s,mfu,...")
    sensitivity.add_argument("--top", default="12", help="how many inputs to list (default 12)")
    sensitivity.add_argument("--seed", type=int, default=0, help="seed of the starts (default 0)")
    sweep = add(
        "sweep", "Many variants of a design question: the best, the front, what binds; resumes by itself.", run_sweep
    )
    add_flags(sweep)
    for command in (optimize, sweep):
        command.add_argument(
            "--report",
            metavar="FILE.html",
            help="also write the answer as one page that stands alone: design, budgets, front, proof, sources",
        )
    for command in (optimize, sensitivity, sweep, sources):
        command.add_argument(
            "objective",
            nargs="?",
            default=objective,
            help=f"a design question (default train_cost): {', '.join(registry.names())}",
        )
        if kind is not None:
            _add_fields(command, objective, kind)

    estimate = add("estimate", "Time, memory, power and money of one cluster under one plan.", run_estimate)
    _add_cluster(estimate)
    estimate.add_argument(
        "--plan",
        help="tp=8,pp=16,dp=128,cp=1,ep=1,vpp=1,mbs=1,zero=1,recompute=none; of a service tp, pp, dp, ep, "
        "expert_tp, batch; default: the fastest that fits, of a service the cheapest",
    )
    serving.add_mode(estimate)
    serving.add_groups(estimate)

    plan = add("plan", "The best whole-number parallel plan of a cluster, by exhaustion.", run_plan)
    _add_cluster(plan)
    plan.add_argument(
        "--objective",
        help="metric to make least: step_time_s (default), run_cost_usd, ...; of a service cost_per_token_usd (default), ...",
    )
    plan.add_argument(
        "--hold", help="what all plans have alike: optimizer_offloaded=1,local_steps=500 (default: 0 offloaded, 1 step)"
    )
    plan.add_argument("--top", default="5", help="how many of the next best plans to list (default 5)")
    plan.add_argument("--export", help=f"print only launch settings for a framework: {', '.join(EXPORTS)}")
    serving.add_mode(plan)
    serving.add_search(plan)

    validate = add("validate", "Measured against predicted, every row of a CSV file accounted for.", run_validate)
    validate.add_argument("file", help="CSV of measured runs, columns as in hwopt/data/runs/train.csv")
    validate.add_argument("--figure", help="also draw predicted over measured speed to this image file")
    _add_constants(validate)

    calibrate = add("calibrate", "The model's constants fitted to one's own measured runs.", run_calibrate)
    calibrate.add_argument("file", help="CSV of measured runs, columns as in hwopt/data/runs/train.csv")
    calibrate.add_argument("--out", help="TOML file to write, which --constants of other commands takes")
    calibrate.add_argument(
        "--only", help="constants that may move, comma-separated: stack_gemm_efficiency for one scale"
    )
    _add_constants(calibrate)

    catalog = add("catalog", "Chips, links, workloads and all else the model stands on, with sources.", run_catalog)
    catalog.add_argument("kind", nargs="?", help="chips, links, workloads, stacks, cooling, ...; without it, all kinds")
    catalog.add_argument("name", nargs="?", help="an entry, or a file of your own")
    return parser


def _add_constants(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--constants",
        default="calibrated",
        help="calibrated (to published runs, the default), literature, speed-of-light, or a .toml of hwopt calibrate",
    )


def _add_cluster(command: argparse.ArgumentParser) -> None:
    """Flags of a workload on a fixed cluster."""
    command.add_argument(
        "--workload", required=True, help="a name of the catalogue, a .toml or a Hugging Face config.json"
    )
    command.add_argument("--chip", required=True, help="a name of the catalogue or a .toml file")
    command.add_argument("--chips", required=True, help="accelerators in the job")
    command.add_argument("--stack", help="software stack (default: the chip's, for training or serving)")
    _add_constants(command)
    command.add_argument("--site", default="us-average", help="site of the facility (default us-average)")
    command.add_argument("--cooling", help="cooling technology (default: what the chip's servers are built for)")
    command.add_argument("--fabric", help="topology outside the domain, counted out (default: the chip's own links)")
    command.add_argument("--pool", help="memory beyond HBM (default: the hosts')")
    command.add_argument("--storage", default="shared-flash", help="storage of data (default shared-flash)")
    command.add_argument("--lines", help="lines between sites (default continental)")
    command.add_argument("--reliability", default="fleet-mean", help="failures of the fleet (default fleet-mean)")
    command.add_argument(
        "--prices", default="default", help="price list: default, hyperscale, on-premise, rented, at-cost"
    )
    command.add_argument(
        "--precision", default="bf16", help="format of the GEMMs: bf16, fp16, fp8, fp4, int8, tf32, fp32"
    )
    for name, meaning in (
        ("--global-batch", "sequences a step (default: the workload's)"),
        ("--seq-len", "tokens a sequence (default: the workload's)"),
        ("--tokens", "tokens of the whole run (default: the workload's)"),
        ("--domain", "chips of the scale-up domain (default: the chip's)"),
        ("--rack-chips", "chips in a rack (default: as many as its power, weight and cables allow)"),
        ("--sites", "sites that share the chips equally (default 1)"),
        ("--latency-tail-s", "mean of the tail of a step's latency outside the domain, s (default: the link's)"),
        ("--bandwidth-spread", "relative spread of what links outside the domain deliver (default: the link's)"),
        ("--scale-out-bytes-per-s", "scale-out bandwidth per chip and direction, B/s (default: the chip's)"),
    ):
        command.add_argument(name, help=meaning)


def _add_fields(command: argparse.ArgumentParser, objective: str, kind: type) -> None:
    """Fields of an objective as flags of a command."""
    command.set_defaults(kind=kind, asked=objective)
    meanings: dict[str, str] = getattr(kind, "meanings", {})  # optional: field -> a few words
    group = command.add_argument_group(f"budgets and choices of {objective}, in SI units")
    for field in dataclasses.fields(kind):
        meaning = meanings.get(field.name, "")
        group.add_argument(
            flag(field),
            metavar="X",
            dest=field.name,
            help=f"{meaning + '; ' if meaning else ''}default {_shown(field.default)}",
        )


def _shown(default: object) -> str:
    """A default as people read it."""
    if isinstance(default, float):
        return f"{default:g}" if math.isfinite(default) else "no limit"
    return str(default) if default != "" else "none"


def objective_of(arguments: Sequence[str]) -> tuple[str, type | None]:
    """Name and class of the objective that is asked for; the class adds its fields to the flags."""
    if not arguments or arguments[0] not in ("optimize", "sensitivity", "sweep", "sources"):
        return DEFAULT_OBJECTIVE, None
    name, before = DEFAULT_OBJECTIVE, "--json"
    for each in arguments[1:]:
        is_value = before.startswith("--") and before not in _SWITCHES and "=" not in before
        if not each.startswith("-") and not is_value:
            name = each
            break
        before = each
    return name, registry.load(name)
