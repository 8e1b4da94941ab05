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
# # hwopt in five minutes
#
# What does one model of an AI cluster tell an architect? Here is the thin path through all of it: **estimate** one machine,
# find its best **plan**, differentiate it (**gradient**), let it design itself (**optimize**), and look at a hundred
# thousand others (**sweep**).

# %%
import os
import tempfile
from pathlib import Path

import equinox as eqx
import jax
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image

import hwopt
from hwopt import catalog
from hwopt.output.answers.scaling import table
from hwopt.output.figures.pareto import plot_pareto
from hwopt.output.text.scaling import headline, why

FAST = bool(os.environ.get("HWOPT_FAST"))  # smaller questions, the same code

# %% [markdown]
# ## Estimate
#
# Three things go in: what is trained, on what, split how. Every number of the catalogue carries its source
# (`hwopt catalog chips h100-sxm`).

# %%
run = catalog.training_run("llama3-70b", global_batch=1024)
cluster = catalog.cluster("h100-sxm", chips=2048)
plan = catalog.plan(run, 2048, tp=4, pp=8, virtual_stages=5)
report = hwopt.estimate(run, cluster, plan)

print(f"{report.step_time_s:.2f} s a step, MFU {report.mfu:.1%}, {report.memory_per_chip_bytes / 1e9:.0f} GB a chip")
print(
    f"{report.peak_power_w / 1e6:.2f} MW at the meter, chips at {report.junction_temperature_k - 273.15:.0f} degC, ",
    end="",
)
print(f"one failure in {report.mean_time_between_failures_s / 3600:.0f} h")
for name, seconds in sorted(report.breakdown._asdict().items(), key=lambda part: -part[1]):
    if seconds > 0.01 * report.step_time_s:
        print(f"  {name.removesuffix('_s'):<14}{seconds:6.3f} s {seconds / report.step_time_s:6.1%}")

# %% [markdown]
# The parts add up to the step; communication that hides under other work is not among them.
#
# ## Plan
#
# The same machine, every valid integer plan, by the exact model.

# %%
search = hwopt.best_plan(run, cluster)
best = search.best
gain = 1 - best.report.step_time_s / report.step_time_s
print(f"{search.examined:,} plans, {search.fitting:,} fit in memory")
print(
    f"best: tp {best.plan.tp:.0f}, pp {best.plan.pp:.0f}, dp {best.plan.dp:.0f}, chunks {best.plan.virtual_stages:.0f}",
    end="",
)
print(f": {best.report.step_time_s:.2f} s a step, {gain:.0%} less than ours")

# %% [markdown]
# ## Scale
#
# The same run on more and more chips, the best plan of each: where does adding chips stop paying, and what of the step grows?

# %%
scaling = hwopt.scale(run, lambda chips: catalog.cluster("h100-sxm", chips), [2048, 8192, 32768, 65536])
print("\n".join([*table(scaling).lines(), "", headline(scaling)]))
if scaling.knee is not None:
    print(why(scaling.knee))

# %% [markdown]
# ## Gradient
#
# `estimate` is a pure function of arrays, so `jax.grad` gives the slope of a step's time by every number of the chip and its
# network at once. Times its value over the time, that is what one per cent is worth.

# %%
hardware = {"chip": cluster.chip, "network": cluster.network}


def step_time(hardware):
    """Seconds of a step, the rest of the cluster as it is."""
    made = eqx.tree_at(lambda c: (c.chip, c.network), cluster, (hardware["chip"], hardware["network"]))
    return hwopt.estimate(run, made, best.plan).step_time_s


slopes = jax.tree.leaves(jax.grad(step_time)(hardware))
seconds = float(best.report.step_time_s)
worth = {}
for (place, value), slope in zip(jax.tree_util.tree_leaves_with_path(hardware), slopes, strict=True):
    part, field = place[0].key, place[1].name
    for at, each in enumerate(np.ravel(value * slope) / seconds):
        worth[f"{part}.{field}" + (f"[{at}]" if np.ndim(value) else "")] = float(each)
worth = dict(sorted(worth.items(), key=lambda item: -abs(item[1])))
print(f"{len(worth)} derivatives from one backward pass")

# %%
names = list(worth)[:10]
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained", dpi=100)
axes.barh(names, [worth[name] for name in names], color=["#0077BB" if worth[name] < 0 else "#EE7733" for name in names])
axes.invert_yaxis()
axes.axvline(0, color="black", linewidth=0.8)
axes.set_xlabel("change of the step's time by 1 % more of it (%)")
axes.tick_params(axis="y", labelsize=8)
plt.show()

# %% [markdown]
# All ten shorten the step; `[2]` is the place of 16 bit, `[0]` and `[1]` are the domain and what lies beyond it.
# `hwopt.elasticities` makes the same table for any metric, of workload and plan too.
#
# ## Optimize
#
# Now the machine itself is asked for, in parts that can be bought: servers, full racks, NICs, the clock and the plan; the chip
# stays as it is sold. The cheapest cluster of H100 that trains Llama-3.1-405B in 90 days, within 30 MW and 0.9 B$.

# %%
question = hwopt.objective("train_cost")
few = {
    name: (value, value)
    for name, value in (("tp", 8), ("cp", 4), ("pp", 8), ("virtual_stages", 16), ("zero", 1), ("chips_per_rack", 24))
    if FAST
}
answer = hwopt.optimize(question, bounds=few)

print(f"{answer.objective / 1e6:.2f} M$ with {answer.design['chips'].value:,.0f} chips in ", end="")
print(f"{answer.report.racks:.0f} racks, tp {answer.plan.tp:.0f}, pp {answer.plan.pp:.0f}, dp {answer.plan.dp:.0f}")
for name in ("clock_ratio", "nics_per_server", "chips_per_rack"):
    print(f"  {name:<18}{answer.design[name].value:8.3g}")
for each in answer.budgets:
    worth = (
        f"1 % more of it: {each.elasticity:.3f} % off the cost"
        if each.elasticity > 1e-4
        else "not binding for this plan"
    )
    print(f"  {each.name:<18}{each.used / each.limit:7.1%} used; {worth}")
proof = answer.certificate
print(
    f"proof: {proof.scope.split(' (')[0]};\n  no design is below {proof.lower_bound / 1e6:.2f} M$, gap {proof.gap:.4%}"
)

# %% [markdown]
# The elasticity of a budget is its shadow price without units: `each.shadow_price` has $ a watt, $ a second.
#
# ## Sweep
#
# The optimum is one point. A sweep evaluates many designs of the same question by the same model, over continuous hardware,
# where stacks and lanes need not be whole, nor anything be offloaded for want of memory; its dataset holds the Pareto front among
# them. The optimum there is proved too (`regime="relaxed"`), and here every variable moves up to a quarter around it. Grey designs
# break some budget, be it one that has no axis; the star is the best that holds all.

# %%
loose = hwopt.optimize(question, bounds=few, regime="relaxed")
room = {
    name: (max(each.lower, each.value / 1.25), min(each.upper, each.value * 1.25))
    for name, each in loose.design.items()
    if name != "global_batch_sequences"
}
made = hwopt.sweep(question, samples=2**13 if FAST else 2**18, bounds=room, pareto=["run_time_s", "run_cost_usd"])
drawn = Path(tempfile.mkdtemp()) / "pareto.png"
plot_pareto(made, drawn)
Image(drawn)

# %%
possible, feasible = (int((made[name] == 1).sum()) for name in ("possible", "feasible"))
print(f"{made.possible.size:,} designs: {possible:,} fit and run, {feasible:,} satisfy every budget")
if feasible:
    cheapest = float(made.run_cost_usd.where(made.feasible == 1).min())
    print(
        f"the cheapest of them costs {cheapest / 1e6:.2f} M$, {cheapest / loose.objective - 1:.1%} more than the optimum "
        f"of {loose.objective / 1e6:.2f} M$; whole units, offloading free, cost {answer.objective / loose.objective - 1:.0%} more"
    )

# %% [markdown]
# Budgets that bind leave chance little room: even beside the optimum few designs hold them all, and none is as good.
#
# ## What this does not show
#
# A proof is about the model, never about silicon: published runs of locked studies, by which nothing was chosen, are predicted with
# a median error of 12 % (`results/reference/locked.txt`), and answers carry intervals. Serving, mixtures of experts, chips drawn
# from areas, sensitivities of the optimum and the claims of others are in the other notebooks.
