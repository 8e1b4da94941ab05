"""Answers can be bought: a check from the catalogue's files alone over questions of several chips; forty of them in `long`."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hwopt
from hwopt.optim.solution import Outcome
from hwopt.report.documents import solution_document
from tests.validation.buildable import faults

FEW = (
    ("h100-sxm", "none", {}),
    ("b200", "none", {"workload": "llama3.1-70b", "time_budget_s": 60 * 86400.0}),
    ("mi300x", "none", {"workload": "llama3.1-70b", "stack": "rocm-primus-2025"}),
)
CHIPS = ("h100-sxm", "h200", "b200", "gb200", "mi300x", "a100-80", "tpu-v5p")


def checked(chip: str, free: str, fields: dict) -> bool:
    """Whether a question has an answer; one that has can be bought and is proved."""
    solution = hwopt.optimize(hwopt.objective("train_cost", chip=chip, free=free, **fields), explain=False)
    if not solution.feasible:
        return False
    answer = json.loads(json.dumps(solution_document(solution)))
    assert solution.outcome is Outcome.proved and answer["certificate"]["gap"] <= 1e-4, (chip, free, fields)
    assert faults(answer, chip, free) == [], (chip, free, fields)
    return True


@pytest.mark.parametrize(("chip", "free", "fields"), FEW, ids=[each[0] for each in FEW])
def test_an_answer_can_be_bought(chip, free, fields):
    assert checked(chip, free, fields)


@pytest.mark.slow
@pytest.mark.long
def test_forty_random_answers_can_be_bought():
    rng, feasible = np.random.default_rng(40), 0
    for _ in range(40):
        chip, days = str(rng.choice(CHIPS)), float(rng.uniform(40, 120))
        fields = {
            "workload": str(rng.choice(["llama3.1-70b", "llama3.1-8b", "gpt3-175b"])),
            "time_budget_s": days * 86400.0,
        }
        fields["tokens"] = float(10 ** rng.uniform(12, 13.2))
        if chip == "mi300x":
            fields["stack"] = "rocm-primus-2025"
        if chip == "tpu-v5p":
            fields["stack"] = "jax-maxtext-tpu"
        feasible += checked(chip, "hbm" if rng.random() < 0.2 else "none", fields)
    assert feasible >= 20


def test_what_cannot_be_bought_is_said():
    solution = hwopt.optimize(hwopt.objective("train_cost"), explain=False)
    answer = json.loads(json.dumps(solution_document(solution)))
    answer["design"]["chips_per_rack"]["value"] = 29
    answer["bill"][0]["count"] += 1
    words = " ".join(faults(answer, "h100-sxm"))
    assert "29" in words and "bill" in words
