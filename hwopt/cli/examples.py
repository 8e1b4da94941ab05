"""Help texts of the commands in addition to their flags: descriptions, and examples that run as written."""

import textwrap
from collections.abc import Sequence

WIDTH = 80

PROGRAM = (
    "Design AI clusters with a differentiable model: find the best hardware and parallel plan within budgets, with a certified "
    "optimality gap and the shadow price of each budget. Every number has a source."
)

EXITS = (
    "Exit codes: 0 answered; 1 infeasible (suggestions are printed); 2 invalid input; 3 internal error. Numbers are in SI units "
    "(seconds, watts, bytes, USD) unless they have a unit: 40MW, 41d, 1.45B$, 15T. The value none removes a limit."
)

ANSWERS = {
    "optimize": "Find the cluster and parallel plan that answer a design question best within its budgets, with a certified "
    "optimality gap and the shadow price of each budget.",
    "explore": "Find the best cluster for a design question, and open a page with sliders around it: plan, hardware, prices, "
    "failure rate, load and limits. The page holds the model; it needs no network.",
    "compare": "Compare the best cluster of each of several chips for one design question: cost, time, power, binding budgets, "
    "whether the price is a list price or an estimate, and what would have to change for another chip to win.",
    "walls": "Find which budget binds, and which one binds next: the binding budget is removed, the question solved again, and so "
    "on. Shows how much of each budget would be enough, and what limits the cluster where no budget binds.",
    "sources": "List the references of exactly those numbers that a design question uses.",
    "sensitivity": "Show how the optimum of a design question depends on every price, datasheet number and budget: elasticities, "
    "savings from a 10 % improvement, and the effect of each input's uncertainty.",
    "invest": "Show the value of a small improvement of each input of the best cluster, at the margin and after optimizing "
    "cluster and plan again.",
    "sweep": "Evaluate many variants of a design question: the best one, the Pareto front, and the limits of the others. A stopped "
    "sweep resumes when the same command runs again.",
    "estimate": "Estimate the step time of one cluster with one parallel plan, and its memory, power and cost; with --mode serve, "
    "its throughput and latency.",
    "plan": "Find the best parallel plan of a given cluster. The search is exhaustive over all valid integer plans.",
    "scale": "Show how a training run scales with chips: the best plan, time and cost at every size, where adding chips stops "
    "paying, and which part of the step grows there.",
    "fleet": "Plan one training run on chips of several generations: the fastest division of the batch, the plan of each type of "
    "chip, what each type adds, and when it is better switched off.",
    "fabrics": "Compare the cost of a training run on several fabrics, with ideal, typical and worst-case link jitter, and the "
    "value of links without jitter per chip. Or compare rack densities, including their failures.",
    "check": "Check whether a claimed machine and run are plausible, line by line: chips, racks, power, days, memory, utilization, "
    "network and cost, each next to the model's value, with the smallest correction of what fails.",
    "deploy": "Compare building a data hall, converting one to liquid cooling, colocation and renting the machine: cost per "
    "chip-hour, the occupancy at which owning breaks even, the date each is ready, power and spares, and what would change the "
    "answer.",
    "validate": "Compare the model's predictions with your measured runs. Every row of a CSV file is scored, or skipped with a "
    "reason.",
    "calibrate": "Fit the model's constants to one or more of your measured runs; also recommends what to measure next.",
    "catalog": "List chips, links, workloads and all other data of the model: every number with its unit, kind (such as datasheet "
    "or estimate) and source.",
    "schema": "Print the JSON Schema (2020-12) of a command's --json output. Its version rises when a key is removed or changed.",
    "completion": "Print a completion script for bash, zsh or fish: commands, flags with their meaning, design questions, files.",
    "docs": "Read the guide in the terminal, without a network: how to use a command, what the model computes and from which "
    "source, how an answer is certified.",
}

EXAMPLES = {
    "optimize": {
        "train_cost": (
            "hwopt optimize train_cost --power-budget-w 40e6 --time-budget-s 3e6",
            "hwopt optimize train_cost --chips 16384 --plan tp=8,cp=1,pp=16 --capex-budget-usd none --time-budget-s 120d",
            "hwopt optimize train_cost --freeze network --bounds tp=8:16 --report report.html",
            "hwopt optimize train_cost --choices 'chip=h100-sxm|b200,cooling=air|direct-liquid'",
        ),
        "serve_cost": (
            "hwopt optimize serve_cost --ttft-p99-limit-s 1",
            "hwopt optimize serve_cost --split disaggregated --decode-chip h200",
            "hwopt optimize serve_cost --split disaggregated --choices 'chip=h100-sxm|h200,decode_chip=h200|h20'",
        ),
        "portfolio": (
            "hwopt optimize portfolio",
            "hwopt optimize portfolio --choices 'chip=h100-sxm|h200'",
            "hwopt optimize portfolio --only assistant --report report.html",
        ),
        "": ("hwopt optimize {0} --report report.html",),
    },
    "explore": {
        "train_cost": (
            "hwopt explore train_cost",
            "hwopt explore train_cost --chip b200 --power-budget-w 40MW --report b200.html",
        ),
        "portfolio": ("hwopt explore portfolio --only assistant",),
        "": ("hwopt explore {0} --no-open",),
    },
    "compare": {
        "train_cost": ("hwopt compare --workload llama3.1-70b --chips h100-sxm,b200,mi300x",),
        "portfolio": ("hwopt optimize portfolio --choices 'chip=h100-sxm|b200'",),  # a comparison has a single question
        "": ("hwopt compare {0} --chips h100-sxm,b200",),
    },
    "walls": {
        "train_time": ("hwopt walls train_time --power-budget-w 30e6 --capex-budget-usd 1e9",),
        "portfolio": ("hwopt walls portfolio --only assistant",),
        "": (
            "hwopt walls {0} --report report.html",
            "hwopt walls train_time --power-budget-w 30e6 --capex-budget-usd 1e9",
        ),
    },
    "sensitivity": {
        "train_cost": (
            "hwopt sensitivity train_cost --power-budget-w 40e6 --figure tornado.png",
            "hwopt sensitivity train_cost --design h100-sxm --prices at-cost --workload llama3.1-70b --seconds 120",
        ),
        "portfolio": ("hwopt sensitivity portfolio --only assistant --top 20",),
        "": ("hwopt sensitivity {0} --top 20",),
    },
    "invest": {
        "train_cost": (
            "hwopt invest train_cost --replan 0",
            "hwopt invest train_cost --power-budget-w 25MW --of hbm_bandwidth_bytes_per_s --report invest.html",
        ),
        "portfolio": ("hwopt invest portfolio --only assistant",),
        "": ("hwopt invest {0} --replan 1",),
    },
    "sweep": {
        "train_cost": (
            "hwopt sweep train_cost --samples 1e6 --out runs/h100_or_b200 --choices 'chip=h100-sxm|b200'",
            "hwopt sweep train_cost --within 1.1 --samples 1e5 --report front.html",
            "hwopt sweep train_cost --frontier power_budget_w=30e6:60e6:4 --out runs/power",
        ),
        "train_and_serve": ("hwopt sweep serve_cost --samples 1e6 --report front.html",),  # sweeps have one machine
        "portfolio": ("hwopt sweep portfolio --only assistant --samples 1e6 --report front.html",),
        "": ("hwopt sweep {0} --samples 1e6 --report front.html",),
    },
    "sources": {"train_cost": ("hwopt sources train_cost --chip b200",), "": ("hwopt sources {0} --json",)},
    "estimate": {
        "": (
            "hwopt estimate --workload llama3.1-405b --chip h100-sxm --chips 16384 --plan tp=8,pp=16,zero=2",
            "hwopt estimate --workload llama3.1-70b --chip h100-sxm --chips 8 --mode serve --plan tp=8,batch=32",
        )
    },
    "plan": {
        "": (
            "hwopt plan --workload llama3.1-405b --chip h100-sxm --chips 16384 --export megatron",
            "hwopt plan --workload llama3.1-70b --chip h100-sxm --chips 16 --mode serve --tpot-limit-s 0.03",
            "hwopt plan --workload llama3.1-70b --chip h100-sxm --chips 16 --mode serve --export vllm",
            "hwopt plan --workload llama3.1-70b --chip h100-sxm --chips 16 --mode serve --tpot-limit-s 0.03 --splits",
            "hwopt plan --workload llama3.1-70b --chip h100-sxm --decode-chip h200 --chips 16 --mode serve --splits",
        )
    },
    "scale": {
        "": (
            "hwopt scale --workload llama3.1-405b --chip h100-sxm --chips 256:1048576",
            "hwopt scale --workload llama3.1-70b --chip h100-sxm --chips 512:16384 --weak --global-batch 512",
        )
    },
    "fleet": {
        "": (
            "hwopt fleet --workload llama3-70b --groups h100-sxm:512,a100-80:512",
            "hwopt fleet --workload llama3.1-8b --groups b200:64,h100-sxm:128,a100-80:128 --global-batch 1024",
        )
    },
    "fabrics": {
        "": (
            "hwopt fabrics --workload gpt3-175b --chip h100-sxm --chips 1536 --global-batch 1536",
            "hwopt fabrics --workload gpt3-175b --chip h100-sxm --chips 1536 --racks 8,16,32 --recovery hot-spares",
        )
    },
    "check": {"": ("hwopt check xai-colossus", "hwopt check too-good --report check.html")},
    "deploy": {
        "": (
            "hwopt deploy --chip gb200 --chips 9216 --ordered 2027-01-15",
            "hwopt deploy --chip gb200 --chips 1152 --hall --redundancy 2N",
            "hwopt deploy --chip h100-sxm --chips 1024 --used 0.5 --rent-usd-per-chip-h 2.5 --report deploy.html",
        )
    },
    "validate": {"": ("hwopt validate my_runs.csv --figure accuracy.png",)},
    "calibrate": {"": ("hwopt calibrate my_runs.csv --out my_machine.toml",)},
    "catalog": {"": ("hwopt catalog", "hwopt catalog chips", "hwopt catalog chips h100-sxm")},
    "schema": {"": ("hwopt schema", "hwopt schema optimize")},
    "completion": {"": ("hwopt completion bash", "hwopt completion fish")},
    "docs": {"": ("hwopt docs", "hwopt docs optimize", "hwopt docs collectives")},
}
"""Command -> design question -> example lines. "" stands for any other question, and for commands without one."""

FIRST = ("hwopt optimize", "hwopt optimize train_cost --report report.html", "hwopt catalog chips h100-sxm")
"""Example lines of the program's own help."""


def examples(command: str, objective: str) -> tuple[str, ...]:
    """Return the example lines for a command's help.

    **Arguments:** `objective`: the design question whose fields are its flags.
    """
    lines = EXAMPLES[command]
    return lines.get(objective) or tuple(each.format(objective) for each in lines[""])


def epilog(lines: Sequence[str], more: str = "") -> str:
    """Return the end of a help text: examples, unwrapped so that they can be copied, and the text `more`."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    shown = "\n".join([title, *(f"  {each}" for each in lines)])
    return f"{shown}\n\n{filled(more)}" if more else shown


def filled(text: str) -> str:
    """Return a paragraph wrapped to `WIDTH` characters."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)
