"""Logs of training software and of serving benchmarks as rows of measured runs.

A log of a training run is one row. Its step time is the median of the steady state:

1. A start or restart begins at the first step, where the step counter falls, and where the software prints its settings again.
   The first `WARM_UP` of its steps, and at least `LEAST_WARM_UP`, are dropped.
2. A step that is printed again after a restart counts once: the last time.
3. Steps farther from the median than `OUTLIER` median absolute deviations (checkpoints, evaluations) are dropped.
4. At least `LEAST_STEPS` steps must remain.

A line is a step, also where the software prints the mean of several. An unfinished last line is ignored. A Hugging Face log
without progress lines states the mean of the whole run only, warm-up included; that mean is then the measurement.

A log of a serving benchmark is one row for each result in it.
"""

import json
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from hwopt.calibration.measured.columns import MeasuredRow, MeasuredRun, MeasuredService
from hwopt.errors import UserError

WARM_UP, LEAST_WARM_UP = 0.1, 2
"""Share and least number of steps after each start that are dropped."""

OUTLIER = 3.0
"""Distance from the median in median absolute deviations above which a step is dropped."""

LEAST_STEPS = 5
"""Minimum number of steady steps."""

_LEAST_DEVIATION = 0.005
"""Minimum of the median absolute deviation relative to the median: times are printed in three or four digits."""

MOST_CHARACTERS = 64 << 20
"""Maximum length of a log: hundreds of thousands of steps."""

_LONGEST = 2_000
"""Maximum number of characters of a line that is read; longer lines contain data, not metrics."""

_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NOT_A_NUMBER = re.compile(r"loss['\"]?\s*[:=]\s*['\"]?(?:nan|inf)\b", re.IGNORECASE)
_UNSTATED = ("none", "null", "not", "inf", "")


class LogFormat(NamedTuple):
    """Format of a log. Patterns are searched line by line; group `value` is the value, group `step` the number of a step."""

    name: str
    kind: type[MeasuredRow]
    mark: str  # pattern of a line that only this format has
    measured: tuple[
        tuple[str, str, float], ...
    ]  # metric, pattern of its lines, unit of the value; the first that suffices counts
    facts: Mapping[
        str, str
    ]  # column or input of `derived` -> pattern of its value (group 1); column=value -> pattern that means it
    derived: Callable[[dict[str, str]], dict[str, str]]  # facts -> columns
    start: str = r"(?!)"  # pattern of a line that is printed once, at each start


def _argument(name: str, value: str = r"([^\s,]+)") -> str:
    """Return the pattern of an argument as Megatron-LM (dots), Megatron-Bridge and MaxText (colon) print it."""
    return rf"(?<![\w.-]){name}(?:: | \.* ?){value}"


def _of_megatron(facts: dict[str, str]) -> dict[str, str]:
    if facts.pop("grouped", "") != "True":
        facts["kv_heads"] = ""
    experts, topk, ffn = facts.get("moe_experts", ""), facts.pop("moe_topk", ""), facts.pop("expert_ffn", "")
    sparse = {"moe_topk": topk, "ffn": ffn or facts.get("ffn", "")} if experts else {}
    return {"vpp": "1" if "pp" in facts else ""} | facts | sparse


def _of_torchtitan(facts: dict[str, str]) -> dict[str, str]:
    length = float(facts.get("seq_len") or 0.0) or math.inf
    for name, tokens in (("global_batch_sequences", "step_tokens"), ("micro_batch", "rank_tokens")):
        if count := facts.pop(tokens, ""):
            facts[name] = f"{int(count) / length:g}"
    replicas = _product(facts.pop("dp_replicate", ""), facts.pop("dp_shard", ""))
    return facts | {
        "dp": replicas,
        "num_gpus": _product(replicas, *(facts.get(name, "") for name in ("pp", "cp", "tp"))),
    }


def _product(*counts: str) -> str:
    return str(math.prod(map(int, counts))) if all(counts) else ""


def _of_service(facts: dict[str, str]) -> dict[str, str]:
    """Return the columns of a service: mean lengths, and the mean number of requests at once, at most the stated maximum."""
    done, rate = float(facts.get("requests") or 0.0), facts.pop("rate", "inf").lower()
    for name in ("input_tokens", "output_tokens"):
        facts[name] = f"{float(facts.get(name) or 0.0) / done:.6g}" if done else ""
    most, mean = facts.pop("most", ""), facts.pop("mean", "")
    return facts | {"batch": mean or most or ("max" if rate == "inf" else "")}


def _printed(*names: str) -> str:
    """Return the pattern of a result that is printed after one of several names, or read from JSON."""
    return rf"^\W*(?:{'|'.join(names)}):\s+(\d[\d,]{{0,15}}(?:\.\d{{0,15}})?|inf)(?!\S)"


_SERVING = {
    "model_name": r"(?:^\W*model_id: |\bmodel=')([^',\s]+)",
    "requests": _printed("Successful requests", "completed"),
    "input_tokens": _printed("Total input tokens", "total_input_tokens"),
    "output_tokens": _printed("Total (?:generated|output) tokens", "total_output_tokens"),
    "most": _printed("Max(?:imum)? request concurrency", "max_concurrency"),
    "mean": _printed("Concurrency", "concurrency"),
    "rate": _printed("Traffic request rate", r"Request rate configured \(RPS\)", "request_rate"),
}
_OUTPUT = (
    "output_tokens_per_s",
    r"^\W*(?:Output token throughput \(tok/s\)|output_throughput):\s+(?P<value>[^\s,]+)",
    1.0,
)

_BLOCK = "Serving Benchmark Result"
"""Title of a printed result of a serving benchmark."""

FORMATS = (
    LogFormat(
        "Megatron-LM or Megatron-Bridge", MeasuredRun, r"elapsed time per iteration \(ms\):",
        (("iter_time_s", r"iteration\s+(?P<step>\d{1,12})/.*?elapsed time per iteration \(ms\):\s*(?P<value>[^\s|]+)", 1e-3),),
        {column: _argument(name) for column, name in {
            "num_gpus": "world_size", "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size",
            "cp": "context_parallel_size", "ep": "expert_model_parallel_size", "expert_tp": "expert_tensor_parallel_size",
            "vpp": "virtual_pipeline_model_parallel_size", "dp": "data_parallel_size", "seq_len": "seq_length",
            "global_batch_sequences": "global_batch_size", "micro_batch": "micro_batch_size", "layers": "num_layers",
            "hidden": "hidden_size", "ffn": "ffn_hidden_size", "expert_ffn": "moe_ffn_hidden_size",
            "heads": "num_attention_heads", "kv_heads": "num_query_groups", "grouped": "group_query_attention",
            "head_dim": "kv_channels", "vocab": "padded_vocab_size", "moe_experts": "(?:num_experts|num_moe_experts)",
            "moe_topk": "moe_router_topk", "recompute": "recompute_granularity", "seq_parallel": "sequence_parallel",
        }.items()} | {
            "zero=1": _argument("use_distributed_optimizer", "True"), "number_format=bf16": _argument("bf16", "True"),
            "number_format=fp8": _argument("fp8", r"(?!None|null|False)\w"),
        },
        _of_megatron, r"-- arguments --",
    ),
    LogFormat(
        "torchtitan", MeasuredRun, r"\bstep:.*\btps:",
        (("tokens_per_s_per_gpu", r"(?<!validate )\bstep:\s*(?P<step>\d{1,12})\s.*?\btps:\s*(?P<value>\S+)", 1.0),),
        {
            "gpu": r"capacity: (.+?) with [\d.]+GiB", "model_name": r"Building ((?:\w+[\d.]|gpt_oss)\S* \d\S*)",
            **{name: rf"parallelism:.*\b{name}=(\d{{1,9}})\b" for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")},
            "seq_len": r"(?:maximum context length|sequence length) (\d{1,12})\b", "micro_batch": r"local batch size (\d+)",
            "global_batch_sequences": r"global batch size (\d+)", "step_tokens": r"(\d{1,15}) tokens per train step",
            "rank_tokens": r"(\d{1,15}) tokens per DP rank",
        },
        _of_torchtitan, r"Trainer is initialized",
    ),
    LogFormat(
        "MaxText", MeasuredRun, r"completed step: \d+, seconds:",
        (("step_time_s", r"completed step: (?P<step>\d{1,12}), seconds: (?P<value>[^\s,]+)", 1.0),),
        {
            "num_gpus": r"Num_devices: (\d+)",
            **{column: rf"Config param {name}: ([^\s,]+)" for column, name in {
                "model_name": "model_name", "seq_len": "max_target_length",
                "global_batch_sequences": "global_batch_size_to_train_on", "tp": "ici_tensor_parallelism",
                "pp": "ici_pipeline_parallelism", "cp": "ici_context_parallelism", "ep": "ici_expert_parallelism",
            }.items()},
            "number_format=bf16": "Config param dtype: bfloat16", "number_format=int8": "Config param quantization: '?int8",
            "number_format=fp8": r"Config param quantization: '?\w*fp8", "recompute": r"Config param remat_policy: (full)\b",
        },
        dict, r"Num_devices: \d",
    ),
    LogFormat(
        "Hugging Face Trainer", MeasuredRun, r"'loss': |train_samples_per_second|^is_hyper_param_search: ",
        (
            ("iter_time_s", r"\b(?P<step>\d{1,12})/\d+ \[[^\]]*?,\s*(?P<value>[\d.]+)s/it", 1.0),
            ("samples_per_s", r"train_samples_per_second['\"]?:\s*['\"]?(?P<value>[^\s,'\"}]+)", 1.0),
        ),
        {
            "global_batch_sequences": r"Total train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]+)",
            "micro_batch": r"Instantaneous batch size per device = ([\d,]+)",
        },
        dict, r"\*+ Running training \*+",
    ),
    LogFormat("SGLang benchmark", MeasuredService, r"Traffic request rate:|^(?:total_input_text_tokens|input_throughput): ",
              (_OUTPUT,), _SERVING, _of_service),
    LogFormat("vLLM benchmark", MeasuredService, rf"{_BLOCK}|^(?:total_token_throughput): ",
              (_OUTPUT,), _SERVING, _of_service),
)  # fmt: skip
"""Formats that are recognized, in the order in which they are tried."""


LogTable = tuple[LogFormat, list[tuple[int, dict[str, str]]]]
"""Format of a log, and its rows: the last line of each, and its cells by column."""


def log_table(text: str) -> LogTable | None:
    """Return the rows of a log; None for a text in another format.

    **Raises:** `UserError` for a log without enough steps, with a loss that is not a number, or with settings that change.
    """
    lines = _lines(text[:MOST_CHARACTERS])
    read = "\n".join(line for _, line in lines)
    found = next((each for each in FORMATS if re.search(each.mark, read, re.MULTILINE)), None)
    if found is None:
        return None
    if len(text) > MOST_CHARACTERS:
        raise UserError(f"log of {found.name}: has more than {MOST_CHARACTERS >> 20} million characters; cut it")
    if found.kind is MeasuredRun:
        return found, [_row(found, lines)]
    starts = [i for i, (_, line) in enumerate(lines) if _BLOCK in line or line == _RECORD]
    ends = [*starts[1:], len(lines)]
    before = lines[: starts[0]] if starts else []
    blocks = [before + lines[start:end] for start, end in zip(starts, ends, strict=True)]
    return found, [_row(found, block) for block in blocks]


_RECORD = "{"
"""Line before the entries of a JSON object."""


def _lines(text: str) -> list[tuple[int, str]]:
    """Return the numbered lines of a log without colors, those of JSON as `key: value`. An unfinished last line is left out."""
    if text.lstrip().startswith("{"):
        records: list[Any] = []
        for part in (text,) if "\n{" not in text.strip() else text.splitlines():
            try:
                records.append(json.loads(part))
            except (ValueError, RecursionError):  # an unfinished last line, or a log whose first line is a dictionary
                continue
        if records:
            return [(i + 1, line) for i, each in enumerate(records) for line in (_RECORD, *_entries(each))]
    whole = text[: max(text.rfind("\n"), text.rfind("\r")) + 1]
    numbered = enumerate(_COLORS.sub("", whole).replace("\r\n", "\n").split("\n"), 1)
    return [(i, part) for i, line in numbered for part in line.split("\r") if len(part) <= _LONGEST]


def _entries(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the scalars of a JSON value as `key: value`; lists of numbers and texts are left out."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in parts:
        if isinstance(each, (dict, list)) and depth < 3:
            yield from _entries(each, depth + 1)
        elif isinstance(value, dict) and not isinstance(each, (dict, list)):
            yield f"{key}: {each}"


def _row(of: LogFormat, lines: list[tuple[int, str]]) -> tuple[int, dict[str, str]]:
    """Return the last line of a run and its cells by column."""
    if wrong := next((i for i, line in lines if _NOT_A_NUMBER.search(line)), 0):
        raise UserError(f"line {wrong}: the loss is not a number; measure a run that learns")
    cells = of.derived(_facts(of, lines))
    fewest = 0
    for metric, pattern, unit in of.measured:
        series = "(?P<step>" in pattern
        values = _steady(lines, re.compile(pattern), re.compile(of.start)) if series else _last(lines, pattern)
        if len(values) >= (LEAST_STEPS if series else 1):
            measured = {"measured_metric": metric, "measured_value": f"{unit * statistics.median(values):.6g}"}
            return lines[-1][0], {name: cell for name, cell in cells.items() if cell} | measured
        fewest = max(fewest, len(values))
    raise UserError(
        f"log of {of.name}: {fewest} steady steps after warm-up and outliers; at least {LEAST_STEPS} are needed"
        if of.kind is MeasuredRun
        else f"log of {of.name}: no throughput of output tokens; was the file cut off?"
    )


def _facts(of: LogFormat, lines: list[tuple[int, str]]) -> dict[str, str]:
    """Return the settings that a log states; those written as none are left out.

    **Raises:** `UserError` for a setting that differs between restarts.
    """
    found: dict[str, tuple[int, str]] = {}
    for name, pattern in of.facts.items():
        search = re.compile(pattern).search
        for i, line in lines:
            if not (match := search(line)):
                continue
            value = name.partition("=")[2] or match[1].strip().strip("'\"").replace(",", "")
            first, before = found.setdefault(name, (i, value))
            if value != before:
                raise UserError(
                    f"lines {first} and {i}: {name} is {before}, then {value}; cut the log into one run each"
                )
    stated = {name.partition("=")[0]: value for name, (_, value) in found.items()}
    return {name: value for name, value in stated.items() if value.lower() not in _UNSTATED or name == "rate"}


def _last(lines: list[tuple[int, str]], pattern: str) -> list[float]:
    """Return the last value of a pattern, as a list of at most one number."""
    matches = [(i, match["value"]) for i, line in lines if (match := re.search(pattern, line))]
    return [_number(*each) for each in matches[-1:]]


def _number(line: int, text: str) -> float:
    """Return a positive, finite number. **Raises:** `UserError` for anything else."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = math.nan
    if not 0.0 < value < math.inf:
        raise UserError(f"line {line}: '{text[:40]}' is not a measured time or rate")
    return value


def _steady(lines: list[tuple[int, str]], step: re.Pattern[str], start: re.Pattern[str]) -> list[float]:
    """Return the values of steady steps, by the rule of this module."""
    runs: list[dict[int, float]] = [{}]
    for i, line in lines:
        if start.search(line) and runs[-1]:
            runs.append({})
        if match := step.search(line):
            number = int(match["step"])
            if runs[-1] and number < max(runs[-1]):
                runs.append({})
            runs[-1][number] = _number(i, match["value"])
    steady: dict[int, float] = {}
    for run in runs:
        warm_up = max(LEAST_WARM_UP, math.ceil(WARM_UP * len(run)))
        first = min(run, default=0)
        steady = {number: value for number, value in steady.items() if number < first}
        steady |= dict(sorted(run.items())[warm_up:])
    if not steady:
        return []
    middle = statistics.median(steady.values())
    deviation = statistics.median(abs(value - middle) for value in steady.values())
    most = OUTLIER * max(deviation, _LEAST_DEVIATION * middle)
    return [value for value in steady.values() if abs(value - middle) <= most]
