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
# # Cooling decides the rack
#
# How much of a chip's speed, a rack's density, a domain's size and a run's cost is decided by what carries the heat away:
# air, a rear-door heat exchanger, cold plates, two-phase cold plates, or immersion in one and in two phases?
#
# Heat is coupled to everything here: leakage rises with temperature, chips throttle where heat cannot leave, a rack is limited
# by what its coolant removes and its busbar feeds, failures follow temperature, and the plant's own power follows climate.

# %%
import os

import equinox as eqx
import jax
import matplotlib.pyplot as plt
import numpy as np

import hwopt
from hwopt import catalog

FAST = bool(os.environ.get("HWOPT_FAST"))  # smaller questions, the same code
COOLINGS = ("air", "rear-door", "direct-liquid", "two-phase", "immersion-1p", "immersion-2p")
COLOURS = dict(zip(COOLINGS, ("#CC3311", "#EE7733", "#0077BB", "#009988", "#AA4499", "#332288"), strict=True))
MARKERS = dict(zip(COOLINGS, "osD^vP", strict=True))

# %% [markdown]
# ## One machine, six coolings
#
# 16,384 GB300 train Llama-3.1-405B (tp 8, pp 16). Chips, links, plan and software stay; only the cooling moves, and with it how
# full a rack may be.

# %%
run = catalog.training_run("llama3.1-405b", global_batch=2048)
plan = catalog.plan(run, 16384, tp=8, pp=16, virtual_stages=8)
clusters = {name: catalog.cluster("gb300", 16384, cooling=name) for name in COOLINGS}
reports = {name: hwopt.estimate(run, cluster, plan) for name, cluster in clusters.items()}

print(f"{'cooling':<15}clock  degC  W/chip  chips/rack  kW/rack    PUE  step, s  days     MW     M$")
for name, r in reports.items():
    print(
        f"{name:<14}{r.clock_ratio:6.2f}{r.junction_temperature_k - 273.15:6.0f}{r.chip_power_w:8.0f}"
        f"{clusters[name].rack.chips:12.0f}{r.rack_power_w / 1e3:9.0f}{r.pue:7.2f}{r.step_time_s:9.2f}"
        f"{r.run_time_s / 86400:6.1f}{r.peak_power_w / 1e6:7.1f}{r.run_cost_usd / 1e6:7.1f}"
    )

# %% [markdown]
# Air, with a rear-door exchanger or without, and single-phase immersion do not carry a chip of 1,400 W at full load; cold
# plates do. A training run draws less than full load, so it keeps most of the clock there too, with its junction at the limit.
# Air leaves a rack with 11 chips where liquid allows the 72 of the domain, and the domain's links must leave it.
#
# ## How hot a chip can each of them carry?
#
# The same chip with a compute die of 0.3 to 2.5 times the power, mapped over by `jax.vmap`: heat alone limits it (its power cap
# is lifted).


# %%
@jax.jit
@jax.vmap
def hotter(factor, cluster):
    """The machine with a chip whose core draws more."""
    where = lambda c: (c.chip.core_power_w, c.chip.leakage_power_w, c.chip.power_cap_w)
    chip = cluster.chip
    hot = eqx.tree_at(where, cluster, (factor * chip.core_power_w, factor * chip.leakage_power_w, 1e5))
    found = hwopt.estimate(run, hot, plan)
    return found.clock_ratio, found.clock_margin


factors = np.linspace(0.3, 2.5, 12 if FAST else 45)
chip = clusters["air"].chip
nominal = factors * (chip.core_power_w + chip.leakage_power_w) + chip.standby_power_w
nominal = nominal + chip.hbm_bandwidth_bytes_per_s * chip.hbm_energy_j_per_byte
clocks, carried = {}, {}
for name, cluster in clusters.items():
    same = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], factors.size, axis=0), cluster)
    clocks[name], margin = map(np.asarray, hotter(factors, same))
    full = nominal[margin >= 0.0]
    carried[name] = full[-1] if full.size else np.nan

figure, axes = plt.subplots(figsize=(6.6, 3.8), layout="constrained", dpi=90)
for at, name in enumerate(COOLINGS):
    look = {"color": COLOURS[name], "marker": MARKERS[name], "markevery": (at, len(COOLINGS)), "markersize": 5}
    axes.plot(nominal, clocks[name], "--" if name == "rear-door" else "-", label=name, **look)
axes.axvline(1400, color="0.5", linestyle=":", linewidth=1)
axes.annotate("GB300", (1400, 0.42), xytext=(4, 0), textcoords="offset points", fontsize=8, color="0.35")
axes.set(
    xlabel="power of a chip at its nominal clock and 75 degC (W)",
    ylabel="clock that the run keeps (of nominal)",
    ylim=(0.4, 1.03),
)
axes.grid(alpha=0.25)
axes.spines[["top", "right"]].set_visible(False)
axes.legend(fontsize=8, frameon=False, loc="lower left")
plt.show()
for name, watts in carried.items():
    print(f"{name:<14} full load at full clock up to {watts:,.0f} W a chip")

# %% [markdown]
# Air and a rear door take the same from a chip, and differ in what a rack may hold; two-phase plates carry all that was tried.
# Immersion in one phase starts warm and moves slowly: it carries racks, not chips.
#
# ## The machine redesigned under each
#
# The cheapest machine for Llama-3.1-405B in 86 days, 27 MW on the design day and 0.85 B$, over continuous hardware, asked under
# each cooling: now chips, clock, HBM, domain, rack and plan answer to it.

# %%
ASKED = ("air", "direct-liquid") if FAST else COOLINGS
BOX = {"micro_batch": (1, 1), "tp": (8, 16)}  # proved sooner than the whole box
BOXES = {name: BOX for name in ASKED}
if FAST:
    few = {"tp": (16, 16), "pp": (8, 8), "virtual_stages": (16, 16), "scale_up_domain": (16, 32)}
    racks = {"air": (29, 29), "direct-liquid": (89, 89)}
    BOXES = {name: BOX | few | {"chips_per_rack": racks[name]} for name in ASKED}
LIMITS = {"time_budget_s": 86 * 86400.0, "power_budget_w": 27e6, "capex_budget_usd": 0.85e9}
answers = {
    name: hwopt.optimize(hwopt.objective("train_cost", **LIMITS, cooling=name), bounds=BOXES[name], regime="relaxed")
    for name in ASKED
}
print(f"{'cooling':<15}clock  degC  W/chip  domain  chips/rack  kW/rack   chips    MW     M$      gap")
for name, found in answers.items():
    r, made = found.report, {key: each.value for key, each in found.design.items()}
    gap = f"{found.certificate.gap:8.3%}" if found.feasible else "  no design satisfies the budgets: nearest shown"
    print(
        f"{name:<14}{r.clock_ratio:6.2f}{r.junction_temperature_k - 273.15:6.0f}{r.chip_power_w:8.0f}"
        f"{made['scale_up_domain']:8.0f}{made['chips_per_rack']:12.0f}{r.rack_power_w / 1e3:9.0f}{made['chips']:8,.0f}"
        f"{r.peak_power_w / 1e6:6.1f}{found.objective / 1e6:7.2f} {gap}"
    )

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", dpi=90)
for name, found in answers.items():
    r, made = found.report, found.design
    face = COLOURS[name] if found.feasible else "none"
    look = {"facecolor": face, "edgecolor": COLOURS[name], "marker": MARKERS[name], "s": 60, "label": name}
    left.scatter(r.rack_power_w / 1e3, found.objective / 1e6, **look)
    right.scatter(made["scale_up_domain"].value, r.clock_ratio, **look)
left.set(xlabel="power of a rack at full load (kW)", ylabel="cost of the run (M$)")
right.set(xlabel="scale-up domain (chips)", ylabel="clock (of nominal)")
for axes in (left, right):
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
left.legend(fontsize=8, frameon=False)
plt.show()

# %%
air, liquid = answers["air"], answers["direct-liquid"]
denser = liquid.report.rack_power_w / air.report.rack_power_w
domains = [each.design["scale_up_domain"].value for each in (liquid, air)]
print(
    f"cold plates against air: {1 - liquid.objective / air.objective:.0%} cheaper, {denser:.1f} times the power in a rack, ",
    end="",
)
print(f"a domain of {domains[0]:.0f} for {domains[1]:.0f}")

# %% [markdown]
# Each technology gets the machine that suits it. On air the domain is one tensor-parallel group and a rack its thirty kilowatts;
# cold plates carry racks and domains three times as large, at the boost clock. Hollow, if any: no design satisfies the budgets, the
# point is the one that comes nearest.
#
# ## A hall for it
#
# Cold plates need a hall that has water. `hwopt deploy --chip gb300 --chips 16384 --hall` compares what there is: making a hall of
# air fit for liquid, somebody's hall, a new one, which waits for the grid, and renting the whole machine.

# %%
ways = hwopt.deploy("gb300", 16384, hall=True).options
for way in sorted(ways, key=lambda each: each.usd_per_chip_h):
    months = float(way.terms.ready_s) / (365.25 / 12 * 86400)
    pays = "" if way.name == "rent" else f", pays from {way.break_even:.0%} of the time at work"
    print(f"{way.name}: {way.usd_per_chip_h:.2f} $ a useful chip-hour, ready after {months:.3g} months{pays}")

# %% [markdown]
# ## What this does not show
#
# Coolers are a few numbers each (two resistances, coolant temperature, limits of rack and flux, shares of fans and plant, $ a
# watt), with sources in `hwopt catalog cooling direct-liquid`: no pressure drops, no manifold; loops fail at one rate, whatever
# the technology. The site is the average of the United States; `site="norway"` or `"singapore"` moves air and PUE. A plant
# that fails as a whole is left out.
