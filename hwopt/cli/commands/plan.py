"""`hwopt plan`: the best integer plan of a cluster, by exhaustive search; exit code 1 where no plan is feasible."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwopt.cli.cluster_flags import CLUSTER, DECODE, DECODE_CHIP, DISAGGREGATED, PREFILL, SERVICE
from hwopt.cli.exports import EXPORT, estimate_command, launch_files
from hwopt.cli.flags import Flag
from hwopt.cli.plan_args import PLAN, fixed_words, limits, stated_parts, work_asked
from hwopt.cli.question import CHOICES
from hwopt.cli.split_ranking import ranked_splits
from hwopt.cli.value_types import INTEGER, NAMES, POSITIVE, SWITCH, TEXT, integer
from hwopt.errors import UserError

if TYPE_CHECKING:
    from hwopt.cli.runner import Rendered
    from hwopt.output.answer import Answer

FLAGS = (
    *(replace(each, needed=False) if each.name == "--chip" else each for each in CLUSTER),
    Flag("--objective", "metric to minimize: step_time_s (default; run_time_s with a batch ramp), run_cost_usd, ...; for a service "
         "cost_per_token_usd (default), ...", TEXT),
    PLAN,
    Flag("--top", "number of next best plans to list", integer(most=1000), 5),
    EXPORT,
    DECODE_CHIP,
    Flag("--ttft-limit-s", "max time to first token (TTFT) of a full batch, s (default: no limit)", POSITIVE, modes=PREFILL),
    Flag("--tpot-limit-s", "max time per output token (TPOT) of a full batch, s (default: no limit)", POSITIVE, modes=DECODE),
    *(Flag(f"--{name}-{level}-limit-s", f"{level} {what} limit at peak load, s",
           POSITIVE, modes=modes)
      for name, what, modes in (("ttft", "TTFT", PREFILL), ("tpot", "TPOT", DECODE))
      for level in ("p95", "p99")),
    replace(CHOICES, meaning="alternatives of cluster flags; every combination is searched: chip=h100-sxm|b200,"
            "cooling=air|direct-liquid; * stands for all catalog entries; with --splits only chip and decode_chip"),
    Flag("--batch", "concurrent sequences; in prefill mode, concurrent prompts (default: chosen by the search)", INTEGER,
         modes=SERVICE),
    Flag("--layouts", "layouts that plans may use: redundant_experts,two_batches,cache_split, or none (default: "
         "those that the software supports)",
         NAMES, modes=SERVICE),
    Flag("--disaggregate", "only plans with prefill and decode on separate groups of chips", SWITCH, False, modes=DISAGGREGATED),
    Flag("--splits", "also rank every split of the chips between prefill and decode against colocation: should they be "
         "disaggregated?", SWITCH, False,
         modes=DISAGGREGATED),
)  # fmt: skip


def answer(options: argparse.Namespace) -> "Answer | Rendered":
    """Return the best plan of the cluster that the flags state."""
    if options.splits:
        return ranked_splits(options, FLAGS)
    if options.choices:
        from hwopt.cli.cluster_choices import best_of_clusters

        asked, work, search, rows = best_of_clusters(
            options, lambda each: work_asked(each, FLAGS).cluster(each.chips), searched
        )
        return _answer(asked, work, search, rows)
    if options.chip is None:
        raise UserError("--chip is needed: hwopt plan --workload llama3.1-8b --chip h100-sxm --chips 8")
    return _answer(options, *searched(options))


def searched(options: argparse.Namespace, allowed: Callable[[Any], Any] | None = None) -> tuple[Any, Any]:
    """Return the `ClusterRequest` of the flags, and the `PlanSearch` for its best plan among those allowed."""
    from hwopt.planning.plan_search import best_plan

    work = work_asked(options, FLAGS)
    search = best_plan(
        work.workload,
        work.cluster(options.chips),
        options.objective,
        options.top,
        stated_parts(options),
        limits=limits(options),
        disaggregate=options.disaggregate or options.decode_chip is not None,
        layouts=[] if options.layouts == ["none"] else options.layouts,
        batch=options.batch,
        allowed=allowed,
    )
    return work, search


def _answer(options: argparse.Namespace, work: Any, search: Any, rows: Sequence[Any] = ()) -> "Answer | Rendered":
    """Return the best plan, with the outcome of each choice (`Branch`)."""
    from hwopt.output.answers.plans import plan_answer
    from hwopt.output.text.choices import choice_section, choices_document, winner_words
    from hwopt.planning.plan_search import fitting_chips

    if search.feasible and options.export is not None:
        return launch_files(
            options, work.title, options.workload, (work.workload, work.cluster(options.chips)), search.best,
            lambda allowed: searched(options, allowed)[1], work.chips,
            lambda best: estimate_command(options, (*CLUSTER, DECODE_CHIP), best), lambda: work.document,
        )  # fmt: skip
    fitting = None
    short = set(search.best.report.violations()) <= {"memory", "pool"}
    if short and not (search.feasible or options.disaggregate or options.decode_chip or options.batch):
        fitting = fitting_chips(work.workload, work.cluster, options.chips)
    around = work.interval(search.best.report, search.best.plan)
    also = {"choices": choices_document(rows)} if rows else {}
    choices = [choice_section(rows, search.objective.unit)]
    won = winner_words(rows)
    title = work.title + fixed_words(options)
    told = work.evidence(search.best.plan) if search.feasible else None
    return plan_answer(search, title, work.document, fitting, around, options.constants, also, choices, won, told)
