"""Indexer: a few narrow heads score all keys, and attention reads only the keys with the highest scores."""

from typing import Any

from hwopt.workload.layer_work import COLUMNS, MIXER, WHOLE, Cache, Core, LayerWork, Product, where_of

SCORE_BYTES = 8.0
"""HBM bytes of an index score: written in 32 bit and read by the selection.

**Source:** counted from DeepSeek-V3.2's published kernels (logits in fp32, then top-k), 4 to 12.
"""


def add(shape: Any, work: LayerWork) -> LayerWork:
    """Return the work with an indexer of H heads of width d that selects k keys.

    - Products: queries `r x H d` from the query latent (or the layer's width), one shared key `hidden x d`, and weights of the
      heads `hidden x H` with a latent. With a latent every tensor-parallel rank has the whole indexer, else they divide it.
    - Scores: `2 H d` FLOPs for each token and key of the whole span. Attention then has a span of at most k keys. With a latent
      it multiplies the latent itself, because each token has its own keys; where all keys of the span, expanded and masked, take
      fewer FLOPs, kernels do that instead.
    - Cache: one index key a token, in addition to keys of attention. A generated token reads all index keys, and k keys of
      attention.

    Layers with `index_tokens` = 0 attend to all keys. Those with `index_heads` = 0 take the choice of a layer before them.

    **Source:** DeepSeek-AI, DeepSeek-V3.2, 2025, section 2.1 (multi-query mode,
    and a masked mode for short prompts); MiniMax-M3 configuration (`sparse_attention_config`), whose blocks
    of keys count as their tokens.
    """
    where = where_of(shape)
    heads, width, latent = shape.index_heads, shape.index_dim, shape.query_rank > 0
    has = where(heads > 0, 1.0, 0.0)
    whole = where(latent, 1.0, 0.0)
    key = has * (width + whole * heads)
    products = (
        Product("index_query", where(latent, shape.query_rank, shape.hidden), whole * (heads * width), MIXER, WHOLE),
        Product("index_query_split", shape.hidden, (1.0 - whole) * (heads * width), MIXER, COLUMNS),
        Product("index_key", shape.hidden, key, MIXER, WHOLE),
    )
    attention, *others = work.cores
    pairs = 2.0 * heads * width
    scores = Core(
        pairs, pairs, 0.0, 0.0, has * (heads + 1.0) * width, has * SCORE_BYTES, attention.local, attention.window, whole
    )
    picks, masked = shape.index_tokens > 0, attention.key_flops
    chosen, all_layers = where(picks, shape.index_tokens, attention.window), where(picks, 1.0, attention.local)
    each = where(picks, attention.decode_flops, masked)
    attention = attention._replace(key_flops=each, masked_flops=masked, local=all_layers, window=chosen)
    first, *more = work.caches
    return work._replace(
        products=(*work.products, *products),
        cores=(attention, *others, scores),
        caches=(
            first._replace(read_local=all_layers, read_window=chosen),
            *more,
            Cache(1.0, has * width, first.local, first.window),
        ),
        channels=work.channels + 2.0 * has * (heads + 1.0) * width,
        kept=work.kept + (1.0 - whole) * heads * width,
        latent=work.latent + whole * heads * width + has * width,
        ring=work.ring + has * width,
    )
