"""What is declared of a serving engine, and what it writes of a group of chips."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hwopt.errors import UserError
from hwopt.output.export.groups import EngineGroup

Value = int | str | bool
"""Of an argument; True for one that takes none."""

NVIDIA = ("ampere", "ada", "hopper", "blackwell", "rubin")
"""Chip families of NVIDIA since A100."""


class Written(NamedTuple):
    """A group of chips in an engine's words."""

    arguments: dict[str, Value]
    config: dict[str, Any]  # what stands in a file beside; none
    notes: list[str]  # what the arguments do not say


@dataclass(frozen=True)
class Engine:
    """A serving engine at a version.

    **Arguments:** `families` of chips that it runs on, `plugins` for others by family; `formats` of GEMMs -> arguments for weights
    stored so, as `weight_bytes`; `caches`: bytes of an element of keys and values -> its name; `memory`: the argument that bounds
    memory, with its default.
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
        """Refuses chips that it does not run on, and formats of GEMMs that it does not have."""
        if family not in self.families and family not in self.plugins:
            runs_on = ", ".join((*self.families, *self.plugins))
            raise UserError(f"{flag}: {self.title} does not run on {chip} ({family}); it runs on {runs_on}")
        if precision not in self.formats:
            raise UserError(f"{flag}: {self.title} has no GEMMs in {precision}; it has {', '.join(self.formats)}")

    def cache(self, group: EngineGroup) -> str:
        """The name of the format of keys and values. **Raises:** `UserError` where the engine has none of that width."""
        if group.kv_bytes not in self.caches:
            known = ", ".join(f"{each:g}" for each in self.caches)
            raise UserError(f"keys and values of {group.kv_bytes:g} B an element; {self.title} has {known} B (--kv)")
        return self.caches[group.kv_bytes]


STORED = {"bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
"""Bytes of a weight that is stored as GEMMs of a format take it."""


_OWN = {"mxfp4": 0.5, "fp8": 1.0}
"""Bytes per weight of a checkpoint, by the first word of its format."""


def weights(group: EngineGroup, formats: Mapping[str, Mapping[str, Value]]) -> tuple[dict[str, Value], list[str]]:
    """Return the arguments for the weight format, and notes on what they do not express.

    A quantized checkpoint takes no argument: engines read its `config.json`, and reject another format
    (`ModelConfig._verify_quantization` of vLLM and of SGLang), for gpt-oss even its own (vLLM calls it `gpt_oss_mxfp4`).
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
