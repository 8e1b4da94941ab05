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
    elementwise_passes: Scalar  # HBM passes over the fused minimum in norms, residuals, activations (1: all fused)
    cast_passes: Scalar  # extra passes over GEMM inputs that 8- and 4-bit formats cost (scaling, casts, transposes)
    kernel_launch_s: Scalar  # device-side gap after each kernel
    host_layer_s: Scalar  # host time to enqueue one layer forward; layers take max(device, host)
    tp_overlap: Scalar
    cp_overlap: Scalar
    ep_overlap: Scalar
    pp_overlap: Scalar
    dp_overlap: Scalar
    communication_slowdown: Scalar  # share of compute throughput that hidden communication takes away while it runs
    collective_launch_s: Scalar  # software latency of one collective
    gradient_bytes: Scalar  # bytes an element in the gradient reduction (4: fp32, 2: bf16)
    optimizer_passes: Scalar  # HBM passes of the optimizer update over the fused minimum
    step_overhead_s: Scalar  # host work a step: data, logging, clipping, scalar all-reduces
    jitter_sigma: Scalar  # relative standard deviation of one chip's step time
    memory_reserve_bytes: Scalar  # context, communication buffers, framework
    fragmentation: Scalar  # allocator overhead on activations, fraction
