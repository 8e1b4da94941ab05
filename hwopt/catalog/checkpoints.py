"""Number formats of a published checkpoint: those of its weights, GEMMs and KV cache, from its `quantization_config`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from hwopt.catalog.chips import check_precision, slot
from hwopt.catalog.config_reader import short
from hwopt.catalog.huggingface import QUANTIZED, read_config
from hwopt.catalog.load import config_file, supported
from hwopt.catalog.memory_formats import WORDS
from hwopt.catalog.workloads import checkpoint, transformer
from hwopt.errors import UserError
from hwopt.types import PRECISIONS
from hwopt.workload.transformer import (
    Transformer,
    attention_parameters,
    dense_mlp_parameters,
    expert_parameters,
    shapes_of_kinds,
)


class Format(NamedTuple):
    """Storage format of weights, and the format of their GEMMs on chips that have units for all of `needs`."""

    word: str
    weight_bytes: float  # with the scales of its blocks
    products: str = "bf16"
    needs: tuple[str, ...] = ()


BF16 = Format("bf16", 2.0)
FP8 = Format("fp8", 1.0, "fp8", ("fp8",))

_MXFP4_BYTES = 0.5 + 1.0 / 32.0
"""Bytes of a weight in MXFP4: blocks of 32 with a scale of 8 bits. **Source:** OCP Microscaling Formats 1.0, table 1."""

_NVFP4_BYTES = 0.5 + 1.0 / 16.0
"""Bytes of a weight in NVFP4: blocks of 16 with a scale of 8 bits. **Source:** NVIDIA, Introducing NVFP4 (recalled)."""

MXFP4 = Format("mxfp4", _MXFP4_BYTES, "fp8", ("fp4", "fp8"))
"""Format of gpt-oss' experts. Blackwell and CDNA4 multiply it by activations in MXFP8, older chips widen it to 16 bit.

**Source:** TensorRT-LLM and SGLang, default kernels of gpt-oss; vLLM, recipe of gpt-oss (recalled).
"""

_EXPERTS_OF = {"fp4": Format("mxfp4", _MXFP4_BYTES, "fp8", ("fp8",)), "fp8": FP8, "bf16": BF16}
"""Value of `expert_dtype` (DeepSeek-V4) -> format of the routed experts. Its FP4 is multiplied by activations in FP8."""

_ALGORITHMS = {
    "FP8": FP8, "FP8_PER_CHANNEL_PER_TOKEN": FP8, "FP8_PB_WO": FP8, "FP8_PB_REAL": FP8,
    "NVFP4": Format("nvfp4", _NVFP4_BYTES, "fp4", ("fp4",)), "NVFP4_AWQ": Format("nvfp4", _NVFP4_BYTES, "fp4", ("fp4",)),
    "W4A16_NVFP4": Format("nvfp4", _NVFP4_BYTES), "W4A8_NVFP4_FP8": Format("nvfp4", _NVFP4_BYTES, "fp8", ("fp8",)),
    "W4A8_MXFP4_FP8": Format("mxfp4", _MXFP4_BYTES, "fp8", ("fp8",)),
    "MXFP8": Format("mxfp8", 1.0 + 1.0 / 32.0, "fp8", ("fp8",)), "INT8_SQ": Format("int8", 1.0, "int8", ("int8",)),
    "W8A8_SQ_PER_CHANNEL": Format("int8", 1.0, "int8", ("int8",)), "W8A16": Format("int8", 1.0),
    "W4A16_AWQ": Format("int4", 0.5 + 2.0 / 128.0), "W4A8_AWQ": Format("int4", 0.5 + 2.0 / 128.0, "fp8", ("fp8",)),
}  # fmt: skip
"""`quant_algo` of ModelOpt -> format. **Source:** ModelOpt and TensorRT-LLM, `QuantAlgo` (recalled)."""

_PACKED = {
    "float-quantized": FP8, "naive-quantized": None, "pack-quantized": None,
    "nvfp4-pack-quantized": _ALGORITHMS["NVFP4"], "mxfp4-pack-quantized": Format("mxfp4", _MXFP4_BYTES),
    "int-quantized": _ALGORITHMS["INT8_SQ"],
}  # fmt: skip
"""`format` of compressed-tensors -> format where the table has no `config_groups`; None where the word does not tell it."""

_KV = {"8 float": "fp8", "8 int": "int8", "4 float": "fp4", "FP8": "fp8", "INT8": "int8", "NVFP4": "fp4"}
"""Format of keys and values in a table's words -> format."""

_IGNORED = ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules", "exclude", "llm_int8_skip_modules")
"""Keys of the modules that stay in 16 bit."""

_ROOTS = ("model.layers", "model.language_model.layers", "language_model.model.layers", "backbone.layers")
"""Names of the list of layers in use; where a table names none, one of them stands for all."""

_MODULES = {
    "attention": ("self_attn.q_proj", "self_attn.q_b_proj", "self_attn.qkv_proj", "mixer.q_proj"),
    "attention's output": ("self_attn.o_proj", "mixer.o_proj"),
    "scan": ("linear_attn.in_proj_qkvz", "linear_attn.in_proj_qkv", "mixer.in_proj", "mamba.in_proj"),
    "dense MLP": ("mlp.down_proj", "mixer.down_proj", "feed_forward.down_proj"),
    "shared experts": ("mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj", "mixer.shared_experts.down_proj",
                       "feed_forward.shared_expert.down_proj"),
    "experts": ("mlp.experts.0.down_proj", "mixer.experts.0.down_proj", "block_sparse_moe.experts.0.w2",
                "feed_forward.experts.down_proj"),
}  # fmt: skip
"""Part of a layer -> names of a module in it, one for each naming in use."""


class Formats(NamedTuple):
    """Number formats in which a checkpoint is served: as stored, with GEMMs in formats that the chips have units for.

    - `precision`: format with the largest share of the GEMMs' FLOPs; `gemm_precision`: all shares.
    - `weight_bytes`: mean bytes of a layer's weight.
    - `kv`: format of keys and values, None where the checkpoint states none.
    - `words`: the stored formats and where they come from.
    """

    precision: str
    gemm_precision: tuple[float, ...]
    weight_bytes: float
    kv: str | None
    words: str


Rule = tuple["_Patterns | None", Format]
"""Modules (None: all) and their format."""


def stored_formats(name: str | Path, chips: Sequence[str | Path] = ()) -> Formats | None:
    """Return the formats in which a workload's published checkpoint is served; None for one in 16 bit.

    The mean bytes of a weight are `sum_p w_p b_p / sum_p w_p` over the parts p of all layers: attention, scans, dense MLPs,
    shared and routed experts, with w_p weights of b_p bytes. Shares of GEMM formats are those of the FLOPs,
    `sum_p a_p [format of p] / sum_p a_p`, with the a_p weights of a part that one token uses. Router, norms, embeddings and
    head are left out: engines keep them in 16 bit.

    **Arguments:**

    - `name`: a workload of the catalog, which states its format in `checkpoint`, or a file with a `quantization_config`.
    - `chips`: where a format has no units on one of them, weights stay as stored and GEMMs run in 16 bit.

    **Raises:** `UserError` for a storage format that is not known.
    """
    where, said, table, experts = _stated(name)
    if not table:
        return None
    shape = transformer(name)
    rules = _Rules(where, table, experts)
    native = [{slot(each) for each in supported("chips", chip).words("native")} for chip in chips]
    stored: dict[str, list[tuple[str, float]]] = {}
    gemms: dict[str, float] = dict.fromkeys(PRECISIONS, 0.0)
    weight_bytes, parts = 0.0, _parts(shape)
    _, total, active = np.sum([*parts.values()], axis=0).tolist()
    for part, column in parts.items():
        layers, weights, used = column.tolist()
        for each, share in rules.formats(part, round(float(shape.layers)), layers):
            product = each.products if all(units.issuperset(each.needs) for units in native) else "bf16"
            weight_bytes += share * weights * each.weight_bytes
            gemms[product] += share * used
            stored.setdefault(each.word, []).append((part, share * weights))
    shares = tuple(each / active for each in gemms.values())
    precision = PRECISIONS[int(np.argmax(shares))]
    for chip in chips:
        check_precision(chip, precision)
    runs = " and ".join(sorted((each for each in gemms if gemms[each]), key=lambda each: -gemms[each]))
    words = f"{_words(stored)}, as in {said}; GEMMs in {runs}"
    return Formats(precision, shares, weight_bytes / total, rules.kv, words)


def _stated(name: str | Path) -> tuple[str, str, Mapping[str, Any], str]:
    """Return where a checkpoint's format is stated, that in words, its table, and its experts' format."""
    if (path := config_file("workloads", name)) is None:
        word = checkpoint(name)
        return str(name), "the catalog's checkpoint", {"quant_method": word} if word else {}, ""
    parts = read_config(path)
    for key in QUANTIZED:
        for part in parts:
            if part.get(key):
                experts = next((each["expert_dtype"] for each in parts if each.get("expert_dtype")), "")
                return f"{path}: '{key}'", f"the file's {key}", part[key], experts
    return str(path), "", {}, ""


def _parts(shape: Transformer) -> dict[str, Any]:
    """Return the parts of a model's layers: numbers of layers that have each, of its weights, and of those that a token uses."""
    found: dict[str, Any] = {}
    shares = [1.0] if shape.kinds is None else shape.kinds.share.tolist()
    for s, part_of_layers in zip(shapes_of_kinds(shape), shares, strict=True):
        moe, mixer, dense, expert, output, shared = map(
            float,
            (s.moe_layers, attention_parameters(s), dense_mlp_parameters(s), expert_parameters(s),
             s.heads * s.v_dim * s.hidden, s.shared_experts * s.mlp_matrices * s.hidden * s.expert_ffn),
        )  # fmt: skip
        attends = float(s.layers) if s.attends is None or float(s.attends) else 0.0
        scans = float(s.layers) - attends if s.scan_heads is not None and float(s.scan_heads) else 0.0
        routed, used = float(s.experts) * expert, float(s.experts_per_token) * expert
        rows = {
            "attention": (attends, mixer - output, mixer - output), "attention's output": (attends, output, output),
            "scan": (scans, mixer, mixer), "dense MLP": (float(s.layers) - moe, dense, dense),
            "shared experts": (moe, shared, shared), "experts": (moe, routed, used),
        }  # fmt: skip
        for part, (layers, weights, active) in rows.items():
            if layers and weights:
                found[part] = found.get(part, 0.0) + part_of_layers * layers * np.array([1.0, weights, active])
    return found


def _words(stored: Mapping[str, list[tuple[str, float]]]) -> str:
    """Return the stored formats in words: the one with most weights first, each other with the parts that have it."""
    most = sorted(stored, key=lambda word: -sum(weights for _, weights in stored[word]))
    if len(most) == 1:
        return f"weights {most[0]}"
    where = [f"{word} in {' and '.join(dict.fromkeys(part for part, _ in stored[word]))}" for word in most[:-1]]
    return f"weights {', '.join(where)}, {most[-1]} elsewhere"


class _Patterns:
    """Modules by name: whole names or parts of them, globs, and regular expressions behind `re:`."""

    def __init__(self, patterns: Iterable[str]):
        self.plain, written = set(), []
        for each in patterns:
            if each.startswith("re:"):
                written.append(each[3:])
            elif any(sign in each for sign in "*?["):
                written += [translate(each), translate(f"{each}.*")]
            else:
                self.plain.add(each)
        try:
            self.written = re.compile("|".join(f"(?:{each})" for each in written)) if written else None
        except re.error as failure:
            raise UserError(f"a checkpoint's list of modules has no regular expression: {failure}") from None

    def has(self, name: str) -> bool:
        """Return whether a module, or one that it is a part of, is among them."""
        parts = name.split(".")
        within = (".".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))
        return bool(self.written and self.written.match(name)) or not self.plain.isdisjoint(within)


class _Rules:
    """Formats of modules and of the KV cache that a `quantization_config` states."""

    def __init__(self, where: str, table: Any, experts: str):
        self.where = where
        if not isinstance(table, Mapping):
            self.refuse(f"must be a table of keys, not {short(table)}")
        if isinstance(inner := table.get("quantization"), Mapping):
            table = {**table, **inner}
        self.method = str(table.get("quant_method", "")).lower()
        own = next((of for start, of in _METHODS.items() if self.method.partition(" ")[0] == start), None)
        if own is None:
            self.refuse(f"has quant_method {short(table.get('quant_method'))}")
        self.rules: list[Rule] = own(self, table)
        self.kv = self._cache(table)
        listed = [each for key in _IGNORED for each in _texts(table.get(key))]
        self.ignored = _Patterns(listed)
        said = str(table).replace("\\", "")
        self.roots = [root for root in _ROOTS if f"{root}." in said] or _ROOTS[:1]
        if experts:
            if str(experts) not in _EXPERTS_OF:
                self.refuse(f"has expert_dtype {short(experts)}")
            self.rules.insert(0, (_Patterns(["experts"]), _EXPERTS_OF[str(experts)]))

    def refuse(self, what: str) -> NoReturn:
        raise UserError(
            f"{self.where} {what}, which hwopt cannot express: state the format of the GEMMs (--precision) and, where it "
            "differs, of the weights (--weights)"
        )

    def formats(self, part: str, layers: int, having: float) -> list[tuple[Format, float]]:
        """Return the formats of a part of all layers, and their shares of the layers that have it."""
        counts: dict[int, float] = {}
        for layer in range(layers):
            place = self._place([f"{root}.{layer}.{module}" for root in self.roots for module in _MODULES[part]])
            counts[place] = counts.get(place, 0.0) + 1.0
        left, found = 1.0, []
        for place in sorted(counts):
            if (share := min(left, counts[place] / having)) > 0.0:
                found.append((BF16 if place in (-1, len(self.rules)) else self.rules[place][1], share))
                left -= share
        return [*found, *([(BF16, left)] if left > 1e-9 else [])]

    def _place(self, names: Sequence[str]) -> int:
        """Return the first rule that has any of a module's names; -1 if they are ignored, the number of rules if none has."""
        if any(self.ignored.has(name) for name in names):
            return -1
        matches = (i for i, (of, _) in enumerate(self.rules) if of is None or any(of.has(name) for name in names))
        return next(matches, len(self.rules))

    def _cache(self, table: Mapping[str, Any]) -> str | None:
        scheme = table.get("kv_cache_scheme")
        said = f"{scheme.get('num_bits')} {scheme.get('type')}" if isinstance(scheme, Mapping) else scheme
        said = said or table.get("kv_cache_quant_algo")
        keys = _mapping(table.get("kv_cache_quant_config")).values()  # of Quark
        said = said or next((_KIND.get(str(_tensor(each, "output_tensors").get("dtype")), "?") for each in keys), None)
        if said and str(said) not in _KV:
            raise UserError(
                f"{self.where} has a KV cache in {short(said)}, which hwopt cannot express: state it (--kv)"
            )
        return _KV[str(said)] if said else None

    def of_numbers(self, weights: Mapping[str, Any] | None, inputs: Mapping[str, Any] | None) -> Format:
        """Return the format of weights and inputs that are described by `num_bits`, `type` and `group_size`."""
        if not isinstance(weights, Mapping):
            self.refuse(f"states no weights in a group, but {short(weights)}")
        bits: Any = weights.get("num_bits")
        kind = weights.get("type", "int")
        wide = "" if not isinstance(inputs, Mapping) else f"{inputs.get('num_bits')} {inputs.get('type', 'int')}"
        products = {"": "bf16", "16 float": "bf16"} | {key: _KV[key] for key in ("8 float", "8 int", "4 float")}
        if (bits, kind) not in ((8, "float"), (4, "float"), (8, "int"), (4, "int")) or wide not in products:
            self.refuse(f"has weights of {short(bits)} bits ({short(kind)}) with inputs {short(wide or '16 float')}")
        group = weights.get("group_size") or 0
        scale = (1.0 if kind == "float" else 2.0) / group if isinstance(group, int) and group > 0 else 0.0
        zero = 0.0 if weights.get("symmetric", True) or not scale else bits / 8.0 / group
        word = (
            ("nvfp4" if group == 16 else "mxfp4")
            if (bits, kind) == (4, "float")
            else ("fp8" if kind == "float" else f"int{bits}")
        )
        runs = products[wide]
        return Format(word, bits / 8.0 + scale + zero, runs, () if runs == "bf16" else (runs,))

    def of_algorithm(self, algorithm: object) -> Format:
        if str(algorithm) not in _ALGORITHMS:
            self.refuse(f"has quant_algo {short(algorithm)}")
        return _ALGORITHMS[str(algorithm)]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _modelopt(rules: _Rules, table: Mapping[str, Any]) -> list[Rule]:
    if (layers := _mapping(table.get("quantized_layers"))) and table.get("quant_algo") == "MIXED_PRECISION":
        named: dict[Format, list[str]] = {}
        for name, each in layers.items():
            named.setdefault(
                rules.of_algorithm(each.get("quant_algo") if isinstance(each, Mapping) else each), []
            ).append(name)
        return [(_Patterns(names), each) for each, names in named.items()]
    if table.get("quant_algo") is None and table.get("config_groups"):
        return _compressed(rules, table)
    word = rules.method.partition(" ")[2].upper()  # a catalog entry's words have the algorithm behind the method
    return [(None, rules.of_algorithm(table.get("quant_algo") or word))]


def _compressed(rules: _Rules, table: Mapping[str, Any]) -> list[Rule]:
    groups, packed = _mapping(table.get("config_groups")), table.get("format")
    if not groups:
        one = _PACKED.get(str(packed or rules.method.partition(" ")[2]))
        if one is None:
            rules.refuse(f"states no config_groups and the format {short(packed)}")
        return [(None, one)]
    found: list[Rule] = []
    for each in groups.values():
        targets = _texts(_mapping(each).get("targets"))
        whole = not targets or any(target in ("Linear", "FusedMoE", "MoE") for target in targets)
        one = rules.of_numbers(_mapping(each).get("weights"), _mapping(each).get("input_activations"))
        found.append((None if whole else _Patterns(targets), one))
    return sorted(found, key=lambda rule: rule[0] is None)  # named modules first


def _grouped(rules: _Rules, table: Mapping[str, Any]) -> list[Rule]:
    """Return AWQ's and GPTQ's format: integers in groups, GEMMs in 16 bit."""
    symmetric = table.get("sym", True) and not table.get("zero_point", False)
    numbers = {"num_bits": table.get("bits", table.get("w_bit")), "type": "int", "symmetric": symmetric,
               "group_size": table.get("group_size", table.get("q_group_size", 128))}  # fmt: skip
    skipped = list(_mapping(table.get("dynamic")))
    if any(not name.startswith("-:") for name in skipped):
        rules.refuse("has modules in further formats ('dynamic')")
    left: list[Rule] = [(_Patterns([f"re:{name[2:]}" for name in skipped]), BF16)] if skipped else []
    return [*left, (None, rules.of_numbers(numbers, None))]


def _bits_and_bytes(rules: _Rules, table: Mapping[str, Any]) -> list[Rule]:
    if table.get("load_in_8bit"):
        return [(None, _ALGORITHMS["INT8_SQ"])]
    if not table.get("load_in_4bit"):
        rules.refuse("states neither load_in_4bit nor load_in_8bit")
    double = WORDS["frozen"]["nf4"]["frozen_bytes"]
    return [(None, Format("nf4", double if table.get("bnb_4bit_use_double_quant") else 0.5 + 4.0 / 64.0))]


_KIND = {
    "fp8_e4m3": "8 float", "fp8": "8 float", "fp4": "4 float", "int8": "8 int", "uint8": "8 int", "int4": "4 int",
    "uint4": "4 int", "": "", "bfloat16": "16 float", "float16": "16 float",
}  # fmt: skip
"""`dtype` of Quark -> bits and kind."""


def _tensor(group: object, key: str) -> Mapping[str, Any]:
    """Return Quark's description of a tensor, the first where it has several; empty where it is not quantized."""
    tensor = _mapping(group).get(key)
    return _mapping(tensor[0] if isinstance(tensor, list) and tensor else tensor)


def _quark(rules: _Rules, table: Mapping[str, Any]) -> list[Rule]:
    def one(group: object) -> Format:
        said: list[dict[str, Any] | None] = []
        for tensor in (_tensor(group, key) for key in ("weight", "input_tensors")):
            bits, _, kind = _KIND.get(str(tensor.get("dtype", "")), f"0 {tensor.get('dtype')}").partition(" ")
            said.append({"num_bits": int(bits), "type": kind, "group_size": tensor.get("group_size")} if bits else None)
        return rules.of_numbers(*said)

    own = _mapping(table.get("layer_quant_config"))
    named: list[Rule] = [(_Patterns([name]), one(each)) for name, each in own.items() if _tensor(each, "weight")]
    return [*named, (None, one(table.get("global_quant_config")))]


_METHODS = {
    "fp8": lambda rules, table: [(None, FP8)],
    "fbgemm_fp8": lambda rules, table: [(None, FP8)],
    "mxfp4": lambda rules, table: [(_Patterns(["experts"]), MXFP4)],
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
    "compressed-tensors": _compressed,
    "awq": _grouped,
    "gptq": _grouped,
    "bitsandbytes": _bits_and_bytes,
    "quark": _quark,
}
"""`quant_method` -> function of the rules and the table that returns the formats of modules."""
