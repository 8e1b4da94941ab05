"""Output gate of attention: the attention output is multiplied by a sigmoid of the layer's input before its projection."""

from typing import Any

from hwopt.workload.layer_work import COLUMNS, MIXER, LayerWork, Product, where_of


def add(shape: Any, work: LayerWork) -> LayerWork:
    """Return the work with the gate: a product `hidden x heads gate_dim`, and a pass that reads it and the output.

    The gate and the ungated output are kept for the backward pass. Layers with `gate_dim` = 0 have neither.

    **Source:** Qiu et al., Gated Attention for Large Language Models, arXiv 2505.06708.
    """
    has = where_of(shape)(shape.gate_dim > 0, 1.0, 0.0)
    gate, output = work.heads * shape.gate_dim, has * work.heads * work.v_dim
    return work._replace(
        products=(*work.products, Product("gate", shape.hidden, gate, MIXER, COLUMNS)),
        channels=work.channels + gate + 2.0 * output,
        kept=work.kept + gate + output,
    )
