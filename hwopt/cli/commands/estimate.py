"""`hwopt estimate`: time, memory, power and cost of one cluster under one plan; exit code 1 where the plan does not fit."""

import argparse
from dataclasses import replace
from typing import Any

from hwopt.cli.cluster_flags import CLUSTER, DECODE_CHIP, DISAGGREGATED, TRAINING
from hwopt.cli.flags import Flag
from hwopt.cli.reproduce import DESIGN, reproduce
from hwopt.cli.runner import Rendered
from hwopt.cli.value_types import INTEGER, SETTINGS, SPOT, TEXT, ValueType, integer
from hwopt.errors import UserError


def _replicas(flag: str, text: str) -> int | str:
    """Read a number of replicas, or `best`."""
    return text if text == "best" else integer(least=0).read(flag, text)


FLAGS = (
    *(replace(each, needed=False) for each in CLUSTER),
    DESIGN,
    Flag("--plan", "tp=8,pp=16,dp=128,cp=1,ep=1,vpp=1,mbs=1,zero=1,recompute=none; of a service tp, pp, dp, ep, expert_tp, "
         "batch, redundant_experts, two_batches, cache_split; default: the fastest that fits, of a service the cheapest; "
         "disaggregated, that of decode", SETTINGS),
    Flag("--prefill-plan", "plan of the chips for prefill: tp=4,batch=1", SETTINGS, modes=DISAGGREGATED),
    Flag("--prefill-chips", "how many of the chips are for prefill", INTEGER, modes=DISAGGREGATED),
    DECODE_CHIP,
    Flag("--spot", "preemptible chips: mean time until a group is preempted (every), until it is back (return), discount, chips "
         "of a group (default: a server): every=10h,return=30min,discount=0.6,chips=8", SPOT, modes=TRAINING),
    Flag("--backup-replicas", "steps that leave out the gradients of the slowest replicas: how many, or best",
         ValueType("N|best", _replicas), modes=TRAINING),
    Flag("--pretrained", "what the model was trained on before this run, which fine-tunes it: text, text-and-code, or a .toml; "
         "reports how much fine-tuning data that is worth", TEXT, modes=TRAINING),
)  # fmt: skip


def answer(options: argparse.Namespace) -> Rendered:
    """Return the estimate of the cluster and plan that the flags state."""
    if options.design is not None:
        return reproduce(options)
    if missing := [flag for flag in ("--workload", "--chip", "--chips") if getattr(options, flag[2:]) is None]:
        raise UserError(
            f"the following arguments are required: {', '.join(missing)}; or an answer, --design ANSWER.json"
        )
    from hwopt.cli.request import cluster_request

    work = cluster_request(options, FLAGS)
    from hwopt.model.estimate import estimate
    from hwopt.output.answers.documents import report_document
    from hwopt.output.answers.screens import estimate_screen
    from hwopt.output.text.backup_workers import backup_document, backup_lines
    from hwopt.output.text.daily_load import day_document, day_lines
    from hwopt.output.text.plans import plan_document
    from hwopt.output.text.preemption import spot_document, spot_lines
    from hwopt.output.text.transfer_learning import transfer_document, transfer_lines
    from hwopt.planning.plan_search import best_plan
    from hwopt.trace.cache import evaluate_in_numpy

    worth, before = _transfer(options, work)
    cluster, plan = work.cluster(options.chips), work.plan()
    preempted = _preempted(options, cluster)
    if isinstance(options.backup_replicas, int) and options.backup_replicas >= options.chips:
        raise UserError(
            f"--backup-replicas {options.backup_replicas}: {options.chips:,} chips are fewer replicas than that"
        )
    if plan is None:
        plan, report, _ = best_plan(work.workload, cluster, alternatives=0).best
    else:
        report = evaluate_in_numpy(estimate, work.workload, cluster, plan)
    spot = preempted and _spot(preempted, work, cluster, plan, report)
    left_out = _backup(options, work, cluster, plan, report)
    day = _day(options, work, cluster, plan, report)
    around = work.interval(report, plan), options.constants
    plan_and_report = lambda: {"plan": plan_document(report, plan)} | report_document(report, *around)
    return Rendered(
        lambda: (
            work.document
            | plan_and_report()
            | {"bill": _bill(work, cluster, plan)}
            | spot_document(spot)
            | backup_document(left_out)
            | day_document(day)
            | transfer_document(worth)
        ),
        lambda: "\n".join(
            [
                estimate_screen(report, plan, work.title, *around),
                *spot_lines(spot, report),
                *backup_lines(left_out),
                *day_lines(day),
                *transfer_lines(worth, before),
            ]
        ),
        bool(report.feasible),
    )


def _day(options: argparse.Namespace, work: Any, cluster: Any, plan: Any, report: Any) -> Any:
    """Evaluate the machine over a day of requests; None where not requested, or for a plan that does not fit."""
    if options.day_curve is None or not bool(report.feasible):
        return None
    from hwopt.analysis.daily_load import daily_load
    from hwopt.catalog.day_curves import day_curve

    return daily_load(work.workload, cluster, plan, day_curve(options.day_curve))


def _preempted(options: argparse.Namespace, cluster: Any) -> Any:
    """Return the preemptible chips that `--spot` requests; None without the flag."""
    if options.spot is None:
        return None
    from hwopt import catalog

    said, server = options.spot, float(cluster.rack.server_chips)
    group = said.get("chips", min(server, float(options.chips)))
    chips = catalog.spot(said["every"], said["return"], said["discount"], group)
    if options.chips % group:
        raise UserError(f"--spot chips={group:g}: groups of so many are not {options.chips:,} chips")
    if float(cluster.sites.count) > 1.0:
        raise UserError("--spot: chips of several sites come and go by their sites: ask about one site")
    return chips


def _spot(chips: Any, work: Any, cluster: Any, plan: Any, report: Any) -> Any:
    """Evaluate the run on preemptible chips; None for a plan that does not fit."""
    from hwopt.model.facility.preemption import spot_report
    from hwopt.trace.cache import evaluate_in_numpy

    return (
        evaluate_in_numpy(spot_report, work.workload, cluster, plan, chips, report) if bool(report.feasible) else None
    )


def _backup(options: argparse.Namespace, work: Any, cluster: Any, plan: Any, report: Any) -> Any:
    """Evaluate the run without its slowest replicas; None where not requested, or for a plan that does not fit."""
    if options.backup_replicas is None:
        return None
    from hwopt.analysis.backup_workers import backup

    asked = None if options.backup_replicas == "best" else options.backup_replicas
    return backup(work.workload, cluster, plan, report, asked) if bool(report.feasible) else None


def _transfer(options: argparse.Namespace, work: Any) -> tuple[Any, str]:
    """Return the value of pre-training to the run and the title of the pre-training; None and "" where not requested."""
    if options.pretrained is None:
        return None, ""
    from hwopt import catalog
    from hwopt.model.training.transfer_learning import transferred
    from hwopt.trace.cache import evaluate_in_numpy
    from hwopt.workload.operators import Operators

    law, entry = catalog.transfer(options.pretrained), catalog.record("transfers", options.pretrained)
    if isinstance(work.workload.model, Operators):
        raise UserError(
            "--pretrained: the law of transfer is one of transformers on text, the workload is a table of operators"
        )
    return evaluate_in_numpy(transferred, work.workload, law), entry.title


def _bill(work: Any, cluster: Any, plan: Any) -> list[dict[str, Any]]:
    """Return the bill of materials; with two types of chips, the components of each group, as many as its plan uses."""
    from hwopt.output.text.bill import cluster_bill

    if len(work.kinds) == 1:
        return cluster_bill(cluster, work.records)
    rows = []
    for group, each in work.kinds.items():
        own = each.cluster(round(float(getattr(plan, group).chips)))
        rows += [row | {"part": f"{group}: {row['part']}"} for row in cluster_bill(own, each.records)]
    return sorted(rows, key=lambda row: -row["count"] * row["unit_price"])
