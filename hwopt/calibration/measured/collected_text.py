"""Columns of measured runs out of prose: the only place where words of sources, notes and names are searched.

`python -m hwopt.calibration.measured.collected_text IN.csv OUT.csv` writes into a table the columns that it lacks, as its own
text tells them; `hwopt validate` does the same in memory. A table that has the columns is taken at its word: nothing is searched.
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
from hwopt.calibration.measured.stacks import megatron, runs_on, training_stack, typical_year
from hwopt.calibration.measured.table import load
from hwopt.catalog.chips import slot
from hwopt.errors import UserError

Cells = Mapping[str, str]
"""Text of a row's cells by column."""

_TEXTS = 4096
"""Texts whose words are remembered: rows of a source share its notes."""

_CORRECTED = ("micro_batch", "quality", "seq_parallel", "config_complete")
"""Columns of collected tables whose cells their notes overrule, or that hold other words than yes and no."""


def complete(cells: dict[str, str], kind: type[MeasuredRow], present: Iterable[str]) -> set[str]:
    """Fills in the columns that a table lacks, as the row's words tell them.

    **Arguments:** `cells` of a row, changed in place; `kind` of row; columns `present` in the file: where all that can be
    inferred are, nothing is done.

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
    """Words that make no sense as a cell state nothing."""
    try:
        return not value or read(value) is not None
    except ValueError:
        return False


def _text(cells: Cells, names: str) -> str:
    return " | ".join(cells.get(name, "") for name in names.split()).lower()


def _integer(cells: Cells, name: str) -> int:
    """The integer in a cell, 0 where it holds none."""
    cell = cells.get(name, "").removesuffix(".0")
    return int(cell) if cell.isdigit() and len(cell) < 16 else 0


def _number(value: float) -> str:
    """A number as a cell, exactly."""
    return repr(value).removesuffix(".0")


@lru_cache(_TEXTS)
def _first(rules: Iterable[tuple[str, str]], text: str) -> str:
    return next((cell for pattern, cell in rules if affirms(pattern, text)), "")


def _matches(rules: Iterable[words.Rule], cells: Cells) -> dict[str, str]:
    """What rules say by column, blank where none matches."""
    return dict(_told(rules, tuple(_text(cells, names) for names in _places(rules))))


@cache
def _places(rules: Iterable[words.Rule]) -> tuple[str, ...]:
    """Where rules look for their words, each once."""
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
    re.compile(r"\b(?!40)\d+ ?gi?b\b", re.I),  # an A100 of 40 GB stays one
)
"""What tables print beside an accelerator's name: its maker, form factor and memory."""


@cache
def accelerator(name: str) -> str | None:
    """Slug of the accelerator that a row counts, however it is printed.

    The name as it stands, then without its maker, form factor and memory. Tables of Trainium count NeuronCores,
    `Trainium1 (NeuronCore-v2; ...)`.
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
    """Slug of a catalogue entry under any spelling, also with what the model was used for; None where there is none."""
    plain = re.sub(r"\([^)]*\)", " ", name).replace("_", "-")  # `llama3-70b (12-layer slice)`, `LLAMA3_70B (lora)`
    bare = re.sub(r"[\s-]+$", "", _TUNING.sub(" ", plain)).strip()
    squeeze = lambda text: re.sub(r"[^a-z0-9.]", "", text.lower())
    alike = (slug for slug in catalog.names(kind) if squeeze(slug) == squeeze(bare))
    return entry(kind, name) or entry(kind, bare) or next(alike, None)


def _chip(cells: Cells) -> str | None:
    return entry("chips", cells.get("chip", "")) or accelerator(cells.get("gpu", ""))


def _any_row(cells: Cells, chip: str | None) -> dict[str, str]:
    """What the words of a row of any kind say; `chip`: the accelerator's slug."""
    name, gpu = cells.get("model_name", ""), cells.get("gpu", "")
    model = lookup("workloads", name)
    return _matches(words.ANY, cells) | {
        "release": _release(cells.get("source_locator", ""), cells.get("notes", "")),
        "workload": model if model and model != entry("workloads", name) else "",
        "chip": chip if chip and chip != entry("chips", gpu) else "",
    }


def _release(locator: str, notes: str) -> str:
    """Software release that a source prints: from its place, else its notes, else the date of the printed table."""
    numbered = r"(?:container|release|section)\s+v?(\d{1,9}(?:\.\d{1,9})+)|\b(\d\d\.\d\d(?:\.\d{1,9})?)\s+container"
    version = re.search(numbered, locator, re.I) or re.search(numbered, notes, re.I)
    dated = re.search(r"\((20\d\d)-(\d\d)-(\d\d)\)", locator)
    return (version[1] or version[2]) if version else ".".join(dated.groups()) if dated else ""


# Training runs -------------------------------------------------------------------------------------------------------


def year(cells: Cells) -> int:
    """Year of the software: the column, else the first date in source, place and notes; 0 where there is none."""
    return _integer(cells, "year") or _dated(_text(cells, "source source_locator notes"))


@lru_cache(_TEXTS)
def _dated(text: str) -> int:
    dates = (base + int(match[1]) for pattern, base in words.YEARS if (match := re.search(pattern, text)))
    return next(dates, 0)


def stack(cells: Cells, architecture: str) -> tuple[str, bool]:
    """(software that ran a training row, "" where no word names it; whether it is a guess).

    Order: the row's `framework` column; words of the source; words of the notes, of the place and of the sharding, which are a
    guess. The chip stands above all of them: words that name software which has no kernels for it (`fsdp` beside a TPU) say
    how states are split, not who splits them.
    """
    if re.match(r"(maxtext|paxml) \(jax\)", _text(cells, "notes")):  # a table of several frameworks names each row's
        return _able("jax", cells, architecture), False
    for columns, guess in (("framework", False), ("source", False), ("notes source_locator zero_stage", True)):
        if (name := _first(words.STACKS, _text(cells, columns))) and (able := _able(name, cells, architecture)):
            return able, guess
    return "", False


def _able(name: str, cells: Cells, architecture: str) -> str:
    """The stack of a family's year and chip; "" where it has no kernels for the chip."""
    named = _generation(name, cells, architecture)
    return named if runs_on(named, architecture) else ""


def _generation(name: str, cells: Cells, architecture: str) -> str:
    """A family of stacks to the one of its year and chip."""
    prose, date = _text(cells, "notes framework"), year(cells) or typical_year(architecture)
    if architecture.startswith("cdna") and name in {"nvidia", "nemo-2025", "torch"}:
        return "rocm-primus-2025"
    if name == "jax":
        return "jax-maxtext-tpu" if architecture == "tpu" else "jax-gpu"
    if name == "deepspeed" or (name == "megatron-2021" and "zero3" in cells.get("zero_stage", "").replace("-", "")):
        return "deepspeed-2021" if date <= 2022 else "torch-fsdp-2023"
    if name == "torchtitan-2024":
        # Compilation is off unless a run switches it on; 8-bit products are of no use without.
        compiled = (told := affirms("compil", prose)) or (
            told is None and affirms("float8|fp8", f"{prose} {_text(cells, 'precision')}")
        )
        return name if compiled and not affirms("eager", prose) else "torchtitan-eager"
    if name == "torch":
        return "torchtitan-2024" if date >= 2024 or affirms("compil", prose) else "torch-fsdp-2023"
    return megatron(architecture, date) if name == "nvidia" else name


def _sharding_ranks(cells: Cells, domain: int) -> str:
    """Ranks that share the states by words such as `zero1 inside groups of 8 GPUs (hybrid)`, `fsdp 256 inside slice x dp 4
    over DCN`, `hsdp` (the scale-up `domain`); "" where all do.
    """
    prose = _text(cells, "zero_stage")
    if match := re.search(r"groups? of ([1-9]\d{0,8})", prose):
        return match[1]
    if match := re.search(r"fsdp[ -]?([1-9]\d{0,8})", prose):
        return match[1] if match[0] != "fsdp2" else ""  # the second FSDP, not two ranks
    return str(max(domain // (_integer(cells, "tp") or 1), 1)) if affirms("hsdp", prose) else ""


def _recomputed(cells: Cells, fused: bool) -> tuple[str, str]:
    """(share of layers recomputed whole, share whose attention core is) by words; blanks where there are none.

    "selective" differs by source: the attention core (Korthikanti et al., nothing left to save where kernels are `fused`);
    every other matrix product (torchtitan's `op`: half of the products, no attention, 0.4 of a layer); everything but
    weight products (MaxText `minimal`: the core again); norms and activations (MoE recipes: no products); the whole
    MoE sublayer (0.6 of a layer). A bare "selective" with both MFU and HFU printed gives its share away.
    `full-on-5-layers`: that many layers of every stage (Megatron's block method).
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
    """Share of the forward pass that runs again, by the ratio of hardware to model FLOPs."""
    printed = dict(re.findall(r"(\w+)\s*=\s*([^;\s]+)", other_metrics))
    try:
        return _number(min(max(3.0 * (float(printed["hfu"]) / float(printed["mfu"]) - 1.0), 0.0), 1.0))
    except (KeyError, ValueError, ZeroDivisionError):
        return ""


def links_gbit_per_s(notes: str, gpus_per_node: int) -> float | None:
    """Scale-out bandwidth a chip that notes state, Gb/s; None where they do not.

    It is a property of the node: `4x200 Gb/s per node`, `800 Gb/s inter-node per node`, `400 Gb/s per GPU`, `8 HDR IB per
    node`.
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
    """Share of kept activations in host memory."""
    if match := re.search(r"offload_layers=(\d{1,4})\b", _text(cells, "notes")):
        return _number(min(float(match[1]) / (_integer(cells, "layers") or 1), 1.0))
    # Only a layer's input stays: a third of what 0.85 of its products recomputed would keep.
    return _number(2.0 / 3.0) if affirms("qkv_proj_offloaded", _text(cells, "recompute")) else ""


def _logit_bytes(cells: Cells) -> str:
    """A compiled loss leaves the 16-bit output and its gradient of 14 bytes; that it is since 2025 is inferred."""
    printed = re.search(r"_(20\d\d)[01]\d_", cells.get("source_locator", ""))
    compiled = affirms("compil", _text(cells, "notes")) and "torchtitan" in _text(cells, "source")
    return "4" if compiled and printed and int(printed[1]) >= 2025 else ""


def _run(cells: Cells) -> dict[str, str]:
    """What the words of a training run say."""
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
        "interleaved": "" if cells.get("vpp") else columns["interleaved"],
        "scale_out_gbit_per_s": _number(gbit) if gbit else "",
        "flops_attention": attention,
        "flops_recompute": hardware,
        "micro_batch": "" if re.search(r"micro-?batch size not stated", notes) else cells.get("micro_batch", ""),
    }


# Services ------------------------------------------------------------------------------------------------------------


def _service(cells: Cells) -> dict[str, str]:
    """What the words of a service say."""
    instance = re.match(r"trn(\d)", cells.get("gpu", ""), re.I)  # its NeuronCores are counted
    chip = lookup("chips", f"trainium{instance[1]}-core") if instance else _chip(cells)
    columns = _any_row(cells, chip) | _matches(words.SERVICE, cells)
    weights, keys = _format(cells, "weight_precision"), _format(cells, "kv_precision")
    assumed, products = [], ""
    if columns["kept_16_bit"]:  # gpt-oss: experts in 4 bit, which multiply in 8
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
        # Its section on reproducing results sets `enable_attention_dp` for every MoE model, also where a table's head says TP.
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
    """The number format in a cell, the first where it names several; blank where it names none that is known."""
    word = cells.get(column, "").split("/")[0].strip().lower()
    try:
        slot(word)
    except UserError:
        return ""
    return word


_INFERRED: dict[type[MeasuredRow], Callable[[Cells], dict[str, str]]] = {MeasuredRun: _run, MeasuredService: _service}


def write(path: str | Path, out: str | Path) -> None:
    """Writes a table with the columns that it lacks.

    **Raises:** `UserError` for a table that cannot be read, and a file that cannot be written.
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
