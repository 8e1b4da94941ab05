"""Fields of questions about a machine: budgets with the metric that each limits, choices, and their help."""

import math
from collections.abc import Iterable, Mapping

NO_LIMIT = math.inf

NOT_LIMITED = "not a budget of this question"
"""Help text of budgets that only other questions about a machine have."""

BUDGETS = {
    "capex_budget_usd": "capex_usd",
    "power_budget_w": "peak_power_w",
    "site_power_budget_w": "site_power_w",
    "rack_power_budget_w": "rack_power_w",
    "chip_power_budget_w": "chip_power_w",
    "junction_budget_k": "junction_temperature_k",
    "die_area_budget_m2": "silicon_area_m2",
    "hbm_stacks_budget": "hbm_stacks",
    "package_area_budget_m2": "package_area_m2",
    "wafers_budget": "wafers",
    "floor_area_budget_m2": "floor_area_m2",
    "heat_flux_budget_w_per_m2": "heat_flux_w_per_m2",
    "tpp_budget": "total_processing_performance",
    "performance_density_budget_per_m2": "performance_density_per_m2",
    "io_rate_budget_bytes_per_s": "io_rate_bytes_per_s",
}
"""Budget fields of all machine questions -> the metric that each limits."""

COUNTS = frozenset(
    {"chips", "sites", "local_steps", "global_batch", "sequence_length", "drafted_tokens", "hbm_stacks_budget"}
)
"""Fields that must be integers; numbers of tokens may be means or computed values."""

BUDGET_MEANINGS = {
    "capex_budget_usd": "maximum capital cost of equipment and building (USD)",
    "power_budget_w": "maximum peak facility power: at the meter, on the hottest design day, every chip at full load (W)",
    "site_power_budget_w": "maximum peak facility power of each site, where there are several (W)",
    "rack_power_budget_w": "maximum power of a rack at full load (W)",
    "chip_power_budget_w": "maximum power of a chip at full load (W)",
    "junction_budget_k": "maximum junction temperature of a chip at full load; 85 degC is 358 (K)",
    "die_area_budget_m2": "maximum die area of a chip; 800 mm2 is 8e-4 (m2)",
    "hbm_stacks_budget": "maximum number of HBM stacks in the cluster (count)",
    "package_area_budget_m2": "maximum interposer area of all chips in the cluster (m2)",
    "wafers_budget": "maximum number of wafers from which the cluster's chips are made (count)",
    "floor_area_budget_m2": "maximum floor area under the racks (m2)",
    "heat_flux_budget_w_per_m2": "maximum heat flux through the dies at full load (W/m2)",
    "tpp_budget": "maximum total processing performance (TPP) of a chip, a metric of US export control (dense TOPS x bits)",
    "performance_density_budget_per_m2": "maximum performance density: TPP per area of a chip's logic dies (1/m2)",
    "io_rate_budget_bytes_per_s": "maximum bandwidth between a chip and other chips, both directions added (B/s)",
    "time_budget_s": "maximum run time, including time lost to failures (s)",
    "cost_budget_usd": "maximum cost of owning the cluster for the duration of the run (USD)",
    "energy_budget_j": "maximum energy of the run at the meter; 1 GWh is 3.6e12 (J)",
    "carbon_budget_kg": "maximum carbon of the run, including the embodied carbon that it uses up (kg CO2e)",
    "loss_budget": "maximum loss after the run (nat per token)",
    "ttft_budget_s": "maximum time to first token, TTFT: at --ttft-percentile, or of a full batch (s)",
    "tpot_budget_s": "maximum time per output token, TPOT, of a full batch; the mean of any hour is below it (s)",
    "request_budget_s": "maximum time from a request to the end of its answer, in full batches without a wait for a slot (s)",
    "ttft_p95_limit_s": "maximum 95th percentile of TTFT in the busiest hour (s)",
    "ttft_p99_limit_s": "maximum 99th percentile of TTFT in the busiest hour (s)",
    "tpot_p95_limit_s": "maximum 95th percentile of TPOT in the busiest hour (s)",
    "tpot_p99_limit_s": "maximum 99th percentile of TPOT in the busiest hour (s)",
    "token_cost_budget_usd": "maximum whole cost over output tokens, input included; $1 per million tokens is 1e-6 (USD)",
    "token_energy_budget_j": "maximum energy of an output token (J)",
}
"""Help text of every budget, with its unit."""

CHOICES = {
    "workload": "model: a workload of the catalog, a .toml file or a Hugging Face config.json",
    "chip": "chip of the catalog; it determines servers, links and default software",
    "design": "chip design from which a parametric chip starts, as listed by hwopt catalog designs: the search then chooses "
    "areas, stacks, dies and clock; default none, the stock chip",
    "technology": "process technology to which --design is ported; default that of the design",
    "memory": "HBM generation to which --design is ported, or with which --free hbm replaces a stock chip's stacks; "
    "default that of the chip or design",
    "free": "components to optimize, joined by +: hbm, links, domain, clock, storage, nics, racks, or all; none is the chip's "
    "system as it is sold; with hbm or links, the stock chip is a candidate too (stock); coolant lets the search choose "
    "its supply temperature",
    "slice": "shape of the torus of a scale-up domain, one that is rented, such as 8x8x16; default best, chosen by the search "
    "among those of whole racks; --free domain allows any size",
    "stack": "software stack of the catalog, as listed by hwopt catalog stacks; default the chip's usual training software",
    "date": "month of the question, such as 2025-06: default software is what had been released by then, and newer chips and "
    "stacks are refused; default the month to which the shipped constants reach",
    "site": "site of the catalog: climate, electricity price and carbon intensity, as listed by hwopt catalog sites",
    "prices": "price list: hyperscale, on-premise, rented, at-cost or default; default the list of that name",
    "precision": "number format of the matrix multiplications: bf16, fp16, fp8, fp4, int8, tf32 or fp32",
    "fabric": "network topology outside the scale-up domain, priced for 16,384 chips; default the chip's own links",
    "sites": "number of sites, which share the chips equally",
    "cooling": "cooling technology; default the one for which the chip's servers are built",
    "coolant_degc": "supply temperature of the coolant, degC; default the usual one of the cooling; --free coolant lets the search "
    "choose it",
    "reliability": "failure rates, measured on a fleet; hwopt catalog reliability lists them",
    "recovery": "how jobs resume after a failure: from-storage, hot-spares or in-memory; default best, chosen by the search; "
    "from-storage for a service alone",
    "storage": "storage of training data and checkpoints",
    "operation": "production (with the slowdowns of long runs on shared clusters) or benchmark (undisturbed); default "
    "that of the runs to which --constants were fitted",
    "export_rule": "US export-control rule that must not apply to the chip; hwopt catalog export_rules lists them",
    "export_case": "set of limits by which the chip stays outside --export-rule, such as tpp-1600; default the best of all "
    "sets",
    "chip_volume": "number of chips that share the design cost of a parametric chip, or bought: only this machine's; default "
    "that of the price list",
    "chips": "number of chips; default chosen by the search",
    "plan": "parts of the parallel plan to fix, such as tp=8,cp=1,pp=16; the rest is chosen by the search; default all of it",
    "anchor": "measured runs, which scale the predicted times: the value of one, such as step=4.2s, tokens_per_s=1.2M, "
    "tokens_per_s_per_gpu=900, mfu=0.42, of a service tpot=30ms or ttft=200ms, with --chips and the whole --plan; or a file of "
    "hwopt validate with rows; default none",
    "constants": "model constants: calibrated (to published runs), literature, speed-of-light, or a .toml file of "
    "`hwopt calibrate`",
}


def meanings(choices: Mapping[str, str], budgets: Iterable[str]) -> dict[str, str]:
    """Return the description of each field for the help of a command."""
    return dict.fromkeys(BUDGETS, NOT_LIMITED) | dict(choices) | {field: BUDGET_MEANINGS[field] for field in budgets}
