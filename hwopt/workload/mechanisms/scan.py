"""Recurrent scans in place of attention: Mamba-2, gated delta nets and Kimi delta attention, computed in chunks of tokens."""

from typing import Any

from hwopt.workload.layer_work import COLUMNS, INNER, MIXER, WHOLE, Core, LayerWork, Product, where_of

CHUNK = 64.0
"""Tokens of a chunk of the delta rule.

**Source:** flash-linear-attention, `chunk_gated_delta_rule` and `chunk_kda`; 64 to 128.
"""

SUM_CHUNK = 128.0
"""Tokens of a chunk of Mamba-2's sum. **Source:** Nemotron-H and Nemotron-3 configurations (`chunk_size`); 128 to 256."""

STATE_BYTES = 4.0
"""Bytes of an element of a state. **Source:** `mamba_ssm_cache_dtype` and `mamba_ssm_dtype` of published configurations: fp32."""

CONV_BYTES = 2.0
"""Bytes of an element of the convolution's state: the engine's activation format, 16 bit."""

STATE_PASSES = 4.0
"""Passes of a chunk's 32-bit state through memory: one write, one read and write between chunks, one read.

**Source:** the four kernels of the chunked algorithm, Dao and Gu, arXiv 2405.21060, section 6 and listing 1.
"""

SCAN_PASSES = 2.5
"""Memory time of a chunked scan over that of the bytes counted here. Reason: five kernels exchange intermediate results,
and reach less of HBM's bandwidth than plain streams. Range 1.5 to 4.

**Source:** one fused kernel is 1.50 to 2.51 times faster than the five on A100 and H100 (PyTorch, Accelerating Mamba2
with Kernel Fusion, pytorch.org/blog). The five take as long as FlashAttention-2 at 2,048 tokens (Dao and Gu, arXiv
2405.21060, figure 10), about 4 times the time of the counted bytes.
"""

KERNELS = 5.0
"""Kernels of a chunked scan, forward. **Source:** as `SCAN_PASSES`."""


def add(shape: Any, work: LayerWork) -> LayerWork:
    """Return the work with a scan of H heads: a state of N x P elements each, keys of N and values of P elements.

    - Products: queries, keys, values, output gate and head gates in one, `hidden x (2 K + V + V + gates H)`; decays or an output
      gate of low rank in a second; the output `V x hidden`. K and V are the widths of all keys and values.
    - Scan, in chunks of C tokens, FLOPs a token: scores of a chunk and their sums `2 C (K + V)`, states `4 N P H`. The delta rule
      has keys for each of the H heads and adds `2 C (2 N H + V)` for its corrections and `2 N P H`. All are products in matrix
      units.
    - State: `N P H` elements of 32 bit a sequence, and the last tokens of the short convolution; no cache that grows.
    - Kept for the backward pass: inputs and outputs of the convolution, gates, the scan's output before and after its norm.
      States are recomputed.

    Layers with `scan_heads` = 0 have no scan and no cost of one.

    **Source:** Dao and Gu, arXiv 2405.21060, section 6; Yang et al., Gated Delta Networks, arXiv 2412.06464, section 3.3;
    Kimi Team, Kimi Linear, arXiv 2510.26692, section 3.
    """
    s, where = shape, where_of(shape)
    has = where(s.scan_heads > 0, 1.0, 0.0)
    keys, values = has * s.scan_key_heads * s.scan_key_dim, s.scan_heads * s.scan_value_dim
    rank = s.scan_gate_rank
    full = where(rank > 0, 0.0, 1.0)
    mixed = 2.0 * keys + values
    gates = s.scan_gates * s.scan_heads
    ranks = has * (s.scan_decay_rank + rank)
    decays = where(s.scan_decay_rank > 0, 1.0, 0.0) * s.scan_heads * s.scan_key_dim
    products = (
        Product("scan_in", s.hidden, mixed + full * values + gates, MIXER, COLUMNS),
        Product("scan_latent", s.hidden, ranks, MIXER, WHOLE),
        Product("scan_decay", s.scan_decay_rank, decays, MIXER, COLUMNS),
        Product("scan_gate", rank, (1.0 - full) * values, MIXER, COLUMNS),
        Product("scan_out", values, has * s.hidden, MIXER, INNER),
    )
    state, delta = s.scan_heads * s.scan_key_dim * s.scan_value_dim, s.scan_delta
    heads_keys = delta * s.scan_heads * s.scan_key_dim + (1.0 - delta) * keys
    chunk = delta * CHUNK + (1.0 - delta) * SUM_CHUNK
    flops = 2.0 * chunk * (heads_keys + values + delta * (2.0 * heads_keys + values)) + (4.0 + 2.0 * delta) * state
    states = 2.0 * STATE_PASSES * state / chunk  # 32 bit, counted in 16-bit elements
    before = where(s.scan_conv > 1.0, s.scan_conv - 1.0, 0.0)  # tokens that the convolution remembers
    zero, inputs = 0.0 * s.hidden, mixed + gates + decays
    streamed, one = SCAN_PASSES * (inputs + values + states), (4.0 + 2.0 * delta) * state
    core = Core(zero, zero, flops, one, streamed, 0.0, 0.0, 0.0, kernels=KERNELS, state_bytes=2.0 * STATE_BYTES * state)
    return work._replace(
        products=(*work.products, *products),
        cores=(*work.cores, core),
        state_bytes=work.state_bytes + STATE_BYTES * state + CONV_BYTES * before * mixed,
        channels=work.channels + 2.0 * mixed + 3.0 * values,  # the convolution; the gated norm of the output
        kept=work.kept + mixed + inputs + 3.0 * values,
        latent=work.latent + ranks,
        vectors=work.vectors + s.scan_conv * mixed + has * s.scan_value_dim + 2.0 * s.scan_heads + decays,
    )
