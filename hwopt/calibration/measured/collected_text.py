"""Extraction of columns of measured runs from prose: the only module that searches the text of sources, notes and names.

`python -m hwopt.calibration.measured.collected_text IN.csv OUT.csv` adds the missing columns of a table, inferred from its
text. `hwopt validate` does the same in memory. Columns that a table has are used as they are, without a search.
"""

import csv
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path

from hwopt import catalog
from hwopt.calibration.measured import text_rules as words
from hwopt.calibration.measured.columns import (
    METRICS,
    MeasuredRow,
    MeasuredRun,
    MeasuredService,
    columns_of,
    entry,
    inferred,
)
from hwopt.calibration.measured.negation import affirms
from hwopt.calibration.measured.stacks import megatron, of_year, runs_on, training_stack, typical_year
from hwopt.calibration.measured.table import load
from hwopt.catalog.chips import slot
from hwopt.errors import UserError

Cells = Mapping[str, str]
"""Text of a row's cells by column."""

_TEXTS = 4096
"""Number of cached texts; rows of a source share its notes."""

_CORRECTED = ("micro_batch", "quality", "seq_parallel", "config_complete")
"""Columns of collected tables whose cells are overruled by notes, or contain other words than yes and no."""


def complete(cells: dict[str, str], kind: type[MeasuredRow], present: Iterable[str]) -> set[str]:
    """Fill in the columns that a table lacks, from the text of a row.

    **Arguments:**

    - `cells`: cells of a row, changed in place.
    - `kind`: type of the row.
    - `present`: columns of the file. If it has all columns that can be inferred, nothing is done.

    **Returns:** names of the columns whose cells changed.
    """
    lacking = set(inferred(kind)).difference(present)
    if not lacking:
        return set()
    changed = set()
    for name, value in _INFERRED[kind](cells).items():
        blank = name in ("stack", "year") and not cells.get(name)
        if (
            (name in lacking or name in _CORRECTED or blank)
            and value != cells.get(name, "")
            and _readable(value, columns_of(kind)[name].read)
        ):
            cells[name] = value
            changed.add(name)
    return changed


def _readable(value: str, read: Callable[[str], object]) -> bool:
    """Return whether a value is valid as a cell; invalid values are ignored."""
    try:
        return not value or read(value) is not None
    except ValueError:
        return False


def _text(cells: Cells, names: str) -> str:
    return " | ".join(cells.get(name, "") for name in names.split()).lower()


def _integer(cells: Cells, name: str) -> int:
    """Return the integer in a cell, or 0."""
    cell = cells.get(name, "").removesuffix(".0")
    return int(cell) if cell.isdigit() and len(cell) < 16 else 0


def _number(value: float) -> str:
    """Format a number as a cell, exactly."""
    return repr(value).removesuffix(".0")


@lru_cache(_TEXTS)
def _first(rules: Iterable[tuple[str, str]], text: str) -> str:
    return next((cell for pattern, cell in rules if affirms(pattern, text)), "")


def _matches(rules: Iterable[words.Rule], cells: Cells) -> dict[str, str]:
    """Return the cells implied by rules, by column; blank if no rule matches."""
    return dict(_told(rules, tuple(_text(cells, names) for names in _places(rules))))


@cache
def _places(rules: Iterable[words.Rule]) -> tuple[str, ...]:
    """Return the distinct columns that rules search."""
    return tuple(dict.fromkeys(rule.cells for rule in rules))


@lru_cache(_TEXTS)
def _told(rules: Iterable[words.Rule], texts: tuple[str, ...]) -> dict[str, str]:
    told = dict(zip(_places(rules), texts, strict=True))
    matches = dict.fromkeys((rule.column for rule in rules), "")
    for rule in rules:
        if not matches[rule.column] and (affirmed := affirms(rule.words, told[rule.cells])) is not None:
            matches[rule.column] = rule.cell if affirmed else rule.denied
    return matches


# Names of models and accelerators ------------------------------------------------------------------------------------

_TUNING = re.compile(r"\b(lora|peft|sft|fine-?tun\w*|pretrain\w*|proxy|slice|instruct|base)\b", re.I)
_DROPPED = (
    re.compile(r"\b(nvidia|amd|instinct|google|cloud|aws|amazon|intel|habana|gpus?|accelerator|tensor core)\b", re.I),
    re.compile(r"\b(sxm\d?|oam|hgx|dgx|nvl\d+|hbm\d?e?)\b", re.I),
    re.compile(r"\b(?!40)\d+ ?gi?b\b", re.I),  # the A100 with 40 GB is a chip of its own
)
"""Parts of an accelerator's name that tables add: vendor, form factor and memory."""


@cache
def accelerator(name: str) -> str | None:
    """Return the catalog slug of the accelerator that a row counts, for any spelling.

    The name is tried unchanged, then without vendor, form factor and memory. Tables of Trainium count NeuronCores, `Trainium1
    (NeuronCore-v2; ...)`.
    """
    if "neuroncore" in name.lower():
        chip = accelerator(re.split(r"[(,;]|neuroncore", name, flags=re.I)[0].strip())
        return (lookup("chips", f"{chip}-core") or chip) if chip else lookup("chips", name)
    spellings, plain = [name], re.sub(r"[_/-]+", " ", name)
    for dropped in _DROPPED:
        plain = dropped.sub(" ", plain)
        spellings.append(" ".join(plain.split()))
    return next((slug for each in spellings if each and (slug := lookup("chips", each))), None)


@cache
def lookup(kind: str, name: str) -> str | None:
    """Return the slug of a catalog entry for any spelling, also with a suffix such as `(lora)`; None without an entry."""
    plain = re.sub(r"\([^)]*\)", " ", name).replace("_", "-")  # `llama3-70b (12-layer slice)`, `LLAMA3_70B (lora)`
    bare = re.sub(r"[\s-]+$", "", _TUNING.sub(" ", plain)).strip()
    squeeze = lambda text: re.sub(r"[^a-z0-9.]", "", text.lower())
    alike = (slug for slug in catalog.names(kind) if squeeze(slug) == squeeze(bare))
    return entry(kind, name) or entry(kind, bare) or next(alike, None)


def _chip(cells: Cells) -> str | None:
    return entry("chips", cells.get("chip", "")) or accelerator(cells.get("gpu", ""))


def _any_row(cells: Cells, chip: str | None) -> dict[str, str]:
    """Return the cells implied by the text of a row of any type; `chip`: the accelerator's slug."""
    name, gpu = cells.get("model_name", ""), cells.get("gpu", "")
    model = lookup("workloads", name)
    return _matches(words.ANY, cells) | {
        "release": _release(cells.get("source_locator", ""), cells.get("notes", "")),
        "workload": model if model and model != entry("workloads", name) else "",
        "chip": chip if chip and chip != entry("chips", gpu) else "",
    }


def _release(locator: str, notes: str) -> str:
    """Return the software release that a source prints: in its locator, else its notes, else the date of the printed table."""
    numbered = r"(?:container|release|section)\s+v?(\d{1,9}(?:\.\d{1,9})+)|\b(\d\d\.\d\d(?:\.\d{1,9})?)\s+container"
    version = re.search(numbered, locator, re.I) or re.search(numbered, notes, re.I)
    dated = re.search(r"\((20\d\d)-(\d\d)-(\d\d)\)", locator)
    return (version[1] or version[2]) if version else ".".join(dated.groups()) if dated else ""


# Training runs -------------------------------------------------------------------------------------------------------


def year(cells: Cells) -> int:
    """Return the year of the software: the column, else the first date in source, locator and notes, else 0."""
    return _integer(cells, "year") or _dated(_text(cells, "source source_locator notes"))


@lru_cache(_TEXTS)
def _dated(text: str) -> int:
    dates = (base + int(match[1]) for pattern, base in words.YEARS if (match := re.search(pattern, text)))
    return next(dates, 0)


def _model_year(cells: Cells) -> int:
    """Return the year of the row's model, before which no software can have run it; 0 for a model outside the catalog."""
    model = entry("workloads", cells.get("workload", "")) or lookup("workloads", cells.get("model_name", ""))
    return int(catalog.record("workloads", model).si("year", 0.0)) if model else 0


def _after_nemo(name: str) -> bool:
    """Return whether a stack is a release of NeMo or of Megatron-Bridge, its successor."""
    return any(each.startswith("nemo-") for each in catalog.line_of(name))


def stack(cells: Cells, architecture: str) -> tuple[str, bool]:
    """Return the software of a training run ("" if not named), and whether it is a guess.

    The order of evidence is: the `framework` column; the source; then notes, locator and sharding, which count as a guess.
    Software without kernels for the chip is ignored: `fsdp` on a TPU says how states are sharded, not which framework shards
    them.
    """
    if re.match(r"(maxtext|paxml) \(jax\)", _text(cells, "notes")):  # the notes name the framework
        return _able("jax", cells, architecture), False
    for columns, guess in (("framework", False), ("source", False), ("notes source_locator zero_stage", True)):
        if (name := _first(words.STACKS, _text(cells, columns))) and (able := _able(name, cells, architecture)):
            return able, guess
    return "", False


def _able(name: str, cells: Cells, architecture: str) -> str:
    """Return the stack of a software family for the row's year and chip; "" if it has no kernels for the chip."""
    named = _generation(name, cells, architecture)
    if named in words.PROJECTS:
        named = of_year(named, year(cells) or _model_year(cells))
    return named if runs_on(named, architecture) else ""


def _generation(name: str, cells: Cells, architecture: str) -> str:
    """Resolve a software family to the stack of the row's year and chip."""
    prose, date = _text(cells, "notes framework"), year(cells) or max(typical_year(architecture), _model_year(cells))
    if architecture.startswith("cdna") and name in {"nvidia", "nemo-2025", "torch"}:
        return "rocm-primus-2025"
    if name == "jax":
        return "jax-maxtext-tpu" if architecture == "tpu" else "jax-gpu"
    if name == "deepspeed" or (name == "megatron-2021" and "zero3" in cells.get("zero_stage", "").replace("-", "")):
        return "deepspeed-2021" if date <= 2022 else "torch-fsdp-2023"
    if name == "torchtitan-2024":
        # Compilation is off by default; 8-bit products bring no gain without it.
        compiled = (told := affirms("compil", prose)) or (
            told is None and affirms("float8|fp8", f"{prose} {_text(cells, 'precision')}")
        )
        return name if compiled and not affirms("eager", prose) else "torchtitan-eager"
    if name in ("torch", "transformers"):
        compiled = affirms("compil", prose)
        own = "torchtitan-eager" if compiled is False or affirms(r"\beager\b", prose) else "torchtitan-2024"
        if date >= 2026 and (name == "transformers" or affirms("fsdp2", prose)):
            return "pytorch-fsdp2-2026" if own == "torchtitan-2024" else "pytorch-fsdp2-eager-2026"
        return own if date >= 2024 or compiled else "torch-fsdp-2023"
    return megatron(architecture, date) if name == "nvidia" else name


def _sharding_ranks(cells: Cells, domain: int) -> str:
    """Return the number of ranks that shard the states, from the text of a cell; "" if all ranks do.

    Examples are `zero1 inside groups of 8 GPUs (hybrid)`, `fsdp 256 inside slice x dp 4 over DCN` and `hsdp` (sharding within
    the scale-up `domain`).
    """
    prose = _text(cells, "zero_stage")
    if match := re.search(r"groups? of ([1-9]\d{0,8})", prose):
        return match[1]
    if match := re.search(r"fsdp[ -]?([1-9]\d{0,8})", prose):
        return match[1] if match[0] != "fsdp2" else ""  # FSDP version 2, not two ranks
    return str(max(domain // (_integer(cells, "tp") or 1), 1)) if affirms("hsdp", prose) else ""


def _recomputed(cells: Cells, fused: bool) -> tuple[str, str]:
    """Return (share of layers fully recomputed, share with recomputed attention core) from text; blank if it says nothing.

    The meaning of "selective" differs by source:

    - the attention core (Korthikanti et al.; nothing left to save if kernels are `fused`);
    - every other matrix product (torchtitan's `op`: half of the products, no attention, 0.4 of a layer);
    - everything but weight products (MaxText `minimal`: also the attention core);
    - norms and activations (MoE recipes: no products);
    - the whole MoE sublayer (0.6 of a layer).

    For a bare "selective" with both MFU and HFU printed, their ratio gives the share. `full-on-5-layers` means that many layers
    of every stage (Megatron's block method).
    """
    prose = _text(cells, "recompute")
    if not prose:
        return "", ""
    if (
        re.match(r"(none|no|off|false|not|without|w/o|disabled)\b", prose)
        or affirms(r"recomput|checkpoint", prose) is False
    ):
        return "0", ""
    if prose == "selective" and (share := _repeated_share(_text(cells, "other_metrics"))):
        return share, ""
    if match := re.search(r"full[- ]on[- ](\d{1,9})", prose):
        model = lookup("workloads", cells.get("model_name", ""))
        layers = _integer(cells, "layers") or (int(catalog.record("workloads", model).si("layers")) if model else 1)
        return _number(min(int(match[1]) * (_integer(cells, "pp") or 1) / layers, 1.0)), ""
    if match := re.search(r"(?:every|each) (other|[1-9]\d{0,8})", prose):
        return _number(1.0 / (2 if match[1] == "other" else int(match[1]))), ""
    layers, _, attention = (_first(words.RECOMPUTED, prose) or ("0 0" if fused else "0 1")).partition(" ")
    return layers, attention.removeprefix("0")


def _repeated_share(other_metrics: str) -> str:
    """Return the recomputed share of the forward pass, from the ratio of hardware to model FLOPs."""
    printed = dict(re.findall(r"(\w+)\s*=\s*([^;\s]+)", other_metrics))
    try:
        return _number(min(max(3.0 * (float(printed["hfu"]) / float(printed["mfu"]) - 1.0), 0.0), 1.0))
    except (KeyError, ValueError, ZeroDivisionError):
        return ""


def links_gbit_per_s(notes: str, gpus_per_node: int) -> float | None:
    """Return the scale-out bandwidth per chip stated in notes, in Gb/s; None if it is not stated.

    Bandwidth per node is divided by the chips: `4x200 Gb/s per node`, `800 Gb/s inter-node per node`, `400 Gb/s per GPU`, `8
    HDR IB per node`.
    """
    rates = {"edr": 100.0, "hdr": 200.0, "ndr": 400.0}
    for pattern, of_node in words.LINKS:
        if match := re.search(pattern, notes, re.I):
            total = float(match[1])
            for factor in match.groups()[1:]:
                total *= rates.get(factor.lower()) or float(factor)
            return total / gpus_per_node if of_node else total
    return None


def _offloaded(cells: Cells) -> str:
    """Return the share of kept activations that are offloaded to host memory."""
    if match := re.search(r"offload_layers=(\d{1,4})\b", _text(cells, "notes")):
        return _number(min(float(match[1]) / (_integer(cells, "layers") or 1), 1.0))
    # Only the layer input stays on the chip: a third of the activations kept with 0.85 of the products recomputed.
    return _number(2.0 / 3.0) if affirms("qkv_proj_offloaded", _text(cells, "recompute")) else ""


def _logit_bytes(cells: Cells) -> str:
    """Return the bytes per logit: 4 of the usual 14 for a compiled loss, the 16-bit output and its gradient.

    That torchtitan compiles the loss since 2025 is an inference.
    """
    printed = re.search(r"_(20\d\d)[01]\d_", cells.get("source_locator", ""))
    compiled = affirms("compil", _text(cells, "notes")) and "torchtitan" in _text(cells, "source")
    return "4" if compiled and printed and int(printed[1]) >= 2025 else ""


def _run(cells: Cells) -> dict[str, str]:
    """Return the cells implied by the text of a training run."""
    chip, date, notes = _chip(cells), year(cells), _text(cells, "notes")
    record = catalog.record("chips", chip) if chip else None
    architecture = str(record.text.get("architecture", "")) if record else ""
    domain = _integer(cells, "gpus_per_node") or (int(record.si("scale_up_domain", 8.0)) if record else 8)
    software, guess = stack(cells, architecture)
    columns = _any_row(cells, chip) | _matches(words.RUN, cells)
    used = entry("stacks", cells.get("stack") or software or training_stack(architecture, date))
    kernel = cells.get("attention_kernel") or columns["attention_kernel"]
    usual = "unfused" if used and catalog.record("stacks", used).si("attention_scores_stored") else "fused"
    again, attention_again = _recomputed(cells, (kernel or usual) == "fused")
    metric = METRICS.get(cells.get("measured_metric", ""))
    attention, _, hardware = (columns["flops_attention"] if metric and metric.flops else "").partition(" ")
    gbit = links_gbit_per_s(notes, min(domain, 8))
    guesses = ["stack"] if guess and not cells.get("stack") else []
    if not columns["number_format"] and record and _first(words.EIGHT_BIT, _text(cells, "source")):
        columns["number_format"] = next((name for name in ("fp8", "int8") if name in record.words("native")), "")
        guesses += ["precision"] * bool(columns["number_format"])
    return columns | {
        "year": str(date or ""),
        "stack": software,
        "assumed": " ".join(guesses),
        "zero_ranks": _sharding_ranks(cells, domain),
        "recompute_layers": again,
        "recompute_attention": attention_again,
        "offloaded_activations": _offloaded(cells),
        "logit_bytes": _logit_bytes(cells),
        "memory_formats": ",".join(f"{name}={word}" for name, word in _matches(words.MEMORY, cells).items() if word),
        "gradient_bytes": columns["gradient_bytes"] if _after_nemo(used or "") else "",
        "interleaved": "" if cells.get("vpp") else columns["interleaved"],
        "scale_out_gbit_per_s": _number(gbit) if gbit else "",
        "flops_attention": attention,
        "flops_recompute": hardware,
        "micro_batch": "" if re.search(r"micro-?batch size not stated", notes) else cells.get("micro_batch", ""),
    }


# Services ------------------------------------------------------------------------------------------------------------


def _service(cells: Cells) -> dict[str, str]:
    """Return the cells implied by the text of a service."""
    instance = re.match(r"trn(\d)", cells.get("gpu", ""), re.I)  # tables count its NeuronCores
    chip = lookup("chips", f"trainium{instance[1]}-core") if instance else _chip(cells)
    columns = _any_row(cells, chip) | _matches(words.SERVICE, cells)
    weights, keys = _format(cells, "weight_precision"), _format(cells, "kv_precision")
    assumed, products = [], ""
    if columns["kept_16_bit"]:  # gpt-oss: expert weights in 4 bit, products in 8 bit
        record = catalog.record("chips", chip) if chip else None
        hopper = record is not None and record.text.get("architecture") == "hopper"
        stated = {"weight_precision": weights, "kv_precision": keys}
        assumed = [*(name for name, written in stated.items() if not written), "mixed_formats"]
        products = "fp8" if record and "fp8" in record.words("native") and not hopper else "bf16"
        weights, keys = "fp4", "bf16" if hopper else keys
    options = "tensorrt-llm perf-overview" in _text(cells, "source")
    if (
        options
        and not columns["attention_data_parallel"]
        and _integer(cells, "moe_experts")
        and _integer(cells, "ep") > 1
    ):
        # The section on reproducing results sets `enable_attention_dp` for every MoE model, even where a table's header says
        # TP.
        columns["attention_data_parallel"] = "yes"
        assumed.append("attention_data_parallel")
    lengths = _integer(cells, "input_tokens"), _integer(cells, "output_tokens")
    inconsistent = affirms("inconsistent in source", _text(cells, "notes"))
    return columns | {
        "number_format": products,
        "weight_format": weights,
        "kv_format": keys,
        "requests": str(words.REQUESTS.get(lengths, "")) if options else "",
        "assumed": " ".join(assumed),
        "quality": "C" if inconsistent else cells.get("quality", ""),
    }


def _format(cells: Cells, column: str) -> str:
    """Return the number format in a cell, the first one of several; blank if unknown."""
    word = cells.get(column, "").split("/")[0].strip().lower()
    try:
        slot(word)
    except UserError:
        return ""
    return word


_INFERRED: dict[type[MeasuredRow], Callable[[Cells], dict[str, str]]] = {MeasuredRun: _run, MeasuredService: _service}


def write(path: str | Path, out: str | Path) -> None:
    """Write a table with its missing columns added.

    **Raises:** `UserError` for a table that cannot be read, or a file that cannot be written.
    """
    table = load(path)
    lacking = [name for name in inferred(table.kind) if name not in table.header]
    rows = [[*table.spelled, *lacking]]
    for _, cells in table.cells():
        complete(cells, table.kind, table.header)
        rows.append([cells.get(name, "") for name in (*table.header, *lacking)])
    try:
        with Path(out).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror or error}") from None


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m hwopt.calibration.measured.collected_text IN.csv OUT.csv")
    try:
        write(sys.argv[1], sys.argv[2])
    except UserError as error:
        sys.exit(str(error))
