# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The roofline of a transformer layer on ten chips
#
# Which kernels of one layer are bound by arithmetic and which by HBM, in training and in decode, and how has that moved from
# V100 to Rubin?
#
# The layer is Llama-3-70B's, split over eight chips (tp 8). Training passes one sequence of 8,192 tokens; decode passes 64
# sequences, one token each, with 8,192 tokens of context. All in 16 bit, so that every chip has the format.

# %%
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from hwopt import catalog
from hwopt.model.chip.roofline import KernelTime, bf16_rate, gemm_time, kernel_time, stream_time
from hwopt.model.layers import work
from hwopt.model.numerics.maximum import hard_maximum
from hwopt.model.serving import cache
from hwopt.model.serving.batch import Batch
from hwopt.model.serving.forward import core_flops, pass_gemms
from hwopt.workload.layer_work import layer_work

FAST = bool(os.environ.get("HWOPT_FAST"))  # fewer batches in the last cell
CHIPS = ("v100", "a100-80", "h100-sxm", "b200", "rubin", "mi300x", "mi355x", "tpu-v5p", "tpu-v7", "trainium2")
KERNELS = ("query, key, value", "attention output", "MLP up", "MLP down", "attention", "elementwise")
MODEL, CONTEXT, TP = "llama3-70b", 8192, 8

# %% [markdown]
# ## The kernels
#
# Public functions of the model say what each kernel computes, moves and takes: FLOPs, HBM bytes, seconds. They are compiled
# once and run on every chip.


# %%
class Kernels(NamedTuple):
    """FLOPs, HBM bytes and time of the kernels of one layer, in the order of `KERNELS`."""

    flops: jax.Array
    hbm_bytes: jax.Array
    time: KernelTime


def joined(table, gemms, attention, attention_work, passes, cluster):
    """Products, attention and elementwise kernels of one layer in one table; query, key and value run as one."""
    place = {name: i for i, name in enumerate(work.GEMMS)}
    groups = (("query", "key_value"), ("attention_output",), ("mlp_up",), ("mlp_down",))
    flops = [sum(table.flops[place[name]] for name in group) for group in groups]
    times = [KernelTime(*(sum(part[place[name]] for name in group) for part in gemms)) for group in groups]
    times = [*times, attention, passes]
    rate = cluster.chip.hbm_bandwidth_bytes_per_s * cluster.chip.hbm_efficiency
    time = KernelTime(*(jnp.stack(parts) for parts in zip(*times, strict=True)))
    return Kernels(jnp.stack([*flops, attention_work, 0.5 * passes.hbm_s * rate]), time.hbm_s * rate, time)


@jax.jit
def training(run, cluster, plan):
    """One micro-batch forward."""
    chip, stack, flow = cluster.chip, cluster.stack, work.flow(run, plan)
    table = work.gemms(flow, plan)
    fraction = work.executed_causal_fraction(run, stack)
    flops = flow.tokens * work.core_flops(run, flow.work.cores[0], fraction) / plan.tp
    rate = bf16_rate(chip) * stack.attention_forward_efficiency
    core = kernel_time(flops, rate, work.attention_stream_bytes(flow, plan), chip, 1.0, stack, hard_maximum)
    elements = work.attention_score_elements(run, plan, flow.work.heads)
    scores = stack.attention_scores_stored * elements  # where no fused kernel exists
    core = core.plus(stream_time(scores * work.SCORE_BYTES_FORWARD, chip, 0.0, stack))
    passes = stream_time(stack.elementwise_passes * work.elementwise_bytes(flow, plan, 0.0), chip, 8.0, stack)
    return joined(table, gemm_time(table, run, chip, stack, hard_maximum), core, flops, passes, cluster)


@jax.jit
def decode(service, cluster, plan, sequences):
    """One pass: every sequence gets one token."""
    chip, stack = cluster.chip, cluster.stack
    batch = Batch(sequences, 1.0, float(CONTEXT), 0.0, 0.0, 0.0, 0.0)
    table, gemms = pass_gemms(service, cluster, plan, batch, hard_maximum)
    layer = layer_work(service.model)
    flow = work.Flow(service.model, layer, batch.rows, service.activation_bytes, service.routing_imbalance)
    flops = core_flops(layer.cores[0], batch)[0] / plan.tp
    read = cache.read_bytes(service, plan, stack, batch.context)
    rate = bf16_rate(chip) * stack.attention_forward_efficiency
    core = kernel_time(flops, rate, sequences * read, chip, 1.0, stack, hard_maximum)
    passes = stream_time(stack.elementwise_passes * work.elementwise_bytes(flow, plan, 0.0), chip, 8.0, stack)
    return joined(table, gemms, core, flops, passes, cluster)


run = catalog.training_run(MODEL, sequence_length=CONTEXT, global_batch=8)
plan = catalog.plan(run, TP, tp=TP)
service = catalog.service(MODEL, mode="decode")
serving_plan = catalog.serving_plan(service, TP, tp=TP)
trained, decoded, ridge, year, machines = {}, {}, {}, {}, {}
for name in CHIPS:
    cluster = catalog.cluster(name, TP)
    machines[name] = catalog.cluster(name, TP, stack=catalog.serving_stack(name))
    trained[name] = training(run, cluster, plan)
    decoded[name] = decode(service, machines[name], serving_plan, 64.0)
    ridge[name] = float(bf16_rate(cluster.chip) / cluster.chip.hbm_bandwidth_bytes_per_s)
    year[name] = int(catalog.record("chips", name).si("year"))

# %% [markdown]
# ## Ten rooflines
#
# Each panel: the roof `min(peak, intensity x HBM bandwidth)` of a datasheet, circles for training, squares for decode, at the
# rate the model gives them (launch gaps left out). The model counts no arithmetic of elementwise kernels; they stand at 0.5
# FLOP/B, one operation for each 2-byte element.
#
# See how far left of the ridge (dotted) all squares lie. Elementwise kernels of training lie under those of decode.

# %%
COLOURS = dict(zip(KERNELS, ("#332288", "#88CCEE", "#117733", "#DDCC77", "#CC6677", "#AA4499"), strict=True))
figure, panels = plt.subplots(2, 5, figsize=(11, 5.4), sharex=True, sharey=True, layout="constrained", dpi=90)
x = np.geomspace(0.2, 8000, 200)
for axes, name in zip(panels.flat, CHIPS, strict=True):
    chip = machines[name].chip
    axes.loglog(x, np.minimum(x * chip.hbm_bandwidth_bytes_per_s, bf16_rate(chip)) / 1e12, color="0.3", linewidth=1.2)
    axes.axvline(ridge[name], color="0.6", linestyle=":", linewidth=1)
    for kernels, marker in ((trained[name], "o"), (decoded[name], "s")):
        place = kernels.flops / kernels.hbm_bytes
        rate = kernels.flops / (kernels.time.compute_s + kernels.time.memory_s) / 1e12
        for at, kernel in enumerate(KERNELS):
            axes.plot(
                place[at],
                rate[at],
                marker,
                color=COLOURS[kernel],
                markersize=6,
                markeredgecolor="black",
                markeredgewidth=0.5,
            )
    axes.set_title(f"{name} ({year[name]}), ridge {ridge[name]:.0f}", fontsize=9)
    axes.grid(alpha=0.25)
figure.supxlabel("arithmetic intensity (FLOP/B of HBM traffic)", fontsize=10)
figure.supylabel("attained rate (TFLOP/s)", fontsize=10)
keys = [plt.Line2D([], [], linestyle="", marker="o", color=COLOURS[kernel], label=kernel) for kernel in KERNELS]
keys += [
    plt.Line2D([], [], linestyle="", marker=m, color="0.5", label=what)
    for m, what in (("o", "training"), ("s", "decode"))
]
figure.legend(handles=keys, loc="outside upper center", ncols=8, fontsize=8, frameon=False)
plt.show()

# %%
print(f"{'chip':<11}{'ridge':>6}  left of the ridge in training; in decode")
for name in CHIPS:
    left = [
        [kernel for kernel, i in zip(KERNELS, kernels.flops / kernels.hbm_bytes, strict=True) if i < ridge[name]]
        for kernels in (trained[name], decoded[name])
    ]
    print(
        f"{name:<11}{ridge[name]:>6.0f}  {', '.join(left[0])}; {'all' if len(left[1]) == len(KERNELS) else ', '.join(left[1])}"
    )

# %% [markdown]
# In training the products and, where a fused kernel exists, attention stand right of every ridge: only elementwise kernels
# wait for HBM. On V100, whose software stores the scores, attention does too. In decode everything does, on every chip.
#
# ## Where the time goes
#
# Time of one layer, forward, by what bounds each kernel: arithmetic (with the time that a product takes to fill and drain a
# chip), HBM, and the gaps between kernels.


# %%
def bounds(kernels):
    """Seconds in kernels that arithmetic bounds, in those that HBM bounds, and between kernels."""
    time = kernels.time
    waits = time.memory_s > 1e-3 * time.compute_s
    busy = time.compute_s + time.memory_s
    return np.array([jnp.sum(busy * (1 - waits)), jnp.sum(busy * waits), jnp.sum(time.launch_s)])


figure, panels = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained", dpi=90)
times = {}
for axes, kernels, title in zip(panels, (trained, decoded), ("training", "decode, 64 sequences"), strict=True):
    times[title] = seconds = np.array([bounds(kernels[name]) for name in CHIPS])
    total, base = seconds.sum(axis=1), np.zeros(len(CHIPS))
    for part, (label, colour) in enumerate((("arithmetic", "#332288"), ("HBM", "#88CCEE"), ("launch gaps", "#DDCC77"))):
        share = 100 * seconds[:, part] / total
        axes.barh(range(len(CHIPS)), share, left=base, color=colour, label=label, edgecolor="white", linewidth=0.5)
        base = base + share
    for at, each in enumerate(total):
        axes.text(101, at, f"{1e3 * each:.3g} ms", va="center", fontsize=8)
    axes.set(title=title, xlabel="share of a layer's time (%)", xlim=(0, 118), xticks=range(0, 101, 20))
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_yticks(range(len(CHIPS)), [f"{name} ({year[name]})" for name in CHIPS])
panels[0].invert_yaxis()
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
plt.show()

# %%
first, last = CHIPS.index("v100"), CHIPS.index("rubin")
for title, seconds in times.items():
    total = seconds.sum(axis=1)
    share = seconds / total[:, None]
    print(f"{title}: HBM bounds {share[:, 1].min():.0%} to {share[:, 1].max():.0%} of the time, ", end="")
    print(f"gaps are {share[first, 2]:.1%} on V100 and {share[last, 2]:.1%} on Rubin; ", end="")
    print(f"Rubin is {total[first] / total[last]:.0f} times as fast")

# %% [markdown]
# In training, HBM bounds elementwise kernels alone, but for V100. In decode no kernel has the intensity for arithmetic: where a
# bar says so, products of 64 rows take longer to fill and drain the chip than their weights take to arrive. A100 is slow
# there because its software of 2023 reads the cache again for the query heads that share it. And on Rubin, launch gaps as
# long as on H100 are the largest part: by then software, not HBM, is what to mend.
#
# ## How many sequences would decode need?
#
# The weights of a product are read once a pass, so its intensity grows with the batch until it meets the ridge. A cache is
# read once for each sequence, so attention's intensity doesn't grow.

# %%
batches = jnp.asarray(2.0 ** np.arange(3, 11, 0.5 if FAST else 0.25))
several = jax.jit(jax.vmap(decode.__wrapped__, in_axes=(None, None, None, 0)))
up, core, needed = KERNELS.index("MLP up"), KERNELS.index("attention"), {}
for name in CHIPS:
    made = several(service, machines[name], serving_plan, batches)
    intensity = np.asarray(made.flops / made.hbm_bytes)
    needed[name] = float(np.exp(np.interp(np.log(ridge[name]), np.log(intensity[:, up]), np.log(batches))))
    ends = intensity[[0, -1], core]
    print(f"{name:<10} ridge {ridge[name]:4.0f} FLOP/B: MLP up meets it at {needed[name]:4.0f} sequences; ", end="")
    print(f"attention {ends[0]:.1f} FLOP/B at 8 sequences, {ends[1]:.1f} at 1,024")

# %%
figure, axes = plt.subplots(figsize=(6.6, 3.8), layout="constrained", dpi=90)
vendors = {"GPU of NVIDIA": CHIPS[:5], "GPU of AMD": CHIPS[5:7], "TPU": CHIPS[7:9], "Trainium": CHIPS[9:]}
colours = ("#332288", "#CC6677", "#117733", "#DDCC77")
for (vendor, names), marker, colour in zip(vendors.items(), "osD^", colours, strict=True):
    axes.plot([year[name] for name in names], [needed[name] for name in names], marker, color=colour, label=vendor)
    for name in names:
        below = {"xytext": (5, -11)} if name in ("tpu-v7", "tpu-v5p") else {"xytext": (5, 4)}
        axes.annotate(name, (year[name], needed[name]), textcoords="offset points", fontsize=8, **below)
axes.set(xlabel="year of the chip", ylabel="sequences that bring MLP up to the ridge", xlim=(2016.5, 2027.4))
axes.set_ylim(0, 1.12 * max(needed.values()))
axes.grid(alpha=0.25)
axes.spines[["top", "right"]].set_visible(False)
axes.legend(fontsize=8, frameon=False, loc="lower right")
plt.show()

# %% [markdown]
# ## What this does not show
#
# One layer, one chip: communication between the eight is left out, and so are head, embedding and optimizer. A roof assumes
# that a kernel overlaps all arithmetic with all traffic. Formats narrower than 16 bit move ridges to the right by as much as
# they raise the peak. Efficiencies of chips without published runs, Rubin's among them, are estimates.
