"""Declaration of a serving engine, and the settings that it writes for a group of chips."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hwopt.errors import UserError
from hwopt.output.export.groups import EngineGroup

Value = int | str | bool
"""Value of a command-line argument; True for a flag without a value."""

NVIDIA = ("ampere", "ada", "hopper", "blackwell", "rubin")
"""Families of NVIDIA chips since A100."""


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
    - `memory`: the argument that bounds memory, with its default.
    - `write`: returns the launch settings of a group of chips.
    """

    title: str
    version: str
    command: str
    families: tuple[str, ...]
    formats: Mapping[str, Mapping[str, Value]]
    caches: Mapping[float, str]
    memory: str
    write: Callable[[EngineGroup], Written]
    plugins: Mapping[str, str] = field(default_factory=dict)

    def check(self, flag: str, chip: str, family: str, precision: str) -> None:
        """Raise `UserError` for chips that the engine does not run on, and for GEMM formats that it does not support."""
        if family not in self.families and family not in self.plugins:
            runs_on = ", ".join((*self.families, *self.plugins))
            raise UserError(f"{flag}: {self.title} does not run on {chip} ({family}); it runs on {runs_on}")
        if precision not in self.formats:
            raise UserError(f"{flag}: {self.title} has no GEMMs in {precision}; it has {', '.join(self.formats)}")

    def cache(self, group: EngineGroup) -> str:
        """Return the name of the KV-cache format. **Raises:** `UserError` where the engine has none of that width."""
        if group.kv_bytes not in self.caches:
            known = ", ".join(f"{each:g}" for each in self.caches)
            raise UserError(f"keys and values of {group.kv_bytes:g} B an element; {self.title} has {known} B (--kv)")
        return self.caches[group.kv_bytes]


STORED = {"bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
"""Bytes per weight, where weights are stored in the format of the GEMMs."""


_OWN = {"mxfp4": 0.5, "fp8": 1.0}
"""Bytes per weight of a checkpoint, by the first word of its format."""


def weights(group: EngineGroup, formats: Mapping[str, Mapping[str, Value]]) -> tuple[dict[str, Value], list[str]]:
    """Return the arguments for the weight format, and notes on what they cannot express.

    A quantized checkpoint takes no argument: engines read its `config.json` and reject another format.
    For vLLM and SGLang see `ModelConfig._verify_quantization`. Even gpt-oss's own format is rejected (vLLM calls it
    `gpt_oss_mxfp4`).
    """
    if group.checkpoint:
        own = f"the checkpoint is stored in {group.checkpoint}, as the engine reads in its config.json: no argument says it"
        same = _OWN.get(group.checkpoint.partition(" ")[0]) == group.weight_bytes
        planned = f"; planned with weights of {group.weight_bytes:g} B (--weights)"
        return dict(formats["bf16"]), [own if same else own + planned]
    if group.weight_bytes == STORED[group.precision]:
        notes = []
        if group.precision != "bf16" and not formats[group.precision]:
            notes = [f"weights in {group.precision}: no argument says it; take a checkpoint that is quantised so"]
        if group.precision == "fp4":
            notes = ["weights in fp4: take a checkpoint in NVFP4 (Model Optimizer)"]
        return dict(formats[group.precision]), notes
    stored = f"weights of {group.weight_bytes:g} B under GEMMs in {group.precision}"
    return {}, [f"{stored}: no argument says it; take a checkpoint that is quantised so (AWQ, GPTQ, weights only)"]
