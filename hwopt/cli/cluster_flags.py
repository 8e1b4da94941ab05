"""Flags of a workload on a cluster of given size, and the modes that they belong to."""

from hwopt.cli.flags import Flag, Modes
from hwopt.cli.value_types import INTEGER, NOT_NEGATIVE, POSITIVE, SHARE, TEXT, ValueType, one_of

TRAINING = Modes(("train",), "training")
SERVICE = Modes(("serve", "prefill", "decode"), "a service")
DISAGGREGATED = Modes(("serve",), "disaggregated serving")
PREFILL, DECODE = Modes(("serve", "prefill"), "prefill"), Modes(("serve", "decode"), "decode")

_MODE = Flag("--mode", ", ".join(_MODES := (*TRAINING.names, *SERVICE.names)), one_of(*_MODES), "train")
_PRECISION = Flag("--precision", "format of the GEMMs: bf16, fp16, fp8, fp4, int8, tf32, fp32", TEXT, "bf16")
CONSTANTS = Flag(
    "--constants",
    "calibrated (to published runs, the default), literature, speed-of-light, or a .toml of hwopt calibrate",
    TEXT,
    "calibrated",
)

MACHINE = (
    Flag("--stack", "software stack (default: the chip's, for training or serving)", TEXT),
    CONSTANTS,
    Flag("--site", "site of the facility", TEXT, "us-average"),
    Flag("--cooling", "cooling technology (default: what the chip's servers are built for)", TEXT),
    Flag("--fabric", "topology outside the scale-up domain (default: the chip's own links)", TEXT),
    Flag("--pool", "memory beyond HBM (default: the hosts')", TEXT),
    Flag("--storage", "storage of data", TEXT, "shared-flash"),
    Flag("--reliability", "failures of the fleet", TEXT, "fleet-mean"),
    Flag("--recovery", "how jobs resume after a failure: from-storage, hot-spares, in-memory, or a .toml", TEXT, "from-storage"),
    Flag("--operation", "how the machine is run: production, benchmark, or a .toml (default: as the runs of --constants)", TEXT),
    Flag("--prices", "price list: default, hyperscale, on-premise, rented, at-cost", TEXT, "default"),
    Flag("--domain", "chips of the scale-up domain (default: the chip's)", INTEGER),
    Flag("--rack-chips", "chips in a rack (default: as many as its power, weight and cables allow)", INTEGER),
    Flag("--latency-tail-s", "mean of the tail of a step's latency outside the domain, s (default: the link's)", NOT_NEGATIVE),
    Flag("--bandwidth-spread", "relative spread of what links outside the domain deliver (default: the link's)", NOT_NEGATIVE),
    Flag("--scale-out-bytes-per-s", "scale-out bandwidth per chip and direction, B/s (default: the chip's)", POSITIVE),
    Flag("--nics-per-server", "NICs of a server, which its chips share (default: as sold)", INTEGER),
    Flag("--clock", "clock over the one that the chip is sold with (default 1): 0.8", SHARE),
    Flag("--sites", "sites that share the chips equally", INTEGER, 1, TRAINING),
    Flag("--lines", "WAN links between sites (default continental)", TEXT, None, TRAINING),
)  # fmt: skip
"""Flags passed to `catalog.cluster`."""

RUN = (
    _PRECISION,
    Flag("--global-batch", "sequences a step (default: the workload's)", INTEGER, None, TRAINING),
    Flag("--seq-len", "tokens a sequence (default: the workload's)", INTEGER, None, TRAINING, ("--sequence-length",),
         field="sequence_length"),
    Flag("--checkpoint-interval-s", "seconds of work between checkpoints (default: the interval that loses least)",
         POSITIVE, None, TRAINING),
    Flag("--tokens", "tokens of the whole run (default: the workload's)", POSITIVE, None, TRAINING),
    Flag("--unique-tokens", "unique tokens available: a longer run repeats them, and learns less from each "
         "repetition (default: the stock of "
         "public text)", POSITIVE, None, TRAINING),
    Flag("--trainable-fraction", "share of the weights that train (adapters such as LoRA: 0.003; default 1: all)", SHARE, None,
         TRAINING),
    Flag("--batch-ramp", "batch sizes at the start, each up to that many tokens of the run (or per cent of them): 1024@0.25T,"
         "2048@2.8T,4096; the last is the global batch (default: the workload's ramp; none)",
         ValueType("BATCH@TOKENS", lambda flag, text: text), None, TRAINING),
)  # fmt: skip
"""Flags passed to `catalog.training_run`."""

REQUESTS = (
    _MODE,
    _PRECISION,
    Flag("--input-tokens", "tokens of a mean prompt (default 2048)", NOT_NEGATIVE, None, SERVICE),
    Flag("--output-tokens", "tokens of a mean answer (default 512)", NOT_NEGATIVE, None, SERVICE),
    Flag("--weights", "format of stored weights (default: --precision)", TEXT, None, SERVICE),
    Flag("--kv", "format of keys and values (default: 8 bit where GEMMs are narrower than 16, else theirs)", TEXT, None, SERVICE),
    Flag("--cached-fraction", "share of prompt tokens in the prefix cache (default 0)", SHARE, None,
         SERVICE),
    Flag("--requests-per-s", "arriving requests, over which the machine's cost is spread (default: as many as it "
         "can answer)", NOT_NEGATIVE, None,
         SERVICE),
    Flag("--load", "utilisation of chips that only prefill (default 0.7)", SHARE, None, SERVICE),
    Flag("--drafted-tokens", "tokens a step of speculative decoding by a draft model (default 0)", NOT_NEGATIVE, None, SERVICE),
    Flag("--acceptance", "acceptance probability of a drafted token (default 0.8)", SHARE, None, SERVICE),
    Flag("--draft-fraction", "time of a draft model's pass over the model's (default 0.05)", SHARE, None, SERVICE),
    Flag("--arrival-scv", "variance of the times between requests over their squared mean (default 1: Poisson; bursts: above)",
         NOT_NEGATIVE, None, SERVICE),
    Flag("--input-scv", "the same of prompts' tokens (default 1)", NOT_NEGATIVE, None, SERVICE),
    Flag("--output-scv", "the same of answers' tokens (default 1)", NOT_NEGATIVE, None, SERVICE),
    Flag("--routing", "of requests to replicas: random (default) or least-loaded", TEXT, None, SERVICE),
    Flag("--peak-over-mean", "requests of the busiest hour over the day's mean (default 1); percentiles are of that hour",
         POSITIVE, None, SERVICE),
    Flag("--day-curve", "24 hourly counts of requests, a .csv (hour,requests) or a .toml (requests = [...]), for --peak-over-mean",
         TEXT, None, SERVICE),
    Flag("--capacity-in-use", "largest share of the machine's capacity that mean arrivals may take (default 1: no "
         "headroom)", SHARE, None,
         SERVICE),
)  # fmt: skip
"""Flags passed to `catalog.service`."""

DECODE_CHIP = Flag(
    "--decode-chip", "chips that generate answers, where they are others than --chip, which then takes prompts", TEXT,
    modes=DISAGGREGATED,
)  # fmt: skip
"""Flag that gives the decode group another type of chip."""

CLUSTER = (
    Flag("--workload", "a name of the catalogue, a .toml or a Hugging Face config.json", TEXT, needed=True),
    Flag("--chip", "a name of the catalogue or a .toml file", TEXT, needed=True),
    Flag("--chips", "accelerators in the job", INTEGER, needed=True),
    *dict.fromkeys((*MACHINE, *RUN, *REQUESTS)),
)
"""All flags of a workload and its cluster."""
