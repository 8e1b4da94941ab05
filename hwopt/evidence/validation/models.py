"""From a row to a transformer's shape: the row's columns first, the catalogue for what they leave open."""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from hwopt import catalog
from hwopt.errors import UserError
from hwopt.evidence.validation.reasons import Reason, Skip
from hwopt.evidence.validation.rows import MeasuredRun
from hwopt.evidence.validation.serving_rows import MeasuredService
from hwopt.workload.transformer import Transformer, total_parameters

Row = MeasuredRun | MeasuredService
"""What states a model's shape."""

_HYBRID = re.compile(
    r"mamba|nemotron-?h\b|jamba|rwkv|hyena|griffin|recurrentgemma|zamba|\bssm\b|\bhybrid\b|\bt5\b|\bbert\b|\bvit\b|diffusion",
    re.I,
)
_HYBRID_NOTES = re.compile(r"mamba|state[- ]space|not a plain transformer|recurrent layers", re.I)
_PLAIN_MLP = re.compile(r"^(gpt|mpt|nemotron|opt|bloom|falcon|turing|mt-nlg|megatron|pythia|gpt-?neox|starcoder)", re.I)
_PARALLEL = re.compile(r"^(gpt-?j|gpt-?neox|pythia|falcon|palm|codegen)", re.I)
_TUNING = re.compile(r"\b(lora|peft|sft|fine-?tun\w*|pretrain\w*|proxy|slice|instruct|base)\b", re.I)
_LORA_FRACTION = 0.003
"""Share of weights that train with LoRA: adapters of rank 8-16 on a 7-70 B model hold 0.1-0.5 % (arXiv 2106.09685)."""


_MAKER = re.compile(
    r"\b(nvidia|amd|instinct|google|cloud|aws|amazon|intel|habana|gpus?|accelerator|tensor core)\b", re.I
)
_FORM = re.compile(r"\b(sxm\d?|oam|hgx|dgx|nvl\d+|hbm\d?e?)\b", re.I)
_MEMORY = re.compile(r"\b(?!40)\d+ ?gi?b\b", re.I)


def accelerator(name: str) -> str | None:
    """Slug of the accelerator a row counts, however it is printed.

    The name as it stands, then without its maker, form factor and memory (an A100 of 40 GB stays one). Tables of
    Trainium count NeuronCores, `Trainium1 (NeuronCore-v2; ...)`.
    """
    if "neuroncore" in name.lower():
        whole = accelerator(re.split(r"[(,;]|neuroncore", name, flags=re.I)[0].strip())
        return (lookup("chips", f"{whole}-core") or whole) if whole else lookup("chips", name)
    words = re.sub(r"[_/-]+", " ", name)
    for dropped in (None, _MAKER, _FORM, _MEMORY):
        words = dropped.sub(" ", words) if dropped else words
        spelling = name if dropped is None else " ".join(words.split())
        if spelling and (slug := lookup("chips", spelling)):
            return slug
    return None


@cache  # a name that the catalogue lacks costs a search for close ones
def lookup(kind: str, name: str) -> str | None:
    """Slug of a catalogue entry under any spelling, None where there is none."""
    for spelling in (name, _bare(name)):
        try:
            return catalog.find(kind, spelling)
        except UserError:
            continue
    squeezed = _squeeze(_bare(name))
    return next((slug for slug in catalog.names(kind) if _squeeze(slug) == squeezed), None)


def _bare(name: str) -> str:
    """A model's name without what it was used for: `llama3-70b (12-layer slice)`, `LLAMA3_70B (lora)`."""
    plain = re.sub(r"\([^)]*\)", " ", name).replace("_", "-")
    return re.sub(r"[\s-]+$", "", _TUNING.sub(" ", plain)).strip()


def _squeeze(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def is_lora(run: MeasuredRun) -> bool:
    """Whether only adapters train."""
    return bool(re.search(r"\blora\b|\bpeft\b", f"{run.model_name} {run.notes}".replace("_", " "), re.I))


def is_fine_tuning(run: MeasuredRun) -> bool:
    """Whether a trained model is trained further, with adapters or whole."""
    return is_lora(run) or bool(
        re.search(r"\bsft\b|fine-?tun", f"{run.model_name} {run.notes}".replace("_", " "), re.I)
    )


def trainable_fraction(run: MeasuredRun) -> float:
    """Share of the weights that get gradients."""
    return _LORA_FRACTION if is_lora(run) else 1.0


@cache
def _published(slug: str) -> Transformer:
    return catalog.transformer(slug)


def shape(run: Row, assumed: list[str]) -> Transformer:
    """The model of a row.

    Look-up order: the row's own columns; the catalogue's entry of that name for head sizes, gating, tying, expert and
    latent-attention layout; the variant (head size, gated or plain MLP) whose closed-form parameter count is nearest to
    the row's `params_B`; a family's habit. Depth is always the row's, so a proxy of 4 layers is one.

    **Arguments:** `assumed`: names of the fields filled by assumption are added to it.

    **Raises:** `Skip` for hybrids and for shapes that nobody states.
    """
    slug = lookup("workloads", run.model_name)
    record = catalog.record("workloads", slug) if slug else None
    unsupported = record is not None and "unsupported" in record.text
    if unsupported or _HYBRID.search(run.model_name) or _HYBRID_NOTES.search(run.notes):
        raise Skip(Reason.HYBRID, run.model_name)
    known = _published(slug) if slug else None
    if known is not None and not _same(run, known):
        known = None
    missing = [name for name in ("layers", "hidden", "ffn", "heads") if getattr(run, name) is None]
    if missing and known is None:
        raise Skip(Reason.UNKNOWN_SHAPE, f"'{run.model_name}' has no {', '.join(missing)}")
    if known is not None:
        return _overlaid(run, known)
    return _inferred(run, assumed)


def _same(run: Row, known: Transformer) -> bool:
    """Whether the row's width contradicts the catalogue's entry: names such as GPT-22B stand for several shapes."""
    pairs = ((run.hidden, known.hidden), (run.heads, known.heads), (run.moe_experts, known.experts))
    return all(own is None or own == 0 or own == float(other) for own, other in pairs)


def _overlaid(run: Row, known: Transformer) -> Transformer:
    """The catalogue's model with the row's depth and vocabulary; a slice keeps the ratio of dense layers, at least one."""
    depth, moe = float(known.layers), float(known.moe_layers)
    layers = float(run.layers or depth)
    dense = float(np.ceil((depth - moe) * layers / depth))
    changes = {"layers": layers, "moe_layers": layers - dense if moe else 0.0}
    if run.vocab:
        changes["vocab"] = float(run.vocab)
    if run.ffn and not moe:
        changes["ffn"] = float(run.ffn)
    if run.kv_heads and not float(known.kv_rank):
        changes["kv_heads"] = float(run.kv_heads)
    return _transformer(**{name: float(getattr(known, name)) for name in Transformer.__dataclass_fields__} | changes)


def _first_dense(run: Row) -> bool:
    return "first layer dense" in run.notes.lower()


def _inferred(run: Row, assumed: list[str]) -> Transformer:
    """A model from the row's columns alone; head size and gating by parameter count."""
    layers, hidden, ffn, heads = (float(getattr(run, name)) for name in ("layers", "hidden", "ffn", "heads"))
    kv_heads = float(run.kv_heads or heads)
    if run.vocab is None:
        assumed.append("vocab")
    if run.kv_heads is None:
        assumed.append("kv_heads")
    vocab = float(run.vocab or (51200 if _PLAIN_MLP.match(run.model_name) else 32000))
    experts = float(run.moe_experts or 0)
    moe_layers = (layers - 1.0 if _first_dense(run) else layers) if experts else 0.0
    head_sizes: list[float] = (
        [float(run.head_dim)]
        if run.head_dim
        else sorted([hidden / heads, 128.0] + ([256.0] if heads * 256 == hidden else []))
    )

    def build(head: float, matrices: float) -> Transformer:
        return _transformer(
            layers=layers, hidden=hidden, ffn=ffn, mlp_matrices=matrices, heads=heads, kv_heads=kv_heads, qk_dim=head,
            v_dim=head, vocab=vocab, tied_embeddings=float(matrices == 2.0), moe_layers=moe_layers, experts=experts,
            experts_per_token=float(run.moe_topk or 1) if experts else 0.0, expert_ffn=ffn if experts else 0.0,
            parallel_layers=float(bool(_PARALLEL.match(run.model_name))),
        )  # fmt: skip

    plain_first = (2.0, 3.0) if _PLAIN_MLP.match(run.model_name) else (3.0, 2.0)
    native: float = run.head_dim or (128.0 if re.search(r"qwen-?3", run.model_name, re.I) else hidden / heads)
    choices = [build(head, m) for head in [native, *(h for h in head_sizes if h != native)] for m in plain_first]
    if run.params_B and "proxy" not in run.model_name and "slice" not in run.model_name:
        off = [abs(np.log(float(_count(c)) / (run.params_B * 1e9))) for c in choices]
        best = int(np.argmin(off))
        # The habit wins unless the count clearly says otherwise.
        return choices[best] if off[best] < 0.08 and off[0] - off[best] > 0.04 else choices[0]
    assumed.append("mlp_matrices")
    return choices[0]


@cache
def _count_cached(values: tuple[float, ...]) -> float:
    return float(total_parameters(Transformer(*(np.float64(value) for value in values))))


def _count(shape_: Transformer) -> float:
    return _count_cached(tuple(float(getattr(shape_, name)) for name in Transformer.__dataclass_fields__))


def _transformer(**values: float) -> Transformer:
    return Transformer(**{name: np.float64(values.get(name, 0.0)) for name in Transformer.__dataclass_fields__})
