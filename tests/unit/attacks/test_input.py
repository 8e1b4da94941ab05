"""Hostile input, each case once a traceback, a hang, a silent default or a null in the answer: now one line, exit 2."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.calibration.validation import SkipReason, validate
from hwopt.catalog.names import data_root
from hwopt.cli import app, main
from hwopt.errors import UserError
from tests.tiers import turn

GOOD = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip
ESTIMATE = {"--workload": "llama3.1-8b", "--chip": "h100-sxm", "--chips": "64", "--plan": "tp=8"}
MOE = {"num_experts": 8, "num_experts_per_tok": 2}


def estimate(**flags: str) -> list[str]:
    given = ESTIMATE | {"--" + name.replace("_", "-"): value for name, value in flags.items()}
    return ["estimate", "--json", *(part for pair in given.items() for part in pair)]


def assert_refused(arguments: list[str], capsys, *words: str) -> None:
    """Exit 2, one short line on standard error with the words, nothing on standard output."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and len(err) < 700 and err.rstrip("\n").isprintable()
    assert all(word in err for word in words), err


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"chips": "1e30"}, "chips"),
        ({"chips": "9" * 5000}, "chips"),
        ({"domain": "1e308"}, "domain"),
        ({"global_batch": "1e300"}, "global_batch"),
        ({"seq_len": "1e300"}, "sequence_length"),
        ({"tokens": "1e308"}, "tokens"),
        ({"mode": "serve", "plan": "tp=8,batch=4", "requests_per_s": "1.7e308"}, "requests_per_s"),
        ({"mode": "decode", "plan": "tp=8,batch=4", "drafted_tokens": "1.7e308"}, "drafted_tokens"),
        ({"scale_out_bytes_per_s": "1e-300"}, "scale_out"),
        ({"stack": ""}, "empty"),
        ({"plan": "x" * 100_000}, "plan"),
        ({"plan": "tp=" + "9" * 300}, "tp"),
        ({"workload": "\x1b[31mred"}, r"\x1b[31mred"),
        ({"workload": "\x00.toml"}, "cannot read"),
        ({"chip": "\x00.toml"}, "cannot read"),
        ({"workload": "a\x00.json"}, "cannot read"),
        ({"chip": "h100-sxm", "precision": "fp4"}, "fp4"),
        ({"chip": "a100-80", "precision": "fp8"}, "fp8"),
    ],
)
def test_absurd_flags_are_refused_in_one_line(flags, word, capsys):
    assert_refused(estimate(**flags), capsys, word)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_position_embeddings": 0}, {"max_position_embeddings": float("nan")}, {"max_position_embeddings": "8192"},
        {"max_position_embeddings": 0.5}, {"num_hidden_layers": 0.5}, {"hidden_size": 0.1}, {"intermediate_size": 0},
        {"num_attention_heads": 8.5}, MOE | {"mlp_only_layers": list(range(100))}, MOE | {"first_k_dense_replace": 100},
        MOE | {"moe_intermediate_size": 0}, MOE | {"moe_intermediate_size": 0, "shared_expert_intermediate_size": 3},
        {"model_type": "mpt", "attn_config": {"kv_n_heads": "x"}}, {"model_type": "mpt", "attn_config": [1]},
        {"model_type": "mpt", "attn_config": "x"},
    ],
)  # fmt: skip
def test_an_absurd_config_is_refused(changes, tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOD | changes))
    assert_refused(estimate(workload=str(path)), capsys)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "", '{"hidden_size": ' + "9" * 5000 + "}"])
def test_a_config_that_is_no_json_is_refused(text, tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(text)
    assert_refused(estimate(workload=str(path)), capsys, "config.json")


def test_byte_order_marks(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode())
    assert main(estimate(workload=str(path))) == 0
    capsys.readouterr()
    path.write_text(json.dumps(GOOD), encoding="utf-16")
    assert_refused(estimate(workload=str(path)), capsys, "UTF-16")


def test_null_is_not_suggested_for_itself(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOD | {"hidden_size": None}))
    with pytest.raises(UserError, match="'hidden_size' is null") as caught:
        catalog.transformer(path)
    assert "mean 'hidden_size'" not in str(caught.value)


def test_gemma_without_a_window_pattern(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOD | {"model_type": "gemma3", "sliding_window": 4, "sliding_window_pattern": 0}))
    assert 0.0 <= float(catalog.transformer(path).local_layers_fraction) <= 1.0


def own(kind: str, name: str, old: str, new: str, folder: Path) -> Path:
    """A shipped file with one change."""
    text = (data_root() / kind / f"{name}.toml").read_text(encoding="utf-8")
    assert old in text
    path = folder / "own.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    tomllib.loads(path.read_text(encoding="utf-8"))
    return path


@pytest.mark.parametrize("value", ["0", "1e300", "1e-300"])
@pytest.mark.parametrize("key", ["tdp", "sram", "memory_capacity", "memory_bandwidth", "scale_out_bandwidth"])
def test_a_chip_of_nothing_or_of_everything_is_refused(key, value, tmp_path, capsys):
    text = (data_root() / "chips" / "h100-sxm.toml").read_text(encoding="utf-8")
    stated = str(tomllib.loads(text)[key]["value"])
    lines = [
        line.replace(f"value = {stated}", f"value = {value}", 1) if line.startswith(f"{key} =") else line
        for line in text.splitlines()
    ]
    path = tmp_path / "own.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert f"value = {value}" in path.read_text()
    assert_refused(estimate(chip=str(path)), capsys, f"'{key}'")


@pytest.mark.parametrize(
    ("kind", "flag", "name", "key"),
    [
        ("chips", "chip", "h100-sxm", "scale_up_domain"),
        ("chips", "chip", "h100-sxm", "memory_stacks"),
        ("chips", "chip", "h100-sxm", "server_chips"),
        ("workloads", "workload", "llama3.1-8b", "layers"),
        ("workloads", "workload", "llama3.1-8b", "global_batch_sequences"),
        ("workloads", "workload", "llama3.1-8b", "sequence_length"),
    ],
)
def test_half_of_what_a_file_counts_is_refused(kind, flag, name, key, tmp_path, capsys):
    path = tmp_path / "own.toml"
    path.write_text(f"base = '{name}'\n{key} = 7.5\n")
    assert_refused(estimate(**{flag: str(path)}), capsys, f"'{key}' = 7.5 must be an integer")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("1e400", "outside the range"), ("-1e400", "outside the range"), ("1e-400", "outside the range"),
        ("9" * 400, "more than 255 digits"), ("0x" + "f" * 300, "more than 255 digits"), ("inf", "finite"), ("nan", "finite"),
        ("'1e400 W'", "outside the range"), ("'7_00 W'", "not a number"), ("'٧ W'", "not a number"), ("'7 USD'", "not a unit"),
    ],
)  # fmt: skip
def test_numbers_of_a_file_are_those_of_the_command_line(value, words, tmp_path, capsys):
    path = tmp_path / "own.toml"
    stated = value if value.startswith("'") else f"{{ value = {value}, unit = 'W' }}"
    path.write_text(f"base = 'h100-sxm'\ntdp = {stated}\n")
    assert_refused(estimate(chip=str(path)), capsys, words)


def test_toml_may_group_digits_itself(tmp_path, capsys):
    path = tmp_path / "own.toml"
    path.write_text("base = 'h100-sxm'\ntdp = {value = 7_00.5, unit = 'W'}\n")
    assert main(estimate(chip=str(path))) == 0
    assert capsys.readouterr().out


def test_a_misspelt_chip_family_is_refused(tmp_path, capsys):
    path = own("chips", "h100-sxm", 'architecture = "hopper"', 'architecture = "hoper"', tmp_path)
    assert_refused(estimate(chip=str(path)), capsys, "hopper")


def test_a_deeply_nested_toml_is_refused(tmp_path, capsys):
    path = tmp_path / "own.toml"
    path.write_text("a = " + "[" * 50_000)
    assert_refused(estimate(chip=str(path)), capsys, "own.toml")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["optimize", "--json", "nope"], "nope"),
        (["optimize", "--power-budget-w", "5e7", "nope"], "nope"),
        (["optimize", "--power-budget-w=5e7", "nope"], "nope"),
        (["optimize", "--", "nope"], "nope"),
        (["optimize", "-"], "design question"),
        (["optimize", "--seed", "-1"], "--seed"),
        (["--json", "catalog"], "after its command"),
        (["catalog", "chips", "h100-sxm", "extra"], "an unexpected argument"),
        (["validate", "a\x00b.csv"], "cannot be read"),
    ],
)
def test_misplaced_arguments_are_never_ignored(arguments, word, capsys):
    assert_refused(arguments, capsys, word)


@pytest.mark.parametrize(
    "fields",
    [
        {"power_budget_w": "a"}, {"power_budget_w": True}, {"power_budget_w": np.True_}, {"power_budget_w": None},
        {"power_budget_w": 10**400}, {"power_budget_w": float("nan")}, {"power_budget_w": -1}, {"chip": 3}, {"powr": 1},
    ],
)  # fmt: skip
def test_objectives_refuse_wrong_fields(fields):
    with pytest.raises(UserError):
        hwopt.objective("train_cost", **fields)


@pytest.mark.parametrize("name", [None, 3, [], ""])
def test_objectives_refuse_names_that_are_none(name):
    with pytest.raises(UserError):
        hwopt.objective(name)


@pytest.mark.parametrize("number", [np.float32(5e7), np.float64(5e7), np.int64(50_000_000), 50_000_000])
def test_objectives_take_numbers_of_every_kind(number):
    assert hwopt.objective("train_cost", power_budget_w=number).power_budget_w == 5e7


def _rows() -> list[dict[str, str]]:
    with (data_root() / "runs" / "train.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _file(rows: list[dict[str, str]], folder: Path) -> Path:
    path = folder / "runs.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize("column", ["layers", "hidden", "seq_len", "expert_tp", "micro_batch", "measured_value"])
@pytest.mark.parametrize("value", ["1e300", "1e18"])
def test_absurd_cells_are_refused(column, value, tmp_path, capsys):
    path = _file([_rows()[0] | {column: value}], tmp_path)
    assert_refused(["validate", str(path)], capsys, f"'{column}'", "line 2")


@pytest.mark.parametrize(
    ("seed", "count"),
    [(turn(), 60), pytest.param(0, 600, marks=pytest.mark.search)],
    ids=["a few of this turn", "many"],
)
def test_hostile_words_and_random_damage_leave_every_row_accounted_for(seed, count, tmp_path):
    table = _rows()
    random = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        row = dict(table[random.integers(len(table))])
        for _ in range(random.choice([1, 2, 4])):
            column = random.choice(list(row))
            row[column] = "" if random.random() < 0.5 else table[random.integers(len(table))][column]
        rows.append(row | {"id": f"damaged-{i}"})
    digits = "9" * 5000
    words = {
        "recompute": ("every 0 layers", "every 0", f"every {digits}", f"full on {digits}", "full-on-0-layers"),
        "zero_stage": (f"groups of {digits}", "groups of 0", "fsdp 0", f"fsdp {digits}", "zero9"),
        "notes": (f"{digits} Gb/s per GPU", f"container v{digits}.1", "0x0 Gb/s per node", "0 Gb/s per GPU"),
        "source_locator": (f"container v{digits}.1", "(2024-99-99)"),
        "expert_tp": ("1000000000", "3"),
    }
    hostile = [{column: word} for column, each in words.items() for word in each]
    rows += [table[0] | {"id": f"hostile-{i}"} | each for i, each in enumerate(hostile)]
    result = validate(_file(rows, tmp_path))
    json.dumps(result, allow_nan=False)
    reasons = {str(reason) for reason in SkipReason}
    for row in result["rows"]:
        accounted = (row["status"] == "scored" and row["predicted"] > 0) or row["reason"] in reasons
        assert accounted, f"seed {seed}: {row}"
    summary = result["summary"]
    assert summary["scored"] + summary["skipped"] == summary["rows"] == len(rows)


def test_nothing_scored_gives_nulls(tmp_path, capsys):
    path = _file([row | {"gpu": "Zork 9"} for row in _rows()[:5]], tmp_path)
    assert main(["validate", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["median_abs_error"] is None
    assert main(["validate", str(path)]) == 0


def _console(*arguments: str, stdout=subprocess.PIPE, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "hwopt.cli", *arguments]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=os.environ | environment, check=False)


def test_a_name_the_terminal_cannot_print(tmp_path, monkeypatch):
    path = tmp_path / "é.json"
    path.write_text(json.dumps(GOOD))
    terminals, codes = [io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2)], []
    monkeypatch.setattr(sys, "argv", ["hwopt", *(each for each in estimate(workload=str(path)) if each != "--json")])
    for name in ("_watch_signals", "_open_standard_files"):
        monkeypatch.setattr(app, name, lambda: None)
    monkeypatch.setattr(app, "_end", codes.append)
    monkeypatch.setattr(app.gc, "set_threshold", lambda *_: None)
    with contextlib.redirect_stdout(terminals[0]), contextlib.redirect_stderr(terminals[1]):
        app.entry()
    said, errors = (each.flush() or each.buffer.getvalue() for each in terminals)
    assert codes == [0] and errors == b"" and b"\\xe9.json" in said


@pytest.mark.search
def test_a_damaged_cache_is_silent(tmp_path):
    given = [part for pair in ESTIMATE.items() for part in pair]
    for _ in range(2):
        done = _console("estimate", *given, XDG_CACHE_HOME=str(tmp_path))
        assert done.returncode == 0 and done.stderr == b""
        for path in tmp_path.rglob("*"):
            if path.is_file():
                path.write_bytes(b"garbage")
