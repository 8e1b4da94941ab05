"""Launch settings of an answer: the flag, its checks before any search, and the printed files."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hwopt.cli.flags import Flag
from hwopt.cli.runner import Rendered
from hwopt.cli.value_types import one_of
from hwopt.errors import UserError

TRAINERS = ("megatron", "torchtitan", "nemo")
ENGINES = ("vllm", "sglang", "tensorrt-llm", "dynamo-vllm", "dynamo-sglang", "dynamo-tensorrt-llm")
"""Training and serving software whose launch settings can be exported."""

EXPORT = Flag(
    "--export", f"print only launch settings: of training for {', '.join(TRAINERS)}, of a service for {', '.join(ENGINES)}",
    one_of(*TRAINERS, *ENGINES),
)  # fmt: skip

LOOKED_AT = 50
"""Number of best-ranked plans among which the first that the software can express is exported."""


def held_for(name: str | None) -> Mapping[str, float]:
    """Return the plan variables to fix in a plan search, because the software of `--export` has no setting for other values."""
    if name not in TRAINERS:
        return {}
    from hwopt.output.export.trainers import TRAINERS as KNOWN

    return KNOWN[name].held if name in KNOWN else {}


def check_export(name: str | None, workload: Any, chip: str, precision: str) -> None:
    """Raise `UserError` for software that is not for the workload, does not run on the chip, or lacks the GEMM format."""
    if name is None:
        return
    from hwopt import catalog
    from hwopt.catalog.chips import architecture, slot
    from hwopt.catalog.load import supported
    from hwopt.workload.operators import Operators
    from hwopt.workload.service import Service
    from hwopt.workload.training import TrainingRun

    kind, words, others = (TrainingRun, "training", ENGINES) if name in TRAINERS else (Service, "a service", TRAINERS)
    if not isinstance(workload, kind):
        more = f"; of this workload: {', '.join(others)}" if isinstance(workload, (Service, TrainingRun)) else ""
        raise UserError(f"--export {name}: launch settings of {words}, which this workload is not{more}")
    if name in TRAINERS and isinstance(workload.model, Operators):
        raise UserError(
            f"--export {name}: launch settings of transformers alone, and this workload is a table of operators"
        )
    from hwopt.output.export.settings import ENGINES as KNOWN
    from hwopt.output.export.trainers import TRAINERS as FILES

    entry = supported("chips", chip)
    if name in TRAINERS:
        if name in FILES:
            FILES[name].check(f"--export {name}", entry.slug, architecture(entry))
        return
    catalog.check_precision(chip, precision)
    KNOWN[name].check(f"--export {name}", entry.slug, architecture(entry), slot(precision))


def launch_files(
    options: argparse.Namespace,
    title: str,
    workload: Any,
    name: str,
    ranked: Sequence[Any],
    chips: Sequence[str],
    asked: Callable[[], Any],
) -> Rendered:
    """Return the launch settings of the best plan that the software can express.

    **Arguments:**

    - `title`: the question in words.
    - `asked`: returns the question as JSON.
    - `name`: name of the workload.
    - `ranked`: candidate plans, the best first.
    - `chips`: the chip of each group.
    """
    from hwopt.output.export.trainers import TRAINERS as FILES

    if options.export in FILES:
        from hwopt.output.export.first_group import first_told
        from hwopt.output.export.trainer import file_text, training_file

        trainer = FILES[options.export]
        write = lambda each: training_file(options.export, trainer, workload, each.plan)
        told = first_told(f"--export {options.export}", trainer.title, ranked, write)
        return Rendered(lambda: asked() | told._asdict(), lambda: file_text(trainer, told, title))
    if options.export in TRAINERS:
        from hwopt.output.export import megatron

        settings = megatron.megatron_settings(workload, ranked[0].plan)
        return Rendered(
            lambda: asked() | megatron.megatron_document(settings),
            lambda: megatron.megatron_text(settings, title),
        )
    from hwopt.catalog import checkpoint
    from hwopt.catalog.chips import architecture
    from hwopt.catalog.load import supported
    from hwopt.output.export.settings import launch_document, launch_text, launchable

    families = [architecture(supported("chips", chip)) for chip in chips]
    launch = launchable(options.export, workload, ranked, families, checkpoint(name))
    return Rendered(lambda: asked() | launch_document(launch), lambda: launch_text(launch, title))
