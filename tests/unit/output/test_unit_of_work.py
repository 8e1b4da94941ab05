"""Images, samples and tokens: screens count in what the workload says."""

from itertools import starmap

import pytest

import hwopt
from hwopt import catalog
from hwopt.model.estimate import estimate
from hwopt.output.answers import sweep
from hwopt.output.answers.estimate import estimate_answer
from hwopt.output.text.customary_units import amount
from hwopt.output.text.token_prices import TOKENS, counted, unit_of_work
from hwopt.sweeps.attributes import _counted
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.units import pretty
from tests.rotation import rotated


@pytest.mark.parametrize(
    ("name", "unit", "tokens"),
    [("llama3.1-8b", "token", 1.0),
     *rotated(starmap(pytest.param, [("resnet-50", "image", 1.0), ("vit-b-16", "image", 197.0), ("dlrm-dcnv2", "sample", 1.0),
                                     ("mamba-2.8b", "token", 1.0)]), 4)],
)  # fmt: skip
def test_work_is_counted_in_what_the_workload_says(name, unit, tokens):
    """Screens divide what is counted in tokens by those of a unit; documents keep tokens, and say how many one is."""
    run, cluster = catalog.training_run(name, global_batch=4096), catalog.cluster("h100-sxm", 8)
    report = evaluate_in_numpy(estimate, run, cluster, catalog.plan(run, 8))
    assert unit_of_work(report) == unit_of_work(run) == (unit, tokens)
    asked = {"workload": name, "chip": "h100-sxm", "chips": 8}
    answer = estimate_answer(report, catalog.plan(run, 8), name, asked=asked)
    screen = answer.screen()
    if bool(report.feasible):
        rate = float(report.tokens_per_s) / tokens
        said = pretty(rate, "token/s") if unit == "token" else f"{rate:,.0f} {unit}/s"
        assert (
            said in screen and f"{float(report.cost_per_token_usd) * 1e6 * tokens:.4g} $ per million {unit}s" in screen
        )
        assert f"J per {unit}\n" in screen and ("token/s" in screen) == (unit == "token")
    document = answer.document()
    assert (document["unit_of_work"], document["tokens_per_unit"]) == (unit, tokens)


def test_amounts_of_objectives_are_counted_so_too():
    work = ("image", 197.0)
    assert counted(2.0, "USD/token", work) == (394.0, "USD/image") and counted(394.0, "token/s", work) == (
        2.0,
        "image/s",
    )
    assert counted(3.0, "USD", work) == (3.0, "USD") and counted(2.0, "USD/token", TOKENS) == (2.0, "USD/token")
    assert amount(2e-6, "USD/token", 3, work) == "394 $/Mimage" and amount(2e-6, "USD/token") == "2 $/Mtoken"
    assert sweep.shown("cost_per_token_usd", 2e-6, "USD/token", work) == "394 $ per million images"


def test_questions_and_sweeps_say_images():
    problem = hwopt.objective("tokens_per_dollar", workload="vit-b-16").problem()
    assert problem.question.startswith("Most images a dollar: vit-b-16, ") and "token" not in problem.question
    assert _counted(problem.template.workload) == {"unit_of_work": "image", "tokens_per_unit": 197.0}
    assert _counted(catalog.training_run("llama3.1-8b")) == {}
    document = {
        "unit_of_work": "image",
        "tokens_per_unit": 197.0,
        "objective": {"name": "cost_per_token_usd", "unit": "USD/token"},
    }
    case = {"case": "a", "objective": 2e-6, "possible": 1, "evaluated": 2, "feasible_count": 1}
    assert sweep.ranked_cases(document | {"by_case": [case]})[0][1] == "394 $ per million images"
