"""Software stack: kernel efficiencies, overlap and overheads, as floats that calibration can fit."""

import math
from typing import Any

import equinox as eqx
import numpy as np

from hwopt.quantity import quantities, quantity, ratio, switch
from hwopt.types import Scalar

DOCUMENTED = "capabilities"
"""Key of the table of capabilities in the entry of a stack."""

_DEGREE = "0: not documented, 1: any degree, more: largest degree"
_OFFLOAD = "0: not documented, 1: without a pipeline, 2: also in a pipeline"


def _capability(name: str, meaning: str, most: float = math.inf) -> Any:
    """Return a field for what a stack documents; 0 where its entry does not state it."""
    return switch(meaning, key=f"{DOCUMENTED}.{name}", default=0.0, most=most)


class Capabilities(eqx.Module):
    """Training plans that a stack documents. Each field limits one relation of the lattice of plans (`CAPABILITIES`).

    A capability that the documentation does not mention is 0: no plan may use it. The model of time and memory does not read
    these numbers.
    """

    tensor_parallelism: Scalar = _capability("tensor_parallelism", f"tensor parallelism; {_DEGREE}")
    pipeline_parallelism: Scalar = _capability("pipeline_parallelism", f"pipeline parallelism; {_DEGREE}")
    context_parallelism: Scalar = _capability("context_parallelism", f"context parallelism; {_DEGREE}")
    expert_parallelism: Scalar = _capability("expert_parallelism", f"expert parallelism; {_DEGREE}")
    interleaving: Scalar = _capability("interleaving", f"several chunks a stage, interleaved; {_DEGREE}")
    zero_stage: Scalar = _capability("zero_stage", "largest ZeRO stage without a pipeline", 3.0)
    zero_in_pipeline: Scalar = _capability("zero_in_pipeline", "largest ZeRO stage in a pipeline", 3.0)
    recomputation: Scalar = _capability("recomputation", "0: not documented, 1: full, 2: full and selective", 2.0)
    activation_offload: Scalar = _capability("activation_offload", f"all activations in host memory; {_OFFLOAD}", 2.0)
    offload_with_recomputation: Scalar = _capability(
        "offload_with_recomputation", "1: activations may be recomputed and offloaded in one run", 1.0
    )
    optimizer_offload: Scalar = _capability("optimizer_offload", f"optimizer state in host memory; {_OFFLOAD}", 2.0)
    weight_streaming: Scalar = _capability("weight_streaming", f"weights streamed from host memory; {_OFFLOAD}", 2.0)
    partial_offload: Scalar = _capability(
        "partial_offload",
        "parts of which a share may be offloaded; 0: none, 1: activations, 2: optimizer too, 3: any",
        3.0,
    )

    fp8_products: Scalar = switch("1: products in fp8 or block-scaled fp8", key="", default=0.0, most=1.0)
    int8_products: Scalar = switch("1: products in int8", key="", default=0.0, most=1.0)
    fp4_products: Scalar = switch("1: products in block-scaled fp4", key="", default=0.0, most=1.0)
    deduplicated_dispatch: Scalar = switch(
        "1: a dispatcher that sends one copy of a token to a scale-up domain", key="", default=0.0, most=1.0
    )

    @property
    def lifted(self) -> "Capabilities":
        """Return capabilities without limits: those of any software. ZeRO-2 and 3 stay out of pipelines unless documented:
        they reduce gradients after each micro-batch.
        """
        most = {name: each.most if each.most < math.inf else 1.0 for name, each in _CAPABILITIES.items()}
        most["zero_in_pipeline"] = max(1.0, float(self.zero_in_pipeline))
        leaves: dict[str, Any] = {name: np.float64(value) for name, value in most.items()}
        return Capabilities(**leaves)

    @property
    def unlimited(self) -> bool:
        """Whether no plan is excluded: any software."""
        return all(float(getattr(self, name)) == float(getattr(self.lifted, name)) for name in _CAPABILITIES)


_CAPABILITIES = quantities(Capabilities)


class Stack(eqx.Module):
    """One software stack on one chip family. Entries are in `hwopt/data/stacks`; every field is a float array.

    Efficiencies are achieved FLOP/s over the chip's dense peak. An overlap fraction rho is the share of work that can overlap
    with the communication that it accompanies: `max(work, (1 - rho) work + communication)`.
    """

    capabilities: Capabilities
    attention_forward_efficiency: Scalar = ratio(
        "attention-core products forward, 16 bit, of the chip's bf16 peak", of="family"
    )
    attention_backward_efficiency: Scalar = ratio(
        "attention-core products backward, of the same bf16 peak (2.5 x forward FLOPs when scores are rebuilt)",
        of="family",
    )
    attention_scores_stored: Scalar = switch(
        "1: the s x s scores go through HBM and are kept (no flash attention); 0: never leave SRAM"
    )
    dropout_masks: Scalar = switch("1: dropout runs and its masks are kept")
    gemm_half_size: Scalar = ratio("matrix dimension at which a GEMM dimension costs twice its ideal time")
    gemm_row_share: Scalar = ratio(
        "half size of a GEMM's rows, the tokens, over that of its other two sides: tiles for few tokens", default=1.0
    )
    gemm_start_s: Scalar = quantity(
        "s", "in which a GEMM fills and drains the chip, beyond the gap after it", default=0.0
    )
    gemm_efficiency_factor: Scalar = ratio("the stack's GEMMs over the chip's best measured ones")
    expert_gemm_factor: Scalar = ratio("grouped GEMMs of experts over plain ones of the same shape", default=0.9)
    expert_unpacking: Scalar = ratio(
        "grouped GEMMs of experts whose weights are narrower than products over those that unpack none", default=1.0
    )
    expert_row_share: Scalar = ratio("the same of grouped GEMMs of experts", default=1.0)
    routing_passes: Scalar = ratio(
        "HBM passes over the fused minimum in permuting tokens to experts and back", default=1.5
    )
    expert_start_s: Scalar = quantity(
        "s", "in which routing, sorting and adding up of a layer's experts start, of a pass that serves", default=0.0
    )
    elementwise_passes: Scalar = ratio(
        "HBM passes over the fused minimum in norms, residuals, activations (1: all fused)"
    )
    elementwise_kernels: Scalar = ratio("kernels of a layer that only pass over memory", default=8.0)
    recompute_stops_early: Scalar = ratio(
        "1: recomputing a layer leaves out its last product, whose output no gradient needs", default=0.0
    )
    cast_passes: Scalar = ratio(
        "extra passes over GEMM inputs that 8- and 4-bit formats cost (scaling, casts, transposes)"
    )
    weight_cast_share: Scalar = ratio(
        "share of micro-batches that cast their weights anew to an 8- or 4-bit format", default=0.3
    )
    cast_start_s: Scalar = quantity(
        "s", "in which a cast to blocks of 4 bits and their scales starts, a GEMM; wider formats are cast by what writes them",
        default=0.0,
    )  # fmt: skip
    kernel_launch_s: Scalar = quantity("s", "device-side gap after each kernel")
    host_layer_s: Scalar = quantity("s", "host time to enqueue one layer forward; layers take max(device, host)")
    host_moe_layer_s: Scalar = quantity(
        "s", "the same of an MoE layer: router, dispatch with sizes read back, experts", default=3e-3
    )
    host_collective_s: Scalar = quantity(
        "s", "host time to enqueue one of a layer's collectives among tensor-parallel ranks", default=0.0
    )
    dispatch_deduplicated: Scalar = ratio(
        "1: of a token's copies for experts of one scale-up domain only one travels there", default=0.0
    )
    dispatch_bytes_share: Scalar = ratio(
        "bytes of tokens on their way to experts over those on their way back (0.5: 8 bit there, 16 back)", default=1.0
    )
    tokens_gathered: Scalar = switch(
        "1: a pass that serves brings all tokens to all ranks of experts and adds up what comes of them, 0: an all-to-all",
        default=0.0,
    )
    gathered_launch_s: Scalar = quantity("s", "software latency of each of these two collectives", default=0.0)
    tp_overlap: Scalar = ratio("share of the work that can hide tensor parallelism")
    cp_overlap: Scalar = ratio("the same of context parallelism")
    ep_overlap: Scalar = ratio("the same of expert parallelism")
    two_batch_overlap: Scalar = ratio(
        "the same where a batch that is served passes in two halves", default=0.9
    )  # assumption, 0.6 to 1: DeepSeek's statement about its kernels, like `deepseek-2024` in training; no second source
    pp_overlap: Scalar = ratio("the same of sends between stages")
    dp_overlap: Scalar = ratio("the same of data parallelism")
    communication_slowdown: Scalar = ratio(
        "share of compute throughput that hidden communication takes away while it runs"
    )
    collective_launch_s: Scalar = quantity("s", "software latency of one collective")
    cache_sharded: Scalar = switch(
        "1: keys and values of fewer heads than ranks are spread over ranks by sequence, not copied", default=0.0
    )
    cache_rereads: Scalar = ratio(
        "share of a group's further query heads whose kernel reads keys and values again", default=0.0
    )
    layouts_sharded: Scalar = switch(
        "1: plans that serve may spread norms over tensor parallel ranks, and weights over replicas of prompts",
        default=0.0,
    )
    pipelined: Scalar = switch("1: plans that serve may have several stages, 0: one", default=1.0)
    redundant_experts: Scalar = switch(
        "1: plans that serve may hold experts twice, so that any number of chips shares them", default=0.0
    )
    two_batches: Scalar = switch("1: plans that serve may pass a batch in two halves", default=0.0)
    cache_split: Scalar = switch(
        "1: plans that generate answers may split keys and values of a head by token over ranks", default=0.0
    )
    attention_start_s: Scalar = quantity(
        "s", "in which attention of sequences starts, splits the cache and adds up its parts, a layer", default=0.0
    )
    prompt_start_s: Scalar = quantity(
        "s", "the same of prompts, with rotation and writing keys and values to the cache", default=0.0
    )
    host_sequence_s: Scalar = quantity(
        "s", "host time a pass and sequence, beside the device: scheduling, sampling, texts", default=0.0
    )
    passes_graphed: Scalar = switch(
        "1: of passes that serve the host enqueues only those with prompts layer by layer, others as a graph, 0: all",
        default=0.0,
    )
    logarithmic_passes: Scalar = switch(
        "1: all-gathers and reduce-scatters may take logarithmic algorithms, 0: rings only", default=0.0
    )
    gather_efficiency: Scalar = ratio(
        "bandwidth of gathering sharded weights over that of the link's large collectives", default=1.0
    )
    gradient_bytes: Scalar = quantity(
        "B", "bytes an element in the gradient reduction (4: fp32, 2: bf16)", key="gradient_bytes"
    )
    optimizer_passes: Scalar = ratio("HBM passes of the optimizer update over the fused minimum")
    step_overhead_s: Scalar = quantity("s", "host work a step: data, logging, clipping, scalar all-reduces")
    jitter_sigma: Scalar = ratio("relative standard deviation of one chip's step time")
    memory_reserve_bytes: Scalar = quantity("B", "context, communication buffers, framework")
    fragmentation: Scalar = ratio("allocator overhead on activations, fraction")
    residual_tensors: Scalar = ratio(
        "tensors of h a token kept around a layer's two norms (4: inputs and outputs)", default=4.0
    )
    product_kept: Scalar = ratio(
        "1: the last product's input is kept in the MLP; 0: rebuilt from the other inner tensors", default=1.0
    )
    cast_inputs_kept: Scalar = ratio(
        "1: GEMM inputs are kept in the GEMM's 8- or 4-bit format; 0: as activations", default=0.0
    )
    logit_bytes: Scalar = quantity(
        "B",
        "bytes a logit at the peak of the loss (14: fp32 copy, log-softmax, gradient; output)",
        key="logit_bytes",
        default=8.0,
    )
    master_kept: Scalar = ratio(
        "share of the master weights' bytes stored (0.5: the 16 bits that the weights lack)", default=1.0
    )
    layers_whole: Scalar = ratio("layers held whole at once: gathered weights, gradients not added up yet", default=2.0)
    gathered_inputs_kept: Scalar = ratio(
        "share of what sequence parallelism gathers that is kept whole; 0: gathered again backward", default=0.0
    )
    activation_kept: Scalar = ratio(
        "1: a gated MLP keeps what its activation function returns, beside what goes in", default=0.0
    )
    gradient_copy_bytes: Scalar = quantity(
        "B",
        "bytes an element of a second set of gradients: buckets of the exchange, or 16 bits beside fp32 sums",
        key="gradient_copy_bytes",
        default=0.0,
    )
    share_gradient_bytes: Scalar = quantity(
        "B",
        "bytes an element of the gradients of what a rank updates, in the optimizer's own format",
        key="share_gradient_bytes",
        default=0.0,
    )
    table_gradient_bytes: Scalar = quantity(
        "B", "bytes an element of the gradient of an embedding on its way", key="table_gradient_bytes", default=0.0
    )
    first_stage_full: Scalar = switch(
        "1: the first stage has as many layers as any; 0: the first is the second to go short of one", default=0.0
    )
    level: Scalar = ratio(
        "global step-time factor: time of a step over that of its parts, kernels and communication alike; lower is faster",
        default=1.0,
    )
    expert_tile_share: Scalar = ratio(
        "half size of the rows of experts with weights of 16 or 4 bits, over that of experts with weights of 8 bits, where a "
        "pass serves",
        default=1.0,
    )
    direct_reduce_s: Scalar = quantity(
        "s",
        "of an all-reduce inside a scale-up domain whose ranks read the buffers of all others, beside the bytes' time, where a "
        "pass serves; 1 s: libraries alone",
        default=1.0,
    )
    pass_level: Scalar | None = None  # `level` of a service's passes; None unless a measured service anchors it
