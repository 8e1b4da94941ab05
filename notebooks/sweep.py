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
# # A design space as a labelled dataset
#
# A sweep evaluates many whole-number designs of a question with the same model, constraints and budgets as `optimize`. Its
# result is an `xarray.Dataset`; on disk it is a Zarr store that any xarray opens, and that survives being killed: the same
# call goes on where it stopped.

# %%
import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import hwopt

folder = Path(tempfile.mkdtemp()) / "soonest"
question = hwopt.objective("train_time", power_budget_w=60e6, capex_budget_usd=2.5e9)
made = hwopt.sweep(question, samples=2**17, choices={"chip": ["h100-sxm", "b200"]}, gradients=True, out=folder)

# %% [markdown]
# What follows needs the folder alone: dimensions, units and the whole configuration are in it.

# %%
dataset = xr.open_zarr(folder)
dataset[["run_time_s", "run_cost_usd", "chips", "tp", "feasible", "bottleneck", "elasticity"]]

# %%
configuration = json.loads(dataset.attrs["configuration"])
{name: configuration[name] for name in ("objective", "choices", "method", "samples", "seed", "dtype")}

# %% [markdown]
# Codes are explained by their attributes, after the CF conventions.

# %%
cases = dataset.case.attrs if "case" in dataset else dataset.best_case.attrs
parts = dataset.bottleneck.attrs["flag_meanings"].split()
for number, name in enumerate(cases["flag_meanings"].split()):
    held = dataset.isel(case=number)
    feasible = held.feasible.values == 1
    share = np.bincount(held.bottleneck.values[feasible], minlength=len(parts)) / max(1, feasible.sum())
    best = float(held.run_time_s.where(held.feasible == 1).min()) / 86400
    largest = ", ".join(f"{parts[i]} {share[i]:.0%}" for i in np.argsort(-share)[:3])
    print(
        f"{name}: {feasible.mean():.1%} of designs hold all budgets, the soonest in {best:.0f} days; bottleneck {largest}"
    )

# %% [markdown]
# ## Time against money
#
# The front is exact over all variants evaluated; its points carry their designs.

# %%
figure, axes = plt.subplots(figsize=(7, 4.4), layout="constrained")
for number, name in enumerate(cases["flag_meanings"].split()):
    held = dataset.isel(case=number).where(dataset.isel(case=number).possible == 1)
    axes.scatter(held.run_time_s[::16] / 86400, held.run_cost_usd[::16] / 1e6, s=2, alpha=0.25, label=name)
axes.plot(dataset.front_run_time_s / 86400, dataset.front_run_cost_usd / 1e6, "k.-", label="Pareto front", linewidth=1)
axes.set(xscale="log", yscale="log", xlabel="run time (days)", ylabel="run cost (M$)", xlim=(10, 3000), ylim=(20, 3000))
axes.legend(markerscale=4)
plt.show()

# %% [markdown]
# ## What one per cent is worth, everywhere
#
# `gradients=True` keeps the objective's elasticity to every variable at every variant. Among the quickest feasible designs,
# which bandwidth still pays?

# %%
inputs = dataset.elasticity.attrs["flag_meanings"].split()
soonest = dataset.isel(case=1)
order = np.argsort(soonest.run_time_s.where(soonest.feasible == 1).values)[:500]
mean = soonest.elasticity.values[:, order].mean(axis=1)
for place in np.argsort(mean)[:6]:
    print(f"1 % more {inputs[place]:<36} {mean[place]:+.3f} % of the run's time")
