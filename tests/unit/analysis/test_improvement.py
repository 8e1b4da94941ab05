"""What a tenth of each number is worth to a drawn chip: the table, its parts, its JSON, and what is refused."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import jax
import pytest

import hwopt
from hwopt.analysis.sensitivity import optimum
from hwopt.analysis.sensitivity.improvement import TECHNOLOGY, improvement_factor, improvement_values, part_of
from hwopt.catalog import leaf
from hwopt.cli import main
from hwopt.design.lattices import lattice_of
from hwopt.design.problem import set_variables
from hwopt.design.template_inputs import template_inputs
from hwopt.errors import UserError
from hwopt.hardware.process import Process
from hwopt.hardware.technology import Technology
from hwopt.model.estimate import estimate
from hwopt.output.answers.sensitivity import sensitivity_answer
from hwopt.quantity import quantities
from hwopt.trace.cache import evaluate_in_numpy
from tests.unit.solver.test_parametric_chips import PLAN, UNITS, question
from tests.unit.solver.test_parametric_sensitivity import START


def answer(problem, *_, **__):
    """What `optimize` would say, as far as `sensitivity` asks: `PLAN` with three dies."""
    lattice = lattice_of(problem)
    values = lattice.design(lattice.point(PLAN | START | {"dies": 3, "enabled_fraction": 142 / UNITS, "ep": 1})) | START
    built = set_variables(
        problem.form, problem.template, [leaf(values.get(each.name, each.lower)) for each in problem.variables]
    )
    return SimpleNamespace(
        feasible=True, built=built, problem=problem, objective=1e6, budgets=[], infeasibility="", headline="Proved: by hand.",
        report=evaluate_in_numpy(estimate, *built.inputs),
    )  # fmt: skip


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
        patch.setattr(optimum, "optimum_of", answer)
        return hwopt.sensitivity(question().problem())


def test_the_table_names_every_technology_number(found):
    """All that varies of `technologies`, `memories`, `processes`, `cooling` is in it, with a worth or as of none."""
    told = {each.parameter.input.name for part in improvement_values(found) for each in part.rows}
    told |= {each.name for part in improvement_values(found) for each in part.idle}
    assert told == {each.name for each in template_inputs(found.problem)}
    for prefix, kind in (("project.technology", Technology), ("project.process", Process)):
        names = {each.partition("[")[0] for each in told if each.startswith(prefix)}
        wanted = {f"{prefix}.{name}" for name, declared in quantities(kind).items() if declared.varies}
        assert wanted == names
    text = sensitivity_answer(found).screen()
    for part in improvement_values(found):
        if part.is_technology:
            for name in [each.parameter.input.name for each in part.rows] + [each.name for each in part.idle]:
                assert name.rpartition(".")[2] in text, name


def test_parts_are_those_of_the_catalogue(found):
    parts = {each.name: part_of(each) for each in template_inputs(found.problem)}
    assert parts["project.process.wafer_usd"] == parts["project.technology.nominal_clock_hz"] == "node"
    assert parts["project.technology.matrix_energy_j_per_flop"] == "node"  # which scales it
    assert (
        parts["project.process.hbm_usd_per_byte"] == parts["project.technology.hbm_bandwidth_bytes_per_s"] == "memory"
    )
    assert parts["project.process.substrate_usd_per_m2"] == parts["project.technology.package_limit_m2"] == "packaging"
    assert parts["cluster.cooling.sink_resistance_k_per_w"] == "cooling" and parts["project.volume"] == "prices"
    assert (
        parts["project.technology.scale_up_idle_j_per_byte"] == "links" and parts["workload.tokens"] == "what is asked"
    )
    assert parts["project.technology.matrix_transistors"] == "datapath"
    assert parts["project.technology.local_bytes"] == "architecture"
    assert parts["project.base_process.wafer_usd"] == "base dies" and "project" not in set(parts.values())
    assert set(TECHNOLOGY) <= set(parts.values())


def test_a_tenth_is_worth_what_its_elasticity_says(found):
    parts = improvement_values(found)
    assert [each.share for each in parts] == sorted((each.share for each in parts), reverse=True)
    for part in parts:
        shares = [each.share for each in part.rows]
        assert shares == sorted(shares, reverse=True) and min(shares, default=0.0) >= 0.0
        assert part.share == pytest.approx(1 - math.prod(1 - share for share in shares))
        assert part.saves == pytest.approx(part.share * found.objective)
    rows = {each.parameter.input.name: each for part in parts for each in part.rows}
    wafer = rows["project.process.wafer_usd"]
    assert wafer.factor == 0.9 and wafer.saves == pytest.approx(found.objective * (1 - 0.9**wafer.parameter.elasticity))
    assert wafer.share == pytest.approx(0.1 * wafer.parameter.elasticity, rel=0.1)
    assert rows["project.technology.hbm_bandwidth_bytes_per_s"].factor == 1.1
    assert rows["project.process.die_bond_yield"].factor == pytest.approx(1 / 0.99)  # a yield ends at 1
    coolant = rows["cluster.cooling.coolant_temperature_k"].parameter.input
    assert improvement_factor(coolant, 1.0) == pytest.approx(1 - 5 / coolant.value)


def test_the_point_is_the_answers(found):
    """Integers are those answered; the question is in whole units, and the screen says what is proved and held."""
    assert float(found.built.project.design.dies) == 3.0 and float(found.built.cluster.chips) == 1224.0
    report = evaluate_in_numpy(estimate, *found.built.inputs)
    assert float(report.run_cost_usd) == pytest.approx(found.objective, rel=1e-5) and bool(report.feasible)
    text = sensitivity_answer(found).screen()
    assert "fixed as answered" in text and "Proved: by hand." in text.replace("\n", " ")
    assert "Response of the optimal design" not in text and " nan" not in text


def test_json_has_units(found):
    document = json.loads(json.dumps(sensitivity_answer(found).document(), allow_nan=False))
    assert [each["part"] for each in document["worth"]] == [each.part for each in improvement_values(found)]
    assert document["proof"] == "Proved: by hand."
    rows = {each["name"]: each for part in document["worth"] for each in part["numbers"]}
    assert {"value", "unit", "better", "elasticity", "share", "saves", "saves_unit"} <= set(
        rows["project.process.wafer_usd"]
    )
    assert rows["project.process.defects_per_m2"]["unit"] == "1/m2"
    assert {each["saves_unit"] for each in rows.values()} == {"USD"}
    idle = {name for part in document["worth"] for name in part["idle"]}
    assert "project.technology.reticle_m2" in idle and "project.process.fab_yield" in idle
    assert len(rows) + len(idle) == len(template_inputs(found.problem))


def test_the_command_takes_the_boxes_of_a_search(found, monkeypatch, capsys):
    """Behind the search stands what is known of the question without boxes."""
    seen, known = [], (found.optimum, found.parameters, found.idle)
    monkeypatch.setattr(
        optimum, "optimum_of", lambda problem, *_, **how: seen.append((problem, how)) or answer(problem)
    )
    monkeypatch.setattr(optimum, "_by_inputs", lambda *_: known)
    asked = [
        "sensitivity",
        "train_cost",
        "--design",
        "h100-sxm",
        "--prices",
        "at-cost",
        "--workload",
        "llama3.1-70b",
        "--global-batch",
        "2048",
    ]
    assert main([*asked, "--bounds", "tp=2:2,dies=3:3", "--seconds", "20", "--top", "4"]) == 0
    (problem, how), text = seen[0], capsys.readouterr().out
    boxes = {each.name: (each.lower, each.upper) for each in problem.variables}
    assert boxes["tp"] == (2, 2) and boxes["dies"] == (3, 3) and how["seconds"] == 20.0
    assert "Savings from a 10 % improvement" in text and "  packaging " in text
    assert "Meaning of these inputs" in text and "does paid work" in text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"bounds": {"die": (1, 2)}}, "is not a variable of"),
        ({"bounds": {"dies": (1, 9)}}, "reach beyond 1:4"),
        ({"seconds": -1.0}, "seconds"),
        ({"metrics": ["step_time"]}, "did you mean 'step_time_s'"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_any_search(monkeypatch, more, message):
    monkeypatch.setattr(optimum, "optimum_of", lambda *_, **__: pytest.fail("it searched"))
    with pytest.raises(UserError, match=message):
        hwopt.sensitivity(question().problem(), **more)
