"""Shipped tables state in columns what their text says: both are read as the same rows, so both are predicted alike."""

from __future__ import annotations

import copy
import csv
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from hwopt.calibration.measured.collected_text import write
from hwopt.calibration.measured.columns import MeasuredRun, MeasuredService, columns_of, columns_text, inferred
from hwopt.calibration.measured.rows import read
from hwopt.calibration.measured.table import load
from hwopt.calibration.validation import validate
from tests.measured import validated

RUNS = Path(str(files("hwopt") / "data" / "runs"))
TABLES = ("train", "train_single_node", "memory", "out_of_memory", "inference")


@pytest.fixture(scope="module", params=TABLES)
def both(request, tmp_path_factory):
    """A shipped table, and the same without the columns that are inferred from its text."""
    shipped = RUNS / f"{request.param}.csv"
    text = tmp_path_factory.mktemp("text") / shipped.name
    with shipped.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    left_out = inferred(load(shipped).kind)
    names = [name for name in rows[0] if name not in left_out]
    with text.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return shipped, text


def test_the_columns_of_a_shipped_table_are_those_of_its_text(both, tmp_path):
    shipped, text = both
    write(text, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text(encoding="utf-8") == shipped.read_text(encoding="utf-8")


def test_rows_are_the_same_from_columns_and_from_text(both):
    stated, inferred_ = (read(path) for path in both)
    assert stated.inferred == () and len(inferred_.inferred) > 2
    assert len(stated.rows) == len(inferred_.rows) > 100
    for one, other in zip(stated.rows, inferred_.rows, strict=True):
        assert replace(one, columns=frozenset()) == replace(other, columns=frozenset()), one.id
        assert one.columns - other.columns <= set(inferred(stated.kind))


@pytest.mark.parametrize("both", ["memory", "out_of_memory"], indirect=True)  # the smallest: rows are the same in all
def test_answers_are_the_same_from_columns_and_from_text(both):
    stated, text = copy.deepcopy(validated(both[0].name)), validate(both[1])
    assert stated["rows"] == text["rows"]
    assert stated["summary"]["columns"] == "stated" and text["summary"]["columns"] == "inferred from text"
    for summary in (stated["summary"], text["summary"]):
        del summary["columns"], summary["inferred"]
    assert stated["summary"] == text["summary"]


def test_the_documented_columns_are_the_declared_ones():
    text = (RUNS / "columns.txt").read_text(encoding="utf-8")
    assert text == "\n".join(map(columns_text, (MeasuredRun, MeasuredService)))
    for kind in (MeasuredRun, MeasuredService):
        assert all(f" {name} " in text and column.meaning in text for name, column in columns_of(kind).items())
        assert all(metric in text for metric in kind.metrics)
