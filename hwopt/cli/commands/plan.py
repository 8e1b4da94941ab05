"""`hwopt plan`: the best integer plan of a cluster, by exhaustive search; exit code 1 where no plan is feasible."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hwopt.cli.cluster_flags import CLUSTER, DECODE, DECODE_CHIP, DISAGGREGATED, PREFILL, SERVICE, TRAINING
from hwopt.cli.exports import EXPORT, held_for, launch_files
from hwopt.cli.flags import Flag
from hwopt.cli.plan_args import limits, top, work_asked
from hwopt.cli.question import CHOICES
from hwopt.cli.runner import Rendered
from hwopt.cli.split_ranking import ranked_splits
from hwopt.cli.value_types import INTEGER, NAMES, POSITIVE, SETTINGS, SWITCH, TEXT, integer, number
from hwopt.errors import UserError

FLAGS = (
    *(replace(each, needed=False) if each.name == "--chip" else each for each in CLUSTER),
    Flag("--objective", "metric to minimise: step_time_s (default; run_time_s of a batch ramp), run_cost_usd, ...; of a service "
         "cost_per_token_usd (default), ...", TEXT),
    Flag("--hold", "values that all plans share: optimizer_offloaded=1,local_steps=500 (default: what is best offloaded, 1 step)",
         SETTINGS, modes=TRAINING),
    Flag("--top", "how many of the next best plans to list", integer(most=1000), 5),
    EXPORT,
    DECODE_CHIP,
    Flag("--ttft-limit-s", "limit of the time to first token, s (default: no limit)", POSITIVE, modes=PREFILL),
    Flag("--tpot-limit-s", "limit of the time per output token, s (default: no limit)", POSITIVE, modes=DECODE),
    *(Flag(f"--{name}-{level}-limit-s", f"limit of the {what} that {level[1:]} of 100 requests stay below in the busiest hour, s",
           POSITIVE, modes=modes)
      for name, what, modes in (("ttft", "time to first token", PREFILL), ("tpot", "time between tokens", DECODE))
      for level in ("p95", "p99")),
    replace(CHOICES, meaning="flags of the cluster, every combination of their values: chip=h100-sxm|b200,"
            "cooling=air|direct-liquid; * for all of the catalogue; with --splits those of chip and decode_chip"),
    Flag("--batch", "sequences, of prefill prompts, that the machine holds at a time (default: any)", INTEGER, modes=SERVICE),
    Flag("--layouts", "layouts that plans may use: redundant_experts,two_batches,cache_split, or none (default: "
         "what the software has)",
         NAMES, modes=SERVICE),
    Flag("--disaggregate", "prefill and decode on separate groups of chips", SWITCH, False, modes=DISAGGREGATED),
    Flag("--splits", "prefill and decode together, and on every split of the chips, ranked: should they be apart?", SWITCH, False,
         modes=DISAGGREGATED),
)  # fmt: skip


def answer(options: argparse.Namespace) -> Rendered:
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


def searched(options: argparse.Namespace) -> tuple[Any, Any]:
    """Return the `ClusterRequest` of the flags, and the `PlanSearch` for its best plan."""
    from hwopt import catalog
    from hwopt.planning.plan_search import best_plan

    work = work_asked(options, FLAGS)
    stated = {} if options.hold is None else catalog.parse_plan(options.hold)
    common = {name: number(f"--hold {name}", value, least=0.0) for name, value in stated.items()}
    search = best_plan(
        work.workload,
        work.cluster(options.chips),
        options.objective,
        top(options),
        {**held_for(options.export), **common},
        limits=limits(options),
        disaggregate=options.disaggregate or options.decode_chip is not None,
        layouts=[] if options.layouts == ["none"] else options.layouts,
        batch=options.batch,
    )
    return work, search


def _answer(options: argparse.Namespace, work: Any, search: Any, rows: Sequence[Any] = ()) -> Rendered:
    """Return the best plan, with the outcome of each choice (`Branch`)."""
    from hwopt.output.answers.plans import plan_screen, plan_search_document
    from hwopt.output.text.choices import choice_lines, choices_document
    from hwopt.planning.plan_search import fitting_chips

    if search.feasible and options.export is not None:
        ranked = [search.best, *search.alternatives]
        return launch_files(
            options, work.title, work.workload, options.workload, ranked, work.chips, lambda: work.document
        )
    fitting = None
    short = set(search.best.report.violations()) <= {"memory", "pool"}
    if short and not (search.feasible or options.disaggregate or options.decode_chip or options.batch):
        fitting = fitting_chips(work.workload, work.cluster, options.chips)
    around = (fitting, work.interval(search.best.report, search.best.plan), options.constants)
    also = {"choices": choices_document(rows)} if rows else {}
    document = lambda: plan_search_document(search, *around) | also
    screen = lambda: "\n".join([plan_screen(search, work.title, *around), *choice_lines(rows, search.objective.unit)])
    return Rendered(lambda: work.document | document(), screen, search.feasible)
