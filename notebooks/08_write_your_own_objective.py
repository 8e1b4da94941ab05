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
# # Write your own objective
#
# **How large should a cluster be when a team of fifty waits for the run, at 50,000 dollars a day?** No question of hwopt asks
# that, so here is one from nothing: a metric, a dataclass, an answer with its proof, a chip of our own, and a package that
# adds both to the command line without touching hwopt.

# %%
import os
import tempfile
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import hwopt
from hwopt import catalog
from hwopt.design.design import Design
from hwopt.design.metrics import Metric, metric
from hwopt.design.problem import Budget, Problem
from hwopt.design.variables import KNOWN, variable

FAST = bool(os.environ.get("HWOPT_FAST"))  # tighter bounds and one chip, the same cells
DAY = 86400.0

# %% [markdown]
# ## 1. What is to be made small
#
# A metric is a name, an SI unit, a function of the report, and words. Everything that `hwopt.estimate` reports can stand in
# it. `@cache`, because a question is compiled once for each metric.


# %%
@cache
def run_and_wait_usd(day_usd):
    return Metric(
        "run_and_wait_usd",
        "USD",
        lambda report: report.run_cost_usd + day_usd / DAY * report.run_time_s,
        "the cost of the run and of waiting for it",
    )


# %% [markdown]
# ## 2. The question
#
# A plain dataclass: fields are budgets and choices, units in their names. `problem()` says what may change (`variables`, each
# with a box), what is limited (`budgets`), and what the variables are put into (`template`: workload, cluster, plan). `KNOWN`
# lists all variables; `hwopt.design.metrics.METRICS` all metrics that a budget can limit.


# %%
@dataclass(frozen=True)
class TimeIsMoney:
    """Least cost of a training run and of waiting for it."""

    workload: str = "llama3-70b"
    chip: str = "h100-sxm"
    stack: str = "nemo-2024"
    tokens: float = 15e12
    global_batch: float = 2048.0
    day_usd: float = 5e4
    power_budget_w: float = 30e6

    def problem(self):
        run = catalog.training_run(self.workload, tokens=self.tokens, global_batch=self.global_batch)
        cluster = catalog.cluster(self.chip, 16384, stack=self.stack)
        plan = catalog.plan(run, 1, sequence_parallel="yes")
        names = ("chips", "tp", "pp", "virtual_stages", "micro_batch", "fullest_stage", "last_stage")
        return Problem(
            name="time_is_money",
            question=f"Run and wait: {self.workload} on {Path(self.chip).stem}, {self.day_usd:,.0f} USD a day",
            objective=run_and_wait_usd(self.day_usd),
            variables=(
                *(KNOWN[name] for name in names),
                variable("global_batch_sequences", 0.95 * self.global_batch, 1.05 * self.global_batch),
            ),
            budgets=(Budget("power_budget_w", metric("peak_power_w"), self.power_budget_w),),
            template=Design(run, cluster, plan),
        )


# %% [markdown]
# ## 3. The answer
#
# `optimize` takes the dataclass as it is. The proof reads the metric like any other: sums, products, powers and maxima of
# what the model reports.

# %%
bounds = {"tp": (8, 16), "virtual_stages": (1, 1), "micro_batch": (1, 1)} if FAST else {}
solution = hwopt.optimize(TimeIsMoney(), bounds=bounds)


def told(found):
    days, run = float(found.report.run_time_s) / DAY, float(found.report.run_cost_usd) / 1e6
    chips, tp, pp = (found.design[name].value for name in ("chips", "tp", "pp"))
    print(f"{found.problem.question}")
    print(f"  {chips:,.0f} chips, tp {tp:.0f}, pp {pp:.0f}: {days:.1f} days, ", end="")
    print(f"run {run:.2f} M$ + waiting {found.objective / 1e6 - run:.2f} M$ = {found.objective / 1e6:.3f} M$")
    print(f"  no design of the lattice is below {found.certificate.lower_bound / 1e6:.3f} M$")
    for budget in found.budgets:
        worth = (
            f"one more MW is worth {budget.shadow_price * 1e6:,.0f} USD" if budget.elasticity > 1e-4 else "not binding"
        )
        print(f"  {budget.name}: {budget.used / 1e6:.1f} of {budget.limit / 1e6:.0f} MW, {worth} with this plan")


told(solution)

# %% [markdown]
# ## 4. Is it right? Add it up
#
# The answer's inputs go back into `hwopt.estimate`, and the objective is arithmetic.

# %%
evaluate = jax.jit(hwopt.estimate)
again = evaluate(*jax.tree.map(np.asarray, solution.inputs))
by_hand = float(again.run_cost_usd) + 5e4 * float(again.run_time_s) / DAY
print(f"by hand {by_hand / 1e6:.3f} M$, by the solver {solution.objective / 1e6:.3f} M$")
assert abs(by_hand / solution.objective - 1) < 1e-3

# %% [markdown]
# The degrees of that plan at all sizes of cluster, for three prices of a day: the dearer a day, the larger the cluster. The star
# is the proved optimum over all plans at 50,000 USD; it should lie on its curve's lowest point or below.

# %%
run, machine, plan = solution.inputs
tp, pp, chunks = (round(float(value)) for value in (plan.tp, plan.pp, plan.virtual_stages))
sequences = np.unique(np.geomspace(1, 128, 9 if FAST else 25).astype(int))  # of a replica in a step
replicas = 2150 // sequences  # so that the batch is within 5 % of 2,048, as in the question
costs, days = [], []
for each, dp in zip(sequences, replicas, strict=True):
    batch = each * dp
    asked = catalog.training_run("llama3-70b", tokens=15e12, global_batch=batch)
    interleaved = chunks if each >= pp else 1  # needs pp micro-batches
    own = catalog.plan(asked, dp * tp * pp, tp=tp, pp=pp, virtual_stages=interleaved, sequence_parallel="yes")
    report = evaluate(asked, catalog.cluster("h100-sxm", dp * tp * pp, stack="nemo-2024"), own)
    costs.append(float(report.run_cost_usd))
    days.append(float(report.run_time_s) / DAY)
chips, costs, days = replicas * tp * pp, np.array(costs), np.array(days)

figure, axes = plt.subplots(figsize=(6.8, 3.8), layout="constrained", dpi=90)
for price, colour in ((5e3, "#56b4e9"), (5e4, "#0072b2"), (5e5, "#d55e00")):
    total = (costs + price * days) / 1e6
    axes.plot(chips, total, "o-", markersize=3, color=colour, label=f"a day costs {price:,.0f} USD")
    axes.plot(chips[total.argmin()], total.min(), "o", markersize=9, markerfacecolor="none", color=colour)
    print(f"a day at {price:,.0f} USD: {chips[total.argmin()]:,} chips, {days[total.argmin()]:.0f} days")
axes.plot(
    solution.design["chips"].value, solution.objective / 1e6, "k*", markersize=11, label="proved optimum at 50,000 USD"
)
axes.set(xscale="log", yscale="log", xlabel="H100", ylabel="run and wait (M$)")
axes.set_xticks([200, 500, 1000, 2000, 5000, 10000], ["200", "500", "1,000", "2,000", "5,000", "10,000"])
axes.set_yticks([5, 10, 20, 50, 100, 500], ["5", "10", "20", "50", "100", "500"])
axes.minorticks_off()
axes.grid(alpha=0.25)
axes.spines[["top", "right"]].set_visible(False)
axes.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## 5. A chip of your own
#
# A chip is a TOML file: every number with unit, kind and source. The file of the tutorial, a chip on paper; its first and
# last lines:

# %%
tutorial = next(
    each / "tutorial"
    for at in (Path.cwd(), *Path.cwd().parents)
    for each in (at, at / "notebooks")
    if (each / "tutorial").exists()
)
file = tutorial / "my_studies" / "chips" / "my-chip.toml"
text = file.read_text(encoding="utf-8").splitlines()
print("\n".join([*text[:16], "...", *text[-2:]]))

# %% [markdown]
# Its path is its name, everywhere. What is missing or misspelt is refused in one line:

# %%
chip = catalog.chip(file)
print(f"{float(chip.peak_flops_per_s[2]) / 1e12:,.0f} TFLOP/s, {float(chip.hbm_bandwidth_bytes_per_s) / 1e12:.1f} TB/s")
wrong = Path(tempfile.mkdtemp()) / "wrong.toml"
wrong.write_text("\n".join(text).replace("memory_bandwidth", "memory_bandwith"), encoding="utf-8")
try:
    catalog.chip(wrong)
except hwopt.UserError as refusal:
    print(str(refusal).replace(str(wrong.parent), "..."))

# %%
if not FAST:  # another chip, another proof
    told(hwopt.optimize(TimeIsMoney(chip=str(file))))

# %% [markdown]
# ## 6. A package, so that `hwopt` knows both by name
#
# The same question and chip as a distribution of its own: [notebooks/tutorial](tutorial/README.md). Two entry points are all
# that hwopt is told; it imports neither before it is asked for.

# %%
project = tomllib.loads((tutorial / "pyproject.toml").read_text(encoding="utf-8"))
for group, entries in project["project"]["entry-points"].items():
    for name, value in entries.items():
        print(f"{group}: {name} = {value}")
for path in sorted(tutorial.rglob("*.*")):
    if path.suffix in (".py", ".toml", ".md"):
        print(path.relative_to(tutorial))

# %% [markdown]
# ```bash
# pip install --no-deps -e notebooks/tutorial
# hwopt optimize time_is_money --chip my-chip --day-usd 2e5     # fields are flags
# hwopt sweep time_is_money --samples 1e6 --out runs/time_is_money
# hwopt catalog chips my-chip
# hwopt sources time_is_money --chip my-chip                    # my-chip's own sources among them
# hwopt optimize train_cost --chip my-chip                      # our questions take your chip too
# ```
#
# For a question about a whole machine (HBM, links, racks, cooling), subclass `objectives.training.TrainingQuestion` instead:
# twenty lines, sixty fields.
#
# ## What this does not show
#
# The price of a day is yours; the model knows none. Chips were held as they are sold, and the batch within 5 % of 2,048
# sequences, one a replica at most: what a larger batch does to the loss is a question of its own. A proof is about the model,
# and `my-chip` is invented.
