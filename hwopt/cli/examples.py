"""Help texts of the commands in addition to their flags: descriptions, and examples that run as written."""

import textwrap
from collections.abc import Sequence

WIDTH = 80

PROGRAM = (
    "Differentiable design of AI clusters: the best hardware and parallel plan under budgets, with a proof and the price of "
    "each budget; estimates, plans, sweeps, sensitivities. Every number has a source."
)

EXITS = (
    "Exit codes: 0 answered; 1 nothing feasible, and what would mend it; 2 bad input, in one line; 3 a fault of hwopt. Numbers "
    "in SI units (seconds, watts, bytes, USD), or with their own: 40MW, 41d, 1.45B$, 15T; none lifts a budget."
)

ANSWERS = {
    "optimize": "Which cluster and which parallel plan answer a design question best under its budgets, how good that is proved to "
    "be, and what one more unit of each budget is worth.",
    "compare": "How several chips answer one design question: proved cost, time and power of each, what binds, whether its price "
    "is a list price or an estimate, and what would have to change for a loser to win.",
    "walls": "What binds next as a machine grows: the budget that binds is lifted, then the next, each answer proved; how much of "
    "each would be enough, and what stops the machine where no budget does.",
    "sources": "The references behind exactly the numbers that a design question stands on.",
    "sensitivity": "Sensitivities of a question's optimum: its elasticity to every price, datasheet number and budget, what "
    "10 % of each is worth, and what its uncertainty costs.",
    "invest": "What one more unit of each number is worth to a question's best machine, in $/kWh, % a year, points, per 10 %: at "
    "the margin, and with machine and plan searched again at both ends.",
    "sweep": "Many variants of a design question: the best, the Pareto front, what bounds and what stops the others. The same "
    "command again goes on where a killed one stopped.",
    "estimate": "How long a step takes on one cluster under one plan, and its memory, power and money; with --mode serve, what it "
    "serves.",
    "plan": "Which integer parallel plan is the best on a given cluster; every valid one is examined.",
    "scale": "How a training run scales with chips: the best plan at every size, time, money, where adding chips stops "
    "paying, and which part of the step grew there.",
    "fleet": "How chips of several generations train one model together: the fastest shares of the batch, the plan of each "
    "kind, the run, what each kind adds, and when it is better switched off.",
    "fabrics": "What a run costs on each of several fabrics with even links, with links as uneven as in production, and with the "
    "least even ones, and what evenness is worth per chip; or the same for several rack densities, with their failures.",
    "check": "Whether a stated machine and run are possible: chips, racks, power, days, memory, utilisation, network, "
    "cost, line by line, with our figure beside, and the smallest change that mends what fails.",
    "deploy": "Whether to build a hall for a machine, rebuild one for liquid, rent space or rent the machine: what a chip-hour "
    "costs, from which occupancy owning pays, when each is ready, what power, spares and busbars come to, what "
    "would change the answer.",
    "validate": "How far the model's predictions are from your measured runs: every row of a CSV file scored, or "
    "skipped with a reason.",
    "calibrate": "The model's constants fitted to your own measured runs, one or more; what to measure next.",
    "catalog": "Chips, links, workloads and everything else that the model uses: every number with its unit, kind and source.",
    "schema": "What a command prints with --json, as a JSON Schema (2020-12) with a version that rises when a key goes or changes.",
    "completion": "Completion scripts for bash, zsh and fish: commands, flags with their meaning, design questions, files.",
    "docs": "The guide in the terminal, without a network: how a command is used, what the model calculates and from which "
    "source, how an answer is proved.",
}

EXAMPLES = {
    "optimize": {
        "train_cost": (
            "hwopt optimize train_cost --power-budget-w 40e6 --time-budget-s 3e6",
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
