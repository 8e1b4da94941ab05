"""Words that say how a training run was set up: dispatcher, overlap, routing, CUDA graphs, compilation, tuning.

A word is declared once (`WORDS`). Flags, parts of `--plan`, columns of measured runs and their help are derived from it. A word
that is not stated leaves the numbers of the software stack as they are.
"""

from collections import namedtuple
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hwopt.errors import UserError, suggest
from hwopt.units import read_number

Change = namedtuple("Change", "field value low high source rule", defaults=(0.0, 0.0, "", "set"))
"""Change of one number by a word.

- `field`: field of `hwopt.stack.Stack`, or `routing_imbalance` of a run.
- `value`: the number, in SI; or the stack of the catalog whose number is taken, with its source and range.
- `low`, `high`, `source`: range of a number, and its citation or the key of one in `hwopt/data/sources.toml`.
- `rule`: "set" replaces the number, "times" multiplies it, "least" raises it to at least the value.
"""


class RunWord(namedtuple("RunWord", "name meaning values listed numbers experts also", defaults=("", None, False, {}))):
    """Declare one setting of a run and its values.

    - `name`: part of `--plan`, keyword of the catalog, column, and name of the flag.
    - `values`: value -> changes. The first value is that of software whose entry lists none.
    - `listed`: key of the list of values in a stack's entry.
    - `numbers`: range in which a number may be stated instead; it sets the field of the last value.
    - `experts`: whether only models with experts have the setting.
    - `also`: other spellings of values.
    """

    @property
    def known(self) -> str:
        """Return the values in words."""
        return ", ".join(self.values) + (f" or a number from {self.numbers[0]:g}" if self.numbers else "")

    def read(self, text: str, said: str = "") -> str | float:
        """Return a value from its text: a word of `values`, or a number.

        **Arguments:** `said`: start of error messages.

        **Raises:** `UserError` for any other text.
        """
        word = self.also.get(text.strip().lower(), text.strip().lower())
        if word in self.values:
            return word
        with suppress(UserError):
            if self.numbers and self.numbers[0] <= (number := read_number(text)) <= self.numbers[1]:
                return number
        raise UserError(f"{said}must be {self.known}: {suggest(word, self.values)}")

    def changes(self, value: str | float) -> tuple[Change, ...]:
        """Return the changes of a value as `read` returns it."""
        last = list(self.values.values())[-1]
        return self.values[value] if isinstance(value, str) else tuple(each._replace(value=value) for each in last)


def switched(value: Any) -> Any:
    """Return a value of a word; yes or no for a stated share."""
    return ("no", "yes")[value > 0.0] if isinstance(value, float) else value


_COMPILED = (
    "elementwise_passes", "cast_passes", "host_layer_s", "host_moe_layer_s", "host_collective_s", "tp_overlap", "step_overhead_s",
)  # fmt: skip
"""Numbers in which torchtitan with and without `torch.compile` differ, apart from attention kernels."""


FUNCTIONAL = "functional"
"""Tuning of runs that show that software works, not how fast: regression tests, verification cards, fine-tuning examples."""

WORDS = (
    RunWord(
        "dispatcher",
        "dispatcher of tokens to experts; deepep and hybridep send one copy of a token to a scale-up domain",
        {
            "alltoall": (Change("dispatch_deduplicated", 0.0, 0.0, 0.0, "megatron-core-guide"),),
            "deepep": (Change("dispatch_deduplicated", 1.0, 1.0, 1.0, "deepep"),),
            "hybridep": (Change("dispatch_deduplicated", 1.0, 1.0, 1.0, "megatron-core-guide"),),
        },
        "dispatchers",
        experts=True,
    ),
    RunWord(
        "ep_overlap",
        "share of a layer's work that hides dispatch and combine; yes: 0.8",
        {
            "no": (Change("ep_overlap", 0.0, 0.0, 0.0, "megatron-core-guide"),),
            # estimate: in a pipeline, the layers of another micro-batch hide the exchange, but for its ends
            "yes": (Change("ep_overlap", 0.8, 0.5, 0.95, "hwopt-estimate"),),
        },
        "expert_overlap",
        (0.0, 1.0),
        experts=True,
        also={"off": "no", "none": "no", "on": "yes"},
    ),
    RunWord(
        "cuda_graphs",
        "part of a step that the host launches as one CUDA graph: none, parts of a layer, or the whole step",
        {
            # the same Megatron-Core, launching kernel by kernel
            "none": tuple(Change(each, "megatron-2025", rule="least") for each in ("host_layer_s", "host_moe_layer_s")),
            "parts": tuple(
                Change(each, 0.5, 0.3, 0.8, "hwopt-estimate", "times") for each in ("host_layer_s", "host_moe_layer_s")
            ),
            "step": tuple(
                Change(each, 5e-5, 1e-5, 1e-4, "hwopt-estimate") for each in ("host_layer_s", "host_moe_layer_s")
            ),
        },
        "cuda_graphs",
        also={"no": "none", "off": "none", "yes": "parts", "on": "parts"},
    ),
    RunWord(
        "compilation",
        "whether torch.compile or XLA fuses kernels, or each operator runs alone",
        {
            "eager": tuple(Change(each, "torchtitan-eager") for each in _COMPILED),
            "compiled": tuple(Change(each, "torchtitan-2024") for each in _COMPILED),
        },
        "compilation",
    ),
    RunWord(
        "tuning",
        "tuned: settings of the software's own benchmarks; functional: defaults that are safe for any model, which are "
        "dispatcher=alltoall, ep_overlap=no, cuda_graphs=none and expert_routing=natural unless stated",
        {"tuned": (), FUNCTIONAL: ()},
    ),
    RunWord(
        "expert_routing",
        "load of the busiest expert rank over the mean, with experts on several ranks; balanced: 1, natural: 1.3",
        {
            "balanced": (Change("routing_imbalance", 1.0, 1.0, 1.0, "megatron-core-guide"),),
            # estimate: the busiest of 64 experts has 1.5 times the mean with an auxiliary loss, 1.04 times without (table 2,
            # recalled); a rank of several experts is less uneven
            "natural": (Change("routing_imbalance", 1.3, 1.05, 2.0, "Wang et al. 2024, arXiv 2408.15664"),),
        },
        numbers=(1.0, 1e3),
        experts=True,
        also={"forced": "balanced"},
    ),
)
"""All words of a run."""

BY_NAME: Mapping[str, RunWord] = {each.name: each for each in WORDS} | {"routing": WORDS[-1]}
"""Name in `--plan` -> word."""

_FUNCTIONAL = {"dispatcher": "alltoall", "ep_overlap": "no", "cuda_graphs": "none", "expert_routing": "natural"}
"""Settings of a functional run: defaults of Megatron-LM's arguments, and routing as the model learned it."""


def implied(stated: Mapping[str, Any]) -> dict[str, str | float]:
    """Return the stated words, by name, with those that a functional run implies; None counts as not stated.

    **Raises:** `UserError` for a value that a word does not have.
    """
    given = {name: BY_NAME[name].read(str(x), f"{name}={x}: ") for name, x in stated.items() if x is not None}
    return (_FUNCTIONAL if given.get("tuning") == FUNCTIONAL else {}) | given
