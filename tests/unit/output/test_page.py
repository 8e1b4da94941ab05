"""Pages stand alone, say what the screen says, escape what users wrote, and are the same bytes every time."""

import dataclasses
import itertools
import json
import re
import shlex
from html.parser import HTMLParser

import numpy as np
import pytest

import hwopt
from hwopt.analysis import sensitivity
from hwopt.design.provenance import Provenance
from hwopt.output.answers import frontier
from hwopt.output.answers.optimum import solution_answer, solution_document
from hwopt.output.answers.sweep import sweep_answer
from hwopt.output.answers.sweep_document import sweep_document
from hwopt.output.answers.sweep_front import MOST_POINTS
from hwopt.output.colours import PARTS, contrast, on_ground
from hwopt.output.html.axis import Axis
from hwopt.output.html.markup import element, raw
from hwopt.solver.solution import Outcome
from hwopt.units import pretty
from tests.budgets import LARGE_RUN
from tests.plans import remember_sensitivities

EVIL = "<script>alert('x')</script>&\""
SMALL = {
    "tp": (16, 16), "pp": (8, 8), "virtual_stages": (16, 16), "micro_batch": (1, 1), "scale_up_domain": (16, 16),
    "cp": (1, 1), "zero": (1, 1), "chips_per_rack": (28, 30),
}  # fmt: skip
"""Bounds of the question that `tests/unit/test_cli_report.py` asks too."""
LIMIT = 500_000
STATUS = {
    Outcome.proved: "proved",
    Outcome.best_found: "stopped",
    Outcome.local: "local",
    Outcome.infeasible: "infeasible",
    Outcome.not_found: "stopped",
    Outcome.evaluated: "evaluated",
}
"""What screens, JSON and pages call each outcome."""
_VOID = {"meta", "link", "br", "img", "hr", "input"}


def optimum_page(solution, command, around=None, constants="", sensitivities=None):
    answer = solution_answer(solution, around, constants, sensitivities=sensitivities, command_line=command)
    return answer.page(command)


class Reader(HTMLParser):
    """Elements, attributes and text; open and closed in order."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.found, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes <{self.open[-1:]}>"
        self.open.pop()

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)

    def named(self, tag):
        return [attrs for name, attrs in self.found if name == tag]


def read(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def answer():
    with pytest.MonkeyPatch.context() as patched:
        remember_sensitivities(patched)
        solution = hwopt.optimize(hwopt.objective("train_cost", **LARGE_RUN), bounds=SMALL, regime="relaxed")
        return solution, sensitivity.parameters_of(solution)


@pytest.fixture(scope="module")
def swept():
    question = hwopt.objective("train_time", capex_budget_usd=1e10)
    return hwopt.sweep(question, 2000, choices={"cooling": ["air", "direct-liquid"]}, sampling="plain")


@pytest.fixture(scope="module")
def pages(answer, swept):
    solution, sensitivities = answer
    return {
        "optimize": optimum_page(solution, "hwopt optimize", None, "calibrated", sensitivities),
        "sweep": sweep_answer(swept).page("hwopt sweep train_time"),
    }


@pytest.mark.parametrize("kind", ["optimize", "sweep"])
def test_a_page_is_well_formed_and_loads_nothing(pages, kind):
    page, reader = pages[kind], read(pages[kind])
    assert page.startswith("<!DOCTYPE html>") and reader.named("html") == [{"lang": "en"}]
    assert len(page.encode()) < LIMIT
    assert "".join(reader.text).strip() and len(reader.named("title")) == 1 + len(reader.named("g"))
    policy = next(each for each in reader.named("meta") if each.get("http-equiv") == "Content-Security-Policy")
    assert policy["content"].startswith("default-src 'none'")
    for _, attributes in reader.found:
        for name in ("src", "href", "srcset", "data", "poster", "action"):
            assert attributes.get(name, "data:,") == "data:,"
    style = "".join(re.findall(r"<style>(.*?)</style>", page, re.S))
    assert "url(" not in style and "@import" not in style and "http" not in style
    script = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(script) == 1 and "http" not in script[0] and "fetch" not in script[0]


@pytest.mark.parametrize("kind", ["optimize", "sweep"])
def test_headings_are_in_order_and_what_is_drawn_has_words(pages, kind):
    reader = read(pages[kind])
    levels = [int(tag[1]) for tag, _ in reader.found if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for tag, attributes in reader.found:
        if attributes.get("role") in ("img", "group", "region") and attributes.get("class") != "point":
            assert attributes.get("aria-label"), tag
        if attributes.get("class") == "point":
            assert attributes["tabindex"] in ("0", "-1")
    assert all("scope" in each for each in reader.named("th"))


def test_the_page_of_an_optimum_says_what_was_found(answer, pages):
    solution, (parameters, unknown) = answer
    text = "".join(read(pages["optimize"]).text)
    assert unknown == "" and parameters
    assert solution.problem.question in text and solution.certificate.scope in text
    assert pretty(solution.objective, "USD", 4) in text
    for each in solution.budgets:
        assert f"{pretty(each.used, each.unit)} of {pretty(each.limit, each.unit)}" in text
        assert f"{100 * each.used / each.limit:.2f} %" in text
        if each.elasticity > 1e-4:
            assert f"shadow price for this plan {each.shadow_price:.4g} {each.shadow_price_unit}" in text
    for source in solution.problem.sources:
        assert source in text
    for part in (
        "compute",
        "tensor-parallel communication",
        "electricity",
        "optimality gap",
        "hwopt optimize",
        "calibrated",
    ):
        assert part in text
    stated = [each for each in parameters if each.range.stated and not each.input.is_asked]
    assert stated[0].input.name.removeprefix("cluster.") in text


def test_the_page_of_a_sweep_says_what_was_found(swept, pages):
    found, reader = sweep_document(swept), read(pages["sweep"])
    text = "".join(reader.text)
    best = found["best"][0]
    assert found["question"] in text and pretty(best["objective"], "s", 4) in text
    assert f"variant {best['variant']:,}" in text and best["case"] in text
    points = [each for tag, each in reader.found if each.get("class") == "point"]
    assert len(points) == len(found["front"])  # the best design is on the front
    assert sum(each["tabindex"] == "0" for each in points) == 1
    for each in found["front"]:
        assert pretty(each["metrics"]["run_cost_usd"]["value"], "USD") in text
    assert sum(each.get("class") == "star" for each in reader.named("path")) == 1
    assert all(source in text for source in str(swept.attrs["sources"]).split("\n"))


def test_the_same_answer_makes_the_same_bytes(answer, swept, pages):
    solution, sensitivities = answer
    assert optimum_page(solution, "hwopt optimize", None, "calibrated", sensitivities) == pages["optimize"]
    assert sweep_answer(swept).page("hwopt sweep train_time") == pages["sweep"]
    for page in pages.values():
        assert not re.search(r"20\d\d-\d\d-\d\d[ T]\d\d:", page) and "/tmp/" not in page


def test_what_users_wrote_is_escaped(answer, swept):
    solution, sensitivities = answer
    budgets = [dataclasses.replace(each, name=EVIL, unit=EVIL) for each in solution.budgets]
    problem = dataclasses.replace(solution.problem, question=EVIL, provenance=Provenance(further=(EVIL,)))
    evil = dataclasses.replace(solution, problem=problem, budgets=budgets)
    page = optimum_page(
        evil, shlex.join(["hwopt", "optimize", "train_cost", "--chip", EVIL]), None, EVIL, sensitivities
    )
    attrs = {"question": EVIL, "sources": EVIL, "title": EVIL}
    marked = swept.assign_attrs(attrs)
    case = swept["front_case"].attrs | {"flag_meanings": "cooling=<script>alert(1)</script> other"}
    for name in ("front_case", "best_case"):
        marked[name] = marked[name].assign_attrs(case)
    for text in (page, sweep_answer(marked, EVIL).page(EVIL)):
        reader = read(text)
        assert len(reader.named("script")) == 1 and text.count("<script") == 1
        assert EVIL in "".join(reader.text)
    assert element("p", EVIL, title=EVIL).count("<") == 2
    assert element("p", raw("<b>"), None, ["&", element("br")]) == "<p><b>&amp;<br></p>"


def test_an_infeasible_answer_says_what_would_mend_it(answer):
    solution, _ = answer
    relaxation = "Feasible if all 3 budgets are relaxed by +28.8 %."
    budgets = [dataclasses.replace(each, used=1.25 * each.limit) for each in solution.budgets]
    outcome = type(solution.outcome).infeasible
    page = optimum_page(
        dataclasses.replace(solution, outcome=outcome, infeasibility=relaxation, budgets=budgets), "hwopt optimize"
    )
    text = "".join(read(page).text)
    assert (
        "Infeasible: no design in the search space satisfies every budget" in text
        and relaxation in text
        and text.count("over by 25 %") == len(budgets)
    )
    assert "Sensitivities" not in text and "saves" not in text


def test_a_local_answer_does_not_claim_a_proof(answer):
    solution, _ = answer
    proof = dataclasses.replace(solution.certificate, lower_bound=None, gap=None, scope="local: best of 64")
    local = dataclasses.replace(solution, certificate=proof, outcome=Outcome.local)
    text = "".join(read(optimum_page(local, "hwopt optimize train_cost --design h100-sxm")).text)
    assert "none proved" in text and "without a proof" in text
    assert "hwopt sweep train_cost --design h100-sxm --report front.html" in text


def test_a_large_front_is_thinned_and_says_so(swept):
    many = np.resize(np.arange(swept.sizes["point"]), 2_000)
    page = sweep_answer(swept.isel(point=np.sort(many))).page("hwopt sweep")
    points = sum(each.get("class") == "point" for _, each in read(page).found)
    assert points <= MOST_POINTS + 1 and len(page.encode()) < LIMIT
    assert f"{MOST_POINTS} of the 2,000 points are drawn" in page


def test_a_frontier_has_a_page_with_its_proofs(monkeypatch):
    points = [
        {"budgets": {"power_budget_w": limit}, "feasible": held, "certified": True, "objective": cost, "gap": 5e-5,
         "shadow_price_power_budget_w": 0.5, "chips": 30_000.0, "tp": 16.0, "pp": 8.0}
        for limit, cost, held in ((20e6, None, False), (40e6, 39.7e6, True), (60e6, 33e6, True))
    ]  # fmt: skip
    found = {
        "question": EVIL, "objective": {"name": "run_cost_usd", "unit": "USD"}, "budgets": {"power_budget_w": "W"},
        "feasible": True, "points": points, "out": None, "figures": [],
    }  # fmt: skip
    monkeypatch.setattr(frontier, "frontier_document", lambda *_: found)
    dataset = type("Dataset", (), {"attrs": {"title": "train_cost", "sources": "A\nB"}})()
    page = frontier.frontier_answer(dataset).page("hwopt sweep --frontier power_budget_w=20e6:60e6:3")
    text = "".join(read(page).text)
    assert (
        "33 M$ to 39.7 M$" in text
        and "infeasible (certified)" in text
        and "2 of 3 budget levels feasible, 3 certified" in text
    )
    assert "saves 500,000 $ per MW of power budget" in text and page.count("<script") == 1


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (3.1e6, 3.2e6), (1e6, 3e9), (2e-7, 9e-6), (1.0, 1e12)])
def test_axes_have_a_few_round_numbers_within(low, high):
    axis = Axis.over("run time", "s", [low, high])
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 8
    assert all(-1e-6 <= place <= 100 + 1e-6 for place, _ in ticks)
    assert len({text for _, text in ticks}) == len(ticks)
    assert 0 < axis.place(low) <= axis.place(high) < 100


def test_colours_are_seen_on_a_dark_ground():
    for colour in PARTS.values():
        assert contrast(on_ground(colour, "#14181D", 4.0), "#14181D") >= 4.0
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21.0)


def test_every_outcome_has_a_word():
    assert {each: each.status for each in Outcome} == STATUS


@pytest.mark.parametrize("outcome", Outcome, ids=lambda each: each.name)
@pytest.mark.parametrize("gap", [None, 0.47], ids=["no-bound", "bounded"])
def test_screen_json_and_page_say_the_same_word(answer, outcome, gap):
    solution, _ = answer
    known = dataclasses.replace(
        solution,
        outcome=outcome,
        certificate=dataclasses.replace(solution.certificate, gap=gap, lower_bound=gap and 1.0),
    )
    word = STATUS[outcome]
    document = json.loads(json.dumps(solution_document(known)))
    assert document["status"] == word and document["message"].lower().startswith(word)
    screen = solution_answer(known).screen()
    paragraph = screen.split("\n\n")[2 if known.feasible else 0]
    assert paragraph.lower().startswith(word) and known.headline in " ".join(screen.split())
    page = optimum_page(known, "hwopt optimize")
    if known.feasible:
        assert f'class="badge{"" if outcome is Outcome.proved else " open"}">{word}</span>' in page
    else:
        assert f'<p class="big">{word.capitalize()}' in page


def test_relaxed_budgets_are_in_units_that_people_use():
    budgets = {each.name: each for each in hwopt.objective("train_cost").problem().budgets}
    assert budgets["power_budget_w"].relaxed_words(0.6931472, "+100 %") == "power_budget_w from 30 MW to 60 MW (+100 %)"
    assert budgets["time_budget_s"].relaxed_words(0.0, "+0 %") == "time_budget_s from 90 days to 90 days (+0 %)"
