"""Latent experts: routed experts work on a narrower vector than the layer, between a product down and one up."""

from typing import Any

from hwopt.workload.layer_work import MOE, TOKENS, LayerWork, Product, where_of


def add(shape: Any, work: LayerWork) -> LayerWork:
    """Return the work with experts of width l: `hidden x l` before dispatch, `l x hidden` after combining.

    Experts, dispatch and combine move l elements a copy instead of the layer's width. Layers with l = 0 are unchanged.

    **Source:** NVIDIA, Nemotron 3 white paper (LatentMoE); Moonshot AI, Kimi-K3 configuration (`routed_expert_hidden_size`).
    """
    width, narrow, where = expert_width(shape), shape.expert_hidden, where_of(shape)
    into = {"expert_up": {"inputs": width}, "expert_down": {"outputs": width}}
    products = tuple(each._replace(**into.get(each.name, {})) for each in work.products)
    down = Product("expert_latent", shape.hidden, narrow, MOE, TOKENS)
    up = Product("expert_result", narrow, shape.hidden * where(narrow > 0, 1.0, 0.0), MOE, TOKENS)
    return work._replace(products=(*products, down, up))


def expert_width(shape: Any) -> Any:
    """Return the width of what a token sends to an expert: the layer's, or the latent's."""
    if shape.expert_hidden is None:
        return shape.hidden
    return where_of(shape)(shape.expert_hidden > 0, shape.expert_hidden, shape.hidden)
