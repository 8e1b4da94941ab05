"""A model as a table of operators: products, convolutions, recurrences, scans, attention, lookups, transforms, memory
passes.

It describes models that are not transformers. A row is one operator and the number of its occurrences in the model.
`hwopt.workload.operator_kinds` makes rows from user input (`convolution`, `lookup`, ...).
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwopt.quantity import quantity, ratio, switch
from hwopt.types import Scalar
from hwopt.workload.transformer import TOKEN, Transformer, active_parameters, tensor_degrees, total_parameters

PerOperator = Float[Array, "operator"]
"""A number for each operator of a table."""


def _each(meaning: str) -> PerOperator:
    return switch(meaning, key="")


class Operators(eqx.Module):
    """A table of operators. Vectors have shape (operator,). Numbers of a row count one of its `rows` and one of its
    `count` occurrences.

    A token is a step of a sequence, or the whole sample where its length is 1 (an image of a convolutional network, a
    click). Every field is floating-point, so a table is differentiable like a transformer's shape.
    """

    layers: Scalar = ratio(
        "blocks that follow each other: pipeline stages at most, and what is gathered or recomputed at once",
        default=1.0,
    )
    hidden: Scalar = ratio("elements a token between blocks")
    heads: Scalar = switch(
        "parts that tensor parallelism may split all operators into, 1: none", key="tensor_parts", default=1.0
    )
    experts: Scalar = switch(
        "parts that tables of look-ups may be spread as, 0: there are none", key="table_shards", default=0.0
    )
    vocab: Scalar = ratio("outputs a token that a loss in 32 bit is taken of", key="logits", default=0.0)
    kept_inputs: Scalar = ratio("elements a token that full recomputation keeps, inputs of blocks", default=0.0)
    table_bytes: Scalar = quantity(
        "B", "a weight of a table of look-ups with what its optimizer keeps", key="table_bytes", default=4.0
    )

    count: PerOperator = _each("how often the model has the operator")
    per_token: PerOperator = _each("rows a token")
    per_sample: PerOperator = _each("rows a sample beside")
    columns: PerOperator = _each("columns of its product, 0: it is none")
    inner: PerOperator = _each("inner dimension of the product")
    inner_read: PerOperator = _each("elements of that which are read from memory: windows of a convolution overlap")
    groups: PerOperator = _each("such products side by side, in one kernel")
    sequential: PerOperator = _each("1: tokens follow each other, a kernel each; 0: all at once")
    wide: PerOperator = _each("1: stays in 16 bit or more")
    weights: PerOperator = _each("trained weights, held by every replica")
    attention_width: PerOperator = _each("sum over heads of a query's and a value's width; 0: no attention")
    attention_heads: PerOperator = _each("heads, whose scores software without fused kernels stores")
    causal: PerOperator = _each("1: a token meets those before it, 0: all")
    core_flops: PerOperator = _each(
        "FLOPs of products beside, in kernels like attention's: chunks of a scan, pairs of vectors"
    )
    vector_flops: PerOperator = _each("FLOPs outside matrix units, 32 bit")
    streamed: PerOperator = _each("elements that pass through memory, forward")
    stored: PerOperator = _each("elements kept for the backward pass")
    kernels: PerOperator = _each("kernels beside its product")
    looked_up: PerOperator = _each("elements read from a table")
    exchanged: PerOperator = _each("elements that go to another chip where tables are spread")
    table_weights: PerOperator = _each("weights of the table")
    columns_split: PerOperator = _each("1: tensor parallelism splits columns")
    inner_split: PerOperator = _each("1: it splits the inner dimension, and ranks add up their results")
    channels_split: PerOperator = _each("1: it splits what is no product")
    residual: PerOperator = _each("1: sequence parallelism splits rows")

    sample: str = eqx.field(static=True, default="sequence")
    unit_of_work: str = eqx.field(static=True, default=TOKEN)  # of rates and costs; any other word means a sample
    language: bool = eqx.field(static=True, default=False)  # whether loss laws, which are fitted to text, apply

    @property
    def pipelined(self) -> bool:
        """Return whether blocks are alike, so that pipeline stages can be equal."""
        return float(self.layers) > 1.0


@total_parameters.register
def _(shape: Operators) -> Scalar:
    """Return the weights of all operators and lookup tables."""
    return jnp.sum(shape.count * (shape.weights + shape.table_weights))


@active_parameters.register
def _(shape: Operators) -> Scalar:
    """Return the weights that one token uses: those of its chosen experts, and its looked-up rows of tables."""
    # A row with less than one pass per token is an expert: it counts in proportion.
    routed = (shape.per_token > 0.0) & (shape.per_token < 1.0)
    met = jnp.where(routed, shape.per_token, 1.0) * shape.weights
    return jnp.sum(shape.count * (met + (shape.per_token + shape.per_sample) * shape.looked_up))


@tensor_degrees.register
def _(shape: Operators) -> list[int]:
    """Return the divisors of the number of parts into which all operators may be split."""
    parts = round(float(shape.heads))
    return [t for t in range(1, parts + 1) if parts % t == 0]


def most_chunks(model: Transformer | Operators) -> float:
    """Return the maximum number of pipeline chunks: the number of layers, or 1 for a table of unequal blocks.

    In a transformer, embedding and head may each fill one more chunk.
    """
    layers = float(model.layers)
    return layers + 2.0 if isinstance(model, Transformer) else layers
