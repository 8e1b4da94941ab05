"""What binds next: budgets lifted in turn, by a search that is told its answers here, and by one real question."""

import dataclasses
import json
import math

import pytest

import hwopt
from hwopt.analysis import binding_budgets as study
from hwopt.analysis.binding_budgets import BindingBudgets, walls
from hwopt.errors import UserError
from hwopt.output.answers.binding_budgets import WALLS, sentence, walls_answer
from hwopt.output.figures.binding_budgets import plot_walls
from hwopt.solver.options import SEARCH
from hwopt.solver.solution import Outcome

BOXES = {
    "tp": (8, 8), "pp": (8, 8), "virtual_stages": (16, 16), "micro_batch": (1, 1), "cp": (1, 1), "zero": (1, 1),
    "recompute": (3, 3), "weights_tier": (1, 1), "optimizer_tier": (1, 1), "activations_tier": (1, 1),
}  # fmt: skip
"""A plan that the default stack documents: full recomputation, as its offloading of activations excludes pipelines."""

QUESTION = dataclasses.replace(hwopt.objective("train_time"), power_budget_w=math.inf, capex_budget_usd=0.56e9)


@pytest.fixture(scope="module")
def real():
    return walls(QUESTION, bounds=BOXES)


def test_a_lifted_budget_is_used_as_much_as_helps_and_the_answer_is_that_of_the_question_without_it(real):
    (wall,) = real.walls
    assert wall.names == ("capex_budget_usd",) and real.idle == () and not real.over
    assert wall.before.outcome is wall.after.outcome is Outcome.proved
    assert wall.after.objective < wall.before.certificate.lower_bound
    until = wall.until("capex_budget_usd")
    assert 0.56e9 < until == float(wall.after.report.capex_usd) < 0.56e9 * SEARCH.binding.lifted
    enough = hwopt.optimize(dataclasses.replace(QUESTION, capex_budget_usd=until * 1.0001), bounds=BOXES, explain=False)
    assert enough.objective == pytest.approx(wall.after.objective, rel=2e-4)


def test_screen_document_page_and_figure_say_the_wall(real, tmp_path):
    said = " ".join(sentence(real, 0).split())
    answer = walls_answer(real)
    screen, document, page = answer.screen(), answer.document(), answer.page("hwopt walls train_time")
    assert "capex budget binds at 560 M$: with " in said and said in " ".join(screen.split()) and said in page
    assert "No further budget binds. On " in screen and "each optimum is certified" in screen
    assert max(map(len, screen.split("\n")[2:])) <= 132
    json.dumps(document, allow_nan=False)
    assert [each["lifted"] for each in document["answers"]] == [[], ["capex_budget_usd"]]
    assert [each["budgets"][0]["limit"] for each in document["answers"]] == [0.56e9, None]
    for each in document["answers"]:
        assert sum(each["chip_time"].values()) == pytest.approx(1.0)
    assert document["walls"][0]["proved"] and document["complete"]
    plot_walls(real, tmp_path / "walls.png")
    assert (tmp_path / "walls.png").stat().st_size > 10_000


LIMITS = {"capex_budget_usd": 4.0, "power_budget_w": 3.0, "floor_area_budget_m2": 9.0}


@dataclasses.dataclass(frozen=True)
class Told:
    """A question whose answer is known: `1 / size`, where a size needs as much of each budget as it is large, times `need`."""

    capex_budget_usd: float = LIMITS["capex_budget_usd"]
    power_budget_w: float = LIMITS["power_budget_w"]
    floor_area_budget_m2: float = LIMITS["floor_area_budget_m2"]
    steps: tuple[float, ...] = ()  # sizes that there are; any at all where it is empty
    largest: float = 20.0

    def problem(self):
        names = [each for each in LIMITS if getattr(self, each) < math.inf]
        return dataclasses.make_dataclass("P", ["budgets"])(
            [dataclasses.make_dataclass("B", ["name"])(each) for each in names]
        )

    def size(self) -> float:
        most = min(self.largest, *(getattr(self, name) for name in LIMITS))
        return max(each for each in self.steps if each <= most) if self.steps else most


@pytest.fixture
def told(real, monkeypatch):
    """The search, answered by `Told`."""
    asked = []

    def answer(question, near, deadline, how):
        asked.append(question)
        size = question.size()
        use = real.start.budgets[0]
        budgets = [
            dataclasses.replace(use, name=name, used=size, limit=getattr(question, name), elasticity=0.0)
            for name in LIMITS
        ]
        proof = dataclasses.replace(real.start.certificate, lower_bound=1.0 / size, gap=0.0)
        return dataclasses.replace(real.start, objective=1.0 / size, budgets=budgets, certificate=proof)

    monkeypatch.setattr(study, "_answer", answer)
    monkeypatch.setattr(study, "check_question", lambda *_: None)
    monkeypatch.setattr(study, "portfolio_of", lambda _: None)
    return asked


def test_walls_come_in_the_order_of_their_limits_and_each_ends_at_the_next(told):
    found = walls(Told())
    assert [each.names for each in found.walls] == [
        ("power_budget_w",),
        ("capex_budget_usd",),
        ("floor_area_budget_m2",),
    ]
    assert [each.until(each.names[0]) for each in found.walls] == [4.0, 9.0, 20.0]
    assert [each.objective for each in found.answers] == [1 / 3, 1 / 4, 1 / 9, 1 / 20]
    assert found.walls[0].gained == pytest.approx(1.0 - 3 / 4) and found.idle == ()
    assert "power budget binds at" in sentence(found, 0) and "capex budget becomes the binding" in sentence(found, 0)
    assert "of the power budget and" in sentence(found, 2) and sentence(found, 2).endswith(
        "beyond that, no further gain"
    )


def test_budgets_that_never_bind_are_told(told):
    found = walls(Told(largest=3.5))
    assert [each.names for each in found.walls] == [("power_budget_w",)]
    assert found.idle == ("capex_budget_usd", "floor_area_budget_m2")


def test_budgets_that_give_way_together_only_are_one_wall(told):
    found = walls(Told(capex_budget_usd=3.1, steps=(3.0, 6.0), largest=6.0))
    (wall,) = found.walls
    assert wall.names == ("capex_budget_usd", "power_budget_w") and found.idle == ("floor_area_budget_m2",)
    assert "bind at" in sentence(found, 0) and "together" in sentence(found, 0)


def test_a_budget_of_which_whole_parts_leave_much_unused_binds_too(told):
    found = walls(
        Told(power_budget_w=3.9, capex_budget_usd=30.0, floor_area_budget_m2=30.0, steps=(3.0, 6.0), largest=6.0)
    )
    assert [each.names for each in found.walls] == [("power_budget_w",)]
    assert SEARCH.binding.near > 3.0 / 3.9


def test_where_no_budget_binds_one_more_answer_says_so(told):
    found = walls(Told(largest=1.0))
    assert found.walls == [] and len(told) == 2 and set(found.idle) == LIMITS.keys()
    assert "No budget binds" in walls_answer(found).screen()


def test_time_that_is_over_is_said(told):
    found = walls(Told(), seconds=1e-9)
    assert found.over and found.idle == () and not WALLS.document(found)["complete"]
    assert "Time limit reached." in walls_answer(found).screen()


def test_an_answer_that_holds_no_budget_ends_it(told, real, monkeypatch):
    none = dataclasses.replace(real.start, outcome=Outcome.infeasible, infeasibility="power would have to be 3 MW more")
    monkeypatch.setattr(study, "_answer", lambda *_: none)
    found = walls(Told())
    assert found == BindingBudgets(none, [], (), False)
    assert "3 MW more" in walls_answer(found).screen() and "3 MW more" in walls_answer(found).page("hwopt walls")
    assert not WALLS.document(found)["feasible"] and WALLS.document(found)["answers"] == []


def test_questions_without_budgets_and_lists_are_refused():
    with pytest.raises(UserError, match="has no budget"):
        walls(dataclasses.replace(QUESTION, capex_budget_usd=math.inf))
    with pytest.raises(UserError, match="ask about one of them"):
        walls(hwopt.objective("portfolio"))
    with pytest.raises(UserError, match="walls"):
        walls("train_time")


def test_the_command_refuses_what_it_cannot_draw_before_any_search(capsys):
    from hwopt.cli import main

    assert main(["walls", "train_time", "--figure", "/nowhere/x.png"]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["walls", "train_time", "--choices", "chip=nonesuch"]) == 2
    assert "nonesuch" in capsys.readouterr().err
    assert main(["walls", "train_time", "--chip", "b200", "--choices", "chip=b200|h100-sxm"]) == 2
    assert "is given too" in capsys.readouterr().err


def test_each_answer_is_the_best_of_all_choices(real, monkeypatch):
    """Choices go to every search, which then starts from no design of one machine."""
    seen = []
    monkeypatch.setattr(study, "optimize", lambda asked, **how: seen.append(how) or real.start)
    walls(QUESTION, choices={"chip": ["h100-sxm", "b200"]})
    assert len(seen) > 1 and all(
        how["choices"] == {"chip": ["h100-sxm", "b200"]} and how["designs"] == [] for how in seen
    )
