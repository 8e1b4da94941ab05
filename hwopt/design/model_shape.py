"""The integers of a model whose shape is free: layers, and a width of whole heads that tensor parallelism shares out."""

import math
from dataclasses import replace

from hwopt.design.variables import KNOWN, Ranges, Variable, count_of
from hwopt.integers.relations import Divides, ProductLimit, Relation
from hwopt.integers.system import Integer, integer
from hwopt.workload.transformer import Transformer

ASPECTS = (32.0, 208.0)
"""Width over layers. Loss laws know the number of parameters alone, and were fitted to models as they are built: the 99 of the
catalogue lie between 33 (GPT-2 XL) and 205 (Gopher, BLOOM)."""

SHAPE_WORDS = {
    "layers": "layers",
    "hidden": f"widths of whole groups of heads, {ASPECTS[0]:g} to {ASPECTS[1]:g} times the layers",
}
"""What each variable of a model's shape counts, where it is free."""

_TILE = 128
"""What a width is a multiple of: the smaller side of the tiles that matrix products are cut into (NVIDIA, Matrix Multiplication
Background, User's Guide, tile quantization: 128 x 256; recalled)."""

_STEPS = "width_steps"
"""Coordinate of the width, in steps of its variable."""


def width(model: Transformer) -> Variable:
    """The width of a model as a variable, in steps of `KNOWN` or a little more: whole tiles and whole heads in the proportions
    of the model, as many as share a key and a value.
    """
    heads, hidden, groups = (count_of(each) for each in (model.heads, model.hidden, model.kv_heads))
    shared = 1 if float(model.kv_rank) > 0.0 or groups == heads else groups
    least = math.lcm(hidden // math.gcd(heads, hidden), _TILE)  # with whole heads
    whole = least * shared // math.gcd(least * heads // hidden, shared)
    known = KNOWN["hidden"]
    return replace(known, step=float(whole * math.ceil(known.step / whole)))


def shape_integers(ranges: Ranges) -> tuple[Integer, ...]:
    """Layers and steps of the width, where they are free."""
    layers = (integer("layers", ranges.of("layers"), rounding=-1),) if ranges.frees("layers") else ()
    if not ranges.frees("hidden"):
        return layers
    low, high = ranges.of("hidden")
    step = ranges.variables["hidden"].step
    return (*layers, integer(_STEPS, (low / step, high / step), near=2))


def shape_relations(ranges: Ranges) -> list[Relation]:
    """The width by its steps, whose heads tensor parallelism shares out evenly, in a proportion to the layers that is known."""
    if not ranges.frees("hidden"):
        return []
    model, step = ranges.template.workload.model, ranges.variables["hidden"].step
    heads = round(float(model.heads) * step / float(model.hidden))
    (least, most), layers = ranges.of("hidden"), ranges.of("layers")
    free = least < most and layers[0] < layers[1]  # a shape that is asked for may be any
    return [
        ProductLimit((_STEPS,), (), least, most, coefficient=step, name="hidden", follows=_STEPS),
        Divides(("tp",), (_STEPS,), multiple=heads),
        *([ProductLimit((_STEPS,), ("layers",), *ASPECTS, coefficient=step)] if free else []),
    ]
