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
# # A million variants of a cluster
#
# **Of a million clusters that could train Llama-3.1-405B, which deserve a second look, and what holds the others back?** A
# sweep judges integer designs of a question by the same model and budgets as `optimize`. Its result is an
# `xarray.Dataset`; on disk it is a Zarr store that any xarray opens and that survives being killed: the same call goes on
# where it stopped.

# %%
import json
import os
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import PIL.Image
import xarray as xr
from IPython.display import Image

import hwopt
from hwopt.output.figures.bottleneck_map import plot_bottleneck_map
from hwopt.output.figures.pareto import plot_pareto

FAST = bool(os.environ.get("HWOPT_FAST"))  # fewer variants of a smaller question, the same cells


def shown(path):
    """A figure of hwopt.output.figures in fewer pixels and colours: the notebook stays small."""
    drawn = PIL.Image.open(path).convert("RGB")
    drawn.resize((900, 900 * drawn.height // drawn.width)).quantize(48).save(path, optimize=True)
    return Image(path)


# %% [markdown]
# ## The sweep
#
# How soon can the run end with 60 MW and 2.5 B$? Free are the number of chips, HBM, clock, links, domain, racks and the
# parallel plan; two chips compete. `gradients` keeps what 1 % of each variable is worth, at every variant.

# %%
folder = Path(tempfile.mkdtemp())
question = hwopt.objective("train_time", power_budget_w=60e6, capex_budget_usd=2.5e9)
began = time.perf_counter()
hwopt.sweep(
    question,
    samples=2**13 if FAST else 2**19,
    choices={"chip": ["b200"] if FAST else ["h100-sxm", "b200"]},
    freeze=("network", "facility") if FAST else (),
    gradients=["hbm_bandwidth_bytes_per_s"] if FAST else True,
    map_of=("chips", "hbm_bandwidth_bytes_per_s"),
    out=folder / "soonest",
)
seconds = time.perf_counter() - began
dataset = xr.open_zarr(folder / "soonest")
rows = dataset[[name for name, each in dataset.data_vars.items() if "variant" in each.dims]]
rows = rows if "case" in rows.dims else rows.expand_dims("case")
count = rows.sizes["case"] * rows.sizes["variant"]
print(f"{count:,} designs in {seconds:.0f} s, compilation and writing included")

# %% [markdown]
# What follows needs the folder alone: values, units, codes and the whole configuration are in it.

# %%
configuration = json.loads(dataset.attrs["configuration"])
print({name: configuration[name] for name in ("objective", "choices", "method", "seed", "dtype")})
dataset[["run_time_s", "run_cost_usd", "chips", "tp", "feasible", "bottleneck"]]

# %% [markdown]
# ## What came out
#
# A design is *possible* when it can be built and the plan fits, *feasible* when it satisfies the budgets too. Codes are explained
# by their attributes, after the CF conventions.

# %%
cases = (dataset.case if "case" in dataset else dataset.best_case).attrs["flag_meanings"].split()
names = dataset.bottleneck.attrs["flag_meanings"].split()
for number in range(rows.sizes["case"]):
    held = rows.isel(case=number)
    possible, feasible = held.possible.values == 1, held.feasible.values == 1
    best = float(held.run_time_s.where(held.feasible == 1).min()) / 86400
    print(
        f"{cases[number]}: {possible.mean():.1%} possible, {feasible.mean():.2%} feasible, the soonest in {best:.0f} days"
    )
    share = np.bincount(held.bottleneck.values[possible], minlength=len(names)) / possible.sum()
    print("  largest part of the step: " + ", ".join(f"{names[i]} {share[i]:.0%}" for i in np.argsort(-share)[:4]))

# %% [markdown]
# ## Time against money
#
# Dots: what was sampled. Points on the line: designs that nothing sampled beats in both, coloured by the largest part of
# their step; hollow ones break a budget. Look at how steep the line is where time is short.

# %%
plot_pareto(
    dataset.isel(variant=slice(2**15)), folder / "pareto.png"
)  # the first of a Sobol sequence fill its space evenly
shown(folder / "pareto.png")

# %%
front = dataset[["front_run_time_s", "front_run_cost_usd", "front_chips", "front_tp", "front_pp"]].load()
order = np.argsort(front.front_run_time_s.values)
for at in order[:: max(1, len(order) // 6)]:
    point = front.isel(point=at)
    print(
        f"{float(point.front_run_time_s) / 86400:6.0f} days {float(point.front_run_cost_usd) / 1e6:6.0f} M$"
        f"{float(point.front_chips):8,.0f} chips, tp {float(point.front_tp):.0f}, pp {float(point.front_pp):.0f}"
    )
ends = front.isel(point=order[[0, -1]])
times, costs = ends.front_run_time_s.values, ends.front_run_cost_usd.values
print(f"from end to end {times[1] / times[0]:.0f} times the time saves {1 - costs[1] / costs[0]:.0%} of the cost")

# %% [markdown]
# ## Where the bottleneck changes hands
#
# Each cell shows the soonest possible design among the variants that fall into it, whatever it costs: colour is the largest
# part of its step, lines are of equal run time. Look whether the lines lean, and where they turn back.

# %%
plot_bottleneck_map(dataset, folder / "map.png")
shown(folder / "map.png")

# %%
least, x = dataset.map_objective.values, np.sqrt(dataset.map_x_edges.values[1:] * dataset.map_x_edges.values[:-1])
least = np.where(np.isfinite(least) & (least > 0), least, np.nan)
held = ~np.isnan(least).all(axis=0)  # columns that hold a design
x, least = x[held], least[:, held]
column = np.nanmedian(least, axis=0)
row = [np.nanmedian(cells) for cells in least[:, np.abs(x / 2e4 - 1) < 0.5] if np.isfinite(cells).any()]
print(f"more chips help up to about {round(float(x[np.nanargmin(column)]), -3):,.0f}; ", end="")
print(f"at 20,000 chips 1 to 12 TB/s of HBM differ by a factor of {max(row) / min(row):.1f} in time, samples and all")

# %% [markdown]
# Lines that stand upright say that HBM bandwidth buys little here; where they turn back, the batch has been shared out:
# replicas have too few micro-batches to fill their pipelines.
#
# ## What one per cent is worth, everywhere
#
# Bars: the mean elasticity of the run's time over the quickest feasible designs; whiskers: from the 10th to the 90th
# percentile of them. A bar to the left pays.

# %%
inputs = dataset.elasticity.attrs["flag_meanings"].split()
times = rows.run_time_s.where(rows.feasible == 1).values
case = int(np.argmin(np.nanmin(times, axis=1)))
quickest = np.argsort(times[case])[: min(500, int(np.isfinite(times[case]).sum()))]
worth = rows.elasticity.isel(case=case).values[:, quickest]
shown = np.argsort(-np.abs(worth.mean(axis=1)))[:8][::-1]
low, high = np.percentile(worth[shown], [10, 90], axis=1)
mean = worth[shown].mean(axis=1)

figure, axes = plt.subplots(figsize=(7, 0.9 + 0.32 * len(shown)), layout="constrained", dpi=90)
axes.barh(range(len(shown)), mean, color="#0072b2", height=0.6)
axes.hlines(range(len(shown)), low, high, color="black", linewidth=1)
axes.set_yticks(range(len(shown)), [inputs[i].removesuffix("_bytes_per_s").replace("_", " ") for i in shown])
axes.axvline(0, color="black", linewidth=0.8)
axes.set_xlabel("% of run time for 1 % more")
axes.spines[["top", "right"]].set_visible(False)
plt.show()
for i in shown[::-1][:3]:
    print(
        f"1 % more {inputs[i]}: {worth[i].mean():+.2f} % of the time, over the {len(quickest)} quickest of {cases[case]}"
    )

# %% [markdown]
# ## The dataset as data
#
# A store is a labelled table of designs, metrics and derivatives: what a surrogate, a plot of one's own or a colleague
# without hwopt needs. Selecting is xarray, as always.

# %%
columns = ["chips", "hbm_bandwidth_bytes_per_s", "tp", "pp", "run_time_s", "run_cost_usd", "mfu"]
table = rows.isel(case=case)[columns].isel(variant=quickest[:5]).load().to_dataframe()
print((table / [1, 1e12, 1, 1, 86400, 1e6, 0.01]).rename(columns={
    "hbm_bandwidth_bytes_per_s": "HBM TB/s", "run_time_s": "days", "run_cost_usd": "M$", "mfu": "MFU %",
}).round(1).to_string(index=False))  # fmt: skip
stored = sum(path.stat().st_size for path in (folder / "soonest").rglob("*") if path.is_file())
print(f"{stored / 1e6:.0f} MB on disk for {count:,} rows")

# %% [markdown]
# ## What this does not show
#
# The best of a million samples is not the best design: `hwopt.optimize` proves that, and `hwopt.sweep(..., within=1.1)`
# samples around it. The map shows what was sampled, so a thin region may hide a better design. Every number is the model's
# ([how accurate](06_how_accurate.ipynb)); elasticities hold for small changes of one thing.
