"""A sweep's cases have names to select and group by, and its variants are a table for other programs."""

import csv

import numpy as np
import pytest
import xarray

from hwopt import UserError
from hwopt.output.answers.sweep_table import check_table, variants_table, write_table
from hwopt.sweeps.coordinates import with_names

CASES = "chip=h100-sxm,cooling=air chip=b200,cooling=air"


@pytest.fixture
def swept():
    """As a store is opened: codes, with names in attributes."""
    flags = {"flag_values": [0, 1], "flag_meanings": "compute tp_comm"}
    return xarray.Dataset(
        {
            "mfu": (("case", "variant"), np.arange(6.0).reshape(2, 3)),
            "bottleneck": (("case", "variant"), np.array([[0, 1, 0], [1, 1, 0]], np.int8), flags),
            "best_case": ("rank", np.array([1, 0, -1])),
            "counts": ("outcome", np.arange(3)),
        },
        attrs={"cases": CASES},
    )


def test_cases_and_choices_are_coordinates(swept):
    named = with_names(swept)
    assert list(named.chip.values) == ["h100-sxm", "b200"] and list(named.best_chip.values) == ["b200", "h100-sxm", ""]
    assert named.sel(case="chip=b200,cooling=air").mfu.values.tolist() == [3.0, 4.0, 5.0]
    assert named.mfu.groupby("chip").mean(...).sel(chip="b200") == 4.0


def test_a_sweep_of_one_case_stays_as_it_is(swept):
    one = swept.isel(case=0).assign_attrs(cases="as-asked")
    assert with_names(one) is one


def test_a_table_has_every_variant_and_names_instead_of_codes(swept, tmp_path):
    path = tmp_path / "variants.csv"
    write_table(path, with_names(swept))
    rows = list(csv.DictReader(path.open()))
    assert len(rows) == 6 and [row["bottleneck"] for row in rows[:3]] == ["compute", "tp_comm", "compute"]
    assert [row["chip"] for row in rows] == ["h100-sxm"] * 3 + ["b200"] * 3 and float(rows[5]["mfu"]) == 5.0
    assert not {"best_chip", "counts", "best_case"} & set(rows[0]) and not list(tmp_path.glob(".*"))


def test_what_no_table_can_hold_is_refused(swept, monkeypatch):
    with pytest.raises(UserError, match="stored no designs"):
        variants_table(swept[["counts"]])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="requires pyarrow"):
        check_table("--parquet", "x.parquet")


def test_parquet_holds_what_csv_holds(swept, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="takes the extra 'parquet'")
    write_table(tmp_path / "variants.parquet", with_names(swept))
    read, frame = parquet.read_table(tmp_path / "variants.parquet"), variants_table(with_names(swept))
    assert read.column_names == list(frame) and read.num_rows == 6
    for name in frame:
        assert read[name].to_pylist() == list(frame[name])
    assert read["mfu"].type == "double" and read["bottleneck"].to_pylist()[:2] == ["compute", "tp_comm"]
    assert [each.name for each in tmp_path.iterdir()] == ["variants.parquet"]
    with pytest.raises(UserError, match="cannot be written"):
        write_table(tmp_path / "nowhere" / "variants.parquet", with_names(swept))
