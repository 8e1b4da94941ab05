"""Calculon beside hwopt on the open runs that it can express. From the top of a checkout:

    CALCULON=path/to/its/checkout python -m results.benchmarks.calculon

Calculon (calculon-ai/calculon on GitHub, Apache-2.0) has dense transformers in 16 bit with tensor, pipeline and data parallelism
on A100 and H100. Runs that it can express: those chips, 16 bit, no experts, no context parallelism, layers that its stages and
chunks divide, a plan that says all. A gated MLP is given it as a plain one of the same FLOPs, grouped heads as whole ones. Ours are
predicted by the shipped constants without the study. Writes `results/reference/calculon.txt`. Locked studies are compared by
`results.benchmarks.release` alone, which asks `beside` where CALCULON names a checkout.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hwopt import catalog
from hwopt.calibration.fit.observations import complete
from hwopt.calibration.validation.score import Cell, Scored, cells_of
from hwopt.workload.training import TrainingRun
from results.benchmarks.published_fit import leave_one_study_out, open_runs

OUT = Path(__file__).parents[2] / "results" / "reference" / "calculon.txt"

SYSTEMS = {"a100-80": "a100_80g", "h100-sxm": "h100_80g_nvl8"}
"""Chip of the catalog -> its system file."""

_DOMAIN = 8
"""Chips of the inner network of both."""


def execution(scored: Scored) -> dict[str, Any] | None:
    """The plan of a run as Calculon takes it; None where it has no words for it."""
    case, row = scored.case, scored.row
    assert case is not None
    run, plan = case.workload, case.plan
    shape = run.model
    of = lambda name: float(getattr(plan, name))
    whole = {name: round(of(name)) for name in ("tp", "pp", "dp", "cp", "virtual_stages", "micro_batch")}
    batch = round(float(run.global_batch_sequences))
    expressible = (
        scored.accelerator in SYSTEMS
        and row.number_format in ("bf16", "fp16")
        and float(shape.experts) <= 1.0
        and whole["cp"] == 1
        and of("recompute_full") in (0.0, 1.0)
        and of("weights_sharded") == 0.0
        and float(run.trainable_fraction) == 1.0
        and round(float(shape.layers)) % (whole["pp"] * whole["virtual_stages"]) == 0
        and batch % (whole["dp"] * whole["micro_batch"]) == 0
        and whole["tp"] * whole["pp"] * whole["dp"] == row.num_gpus
    )
    if not expressible:
        return None
    full, part = of("recompute_full") == 1.0, of("recompute_attention") == 1.0
    sequence = of("sequence_parallel") == 1.0
    outer = lambda ranks: 0 if ranks <= _DOMAIN else 1
    return {
        "num_procs": row.num_gpus, "tensor_par": whole["tp"], "pipeline_par": whole["pp"], "data_par": whole["dp"],
        "tensor_par_net": 0, "pipeline_par_net": outer(whole["tp"] * whole["pp"]), "data_par_net": outer(row.num_gpus),
        "batch_size": batch, "microbatch_size": whole["micro_batch"], "datatype": "float16", "fused_activation": True,
        "attention_type": "multihead", "activation_recompute": "full" if full else "attn_only" if part else "none",
        "pipeline_interleaving": whole["virtual_stages"], "optimizer_sharding": of("optimizer_sharded") == 1.0 and whole["dp"] > 1,
        "tensor_par_comm_type": "rs_ag" if sequence and whole["tp"] > 1 else "ar", "tensor_par_overlap": "none",
        "seq_par_ag_redo": sequence and whole["tp"] > 1 and not full, "data_par_overlap": whole["dp"] > 1,
        "weight_offload": False, "activations_offload": False, "optimizer_offload": False, "training": True,
    }  # fmt: skip


def application(run: TrainingRun) -> dict[str, int]:
    """A model as Calculon takes it."""
    shape = run.model
    of = lambda name: round(float(getattr(shape, name)))
    return {
        "hidden": of("hidden"), "feedforward": round(float(shape.ffn * shape.mlp_matrices) / 2.0),
        "seq_size": round(float(run.sequence_length)), "attn_heads": of("heads"), "attn_size": of("qk_dim"),
        "num_blocks": of("layers"),
    }  # fmt: skip


def step_s(scored: Scored, folder: Path) -> float | None:
    """Calculon's time of a step; None where it has no words for the run, or refuses it."""
    from calculon import System  # pyright: ignore
    from calculon.llm import Llm  # pyright: ignore

    words = execution(scored)
    if words is None or scored.case is None:
        return None
    system = json.loads((folder / "systems" / f"{SYSTEMS[scored.accelerator]}.json").read_text())
    for memory in ("mem1", "mem2"):
        system[memory]["GiB"] = 1e6  # a run that was run did fit
    try:
        model = Llm(Llm.Application(application(scored.case.workload)), logging.getLogger("calculon"))
        machine = System(system)
        model.compile(machine, Llm.Execution.from_json(words))
        model.run(machine)
    except (Llm.Error, AssertionError):
        return None
    return float(model.get_total_time())


@dataclass(frozen=True)
class Beside:
    """Errors of what was measured over the cells that a peer can express, ours and its own by cell."""

    rows: int
    cells: tuple[tuple[Cell, int], ...]  # and how many rows
    ours: np.ndarray
    theirs: np.ndarray
    bias: tuple[float, float]  # of step times, ours and theirs; + is too slow

    @property
    def nearer(self) -> int:
        """Cells in which ours is nearer."""
        return int((self.ours < self.theirs).sum())


def checkout(variable: str = "CALCULON", systems: str = "systems") -> Path | None:
    """The checkout that `variable` names, with its folder of `systems`, on the path of imports; None where it names none."""
    folder = os.environ.get(variable)
    if not folder or not (Path(folder) / systems).is_dir():
        return None
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return Path(folder)


def beside(rows: Sequence[Scored], log_ratio: np.ndarray, step: Callable[[Scored], float | None]) -> Beside:
    """A peer beside hwopt on those complete runs that it can express, which leave nothing open.

    **Arguments:** `rows`; `log_ratio`: logarithms of our predicted over measured step times; `step`: the peer's time of a step,
    s, None where it cannot express the run.
    """
    theirs = np.full(len(rows), np.nan)
    for i, scored in enumerate(rows):
        if complete(scored) and not scored.left_out and scored.prediction.spread == 0.0:
            measured_s = scored.prediction.step_s / scored.time_ratio
            theirs[i] = np.log((step(scored) or np.nan) / measured_s)
    rate = np.array([scored.metric.rate for scored in rows])
    cells = {cell: [i for i in members if np.isfinite(theirs[i])] for cell, members in cells_of(rows).items()}
    cells = {cell: members for cell, members in cells.items() if members}
    mean = lambda of: np.array([np.mean(of[members]) for members in cells.values()])
    ours, their = (mean(np.abs(np.expm1(np.where(rate, -ratio, ratio)))) for ratio in (log_ratio, theirs))
    bias = [float(np.expm1(np.mean(mean(ratio)))) if cells else 0.0 for ratio in (log_ratio, theirs)]
    counted = tuple((cell, len(members)) for cell, members in cells.items())
    return Beside(sum(n for _, n in counted), counted, ours, their, (bias[0], bias[1]))


def lines_of(compared: Beside, ours: str, theirs: str) -> list[str]:
    """A comparison as text: over cells, then cell by cell."""
    lines = [f"{'':30}{'median':>9}{'mean':>9}{'time':>9}{'nearer in':>12}"]
    of = len(compared.cells)
    each = ((ours, compared.ours, compared.nearer), (theirs, compared.theirs, of - compared.nearer))
    for (name, errors, nearer), bias in zip(each, compared.bias, strict=True):
        shares = (np.median(errors), np.mean(errors))
        lines.append(
            f"{name:30}{100 * shares[0]:9.1f}{100 * shares[1]:9.1f}{100 * bias:+9.1f}{f'{nearer} of {of}':>12}"
        )
    lines += ["", f"{'cell':76}{'rows':>5}{'hwopt':>8}{theirs:>10}"]
    for (cell, rows), our, their in zip(compared.cells, compared.ours, compared.theirs, strict=True):
        lines.append(f"{', '.join(cell)[:75]:76}{rows:5}{100 * our:8.1f}{100 * their:10.1f}")
    return lines


def text_of(compared: Beside, theirs: str, which: str = "") -> str:
    """A comparison of open runs with its head; `which` of them, after a comma."""
    head = f"Open runs that {theirs} can express{which}: {compared.rows} in {len(compared.cells)} cells."
    lines = [
        f"{head} Errors of what was measured, %, over cells",
        "",
        *lines_of(compared, "hwopt, study left out", theirs),
    ]
    return "\n".join(lines) + "\n"


def table(rows: Sequence[Scored], log_ratio: np.ndarray, folder: Path) -> str:
    """The whole table of open runs as text."""
    return text_of(beside(rows, log_ratio, partial(step_s, folder=folder)), "Calculon")


def write(folder: Path | None, out: Path, table: Callable[[Sequence[Scored], np.ndarray, Path], str]) -> int:
    """Write and print a peer's `table` of the open runs, by the shipped constants without the study; returns the exit code.

    **Arguments:** `folder`: the peer's checkout; `out`: the file; `table`: text from rows, log ratios as in `beside`, and `folder`.
    """
    if folder is None:
        print("name a checkout of the peer: see the top of the file", file=sys.stderr)
        return 2
    observations, shipped = open_runs(), catalog.calibration()
    assert shipped is not None
    without, _ = leave_one_study_out(observations, shipped)
    text = table(observations.rows, without - observations.log_measured_s, folder)
    out.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(write(checkout(), OUT, table))
