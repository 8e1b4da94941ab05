"""`hwopt estimate`: time, memory, power and cost of one cluster under one plan; exit code 1 where the plan does not fit."""

import argparse
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwopt.cli.cluster_flags import CLUSTER, DECODE_CHIP, DISAGGREGATED, TRAINING, run_words
from hwopt.cli.exports import EXPORT, check_export, estimate_command, launch_files, same_degrees
from hwopt.cli.flags import Flag
from hwopt.cli.reproduce import DESIGN, reproduce
from hwopt.cli.value_types import INTEGER, SETTINGS, SPOT, TEXT, ValueType, integer
from hwopt.errors import UserError

if TYPE_CHECKING:
    from hwopt.cli.runner import Rendered
    from hwopt.output.answer import Answer


def _replicas(flag: str, text: str) -> int | str:
    """Read a number of replicas, or `best`."""
    return text if text == "best" else integer(least=0).read(flag, text)


FLAGS = (
    *(replace(each, needed=False) for each in CLUSTER),
    DESIGN,
    Flag("--plan", "parallel plan: tp=8,pp=16,dp=128,cp=1,ep=1,vpp=1,mbs=1,zero=1,recompute=none; for a service: tp, pp, dp, ep, "
         "expert_tp, batch, redundant_experts, two_batches, cache_split; with --prefill-plan it is the plan of decode (default: "
         "the fastest plan that fits; for a service the cheapest)", SETTINGS),
    Flag("--prefill-plan", "disaggregated serving: parallel plan of the prefill chips, such as tp=4,batch=1", SETTINGS,
         modes=DISAGGREGATED),
    Flag("--prefill-chips", "disaggregated serving: number of chips for prefill", INTEGER, modes=DISAGGREGATED),
    DECODE_CHIP,
    EXPORT,
    Flag("--spot", "also evaluate the run on preemptible (spot) chips: mean time to preemption of a group (every), mean "
         "time until it "
         "returns (return), price discount, chips per group (default: a server): "
         "every=10h,return=30min,discount=0.6,chips=8", SPOT, modes=TRAINING),
    Flag("--backup-replicas", "also evaluate steps that drop the gradients of the slowest replicas: their number, or best",
         ValueType("N|best", _replicas), modes=TRAINING),
    Flag("--pretrained", "data of an earlier pre-training that this run fine-tunes: text, text-and-code, or a .toml file; "
         "reports how much "
         "fine-tuning data the pre-training replaces", TEXT, modes=TRAINING),
)  # fmt: skip


def answer(options: argparse.Namespace) -> "Answer | Rendered":
    """Return the estimate of the cluster and plan that the flags state."""
    if options.design is not None:
        return reproduce(options)
    if missing := [flag for flag in ("--workload", "--chip", "--chips") if getattr(options, flag[2:]) is None]:
        raise UserError(
            f"the following arguments are required: {', '.join(missing)}; or an answer, --design ANSWER.json"
        )
    from hwopt.cli.request import cluster_request

    work = cluster_request(options, FLAGS)
    from hwopt.design.plan_lattice import fixed_columns, undocumented
    from hwopt.model.estimate import estimate
    from hwopt.model.facility.preemption import spot_report
    from hwopt.output.answers.estimate import estimate_answer
    from hwopt.output.text.backup_workers import backup_section
    from hwopt.output.text.cluster import financing
    from hwopt.output.text.daily_load import day_section
    from hwopt.output.text.preemption import spot_section
    from hwopt.output.text.transfer_learning import transfer_section
    from hwopt.planning.plan_search import best_plan
    from hwopt.trace.cache import evaluate_in_numpy

    for chip in work.chips:
        check_export(options.export, work.workload, chip, options.precision, run_words(options))
    worth, before = (None, "") if options.pretrained is None else _transfer(options, work)
    cluster, plan = work.cluster(options.chips), work.plan()
    preempted = _preempted(options, cluster)
    if isinstance(options.backup_replicas, int) and options.backup_replicas >= options.chips:
        raise UserError(
            f"--backup-replicas {options.backup_replicas}: {options.chips:,} chips have fewer replicas than that"
        )
    if plan is None:
        plan, report, _ = best_plan(work.workload, cluster, alternatives=0).best
    else:
        report = evaluate_in_numpy(estimate, work.workload, cluster, plan)
    run, fits = (work.workload, cluster, plan), bool(report.feasible)
    if options.export is not None and fits:
        return _launch_files(options, work, *run, report)
    spot = evaluate_in_numpy(spot_report, *run, preempted, report) if fits and preempted is not None else None
    left_out = _backup(options.backup_replicas, *run, report) if fits and options.backup_replicas is not None else None
    day = _day(options.day_curve, *run) if fits and options.day_curve is not None else None
    missing = (
        undocumented(plan, cluster.stack.capabilities, fixed_columns(work.workload, cluster.stack))
        if options.mode in TRAINING.names
        else []
    )
    also = {
        "undocumented": missing or None, "bill": _bill(work, cluster, plan), "spot": spot, "backup": left_out, "day": day,
        "transfer": worth,
    }  # fmt: skip
    more = [
        *([spot_section(spot, report)] if spot is not None else []),
        *([backup_section(left_out)] if left_out is not None else []),
        *([day_section(day)] if day is not None else []),
        *([transfer_section(worth, before)] if worth is not None else []),
    ]
    around = work.interval(report, plan)
    stack = options.stack or work.stack
    note = f"\n  software       {stack} does not document {', '.join(missing)}: --any-software" if missing else ""
    financed = financing(cluster.groups[0].prices)
    return estimate_answer(
        report, plan, work.title + note, around, options.constants, work.document, also, more, financed,
        work.evidence(plan) if fits else None,
    )  # fmt: skip


def _launch_files(
    options: argparse.Namespace, work: Any, workload: Any, cluster: Any, plan: Any, report: Any
) -> "Rendered":
    """Return the launch settings of the plan, or of the nearest that the software of `--export` can express.

    The nearest is the best plan with the same degrees; where none of them can be expressed and fits, the best of all.
    """
    from hwopt.planning.plan_search import best_plan
    from hwopt.planning.plan_table import PlanCandidate

    def again(allowed: Callable[[Any], Any]) -> Any:
        search = lambda which: best_plan(workload, cluster, None, 0, disaggregate=plan.disaggregated, allowed=which)
        if not plan.disaggregated:
            with suppress(UserError):
                near = search(lambda plans: allowed(plans) & same_degrees(plans, plan))
                if near.feasible:
                    return near
        return search(allowed)

    return launch_files(
        options, work.title, options.workload, (workload, cluster), PlanCandidate(plan, report, 0.0), again, work.chips,
        lambda best: estimate_command(options, (*CLUSTER, DECODE_CHIP), best), lambda: work.document,
    )  # fmt: skip


def _day(curve: str, service: Any, cluster: Any, plan: Any) -> Any:
    """Evaluate the machine over a day of requests."""
    from hwopt.analysis.daily_load import daily_load
    from hwopt.catalog.day_curves import day_curve

    return daily_load(service, cluster, plan, day_curve(curve))


def _preempted(options: argparse.Namespace, cluster: Any) -> Any:
    """Return the preemptible chips that `--spot` requests; None without the flag."""
    if options.spot is None:
        return None
    from hwopt import catalog

    said, server = options.spot, float(cluster.rack.server_chips)
    group = said.get("chips", min(server, float(options.chips)))
    chips = catalog.spot(said["every"], said["return"], said["discount"], group)
    if options.chips % group:
        raise UserError(f"--spot chips={group:g}: {options.chips:,} chips are not a multiple of that group size")
    if float(cluster.sites.count) > 1.0:
        raise UserError("--spot: only for one site; leave out --sites")
    return chips


def _backup(dropped: int | str, run: Any, cluster: Any, plan: Any, report: Any) -> Any:
    """Evaluate the run without its slowest replicas."""
    from hwopt.analysis.backup_workers import backup

    return backup(run, cluster, plan, report, None if isinstance(dropped, str) else dropped)


def _transfer(options: argparse.Namespace, work: Any) -> tuple[Any, str]:
    """Return the value of pre-training to the run and the title of the pre-training."""
    from hwopt import catalog
    from hwopt.model.training.transfer_learning import transferred
    from hwopt.trace.cache import evaluate_in_numpy
    from hwopt.workload.operators import Operators

    law, entry = catalog.transfer(options.pretrained), catalog.record("transfers", options.pretrained)
    if isinstance(work.workload.model, Operators):
        raise UserError(
            "--pretrained: the transfer law holds for transformers on text; this workload is a table of operators"
        )
    return evaluate_in_numpy(transferred, work.workload, law), entry.title


def _bill(work: Any, cluster: Any, plan: Any) -> list[dict[str, Any]]:
    """Return the bill of materials; with two types of chips, the components of each group, as many as its plan uses."""
    from hwopt.output.text.bill import cluster_bill

    if len(work.kinds) == 1:
        return cluster_bill(cluster, work.workload, work.records)
    rows = []
    for group, each in work.kinds.items():
        own = each.cluster(round(float(getattr(plan, group).chips)))
        own = own.unstored if group == "prefill" else own
        rows += [row | {"part": f"{group}: {row['part']}"} for row in cluster_bill(own, work.workload, each.records)]
    return sorted(rows, key=lambda row: -row["count"] * row["unit_price"])
