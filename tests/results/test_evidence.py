"""The shipped counts come out again: by the command, and by a recount of the tables without hwopt's readers."""

from __future__ import annotations

import csv
from collections import defaultdict

import pytest

from hwopt.calibration.evidence import Count, CountKey, counts
from hwopt.calibration.holdout import study_of
from results.benchmarks.evidence import SOFTWARE, TABLES_COUNTED, cases, counted, year_of
from results.benchmarks.published_fit import RUNS
from results.benchmarks.regression import CHECKS, former, printed, row
from tests.rotation import picked


def test_every_table_of_a_run_is_counted():
    """A new table is one name more; those of peaks, failures and collectives have no rates."""
    others = {
        "collectives.csv",
        "memory.csv",
        "nanotron_failed.csv",
        "operators.csv",
        "out_of_memory.csv",
        "power.csv",
        "production.csv",
        "rl.csv",
    }
    assert {path.name for path in RUNS.glob("*.csv")} == {*TABLES_COUNTED} | others


@pytest.fixture(scope="module")
def again():
    return counted(cases([RUNS / name for name in TABLES_COUNTED]))


@pytest.mark.slow
def test_the_whole_file_comes_out_again(again):
    assert again == counts(), "python -m results.benchmarks.evidence regenerates the counts"


@pytest.mark.parametrize("table", picked([name for name in TABLES_COUNTED if name != "nanotron.csv"], 1))
def test_no_table_has_more_rows_than_the_file(table):
    """Counts of one table, another each commit, are in the file and at most as large there."""
    for key, each in counted(cases([RUNS / table])).items():
        assert all(own <= whole for own, whole in zip(each, counts()[key], strict=True)), key


def _rows():
    """Rows of training with a stated plan, as plain cells."""
    for name in TABLES_COUNTED:
        with (RUNS / name).open(encoding="utf-8", newline="") as file:
            rows = [each for each in csv.DictReader(file) if "global_batch_sequences" in each]
        # headlines, a model without a known shape and chips outside the catalog are no evidence
        known = lambda row: row["model_name"] != "nemotron3-nano-4b" and "RTX" not in row["gpu"]
        yield from ((name, each) for each in rows if each["quality"] != "C" and known(each))


def _number(cell):
    return float(cell) if cell else 0.0


RECOUNTED = {
    "context": lambda row: _number(row["cp"]) > 1 and 1024 <= _number(row["seq_len"]) / _number(row["cp"]) < 2048
    and "context parallelism at 1,024-2,047 tokens per rank",
    "pipeline": lambda row: 64 <= _number(row["pp"]) < 128 and "pipelines of 64-127 stages",
    "adapters": lambda row: 0 < _number(row.get("trainable_fraction")) < 1 and "training of adapters (LoRA)",
}  # fmt: skip


@pytest.mark.parametrize("feature", RECOUNTED)
def test_a_recount_of_plain_cells_agrees(feature):
    """Rows, studies and chips of three features, read from the cells of the tables alone."""
    found = defaultdict(list)
    for _, each in _rows():
        if (phrase := RECOUNTED[feature](each)) and each["measured_metric"] != "time_to_train":
            found[phrase].append((study_of(each["source"]), int(_number(each["num_gpus"]))))
    ((phrase, rows),) = found.items()
    count = counts()[CountKey("training", feature, phrase)]
    assert (count.rows, count.studies, count.chips) == (
        len(rows),
        len({study for study, _ in rows}),
        max(x for _, x in rows),
    )


def test_years_and_software_are_those_of_the_rows():
    row = next(each for each in cases([RUNS / "train_round2.csv"]) if each.row.stack is None).row
    assert study_of(row.source) in SOFTWARE or study_of(row.source) == "MLPerf Training"
    assert year_of(row) == (row.year or 0)
    assert {each.software for each in counts() if each.feature == "study"} >= set(SOFTWARE.values())
    assert Count() == (0,) * 5


def test_recorded_numbers_are_read():
    assert printed("accuracy.txt", "one study left out", 0) < printed("accuracy.txt", "one study left out", 1)
    assert former("no such check") != former("no such check")
    for check in CHECKS:
        recorded = check.recorded()
        assert recorded != recorded or recorded <= check.limit(recorded)


@pytest.mark.parametrize(("now", "verdict"), [(1.2, "ok"), (2.0, "FAILS")])
def test_a_check_fails_above_its_limit(now, verdict):
    check = CHECKS[0]._replace(now=lambda: now, recorded=lambda: 1.0, limit=lambda recorded: 1.5 * recorded)
    line, passes = row(check)
    assert line.endswith(verdict) and passes == (verdict == "ok")
