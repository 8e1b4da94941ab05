"""Number formats that published weights are stored in: engines read them from the checkpoint, and refuse another."""

import json
from pathlib import Path

from hwopt.catalog.load import read_text, supported


def checkpoint(name: str | Path) -> str:
    """Return the format of a workload's own weights, in the words of `quantization_config`; empty for 16 or 32 bit.

    **Arguments:** `name` of a workload, or the path of a `.toml` or of a `config.json`, which says for example `mxfp4` or
    `compressed-tensors pack-quantized`.
    """
    if not str(name).lower().endswith(".json"):
        return next(iter(supported("workloads", name).words("checkpoint")), "")
    config = json.loads(read_text(Path(name)))
    parts = [each.get("quantization_config") for each in (config, config.get("text_config")) if isinstance(each, dict)]
    words = [
        part.get(key) for part in parts if isinstance(part, dict) for key in ("quant_method", "quant_algo", "format")
    ]
    return " ".join(dict.fromkeys(word for word in words if isinstance(word, str)))
