"""Declaration of a serving engine, and the settings that it writes for a group of chips."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hwopt.errors import UserError
from hwopt.output.export.groups import EngineGroup
from hwopt.output.export.limits import Limit

Value = int | float | str | bool
"""Value of a command-line argument; True for a flag without a value."""

NVIDIA = ("ampere", "ada", "hopper", "blackwell", "rubin")
"""Families of NVIDIA chips since A100."""


NORMS_SPREAD = Limit(
    lambda f: (f.sequence_parallel > 0) & (f.tp > 1), "norms sharded over tensor parallel ranks (sequence_parallel)"
)
"""Limit of engines without sequence parallelism."""


class Written(NamedTuple):
    """Launch settings of a group of chips in an engine's own format."""

    arguments: dict[str, Value]
    config: dict[str, Any]  # content of a separate configuration file; empty for none
    notes: list[str]  # settings that the arguments cannot express


@dataclass(frozen=True)
class Engine:
    """Serving engine at a version.

    **Arguments:**

    - `families`: chip families that it runs on.
    - `plugins`: plugins for other families, by family.
    - `formats`: format of the GEMMs -> arguments for weights stored in that format, see `weights`.
    - `caches`: bytes per element of the KV cache -> the engine's name of that format.
    - `memory`: the argument that bounds memory, and the share that it bounds: `used` (all memory in use) or `static` (weights
      with KV cache) of the chip's, or `cache` (KV cache) of what weights leave.
    - `write`: returns the launch settings of a group of chips.
    - `limits`: features of a plan that it cannot express.
    - `hosts`: returns the words of bash for an instance on several hosts, from their number; None where its launcher sets
      them.
    """

    title: str
    version: str
    command: str
    families: tuple[str, ...]
    formats: Mapping[str, Mapping[str, Value]]
    caches: Mapping[float, str]
    memory: tuple[str, str]
    write: Callable[[EngineGroup], Written]
    limits: tuple[Limit, ...]
    hosts: Callable[[int], list[str]] | None = None
    plugins: Mapping[str, str] = field(default_factory=dict)

    def check(self, flag: str, chip: str, family: str, precision: str) -> None:
        """Raise `UserError` for chips that the engine does not run on, and for GEMM formats that it does not support."""
        if family not in self.families and family not in self.plugins:
            runs_on = ", ".join((*self.families, *self.plugins))
            raise UserError(f"{flag}: {self.title} does not run on {chip} ({family}); it runs on {runs_on}")
        if precision not in self.formats:
            raise UserError(
                f"{flag}: {self.title} does not support GEMMs in {precision}; it supports {', '.join(self.formats)}"
            )

    def cache(self, group: EngineGroup) -> str:
        """Return the name of the KV-cache format. **Raises:** `UserError` where the engine has none of that width."""
        if group.kv_bytes not in self.caches:
            known = ", ".join(f"{each:g}" for each in self.caches)
            raise UserError(f"KV cache of {group.kv_bytes:g} B per element: {self.title} supports {known} B (--kv)")
        return self.caches[group.kv_bytes]


STORED = {"bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
"""Bytes per weight, where weights are stored in the format of the GEMMs."""


_ROUNDING = 1e-6
"""Relative difference up to which bytes of a weight are equal."""


def weights(group: EngineGroup, formats: Mapping[str, Mapping[str, Value]]) -> tuple[dict[str, Value], list[str]]:
    """Return the arguments for the weight format, and notes on what they cannot express.

    A quantized checkpoint takes no argument: engines read its `config.json` and reject another format.
    For vLLM and SGLang see `ModelConfig._verify_quantization`. Even gpt-oss's own format is rejected (vLLM calls it
    `gpt_oss_mxfp4`).
    """
    if group.checkpoint:
        own = f"the checkpoint is stored in {group.checkpoint}, which the engine reads from its config.json; no argument sets it"
        same = math.isclose(group.checkpoint_bytes, group.weight_bytes, rel_tol=_ROUNDING)
        planned = f"; the plan assumes weights of {group.weight_bytes:.3g} B (--weights)"
        return dict(formats["bf16"]), [own if same else own + planned]
    if group.weight_bytes == STORED[group.precision]:
        notes = []
        if group.precision != "bf16" and not formats[group.precision]:
            notes = [f"weights in {group.precision}: no argument sets this; use a checkpoint quantized to it"]
        if group.precision == "fp4":
            notes = ["weights in fp4: use an NVFP4 checkpoint (Model Optimizer)"]
        return dict(formats[group.precision]), notes
    stored = f"weights of {group.weight_bytes:g} B with GEMMs in {group.precision}"
    return {}, [f"{stored}: no argument sets this; use a checkpoint with weight-only quantization (AWQ, GPTQ)"]
