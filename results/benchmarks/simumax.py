"""SimuMax compared with hwopt on the open runs that it can express. From the top of a checkout:

    SIMUMAX=path/to/its/checkout python -m results.benchmarks.simumax

SimuMax (MooreThreads/SimuMax on GitHub, Apache-2.0; wants pandas, sympy, tabulate, graphviz and tqdm) times the operators of
a step with efficiencies measured on the chip. Runs that it can express: chips for which its checkout has a system file, formats
that the file has an efficiency for, transformers with one type of layer after the dense ones, ZeRO of level 0 or 1, layers that its
stages and chunks divide, a plan that says all. A window is given it as sparser attention, the loss as one fused kernel, sends of
the pipeline as synchronous, which its chunks need. Its context parallelism exchanges heads. It checks no memory here. Ours are
predicted by the shipped constants without the study. Writes `results/reference/simumax.txt`.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hwopt.calibration.validation.score import Scored
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer
from results.benchmarks.calculon import beside, checkout, text_of, write

OUT = Path(__file__).parents[2] / "results" / "reference" / "simumax.txt"

SYSTEMS = {"a100-pcie": "a100_pcie", "b200": "b200_bf16_ceperm"}
"""Chip of the catalog -> its system file."""

OWN = "MooreThreads/SimuMax"
"""Start of the name of its own measurements."""

_ABSENT = ("kinds", "expert_hidden", "attends", "gate_dim", "shared_projection", "index_heads", "scan_heads")
"""Mechanisms that it has no words for."""


def strategy(scored: Scored) -> dict[str, Any] | None:
    """The plan of a run as SimuMax takes it; None where it has no words for it."""
    assert scored.case is not None
    run, plan, row = scored.case.workload, scored.case.plan, scored.row
    shape = run.model
    if scored.accelerator not in SYSTEMS or not isinstance(shape, Transformer):
        return None
    of = lambda name: float(getattr(plan, name))
    degrees = ("tp", "pp", "dp", "cp", "ep", "expert_tp", "virtual_stages", "micro_batch")
    tp, pp, dp, cp, ep, expert_tp, chunks, micro_batch = (round(of(name)) for name in degrees)
    batch, length = round(float(run.global_batch_sequences)), round(float(run.sequence_length))
    layers, full, part = round(float(shape.layers)), of("recompute_full"), of("recompute_attention")
    expressible = (
        row.number_format in ("bf16", "fp16", "fp8")
        and all(getattr(shape, name) is None for name in _ABSENT)
        and float(shape.parallel_layers) == 0.0
        and full in (0.0, 1.0)
        and part in (0.0, 1.0)
        and of("gradients_sharded") == of("weights_sharded") == 0.0
        and float(run.trainable_fraction) == 1.0
        and layers % (pp * chunks) == 0
        and micro_batch >= 1
        and batch % (dp * micro_batch) == 0
        and tp * pp * dp * cp == row.num_gpus
    )
    if not expressible:
        return None
    outside = 1.0 - min(2.0 * float(shape.window_tokens) / length, 1.0)  # share of causal scores beyond a window
    return {
        "seq_len": length, "micro_batch_size": micro_batch, "micro_batch_num": batch // (dp * micro_batch),
        "fp8": row.number_format == "fp8", "world_size": row.num_gpus, "tp_size": tp, "pp_size": pp, "cp_size": cp,
        "ep_size": ep, "etp_size": expert_tp, "enable_sequence_parallel": of("sequence_parallel") == 1.0 and tp > 1,
        "interleaving_size": chunks, "pp_comm_async": False, "zero_state": round(of("optimizer_sharded")),
        "enable_recompute": full + part > 0.0, "recompute_layer_num": layers if full + part else 0,
        "recompute_granularity": "full_block" if full else "sdp_only" if part else None,
        "attention_sparse_ratio": float(shape.local_layers_fraction) * outside, "cross_entropy_loss_fusion": True,
        "dispatch_probs": True, "te_version": "2.11.0",
    }  # fmt: skip


def model(run: TrainingRun) -> dict[str, Any]:
    """A model as SimuMax takes it."""
    shape = run.model
    of = lambda name: round(float(getattr(shape, name)))
    words = {
        "hidden_size": of("hidden"), "head_num": of("heads"), "kv_head_num": of("kv_heads"), "head_size": of("v_dim"),
        "intermediate_size": of("ffn"), "layer_num": of("layers"), "vocab_size": of("vocab"),
        "use_swiglu": of("mlp_matrices") == 3, "model_type": "dense",
    }  # fmt: skip
    if of("experts") > 1:
        words |= {
            "model_type": "moe", "expert_num": of("experts"), "topk": of("experts_per_token"),
            "moe_ffn_hidden_size": of("expert_ffn"), "dense_layers": of("dense_layers"),
            "moe_shared_expert_intermediate_size": of("shared_experts") * of("expert_ffn") or None,
        }  # fmt: skip
    if of("kv_rank"):
        words |= {
            "attention_type": "mla", "q_lora_rank": of("query_rank") or None, "kv_lora_rank": of("kv_rank"),
            "qk_head_dim": of("qk_dim") - of("rope_dim"), "qk_pos_emb_head_dim": of("rope_dim"), "v_head_dim": of("v_dim"),
        }  # fmt: skip
    return words


def step_s(scored: Scored, folder: Path) -> float | None:
    """SimuMax's time of a step, s; None where it has no words for the run, or refuses it."""
    from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig  # pyright: ignore
    from simumax.core.perf_llm import PerfLLM  # pyright: ignore

    words = strategy(scored)
    if words is None or scored.case is None:
        return None
    system = folder / "configs" / "system" / f"{SYSTEMS[scored.accelerator]}.json"
    peer = PerfLLM()
    try:
        with redirect_stdout(io.StringIO()):
            shape = ModelConfig.init_from_dict(model(scored.case.workload))
            peer.configure(StrategyConfig.init_from_dict(words), shape, SystemConfig.init_from_config_file(str(system)))
            peer.run_estimate()
            rate = peer.analysis_cost().data["throughput_per_accelerator"]  # token/s
    except (AssertionError, RuntimeError, ZeroDivisionError):  # the last: a format of efficiency 0
        return None
    return float(scored.case.workload.global_batch_sequences) * words["seq_len"] / (rate * words["world_size"])


def table(rows: Sequence[Scored], log_ratio: np.ndarray, folder: Path) -> str:
    """The whole table of open runs as text: all, then those that SimuMax has not measured itself."""
    step = partial(step_s, folder=folder)
    text = text_of(beside(rows, log_ratio, step), "SimuMax", ", its own on the machine of its system file among them")
    others = [i for i, scored in enumerate(rows) if not scored.row.source.startswith(OWN)]
    compared = beside([rows[i] for i in others], log_ratio[others], step)
    return f"{text}\n{text_of(compared, 'SimuMax', ', without its own')}" if compared.cells else text


if __name__ == "__main__":
    sys.exit(write(checkout("SIMUMAX", "configs/system"), OUT, table))
