"""Words for a flag that users of other tools write, and the flag of hwopt that they mean."""

from collections.abc import Container

_SAME: dict[str, tuple[str, ...]] = {
    "--accelerator --gpu --gpu-type --hardware --device": ("--chip",),
    "--num-gpus --n-gpus --ngpus --gpu-count --num-chips --world-size --devices": ("--chips",),
    "--nodes --num-nodes --servers --hosts": ("--chips (servers times chips per server)",),
    "--cluster --system": ("--chip NAME --chips N", "--chip"),
    "--batch-size --batch --gbs --global-batch-size": ("--global-batch",),
    "--seqlen --sequence --context --context-length --ctx --max-seq-len --seq": ("--seq-len",),
    "--dtype --format --quantization --quantize": ("--precision",),
    "--framework --software": ("--stack",),
    "--region --location --country": ("--site",),
    "--network --topology --interconnect": ("--fabric",),
    "--budget --cost --money": ("--capex-budget-usd (purchase) or --cost-budget-usd (the run)", "--capex-budget-usd"),
    "--deadline --days --duration": ("--time-budget-s 41d", "--years"),
    "--mw --watts": ("--power-budget-w 40MW",),
    "--tokens-per-day": ("--tokens and --time-budget-s", "--requests-per-s"),
    "--qps --rps --requests --traffic": ("--requests-per-s",),
    "--isl --prompt --prompt-length": ("--input-tokens",),
    "--osl --answer --output-length": ("--output-tokens",),
    "--ttft": ("--ttft-budget-s", "--ttft-limit-s"),
    "--tpot --itl": ("--tpot-budget-s", "--tpot-limit-s"),
    "--timeout --time-limit --max-time": ("--seconds",),
    "--output --save": ("--report FILE.html", "--out", "--json"),
    "--offload": ("--plan activations_offloaded=1", "--hold activations_offloaded=1"),
    "--micro-batch-size --micro-batch --mbs": ("--plan mbs={}", "--hold mbs={}"),
}
"""Words of others -> flags that mean the same, with a value or a remark. The first one that a command has is suggested."""

_SAME |= {
    f"--{key}": (f"--plan {key}={{}}", f"--hold {key}={{}}", f"--bounds {key}={{}}")
    for key in ("tp", "pp", "dp", "cp", "ep", "vpp", "zero", "recompute")
}

_SAME |= {
    f"--{key}": (f"--memory-formats {key}={{}}",)
    for key in ("moments", "master", "frozen", "loss", "gradients", "fsdp2", "reserve")
}
_SAME["--memory-reserve"] = ("--memory-formats reserve={}",)

_MEANINGS = {word: flags for words, flags in _SAME.items() for word in words.split()}


def meant(word: str, value: str, known: Container[str]) -> str:
    """Return the flag that an unknown one means, with its value; empty where its meaning is not known.

    **Arguments:** `word`: the unknown flag; `value`: its value, empty without one; `known`: flags of the command.
    """
    flags = (each for each in _MEANINGS.get(word, ()) if each.split()[0] in known)
    return next(flags, "").format(value or "...")
