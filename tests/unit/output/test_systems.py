"""Systems of an answer: purchases in units that are sold, and none without such a unit."""

import pytest

import hwopt
from hwopt.output.text.bill import SystemCount, bill, systems
from hwopt.output.text.verdict import purchase
from hwopt.solver.solution import evaluate_design

WORDS = [
    (SystemCount("gb200-nvl72", "GB200 NVL72", 198, 72, 198, 72), "198 racks of GB200 NVL72"),
    (SystemCount("gb200-nvl72", "GB200 NVL72", 1, 72, 1, 64), "1 rack of GB200 NVL72, 64 of 72 chips used"),
    (SystemCount("dgx-h100", "DGX H100", 1632, 8, 544, 8), "1,632 x DGX H100, in 544 racks"),
    (
        SystemCount("tpu-v6e-pod", "TPU v6e pod of 256", 4, 128, 16, 128, slice="8x16"),
        "4 slices of 8x16, in 16 racks of TPU v6e pod of 256",
    ),
    (SystemCount("trn3-ultraserver", "Trn3 UltraServer", 2, 144, 4, 144), "2 x Trn3 UltraServer, in 4 racks"),
]


@pytest.mark.parametrize(("count", "words"), WORDS)
def test_systems_in_words(count, words):
    assert count.words == words


DESIGN = {
    "tp": 8.0, "cp": 1.0, "pp": 1.0, "virtual_stages": 1.0, "micro_batch": 1.0, "zero": 1.0, "recompute": 1.0,
    "weights_tier": 1.0, "optimizer_tier": 1.0, "activations_tier": 1.0, "fullest_stage": 1.0, "last_stage": 1.0, "recovery": 3.0,
    "clock_ratio": 1.0, "nics_per_server": 4.0, "chips_per_rack": 72.0, "chips": 576.0, "global_batch_sequences": 2016.0,
}  # fmt: skip


def asked(design=DESIGN, **fields):
    question = hwopt.objective("train_cost", chip="gb200", workload="llama3.1-8b", global_batch=2048.0, **fields)
    return evaluate_design(question.problem(), design)


def test_an_answer_counts_its_systems():
    (own,) = systems(asked())
    assert (own.name, own.count, own.chips_each, own.racks) == ("gb200-nvl72", 8.0, 72, 8)
    assert own.used_each == 72


def test_chips_left_idle_are_bought_as_hot_spares():
    answer = asked(DESIGN | {"chips_per_rack": 64.0, "chips": 512.0, "global_batch_sequences": 2048.0})
    (own,) = systems(answer)
    assert (own.count, own.chips_each, own.racks, own.used_each) == (8.0, 72, 8, 64)
    rows = {row.part: row for row in bill(answer)}
    assert rows["chips"].count == 512.0 and rows["hot spares"].count == 64.0 and rows["racks"].count == 8.0
    assert sum(row.price for row in rows.values()) == pytest.approx(float(answer.report.capex_usd), rel=1e-9)
    assert sum(row.power for row in rows.values()) == pytest.approx(float(answer.report.peak_power_w), rel=1e-9)
    assert purchase([answer]).startswith("Buy 576 gb200 (512 used, 64 hot spares, 8 racks, ")


def test_racks_that_are_not_filled_as_sold_have_no_idle_chips():
    """Air cannot cool 72 chips in a rack."""
    problem = hwopt.objective("train_cost", chip="gb200", cooling="air").problem()
    (racks,) = (each for each in problem.variables if each.name == "chips_per_rack")
    assert racks.among == (72,)


@pytest.mark.parametrize("free", ["nics", "racks", "nics+racks"])
def test_hardware_that_is_not_a_product_has_no_system(free):
    assert systems(asked(free=free)) == []
