"""Support `--export`, which prints the settings to launch the best plan in a training or serving framework.

The module defines the flag and checks it before any search. It then writes the launch settings, for example for Megatron or vLLM.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hwopt.cli.cluster_flags import run_words
from hwopt.cli.flags import Flag
from hwopt.cli.runner import Rendered
from hwopt.cli.value_types import one_of
from hwopt.errors import UserError
from hwopt.run_words import implied

TRAINERS = ("megatron", "torchtitan", "nemo")
ENGINES = ("vllm", "sglang", "tensorrt-llm", "dynamo-vllm", "dynamo-sglang", "dynamo-tensorrt-llm")
"""Training and serving software whose launch settings can be exported."""

EXPORT = Flag(
    "--export", f"print only launch settings for this software; training: {', '.join(TRAINERS)}; serving: {', '.join(ENGINES)}",
    one_of(*TRAINERS, *ENGINES),
)  # fmt: skip


def check_export(name: str | None, workload: Any, chip: str, precision: str, words: Mapping[str, str | float]) -> None:
    """Raise `UserError` for software that is not for the workload, does not run on the chip, or lacks the GEMM format.

    **Arguments:** `words` of the training run, of which the software must have all.
    """
    if name is None:
        return
    from hwopt import catalog
    from hwopt.catalog.chips import architecture, slot
    from hwopt.catalog.load import supported
    from hwopt.workload.operators import Operators
    from hwopt.workload.service import Service
    from hwopt.workload.training import TrainingRun

    kind, what, others = (TrainingRun, "training", ENGINES) if name in TRAINERS else (Service, "a service", TRAINERS)
    if not isinstance(workload, kind):
        more = f"; for this workload: {', '.join(others)}" if isinstance(workload, (Service, TrainingRun)) else ""
        raise UserError(f"--export {name}: its launch settings are for {what}, which this workload is not{more}")
    if name in TRAINERS and isinstance(workload.model, Operators):
        raise UserError(
            f"--export {name}: its launch settings are for transformers, and this workload is a table of operators"
        )
    from hwopt.output.export.settings import ENGINES as KNOWN
    from hwopt.output.export.trainers import TRAINERS as FILES

    entry = supported("chips", chip)
    if name in TRAINERS:
        return FILES[name].check(f"--export {name}", entry.slug, architecture(entry), words, workload.model)
    catalog.check_precision(chip, precision)
    KNOWN[name].check(f"--export {name}", entry.slug, architecture(entry), slot(precision))


def launch_files(
    options: argparse.Namespace,
    title: str,
    name: str,
    machine: tuple[Any, Any],
    best: Any,
    again: Callable[[Callable[[Any], Any]], Any],
    chips: Sequence[str],
    reproduce: Callable[[Any], str],
    asked: Callable[[], Any],
) -> Rendered:
    """Return the launch settings of the best plan that the software can express.

    **Arguments:**

    - `title`: the question in words.
    - `name`: name of the workload.
    - `machine`: workload and cluster.
    - `best`: the best plan, a `PlanCandidate`.
    - `again`: searches the best plan among those that a function of plans allows.
    - `chips`: the chip of each group.
    - `reproduce`: returns the command line that predicts a plan again.
    - `asked`: returns the question as JSON.
    """
    from hwopt import catalog
    from hwopt.catalog.chips import architecture
    from hwopt.catalog.load import supported
    from hwopt.output.export import settings, trainer
    from hwopt.output.export.header import Launch
    from hwopt.output.export.trainers import TRAINERS as FILES

    (workload, cluster), software = machine, options.export
    known = FILES.get(software) or settings.ENGINES[software]
    best, passed = _expressible(f"--export {software}", known, workload, best, again)
    of = cluster.groups[0].stack
    date = getattr(options, "date", None)
    trains = software in TRAINERS
    stack = catalog.default_stack(chips[0], name, date) if trains else catalog.serving_stack(chips[0], date)
    launch = Launch(
        workload,
        best.plan,
        best.report,
        "; ".join(" ".join(line.split()) for line in title.splitlines()),
        reproduce(best),
        catalog.model_config(name),
        float(of.gradient_bytes),
        [architecture(supported("chips", chip)) for chip in chips],
        catalog.checkpoint(name),
        passed,
        getattr(options, "stack", None) or stack,
        min(float(of.dispatch_deduplicated), float(of.capabilities.deduplicated_dispatch)) > 0.0,
        implied(run_words(options)),
        math.nan if trains else _checkpoint_bytes(name),
    )
    if isinstance(known, trainer.Trainer):
        told = trainer.training_file(software, known, launch)
        document = trainer.training_document(known, told)
        return Rendered(lambda: asked() | document, lambda: trainer.file_text(known, told, launch))
    served = settings.launch_settings(software, launch)
    return Rendered(lambda: asked() | settings.launch_document(served), lambda: settings.launch_text(served, launch))


def _checkpoint_bytes(name: str) -> float:
    """Return the mean bytes of a published weight; not a number for 16 or 32 bit, and for formats that are not known."""
    from hwopt import catalog

    try:
        formats = catalog.stored_formats(name)
    except UserError:
        return math.nan
    return math.nan if formats is None else formats.weight_bytes


def _expressible(flag: str, known: Any, workload: Any, best: Any, again: Callable[..., Any]) -> tuple[Any, str]:
    """Return the best plan that software can express, and a sentence where that is not the best plan.

    **Raises:** `UserError` where it can express no plan, or none that fits.
    """
    from hwopt.output.export.limits import expressible, refusal
    from hwopt.output.text.plans import plan_line

    why = refusal(known.limits, workload, best.plan)
    if not why:
        return best, ""
    cannot = f"{known.title} cannot express {why}"
    try:
        search = again(lambda plans: expressible(known.limits, workload, plans))
    except UserError as failure:
        raise UserError(f"{flag}: {cannot}; {failure}") from None
    if not search.feasible:
        raise UserError(f"{flag}: {cannot}; no plan that it can express fits")
    gap = search.best.objective / search.objective.value(best.report) - 1.0
    found = search.best.plan
    near = " with the same degrees" if not found.disaggregated and same_degrees(found, best.plan) else ""
    said = (
        f"not the plan {plan_line(best.report, best.plan)}: {cannot}; this is the best plan that it can express{near}"
    )
    return search.best, f"{said}, {search.objective.name} {100.0 * gap:+.2g} %"


def same_degrees(plans: Any, plan: Any) -> Any:
    """Return whether plans of one group of chips have the degrees of parallelism of a plan, for one or for arrays of plans."""
    same = True
    for name in ("tp", "pp", "dp", "cp", "ep", "expert_tp"):
        same = same & (getattr(plans, name) == getattr(plan, name))
    return same


def estimate_command(options: argparse.Namespace, flags: Sequence[Flag], best: Any) -> str:
    """Return the `hwopt estimate` command line that predicts a plan again. **Arguments:** `flags`: those of estimate."""
    from hwopt import escape
    from hwopt.output.text.plans import plan_lines

    words = ["hwopt", "estimate"]
    left_out = ("plan", "prefill_plan", "prefill_chips", "export")
    for each in flags:
        chosen = each.attribute in (getattr(options, "choices", None) or {})
        if chosen or (each.attribute in options.given and each.attribute not in left_out):
            written = f"{each.name} {getattr(options, each.attribute)}" if chosen else options.given[each.attribute]
            words += written.split(" ", 1)
    plans = {what: text.replace(", ", ",") for what, text in plan_lines(best.report, best.plan)}
    if "prefill" in plans:
        plan, chips = plans["prefill"].split(" on ")
        words += ["--prefill-plan", plan, "--prefill-chips", chips.split(" ")[0].replace(",", "")]
    words += ["--plan", (plans.get("decode") or plans["plan"]).split(" on ")[0]]
    return escape.command(words)
