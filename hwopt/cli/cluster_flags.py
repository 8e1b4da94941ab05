"""Flags of a workload on a cluster of given size, and the modes that they belong to."""

from typing import Any

from hwopt.cli.flags import Flag, Modes
from hwopt.cli.value_types import INTEGER, NOT_NEGATIVE, POSITIVE, SETTINGS, SHARE, SWITCH, TEXT, ValueType, one_of
from hwopt.run_words import WORDS

TRAINING = Modes(("train",), "training")
SERVICE = Modes(("serve", "prefill", "decode"), "a service")
DISAGGREGATED = Modes(("serve",), "disaggregated serving")
PREFILL, DECODE = Modes(("serve", "prefill"), "prefill"), Modes(("serve", "decode"), "decode")

_MODE = Flag("--mode", ", ".join(_MODES := (*TRAINING.names, *SERVICE.names)), one_of(*_MODES), "train")
_PRECISION = Flag(
    "--precision",
    "number format of the matrix multiplications: bf16, fp16, fp8, fp4, int8, tf32 or fp32 (of a service: the "
    "published checkpoint's, if it is narrower than 16 bits)",
    TEXT,
    "bf16",
)
CONSTANTS = Flag(
    "--constants",
    "model constants: calibrated (to published runs, the default), literature, speed-of-light, or a .toml file of hwopt "
    "calibrate",
    TEXT,
    "calibrated",
)

RUN_WORDS = {
    each.name: Flag(
        f"--{each.name.replace('_', '-')}",
        f"{each.meaning}: {each.known} (default: as the software does)",
        ValueType("WORD", lambda flag, text, word=each: word.read(text, f"{flag} {text}: ")),
        modes=TRAINING,
    )
    for each in WORDS
}
"""Flag of each word of a run, by name, which is also its attribute."""


def run_words(options: Any) -> dict[str, Any]:
    """Return the words of a run that the flags of a command state, by name."""
    return {name: value for name in RUN_WORDS if (value := getattr(options, name, None)) is not None}


ANCHOR = Flag(
    "--anchor", "measured runs, which scale the predicted times: the value of one, such as step=4.2s, tokens_per_s=1.2M, "
    "tokens_per_s_per_gpu=900, mfu=0.42, of a service tpot=30ms or ttft=200ms, with its whole --plan; or a file of hwopt validate "
    "with rows", TEXT._replace(metavar="NAME=VALUE|FILE"),
)  # fmt: skip

MACHINE = (
    Flag("--stack", "software stack, see hwopt catalog stacks (default: the chip's usual one for training or serving)", TEXT),
    Flag("--date", "month of the question, such as 2025-06: default software is what had been released by then, and newer chips "
         "and stacks are refused (default: the month to which --constants calibrated reach)", TEXT),
    Flag("--any-software", "training plans may also do what the software does not document", SWITCH, False, TRAINING),
    *(each for each in RUN_WORDS.values() if each.attribute != "expert_routing"),
    CONSTANTS,
    Flag("--site", "site: climate, electricity price and carbon intensity, see hwopt catalog sites", TEXT, "us-average"),
    Flag("--cooling", "cooling technology (default: the one for which the chip's servers are built)", TEXT),
    Flag("--coolant-degc", "supply temperature of the coolant, degC, such as 40 (default: the usual one of the cooling)", POSITIVE),
    Flag("--fabric", "network topology outside the scale-up domain, see hwopt catalog fabrics (default: the chip's own links)",
         TEXT),
    Flag("--pool", "memory pool beyond HBM, such as CXL (default: the hosts' memory)", TEXT),
    Flag("--storage", "storage of data and checkpoints, see hwopt catalog storages", TEXT, "shared-flash"),
    Flag("--reliability", "failure rates, measured on a fleet, see hwopt catalog reliability", TEXT, "fleet-mean"),
    Flag("--recovery", "how jobs resume after a failure: from-storage, hot-spares, in-memory, or a .toml file", TEXT,
         "from-storage"),
    Flag("--operation", "production (with the slowdowns of long runs on shared clusters), benchmark (undisturbed), or a .toml "
         "file (default: that of the runs to which --constants were fitted)", TEXT),
    Flag("--prices", "price list: default, hyperscale, on-premise, rented or at-cost", TEXT, "default"),
    Flag("--domain", "chips in the scale-up domain (default: the chip's, or those of --slice)", INTEGER),
    Flag("--slice", "shape of a torus that is rented, such as 8x8x16 (default: the largest of which the chips consist)", TEXT),
    Flag("--rack-chips", "chips per rack (default: as many as its power, weight and cables allow)", INTEGER),
    Flag("--used-chips", "chips of each rack-scale system that the job uses, such as 64 of 72; the others are hot spares", INTEGER),
    Flag("--latency-tail-s", "mean of the exponential latency tail that a step meets outside the domain, s (default: the link's)",
         NOT_NEGATIVE),
    Flag("--bandwidth-spread", "relative standard deviation of link bandwidth outside the domain (default: the link's)",
         NOT_NEGATIVE),
    Flag("--scale-out-bytes-per-s", "scale-out bandwidth per chip and direction, B/s (default: the chip's)", POSITIVE),
    Flag("--nics-per-server", "NICs per server, shared by its chips (default: as sold)", INTEGER),
    Flag("--clock", "clock relative to the stock clock, such as 0.8 (default 1)", SHARE),
    Flag("--sites", "sites, which share the chips equally", INTEGER, 1, TRAINING),
    Flag("--lines", "WAN links between sites, see hwopt catalog lines (default continental)", TEXT, None, TRAINING),
)  # fmt: skip
"""Flags passed to `catalog.cluster`."""

RUN = (
    _PRECISION,
    Flag("--global-batch", "sequences per step (default: the workload's)", INTEGER, None, TRAINING),
    Flag("--seq-len", "tokens per sequence (default: the workload's)", INTEGER, None, TRAINING, ("--sequence-length",),
         field="sequence_length"),
    Flag("--checkpoint-interval-s", "working time between checkpoints, s (default: the interval with the least loss of time)",
         POSITIVE, None, TRAINING),
    Flag("--tokens", "training tokens of the whole run (default: the workload's)", POSITIVE, None, TRAINING),
    Flag("--unique-tokens", "unique tokens available; a longer run repeats them and learns less from each repetition (default: "
         "the stock of public text)", POSITIVE, None, TRAINING),
    Flag("--trainable-fraction", "fraction of the weights that is trained, such as 0.003 for LoRA adapters (default 1)", SHARE,
         None, TRAINING),
    RUN_WORDS["tuning"],
    RUN_WORDS["expert_routing"],
    Flag("--batch-ramp", "batch-size schedule, each size up to that many tokens (or percent of the run): 1024@0.25T,2048@2.8T,"
         "4096; the last size is the global batch; none disables it (default: the workload's)",
         ValueType("BATCH@TOKENS", lambda flag, text: text), None, TRAINING),
    Flag("--memory-formats", "formats in memory of weights, master, moments, gradients, accumulation, frozen, adapters, "
         "activations, loss, fsdp2, reserve: moments=8bit,frozen=nf4,loss=chunked,reserve=6GB (default: the workload's and the "
         "software's)", SETTINGS, None, TRAINING),
)  # fmt: skip
"""Flags passed to `catalog.training_run`."""

REQUESTS = (
    _MODE,
    _PRECISION,
    Flag("--input-tokens", "mean number of tokens in a prompt (default 2048)", NOT_NEGATIVE, None, SERVICE),
    Flag("--output-tokens", "mean number of tokens in an answer (default 512)", NOT_NEGATIVE, None, SERVICE),
    Flag("--weights", "number format of stored weights (default: --precision, else the published checkpoint's)", TEXT, None,
         SERVICE),
    Flag("--kv", "number format of the KV cache (default: the published checkpoint's, else 8 bits if --precision is below 16 bits, "
         "else --precision)", TEXT, None, SERVICE),
    Flag("--cached-fraction", "fraction of prompt tokens that is found in the prefix cache (default 0)", SHARE, None, SERVICE),
    Flag("--requests-per-s", "arrival rate of requests, which share the machine's cost (default: the machine's capacity)",
         NOT_NEGATIVE, None, SERVICE),
    Flag("--load", "utilization of the prefill chips in disaggregated serving (default 0.7)", SHARE, None, SERVICE),
    Flag("--drafted-tokens", "tokens per step that a draft model proposes (speculative decoding; default 0)", NOT_NEGATIVE, None,
         SERVICE),
    Flag("--acceptance", "probability that a drafted token is accepted (default 0.8)", SHARE, None, SERVICE),
    Flag("--draft-fraction", "time of a pass of the draft model relative to the served model's (default 0.05)", SHARE, None,
         SERVICE),
    Flag("--arrival-scv", "squared coefficient of variation of inter-arrival times: 1 is a Poisson process, more is bursty "
         "(default 1)", NOT_NEGATIVE, None, SERVICE),
    Flag("--input-scv", "squared coefficient of variation of prompt lengths (default 1)", NOT_NEGATIVE, None, SERVICE),
    Flag("--output-scv", "squared coefficient of variation of answer lengths (default 1)", NOT_NEGATIVE, None, SERVICE),
    Flag("--routing", "assignment of requests to replicas: random (default) or least-loaded", TEXT, None, SERVICE),
    Flag("--peak-over-mean", "requests in the busiest hour relative to the mean hour; latency percentiles refer to the busiest "
         "hour (default 1)", POSITIVE, None, SERVICE),
    Flag("--day-curve", "file of requests by hour, from which --peak-over-mean is computed: a .csv (hour,requests) or a .toml "
         "(requests = [...])", TEXT, None, SERVICE),
    Flag("--capacity-in-use", "maximum share of the machine's capacity that mean arrivals may use; less than 1 leaves headroom "
         "(default 1)", SHARE, None, SERVICE),
)  # fmt: skip
"""Flags passed to `catalog.service`."""

DECODE_CHIP = Flag(
    "--decode-chip", "chip of the decode group, if it differs from --chip, which then does prefill", TEXT,
    modes=DISAGGREGATED,
)  # fmt: skip
"""Flag that gives the decode group another type of chip."""

CLUSTER = (
    Flag(
        "--workload", "model: a workload of the catalog, a .toml file or a Hugging Face config.json", TEXT, needed=True
    ),
    Flag("--chip", "chip of the catalog or a .toml file", TEXT, needed=True),
    Flag("--chips", "number of accelerators", INTEGER, needed=True),
    ANCHOR,
    *dict.fromkeys((*MACHINE, *RUN, *REQUESTS)),
)
"""All flags of a workload and its cluster."""
