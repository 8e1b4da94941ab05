"""Answers can be bought: a check from the catalogue's files alone over questions of several chips, others each turn."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

import hwopt
from hwopt.output.answers.optimum import solution_document
from hwopt.solver.solution import Outcome, Solution
from tests.rotation import picked
from tests.validation.buildable import faults

FEW = (
    ("h100-sxm", "none", {}),
    ("b200", "none", {"workload": "llama3.1-70b", "time_budget_s": 60 * 86400.0}),
    ("mi300x", "none", {"workload": "llama3.1-70b", "stack": "rocm-primus-2025"}),
    ("h100-sxm", "hbm", {"memory": "hbm3-12-high-6400"}),
    ("h100-sxm", "storage", {"recovery": "in-memory"}),
)
HELD = {
    "cp": (1.0, 4.0), "zero": (1.0, 1.0), "tp": (8.0, 8.0), "micro_batch": (1.0, 1.0), "virtual_stages": (1.0, 16.0),
    "weights_tier": (1.0, 1.0), "optimizer_tier": (1.0, 1.0), "activations_tier": (1.0, 1.0),
}  # fmt: skip
"""Boxes of a search that is short."""
CHIPS = ("h100-sxm", "h200", "b200", "gb200", "mi300x", "a100-80", "tpu-v5p")


def solved(chip: str, free: str, fields: dict, bounds=None) -> Solution:
    return hwopt.optimize(hwopt.objective("train_cost", chip=chip, free=free, **fields), explain=False, bounds=bounds)


@cache
def default() -> Solution:
    """The first of `FEW` in its short search."""
    return solved(*FEW[0], HELD)


def checked(solution: Solution, chip: str, free: str, fields: dict) -> bool:
    """Whether a question has an answer; one that has can be bought and is proved."""
    if not solution.feasible:
        return False
    answer = json.loads(json.dumps(solution_document(solution)))
    assert solution.outcome is Outcome.proved and answer["certificate"]["gap"] <= 1e-4, (chip, free, fields)
    candidates = {each["outcome"]: each["choice"] for each in answer["choices"]}
    if candidates.get("best", {}).get("free") == "stock":  # a redesign that is not worth its development cost
        free, fields = "none", fields | {"memory": ""}
    assert faults(answer, chip, free, fields.get("memory", "")) == [], (chip, free, fields)
    return True


@pytest.mark.parametrize("asked", [pytest.param(FEW[0], id="h100-sxm none"), *picked(FEW[1:], 1)])
def test_an_answer_can_be_bought(asked):
    assert checked(default() if asked == FEW[0] else solved(*asked, HELD), *asked)


def forty() -> list[tuple[str, str, dict]]:
    """Random questions; more than half of them have an answer."""
    rng, questions = np.random.default_rng(40), []
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
        asked = chip, "hbm" if rng.random() < 0.2 else "none", fields
        questions.append(asked)
    return questions


@pytest.mark.search
@pytest.mark.parametrize("asked", picked(forty(), 2))
def test_random_answers_can_be_bought(asked):
    checked(solved(*asked), *asked)


@pytest.fixture(scope="module")
def answer():
    assert hwopt.objective("train_cost") == hwopt.objective("train_cost", chip=FEW[0][0], free=FEW[0][1])
    return json.dumps(solution_document(default()))


WRONG = {
    "29 chips a rack": lambda a: a["design"]["chips_per_rack"].update(value=29),
    "a domain's part in a rack": lambda a: a["design"]["chips_per_rack"].update(value=20),
    "3.3 stacks": lambda a: a["report"].update(hbm_stacks=a["report"]["hbm_stacks"] * 0.66),
    "more memory in the same stacks": lambda a: a["report"].update(memory_capacity_bytes=1e11),
    "half a NIC": lambda a: a["report"].update(nics=a["report"]["nics"] * 1.25),
    "half a lane": lambda a: a["report"].update(lanes=a["report"]["lanes"] * (1.0 + 0.5 / 18.0)),
    "overclocked": lambda a: a["design"]["clock_ratio"].update(value=1.05),
    "above its TDP": lambda a: a["report"].update(chip_power_w=760.0),
    "racks that air cannot cool": lambda a: a["report"].update(rack_power_w=45e3),
    "a junction too hot": lambda a: a["report"].update(junction_temperature_k=380.0),
    "a plan of other chips": lambda a: a["plan"].update(dp=a["plan"]["dp"] + 1),
    "memory overfull": lambda a: a["report"].update(memory_per_chip_bytes=1e11),
    "power of an average day": lambda a: a["report"].update(peak_power_w=a["report"]["power_w"]),
    "out of time": lambda a: a["budgets"][0].update(used=1.1 * a["budgets"][0]["limit"]),
    "a part not on the bill": lambda a: a["bill"].pop(),
    "a chip too many on the bill": lambda a: a["bill"][0].update(count=a["bill"][0]["count"] + 1),
    "half a switch": lambda a: [
        row.update(count=row["count"] - 0.5, unit_price=row["unit_price"] * row["count"] / (row["count"] - 0.5))
        for row in a["bill"]
        if row["part"] == "switches"
    ],
    "a chip below its price": lambda a: [
        row.update(unit_price=0.9 * row["unit_price"]) for row in a["bill"] if row["part"] == "chips"
    ],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_bought_is_said(answer, wrong):
    assert faults(json.loads(answer), "h100-sxm") == []
    changed = json.loads(answer)
    WRONG[wrong](changed)
    assert faults(changed, "h100-sxm")
