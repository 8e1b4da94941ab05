"""Dates of questions: the software of a chip in a month, and refusals of what did not exist yet."""

import datetime
import time
import tomllib

import pytest

import hwopt
from hwopt import catalog
from hwopt.catalog.dates import month, question_date, release
from hwopt.catalog.names import data_root

STACKS = catalog.names("stacks")
CHIPS = [name for name in catalog.names("chips") if "unsupported" not in catalog.record("chips", name).text]


@pytest.mark.parametrize(
    ("chip", "date", "training", "serving"),
    [
        ("h100-sxm", None, "nemo-2024", "tensorrt-llm-2026"),
        ("h100-sxm", "2026-11", "nemo-2024", "tensorrt-llm-2026"),
        ("h100-sxm", "2031-01", "nemo-2024", "tensorrt-llm-2026"),
        ("h100-sxm", "2024-02", "nemo-2024", "tensorrt-llm-2023"),
        ("h100-sxm", "2024-01", "megatron-2023", "tensorrt-llm-2023"),
        ("h100-sxm", "2022-12", "megatron-2021", "fastertransformer"),
        ("b200", "2025-08", "nemo-2025", "tensorrt-llm-2023"),
        ("b200", "2025-09", "nemo-2025", "tensorrt-llm-2025"),
        ("b200", "2025-07", "nemo-2024", "tensorrt-llm-2023"),
        ("a100-80", "2021-04", "megatron-2021", None),
        ("a100-80", "2021-03", None, None),
        ("mi300x", "2025-09", "rocm-primus-2025", "tensorrt-llm-2025"),
        ("mi300x", "2024-12", None, None),
        ("ascend-910b", "2023-04", None, None),
        ("l40s", "2024-01", "torch-fsdp-2023", "tensorrt-llm-2023"),
        ("tpu-v5p", "2023-12", "jax-maxtext-tpu", "jax-serving-tpu"),
        ("wse-3", "2024-01", "ideal", "ideal"),
    ],
)
def test_default_software_of_a_month(chip, date, training, serving):
    for of, expected in ((lambda: catalog.default_stack(chip, date=date), training),
                         (lambda: catalog.serving_stack(chip, date), serving)):  # fmt: skip
        if expected is None:
            with pytest.raises(hwopt.UserError, match=f"date = {date}: chip '{chip}' had no software"):
                of()
        else:
            assert of() == expected
    assert training is None or catalog.cluster(chip, 8, date=date) is not None


def test_a_later_month_never_has_older_software():
    months = [f"{year}-{month:02}" for year in range(2020, 2028) for month in range(1, 13)]
    for chip in CHIPS:
        found = []
        for date in months:
            try:
                found.append(release(catalog.record("stacks", catalog.default_stack(chip, date=date))))
            except hwopt.UserError:
                assert not found, (chip, date)  # refused only before the first software
                continue
            assert found[-1] <= date and found == sorted(found), (chip, date)
        assert found[-1] == release(catalog.record("stacks", catalog.default_stack(chip))), chip


def test_every_stack_states_its_month_itself():
    """A stack that is derived from another one does not inherit its release."""
    for name in STACKS:
        own = tomllib.loads((data_root() / "stacks" / f"{name}.toml").read_text(encoding="utf-8"))
        assert ("released" in own) == (name != "ideal") and {"title", "framework"} <= own.keys(), name
        assert release(catalog.record("stacks", name)) <= question_date(), name


def test_lines_of_stacks_lead_backwards_in_time():
    for name in STACKS:
        entry = catalog.record("stacks", name)
        if "follows" not in entry.text:
            continue
        older = catalog.record("stacks", str(entry.text["follows"]))
        assert release(older) < release(entry), name
        assert older.text.get("purpose") == entry.text.get("purpose"), name


@pytest.mark.parametrize(
    "date",
    ["2024", "2024-13", "2024-00", "24-01", "2024-1", "2024-01-31", "01-2024", "soon", "\uff12024-01", " 2024-01"],
)
def test_other_forms_of_a_date_are_refused_with_a_hint(date):
    for of in (
        lambda: catalog.cluster("h100-sxm", 8, date=date),
        lambda: catalog.default_stack("h100-sxm", date=date),
        lambda: hwopt.objective("train_cost", date=date).problem(),
    ):
        with pytest.raises(hwopt.UserError, match="is not a month: write year and month, such as 2026-11"):
            of()


def test_a_stack_of_ones_own_with_a_malformed_month_is_refused(tmp_path):
    (tmp_path / "own.toml").write_text('base = "nemo-2024"\nreleased = "last year"\n')
    with pytest.raises(hwopt.UserError, match="stack 'own': released = 'last year' is not a month"):
        catalog.cluster("h100-sxm", 8, stack=tmp_path / "own.toml")
    (tmp_path / "own.toml").write_text('base = "nemo-2024"\nreleased = "2025-03"\n')
    assert catalog.cluster("h100-sxm", 8, stack=tmp_path / "own.toml", date="2025-03") is not None
    with pytest.raises(hwopt.UserError, match="stack 'own' is of 2025-03"):
        catalog.cluster("h100-sxm", 8, stack=tmp_path / "own.toml", date="2025-02")


def test_hardware_and_software_of_a_later_time_are_refused():
    with pytest.raises(
        hwopt.UserError, match="date = 2023-12: chip 'b200' is of 2024: choose an older chip, or a later date"
    ):
        catalog.cluster("b200", 8, date="2023-12")
    with pytest.raises(hwopt.UserError, match="date = 2024-12: stack 'nemo-2025' is of 2025-08: choose an older stack"):
        catalog.cluster("b200", 8, stack="nemo-2025", date="2024-12")
    with pytest.raises(hwopt.UserError, match="chip 'h200' is of 2024"):
        catalog.cluster_pair("h100-sxm", "h200", 16, date="2023-11")
    assert catalog.cluster("rubin-ultra", 8) is not None  # announced chips stay open to questions about the future
    assert catalog.cluster("rubin-ultra", 8, date=question_date()) is not None
    with pytest.raises(hwopt.UserError, match="chip 'rubin-ultra' is of 2027"):
        catalog.cluster("rubin-ultra", 8, date="2026-10")


def test_the_reference_date_ships_with_the_constants_and_no_clock_is_read(monkeypatch):
    from results.benchmarks.published_fit import COLLECTED

    def refused(*_):
        raise AssertionError("a clock was read")

    before = catalog.default_stack("h100-sxm"), question_date()
    monkeypatch.setattr(time, "time", refused)
    monkeypatch.setattr(datetime, "date", refused)
    monkeypatch.setattr(datetime, "datetime", refused)
    assert (catalog.default_stack("h100-sxm"), question_date()) == before
    assert question_date() == COLLECTED == catalog.calibration().date == month(COLLECTED, "date")
