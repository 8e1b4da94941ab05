"""Integer variables of a model's shape: layers, and a width of whole heads that tensor parallelism divides evenly."""

import math
from dataclasses import replace

from hwopt.design.variables import KNOWN, Ranges, Variable, count_of
from hwopt.errors import UserError
from hwopt.integers.relations import Divides, ProductLimit, Relation
from hwopt.integers.system import Integer, integer
from hwopt.workload.transformer import Transformer

ASPECTS = (32.0, 208.0)
"""Range of width over layers. Loss laws depend on the number of parameters only, and were fitted to usual shapes. The 99 models
of the catalog are between 33 (GPT-2 XL) and 205 (Gopher, BLOOM).
"""

SHAPE_WORDS = {
    "layers": "layers",
    "hidden": f"widths of whole groups of heads, {ASPECTS[0]:g} to {ASPECTS[1]:g} times the layers",
}
"""Variable of a model's shape -> description of its unit, for texts about free variables."""

_TILE = 128
"""Divisor of all widths: the smaller side of the tiles of matrix products (NVIDIA, Matrix Multiplication Background, User's
Guide, tile quantization: 128 x 256; recalled).
"""

_STEPS = "width_steps"
"""Coordinate of the width, in steps of its variable."""


def width(model: Transformer) -> Variable:
    """Return the width of a model as a variable, in steps of `KNOWN` or slightly more.

    A step has whole tiles and whole heads, in the model's proportions and in whole groups that share a key and a value.

    **Raises:** `UserError` for a model with mechanisms whose sizes do not follow its width.
    """
    if model.mechanisms:
        raise UserError(
            "variable hidden: the width cannot be free for a model with layers of several kinds, output gates, an indexer, scans "
            "or latent experts: hwopt does not know how their sizes follow the width"
        )
    heads, hidden, groups = (count_of(each) for each in (model.heads, model.hidden, model.kv_heads))
    shared = 1 if float(model.kv_rank) > 0.0 or groups == heads else groups
    least = math.lcm(hidden // math.gcd(heads, hidden), _TILE)  # with whole heads
    whole = least * shared // math.gcd(least * heads // hidden, shared)
    known = KNOWN["hidden"]
    return replace(known, step=float(whole * math.ceil(known.step / whole)))


def shape_integers(ranges: Ranges) -> tuple[Integer, ...]:
    """Return the coordinates of layers and of width steps, where they are free."""
    layers = (integer("layers", ranges.of("layers"), rounding=-1),) if ranges.frees("layers") else ()
    if not ranges.frees("hidden"):
        return layers
    low, high = ranges.of("hidden")
    step = ranges.variables["hidden"].step
    return (*layers, integer(_STEPS, (low / step, high / step), near=2))


def shape_relations(ranges: Ranges) -> list[Relation]:
    """Return the relations of the width: its steps, an even split of its heads, and the range of width over layers."""
    if not ranges.frees("hidden"):
        return []
    model, step = ranges.template.workload.model, ranges.variables["hidden"].step
    heads = round(float(model.heads) * step / float(model.hidden))
    (least, most), layers = ranges.of("hidden"), ranges.of("layers")
    free = least < most and layers[0] < layers[1]  # a fixed shape is not restricted
    return [
        ProductLimit((_STEPS,), (), least, most, coefficient=step, name="hidden", follows=_STEPS),
        Divides(("tp",), (_STEPS,), multiple=heads),
        *([ProductLimit((_STEPS,), ("layers",), *ASPECTS, coefficient=step)] if free else []),
    ]
