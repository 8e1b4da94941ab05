"""Anchor: measured runs of the cluster in question, which scale the model's global step-time factor (`catalog.Anchor`).

It is a calibration with one constant, in memory: a name of constants that states the runs. More constants need `hwopt.calibrate`.
"""

import math
import os
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from hwopt import catalog
from hwopt.calibration.measured.columns import MeasuredRun, MeasuredService
from hwopt.calibration.validation.skip import Skip
from hwopt.calibration.validation.validate import score
from hwopt.catalog.chips import architecture
from hwopt.design.anchored_question import AnchoredQuestion
from hwopt.errors import UserError, suggest
from hwopt.model.estimate import estimate
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.units import read_amount

METRICS = {
    True: {
        "step": ("s", "step_time_s"), "tokens_per_s": ("", "tokens_per_s"), "mfu": ("", "mfu"),
        "tokens_per_s_per_gpu": ("", "tokens_per_s_per_chip"),
    },
    False: {"tpot": ("s", "time_per_output_token_full_batch_s"), "ttft": ("s", "time_to_first_token_full_batch_s")},
}  # fmt: skip
"""Whether a run is training -> name of a value in `--anchor NAME=VALUE` -> unit ("" for rates), field of the report."""

_COLUMNS = ("tp", "pp", "micro_batch")
"""Columns without which the plan of a measured run is unknown; others default to 1 or to the software's habit."""


def anchored(anchor: str | os.PathLike[str], constants: str | Path, asked: AnchoredQuestion) -> str:
    """Return the name of constants that are scaled to measured runs.

    **Arguments:**

    - `anchor`: value of the run in question, such as `step=4.2s` (names: `METRICS`); or a CSV file or a log of
      measured runs of the same chip and software. Several rows count by their geometric mean; each
      configuration counts as one run.
    - `constants`: constants to scale.
    - `asked`: the question.

    **Returns:** text that `constants` accepts everywhere. The run counts as benchmark operation unless row or question state it.

    **Raises:** `UserError` for an unknown value, a value that is off by more than `catalog.MOST_LEVEL` or above the chip's peak, a
    run of another chip or other software, and a run with an unknown plan.
    """
    name, equals, text = (part.strip() for part in str(anchor).partition("="))
    try:
        base = catalog.calibration(constants)
        if base is None or catalog.Anchor.read(constants):
            raise UserError(f"constants '{constants}' take no anchor: start at literature, calibrated or a .toml file")
        found, mfu_measured = (
            _stated(name, text, asked) if equals and not os.path.exists(anchor) else _measured(anchor, base, asked)
        )
        if asked.trains and mfu_measured > 1.0:
            raise UserError(
                f"the measured value means an MFU of {100.0 * mfu_measured:.0f} %, above the chip's peak: check its unit"
            )
        named = str(found._replace(base=str(constants)))
        catalog.calibration(named)
    except UserError as error:
        raise UserError(f"--anchor {anchor}: {str(error).removeprefix('anchor: ')}") from None
    return named


def _anchor(
    asked: AnchoredQuestion, measured_s: float, predicted_s: float, operation: str, runs: int = 1
) -> catalog.Anchor:
    family, stack = architecture(catalog.record("chips", asked.chip)), catalog.record("stacks", asked.stack).slug
    benchmark = catalog.PRODUCTION if operation == catalog.PRODUCTION else catalog.BENCHMARK
    return catalog.Anchor("", measured_s, predicted_s, catalog.machine_key(family, stack), benchmark, runs)


def _stated(name: str, text: str, asked: AnchoredQuestion) -> tuple[catalog.Anchor, float]:
    """Return the anchor of one value of the run in question, and the measured MFU."""
    known = METRICS[asked.trains]
    if name not in known:
        raise UserError(
            f"'{name}' is not a measured value of {'training' if asked.trains else 'a service'}: {suggest(name, known)}"
        )
    if asked.unknown:
        raise UserError(f"{asked.unknown}; or give the run's row: --anchor run.csv")
    (unit, field), operation = known[name], asked.operation or catalog.BENCHMARK
    value = read_amount(text, unit)
    if not 0.0 < value < math.inf or ("%" in text and name != "mfu"):
        raise UserError(f"'{text}' must be a positive, finite {'time' if unit else 'number'}")
    stated: dict[str, Any] = (catalog.parse_plan if asked.trains else catalog.parse_serving_plan)(asked.plan or "")
    made = (catalog.plan if asked.trains else catalog.serving_plan)(asked.run, asked.chips or 1, **stated)
    report = evaluate_in_numpy(estimate, asked.run, asked.cluster(operation), made)
    predicted = float(getattr(report, field))
    time_s = predicted if unit else float(report.step_time_s)
    ratio = predicted / value if unit else value / predicted
    return _anchor(asked, time_s / ratio, time_s, operation), float(report.mfu) * ratio


def _measured(path: Any, base: catalog.Calibration, asked: AnchoredQuestion) -> tuple[catalog.Anchor, float]:
    """Return the anchor of a file's rows, by their geometric means, and the highest measured MFU."""
    facts = {"stack": asked.stack, "gpu": asked.chip, "model_name": asked.workload, "num_gpus": asked.chips or ""}
    if asked.trains:
        facts |= {
            "seq_len": f"{asked.run.sequence_length:g}",
            "global_batch_sequences": f"{asked.run.global_batch_sequences:g}",
        }
        facts |= {"operation": asked.operation or ""}
    scoring = score(path, base, defaults={name: str(cell) for name, cell in facts.items() if cell})
    if scoring.measurements.kind is not (MeasuredRun if asked.trains else MeasuredService):
        raise UserError(f"has rows of {'services' if asked.trains else 'training'}; the question is about the other")
    rows = [row for row in scoring.scored if not row.metric.memory]
    if not rows:
        skipped = [f"{each.reason}: {each.detail}" for each in scoring.outcomes if isinstance(each, Skip)]
        raise UserError(f"no row with a measured time; {' '.join(skipped[:1]) or 'memory only'}")
    for row in rows:
        for kind, own, other in (("chips", row.accelerator, asked.chip), ("stacks", row.stack, asked.stack)):
            if own != catalog.record(kind, other).slug:
                raise UserError(f"row at line {row.row.line}: {kind[:-1]} {own}, but the question is about {other}")
        if missing := [name for name in _COLUMNS if name in row.assumed]:
            raise UserError(f"row at line {row.row.line}: the plan of the run is unknown without {', '.join(missing)}")
    operations = {getattr(row.row, "operation", None) or catalog.BENCHMARK for row in rows}
    if len(operations) > 1:
        raise UserError(f"has rows of {' and of '.join(sorted(operations))}: give those of one operation")
    step_s, ratio = (
        geometric_mean([of(row) for row in rows])
        for of in (lambda row: row.prediction.step_s, lambda row: row.time_ratio)
    )
    mfu = max(row.prediction.mfu * row.time_ratio for row in rows)
    configurations = len({row.row.configuration for row in rows})  # repeats of a run tell no more about other plans
    return _anchor(asked, step_s / ratio, step_s, operations.pop(), configurations), mfu
