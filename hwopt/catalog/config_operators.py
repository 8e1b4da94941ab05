"""Reading of a `config.json` as a table of operators: Mamba and Jamba, ResNets and encoders."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hwopt.catalog.config_families import LENGTHS, ConfigFamily
from hwopt.catalog.config_reader import MOST_LAYERS, Config
from hwopt.workload.operator_blocks import (
    attention_block,
    experts_block,
    mamba_block,
    mlp_block,
    words,
)
from hwopt.workload.operator_kinds import Convolution, Elementwise, Gemm, Lookup, Operator


@dataclass(frozen=True)
class Built:
    """A table of operators with the settings of `operator_table`, and the length of a sample."""

    operators: list[Operator]
    settings: dict[str, Any]
    length: float | None = None  # of a sample, where the config states it


@dataclass(frozen=True)
class _Layout:
    """How configs of one model type are read."""

    build: Callable[[Config], Built]
    reads: tuple[str, ...]  # keys that describe the shape
    absent: dict[str, Any] = field(
        default_factory=dict
    )  # values of missing keys in transformers' configuration classes
    fixed: dict[str, Any] = field(default_factory=dict)  # keys that must have this value if present


_COMMON = (
    "model_type", "num_hidden_layers", "hidden_size", "vocab_size", "tie_word_embeddings",
    # change no matrix product and almost no weights
    "use_conv_bias", "mamba_conv_bias", "use_mamba_kernels", "hidden_act", "rms_norm", "norm_before_gate", "mamba_hidden_act",
    "output_router_logits", "router_aux_loss_coef", "num_logits_to_keep", "hidden_dropout", "hidden_dropout_prob",
    "attention_probs_dropout_prob", "attention_dropout", "rescale_prenorm_residual", "time_step_limit", "gradient_checkpointing",
    "position_embedding_type", "classifier_dropout", "label2id", "time_step_floor", "time_step_min", "time_step_max",
    "mamba_ssm_cache_dtype", *LENGTHS,
)  # fmt: skip


def known_layouts() -> tuple[str, ...]:
    """Return every `model_type` that is read as a table of operators."""
    return tuple(_LAYOUTS)


def built_of_config(config: Mapping[str, Any], where: str) -> Built:
    """Return the table of operators that a config states.

    **Arguments:** `config`, whose `model_type` is one of `known_layouts`; `where`: the file's name for messages.

    **Raises:** `UserError` for a missing, misspelled or implausible key, or layers without an operator.
    """
    layout = _LAYOUTS[str(config["model_type"])]
    read = Config(config, ConfigFamily(types=(), absent=layout.absent), where)
    read.check_keys((*_COMMON, *layout.reads, *layout.absent, *layout.fixed))
    for key, wanted in layout.fixed.items():
        if config.get(key) not in (None, wanted):
            read.refuse(f"'{key}' = {config[key]!r} means layers that hwopt does not model (only {wanted!r})")
    return layout.build(read)


def _language(read: Config, blocks: list[Operator], layers: float, hidden: float, tied: bool) -> Built:
    vocab = read.number(["vocab_size"])
    tables = words(vocab, hidden, tied=read.flag("tie_word_embeddings", tied))
    settings = {"layers": layers, "hidden": hidden, "kept_inputs": layers * hidden, "heads": 1.0, "logits": vocab}
    return Built([*blocks, *tables], settings | {"language": True})


def _shape(read: Config) -> tuple[float, float]:
    return read.number(["num_hidden_layers"], most=MOST_LAYERS), read.number(["hidden_size"])


def _rank(read: Config, key: str, hidden: float) -> float:
    """Return the rank of the projection of a state-space model's time step: hidden / 16, rounded up, where it is `auto`."""
    return float(-(-hidden // 16)) if read.value(key) in (None, "auto") else read.number([key])


def _mamba(read: Config) -> Built:
    layers, hidden = _shape(read)
    inner = read.number(["intermediate_size"]) if read.value("intermediate_size") else read.number(["expand"]) * hidden
    rank = _rank(read, "time_step_rank", hidden)
    block = mamba_block(layers, hidden, inner, read.number(["state_size"]), rank, read.number(["conv_kernel"]))
    return _language(read, block, layers, hidden, tied=True)


def _jamba(read: Config) -> Built:
    """Build Jamba: one attention layer per period, Mamba elsewhere; one expert layer per period, a gated MLP elsewhere."""
    layers, hidden = _shape(read)
    each = lambda period, offset: sum(i % period == offset for i in range(int(layers)))
    periods = [
        int(read.number([f"{of}_layer_{what}"], least=0.0))
        for of in ("attn", "expert")
        for what in ("period", "offset")
    ]
    if not periods[0] or not periods[2]:
        read.refuse("'attn_layer_period' and 'expert_layer_period' must be above zero")
    attention, experts = float(each(*periods[:2])), float(each(*periods[2:]))
    heads, ffn = read.number(["num_attention_heads"]), read.number(["intermediate_size"])
    inner = read.number(["mamba_expand"]) * hidden
    mamba = (read.number(["mamba_d_state"]), _rank(read, "mamba_dt_rank", hidden), read.number(["mamba_d_conv"]))
    count, chosen = read.number(["num_experts"]), read.number(["num_experts_per_tok"])
    blocks: list[Operator] = []
    if attention:
        blocks += attention_block(
            attention, hidden, heads, read.number(["num_key_value_heads"]), hidden / heads, causal=True
        )
    if layers > attention:
        blocks += mamba_block(layers - attention, hidden, inner, *mamba)
    if experts and count > 1:
        blocks += experts_block(experts, hidden, ffn, count, chosen)
    if dense := layers - (experts if count > 1 else 0.0):
        blocks += mlp_block(dense, hidden, ffn, gated=True)
    return _language(read, blocks, layers, hidden, tied=False)


def _encoder_blocks(read: Config, layers: float, hidden: float) -> list[Operator]:
    heads = read.number(["num_attention_heads"])
    if hidden % heads:
        read.refuse(f"'num_attention_heads' = {heads:g} does not divide the hidden size {hidden:g}")
    attention = attention_block(layers, hidden, heads, heads, hidden / heads, causal=False)
    return [*attention, *mlp_block(layers, hidden, read.number(["intermediate_size"]))]


def _vit(read: Config) -> Built:
    """Build a vision transformer: image patches embedded by a convolution, and one class token."""
    layers, hidden = _shape(read)
    image, patch, colours = (read.number([key]) for key in ("image_size", "patch_size", "num_channels"))
    if image % patch:
        read.refuse(f"'patch_size' = {patch:g} does not divide 'image_size' = {image:g}")
    side, labels = image / patch, read.value("id2label")
    classes = float(len(labels)) if isinstance(labels, dict) and labels else read.number(["num_labels"])
    embedding = Convolution(inputs=colours, outputs=hidden, size=side, kernel=patch, stride=patch)
    head = Gemm(rows=1.0, inputs=hidden, outputs=classes, wide=1.0)
    tokens = side * side + 1.0
    positions = Elementwise(channels=hidden, reads=2.0, weights=tokens)
    settings = {
        "layers": layers, "hidden": hidden, "kept_inputs": layers * hidden, "heads": read.number(["num_attention_heads"]),
        "logits": classes / tokens, "sample": f"image of {image:g} x {image:g} pixels, {tokens:g} tokens",
        "unit_of_work": "image",
    }  # fmt: skip
    norm = Elementwise(channels=hidden, kept=1.0, weights=1.0)
    return Built([embedding, positions, *_encoder_blocks(read, layers, hidden), norm, head], settings, tokens)


def _bert(read: Config) -> Built:
    """Build BERT: a text encoder with a masked-word head. A share of the tokens is masked; the head runs for these only."""
    layers, hidden = _shape(read)
    vocab, positions = read.number(["vocab_size"]), read.number(["max_position_embeddings"])
    kinds = read.number(["type_vocab_size"])
    tables = Lookup(entries=positions + kinds, width=hidden, pooled=3.0)  # the word table shares the head's weights
    norm = Elementwise(channels=hidden, kept=1.0, weights=2.0)
    pooler = Gemm(rows=1.0, inputs=hidden, outputs=hidden)
    masked = MASKED * positions
    dense = Gemm(rows=masked, inputs=hidden, outputs=hidden)
    head = Gemm(rows=masked, inputs=hidden, outputs=vocab, wide=1.0)
    settings = {
        "layers": layers, "hidden": hidden, "kept_inputs": layers * hidden, "heads": 1.0, "logits": MASKED * vocab,
        "sample": f"text of {positions:g} tokens, {MASKED:.0%} of them masked",
    }  # fmt: skip
    return Built([tables, norm, *_encoder_blocks(read, layers, hidden), pooler, dense, head], settings, positions)


MASKED = 0.15
"""Share of tokens that are masked in BERT's pre-training. **Source:** Devlin et al., arXiv 1810.04805, section 3.1."""


def _resnet(read: Config) -> Built:
    """Build a residual network of bottleneck blocks on images of 224 x 224 pixels, with strides in the 3 x 3 convolution."""
    depths, widths = read.entries("depths"), read.entries("hidden_sizes")
    if not depths or not widths or len(depths) != len(widths):
        read.refuse("'depths' and 'hidden_sizes' must be lists of equal length, one entry per stage")
    labels = read.value("id2label")
    classes = float(len(labels)) if isinstance(labels, dict) and labels else read.number(["num_labels"])
    return resnet([read.check_number("depths", each, 1.0, 1e3) for each in depths],
                  [read.check_number("hidden_sizes", each, 4.0, 1e5) for each in widths],
                  read.number(["embedding_size"]), read.number(["num_channels"]), classes)  # fmt: skip


def _normed(rows: float, channels: float, count: float = 1.0) -> Operator:
    """Return batch normalization with activation: one read for the statistics, then one read and one write."""
    return Elementwise(count=count, rows=rows, channels=channels, reads=2.0, kept=1.0, weights=2.0)


def _stage(
    inputs: float, middle: float, outputs: float, size: float, blocks: float, stride: float
) -> tuple[list[Operator], float]:
    """Build the bottleneck blocks of one stage; the first block may shrink the image.

    **Returns:** the operators, and the number of elements that enter the blocks.

    **Source:** He et al., arXiv 1512.03385, table 1; strides as in version 1.5 (torchvision, NVIDIA
    DeepLearningExamples).
    """
    before, rows, more = (size * stride) ** 2, size**2, blocks - 1.0
    operators: list[Operator] = [
        Convolution(inputs=inputs, outputs=middle, size=size * stride),
        Convolution(inputs=middle, outputs=middle, size=size, kernel=3.0, stride=stride),
        Convolution(count=blocks, inputs=middle, outputs=outputs, size=size),
        Convolution(inputs=inputs, outputs=outputs, size=size, stride=stride),
        _normed(before, middle),
        _normed(rows, middle, 2.0 * blocks - 1.0),
        _normed(rows, outputs, blocks + 1.0),
        Elementwise(count=blocks, rows=rows, channels=outputs, reads=1.0, writes=0.0),  # the other branch of the sum
    ]
    if more:
        operators += [
            Convolution(count=more, inputs=outputs, outputs=middle, size=size),
            Convolution(count=more, inputs=middle, outputs=middle, size=size, kernel=3.0),
        ]
    return operators, before * inputs + more * rows * outputs


def resnet(depths: list[float], widths: list[float], stem: float, colours: float, classes: float) -> Built:
    """Build a residual network from the number and width of the blocks of its stages, on images of 224 x 224 pixels."""
    operators: list[Operator] = [
        Convolution(inputs=colours, outputs=stem, size=112.0, kernel=7.0, stride=2.0),
        _normed(112.0**2, stem),
        Elementwise(rows=56.0**2, channels=stem, reads=4.0, kept=1.0),  # max pooling over 2 x 2 elements
    ]
    inputs, size, kept = stem, 56.0, 0.0
    for stage, (blocks, width) in enumerate(zip(depths, widths, strict=True)):
        stride = 2.0 if stage else 1.0
        size /= stride
        more, elements = _stage(inputs, width / 4.0, width, size, blocks, stride)
        operators, kept, inputs = operators + more, kept + elements, width
    operators += [
        Elementwise(rows=size**2, channels=inputs, writes=0.0),
        Gemm(inputs=inputs, outputs=classes, wide=1.0),
    ]
    settings = {
        "layers": 1.0,
        "hidden": inputs,
        "kept_inputs": kept,
        "logits": classes,
        "sample": "image of 224 x 224 pixels",
        "unit_of_work": "image",
    }
    return Built(operators, settings, 1.0)


_LABELS = {"num_labels": 1000.0, "num_channels": 3.0, "id2label": None}

_LAYOUTS: dict[str, _Layout] = {
    "mamba": _Layout(
        _mamba, ("state_size", "intermediate_size", "time_step_rank", "conv_kernel", "expand", "d_inner", "d_model", "n_layer"),
        {"state_size": 16.0, "conv_kernel": 4.0, "expand": 2.0}, {"use_bias": False},
    ),
    "jamba": _Layout(
        _jamba,
        ("attn_layer_period", "attn_layer_offset", "expert_layer_period", "expert_layer_offset", "num_attention_heads",
         "num_key_value_heads", "intermediate_size", "mamba_expand", "mamba_d_state", "mamba_d_conv", "mamba_dt_rank",
         "num_experts", "num_experts_per_tok", "mamba_inner_layernorms"),
        {"attn_layer_period": 8.0, "attn_layer_offset": 4.0, "expert_layer_period": 2.0, "expert_layer_offset": 1.0,
         "mamba_expand": 2.0, "mamba_d_state": 16.0, "mamba_d_conv": 4.0, "num_experts": 16.0, "num_experts_per_tok": 2.0},
        {"mamba_proj_bias": False, "sliding_window": None},
    ),
    "vit": _Layout(
        _vit, ("image_size", "patch_size", "num_attention_heads", "intermediate_size", "qkv_bias", "encoder_stride",
         "pooler_output_size"),
        {"image_size": 224.0, "patch_size": 16.0, **_LABELS},
    ),
    "bert": _Layout(
        _bert, ("max_position_embeddings", "type_vocab_size", "num_attention_heads", "intermediate_size"),
        {"max_position_embeddings": 512.0, "type_vocab_size": 2.0}, {"is_decoder": False, "add_cross_attention": False},
    ),
    "resnet": _Layout(
        _resnet, ("depths", "hidden_sizes", "embedding_size", "out_features", "out_indices", "stage_names"),
        {"depths": [3, 4, 6, 3], "hidden_sizes": [256, 512, 1024, 2048], "embedding_size": 64.0, **_LABELS},
        {"layer_type": "bottleneck", "downsample_in_first_stage": False, "downsample_in_bottleneck": False},
    ),
}  # fmt: skip
"""Reading rules of each `model_type`; defaults are those of transformers' configuration classes."""
