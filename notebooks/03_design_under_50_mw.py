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
# # A cluster under 50 MW
#
# With 50 MW at the meter and 2 B$, which chip, network, racks and plan train Llama-3.1-405B soonest, and what binds when the
# power is 5 MW, or 500?
#
# Free are the number of chips, HBM bandwidth and capacity, clock, links, domain, chips in a rack and the parallel plan, around
# the compute dies of a B200. Answers are proved: no integer design of the stated lattice is better.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

import hwopt
from hwopt.units import pretty

FAST = bool(os.environ.get("HWOPT_FAST"))  # smaller questions, the same code
POWERS = np.array([5, 50, 500] if FAST else [5, 15, 50, 150, 500]) * 1e6
BOX = {
    "micro_batch": (1, 1),
    "tp": (4, 16),
}  # holds the optima of the whole box at 5, 50 and 500 MW, and is proved sooner
if FAST:
    BOX |= {
        "tp": (8, 8),
        "virtual_stages": (16, 16),
        "pp": (4, 10),
        "scale_up_domain": (16, 32),
        "chips_per_rack": (24, 24),
    }
DAY = 86400.0

# %% [markdown]
# ## The design
#
# Over continuous hardware (`regime="relaxed"`): what elasticities and frontiers speak of, proved as whole units are.

# %%
question = hwopt.objective("train_time", chip="b200", power_budget_w=50e6, capex_budget_usd=2e9)
answer = hwopt.optimize(question, bounds=BOX, regime="relaxed")
print(f"{answer.objective / DAY:.2f} days: {question.tokens / 1e12:.1f} T tokens, failures included\n")
for name, each in answer.design.items():
    at = f"   at its {each.at_bound} bound" if each.at_bound and each.lower < each.upper else ""
    print(f"  {name:<34}{pretty(each.value, each.unit)}{at}")
print(
    f"\n  plan: tp {answer.plan.tp:.0f}, pp {answer.plan.pp:.0f}, dp {answer.plan.dp:.0f}, MFU {answer.report.mfu:.1%}"
)

# %% [markdown]
# ## Its proof and its prices
#
# A shadow price is what one more unit of a budget is worth at the optimum, here in time saved; as an elasticity it is per cent
# of time by per cent of budget.

# %%
proof = answer.certificate
print(
    f"no design is below {proof.lower_bound / DAY:.3f} days: gap {proof.gap:.3%}; KKT residual {proof.kkt_residual:.0e}"
)
print(proof.scope.split(" (")[0])
for each in answer.budgets:
    unit, size, name = (1e6, "MW", "power") if each.unit == "W" else (1e6, "M$", "capital")
    hours = each.shadow_price * unit / 3600
    worth = f"elasticity {each.elasticity:.3f}; one more {size} saves {hours:.2f} h with these integers"
    print(
        f"{name:<8}{each.used / each.limit:7.2%} used; {worth if each.elasticity > 1e-4 else 'not binding for this plan'}"
    )

# %% [markdown]
# Power binds, and capital is nearly spent: a chip more costs both, and either can be had for the other, by clock and by HBM.
#
# ## From 5 to 500 MW
#
# `hwopt.frontier` asks the question again under every budget and hands designs and bounds from one to the next.

# %%
made = hwopt.frontier(question, {"power_budget_w": POWERS}, bounds=BOX)
print(f"{'MW':>5}{'days':>9}{'gap':>9}{'power':>8}{'capital':>9}{'chips':>9}{'clock':>7}{'HBM':>10}{'domain':>8}  plan")
for at in range(POWERS.size):
    p = made.isel(power_budget_w=at)
    if not p.feasible:
        print(f"{POWERS[at] / 1e6:5.0f}   no design satisfies the budgets" + (", proved" if p.certified else ""))
        continue
    print(
        f"{POWERS[at] / 1e6:5.0f}{p.run_time_s / DAY:9.2f}{100 * p.gap:8.3f} %{p.used_power_budget_w / POWERS[at]:7.0%}"
        f"{p.used_capex_budget_usd / 2e9:9.0%}{int(p.chips):9,}{p.clock_ratio:7.2f}{p.hbm_capacity_bytes / 1e9:7.0f} GB"
        f"{int(p.scale_up_domain):8}  tp {int(p.tp)}, pp {int(p.pp)}, chunks {int(p.virtual_stages)}"
    )

# %% [markdown]
# Left: time and its proved bound. Middle: how much of each budget is used. Right: what each is worth, in per cent of time by
# per cent of budget; the two lines cross where the bottleneck changes hands.

# %%
x = POWERS / 1e6
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", dpi=90)
left.loglog(x, made.run_time_s / DAY, "o-", color="#332288", label="soonest")
left.loglog(x, made.lower_bound / DAY, "k_", markersize=14, label="no design is below, proved")
left.set_ylabel("run time (days)")
days = made.run_time_s.values / DAY
left.set_ylim(0.7 * np.nanmin(days), 1.5 * np.nanmax(days))
ticks = [t for t in (10, 20, 50, 100, 200) if 0.7 * np.nanmin(days) < t < 1.5 * np.nanmax(days)]
left.set_yticks(ticks, [str(t) for t in ticks])
left.set_yticks([], minor=True)
for budget, label, colour, marker in (
    ("power_budget_w", "power", "#EE7733", "o"),
    ("capex_budget_usd", "capital", "#0077BB", "s"),
):
    limit = POWERS if budget == "power_budget_w" else question.capex_budget_usd
    middle.semilogx(x, 100 * made[f"used_{budget}"] / limit, marker + "-", color=colour, label=label)
    right.semilogx(x, made[f"shadow_price_{budget}"] * limit / made.run_time_s, marker + "-", color=colour, label=label)
middle.set(ylabel="budget used (%)", ylim=(0, 105))
right.set(ylabel="elasticity (% of time by % of budget)", ylim=(0, None))
for axes in (left, middle, right):
    axes.set_xlabel("power budget (MW)")
    axes.set_xticks(x, [f"{each:g}" for each in x])
    axes.set_xticks([], minor=True)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=9, frameon=False)
plt.show()

# %%
price = {name: made[f"shadow_price_{name}"] for name in ("power_budget_w", "capex_budget_usd")}
for at in range(POWERS.size):
    power = float(price["power_budget_w"][at]) * POWERS[at] / float(made.run_time_s[at])
    money = float(price["capex_budget_usd"][at]) * question.capex_budget_usd / float(made.run_time_s[at])
    names = [name for name, worth in (("power", power), ("capital", money)) if worth > 1e-3]
    binding = (
        " and ".join(names) + (" bind" if len(names) > 1 else " binds")
        if names
        else "no budget binds at these integers"
    )
    hours = float(price["power_budget_w"][at]) * 1e6 / 3600
    worth = f"; one more MW saves {hours:.2f} h with these integers" if "power" in names else ""
    print(f"{POWERS[at] / 1e6:4.0f} MW: {binding}{worth}")

# %% [markdown]
# ## In words
#
# With 5 MW the machine is a cold one: few chips at two thirds of their clock, with so much HBM that eight of them hold the model,
# and 1 % more power saves more than 1 % of time. At 50 MW power binds and money nearly does. 2 B$ buy no more than some 65 MW
# of machine: beyond, clocks are nearly nominal and another megawatt is worth nothing.
#
# ## What this does not show
#
# The proof covers the stated lattice (micro-batch 1, tp 4 to 16, no recomputation, ZeRO-1) and the model, not silicon. The
# compute dies are a B200's: `design="b200"` draws the chip itself anew, and its answers have a bound that is wide. Prices and
# efficiencies are the catalogue's; `hwopt sensitivity train_time` says what the answer owes to each.
