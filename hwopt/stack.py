"""What software runs the work: kernels, overlap and overheads, as floats a calibration can move."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import Scalar


class Stack(eqx.Module):
    """One software stack on one chip family. Entries live in `hwopt/data/stacks`; every field is a float array.

    Efficiencies are achieved FLOP/s over the chip's dense peak. An overlap fraction rho says how much of a
    communication can run under the work it accompanies: `max(work, (1 - rho) work + communication)`.
    """

    attention_forward_efficiency: Scalar  # attention-core products forward, 16 bit, of the chip's bf16 peak
    attention_backward_efficiency: Scalar  # the same backward (2.5 x forward FLOPs when scores are rebuilt)
    attention_scores_stored: (
        Scalar  # 1: the s x s scores go through HBM and are kept (no flash attention); 0: never leave SRAM
    )
    dropout_masks: Scalar  # 1: dropout runs and its masks are kept
    gemm_half_size: Scalar  # matrix dimension at which a GEMM dimension costs twice its ideal time
    gemm_efficiency_factor: Scalar  # the stack's GEMMs over the chip's best measured ones
    expert_gemm_factor: Scalar  # grouped GEMMs of experts over plain ones of the same shape
    routing_passes: Scalar  # HBM passes over the fused minimum in permuting tokens to experts and back
    elementwise_passes: Scalar  # HBM passes over the fused minimum in norms, residuals, activations (1: all fused)
    recompute_stops_early: Scalar  # 1: recomputing a layer leaves out its last product, whose output no gradient needs
    cast_passes: Scalar  # extra passes over GEMM inputs that 8- and 4-bit formats cost (scaling, casts, transposes)
    weight_cast_share: Scalar  # share of micro-batches that cast their weights anew to an 8- or 4-bit format
    kernel_launch_s: Scalar  # device-side gap after each kernel
    host_layer_s: Scalar  # host time to enqueue one layer forward; layers take max(device, host)
    host_moe_layer_s: Scalar  # the same of an MoE layer: router, dispatch with sizes read back, experts
    dispatch_deduplicated: Scalar  # 1: of a token's copies for experts of one scale-up domain only one travels there
    tp_overlap: Scalar
    cp_overlap: Scalar
    ep_overlap: Scalar
    pp_overlap: Scalar
    dp_overlap: Scalar
    communication_slowdown: Scalar  # share of compute throughput that hidden communication takes away while it runs
    collective_launch_s: Scalar  # software latency of one collective
    cache_sharded: Scalar  # 1: keys and values of fewer heads than ranks are spread over ranks by sequence, not copied
    cache_rereads: Scalar  # share of a group's further query heads whose kernel reads keys and values again
    logarithmic_passes: Scalar  # 1: all-gathers and reduce-scatters may take logarithmic algorithms, 0: rings only
    gather_efficiency: Scalar  # bandwidth of gathering sharded weights over that of the link's large collectives
    gradient_bytes: Scalar  # bytes an element in the gradient reduction (4: fp32, 2: bf16)
    optimizer_passes: Scalar  # HBM passes of the optimizer update over the fused minimum
    step_overhead_s: Scalar  # host work a step: data, logging, clipping, scalar all-reduces
    jitter_sigma: Scalar  # relative standard deviation of one chip's step time
    memory_reserve_bytes: Scalar  # context, communication buffers, framework
    fragmentation: Scalar  # allocator overhead on activations, fraction
    residual_tensors: Scalar  # tensors of h a token kept around a layer's two norms (4: inputs and outputs)
    product_kept: Scalar  # 1: the last product's input is kept in the MLP; 0: rebuilt from the other inner tensors
    cast_inputs_kept: Scalar  # 1: GEMM inputs are kept in the GEMM's 8- or 4-bit format; 0: as activations
    logit_bytes: Scalar  # bytes a logit at the peak of the loss (14: fp32 copy, log-softmax, gradient; output)
    master_kept: Scalar  # share of the master weights' bytes stored (0.5: the 16 bits that the weights lack)
    layers_whole: Scalar  # layers held whole at once: gathered weights, gradients not added up yet
