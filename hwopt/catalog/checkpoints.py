"""Storage formats of published weights. Engines read the format from the checkpoint, and reject any other."""

from pathlib import Path

from hwopt.catalog.load import supported


def checkpoint(name: str | Path) -> str:
    """Return the storage format of a workload's own weights, in the words of `quantization_config`; empty for 16 or 32
    bit.

    **Arguments:** `name` of a workload, or the path of a `.toml` or `config.json` file. Such a file states for example
    `mxfp4` or `compressed-tensors pack-quantized`.
    """
    return next(iter(supported("workloads", name).words("checkpoint")), "")
