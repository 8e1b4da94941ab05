"""Live pages in a real browser: their numbers are those of Python, and every control answers by keyboard and by link."""

import json
import shlex

import numpy as np
import pytest

from hwopt.cli import main
from tests.browsing import SIZES, opened
from tests.live_pages import QUESTIONS, page_of, reference, solution_of

pytestmark = pytest.mark.slow

EVALUATE = """(settings) => settings.map((setting) => {
  const {v, out} = hwopt.evaluate(0, setting);
  return [hwopt.inputs(hwopt.machines[0], v), out.map(String)];
})"""
EQUAL = 1e-9


def settings_of(model, count=200, seed=0):
    """Random settings, random corners, and each control alone at both of its ends."""
    draw = np.random.default_rng(seed)
    free = [each for each in model.controls if each["lower"] < each["upper"]]

    def at(each, share):
        values = each["values"]
        if values:
            return float(values[min(int(share * len(values)), len(values) - 1)])
        value = each["lower"] * (each["upper"] / each["lower"]) ** share
        return (
            float(min(max(round(value), np.ceil(each["lower"])), np.floor(each["upper"]))) if each["integer"] else value
        )

    anywhere = [{each["name"]: at(each, draw.random()) for each in free} for _ in range(count)]
    corners = [{each["name"]: at(each, float(draw.random() < 0.5)) for each in free} for _ in range(count // 2)]
    return anywhere + corners + [{each["name"]: at(each, end)} for each in free for end in (0.0, 1.0)]


def scales(outputs, exact):
    """Return the scale of each output's error: its value, 1 for a logarithm, and the total for a part of a total."""
    scale = np.abs(exact)
    for i, (group, *_) in enumerate(outputs):
        whole = [j for j, other in enumerate(outputs) if other[0] == group]
        if group == "constraint":
            scale[:, i] = np.maximum(scale[:, i], 1.0)
        elif group not in ("objective", "metric", "budget"):
            scale[:, i] = np.abs(exact[:, whole]).sum(axis=1)
    return scale


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_page_computes_what_python_does(browser, tmp_path, name):
    path = tmp_path / "page.html"
    (model,) = page_of(path, name)
    assert path.stat().st_size < 150_000
    settings = settings_of(model)
    with opened(browser, path, *SIZES[1]) as page:
        inputs, texts = zip(*page.evaluate(EVALUATE, settings), strict=True)
    found = np.array([[float(each.replace("Infinity", "inf")) for each in row] for row in texts])
    with np.errstate(all="ignore"):
        exact = reference([model], inputs)
        same = (found == exact) | (np.isnan(found) & np.isnan(exact))
        error = np.where(same, 0.0, np.abs(found - exact) / scales(model.outputs, exact))
    assert found.shape == (len(settings), len(model.outputs)) and np.isfinite(found[:, 0]).any()
    assert np.nanmax(error) < EQUAL and not np.isnan(error).any()


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("live") / "it's <b>.html"
    page_of(path, "train_cost", "train_cost, servers")
    return path


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_control_is_reached_and_moved_by_keyboard(browser, page_path, width, height, scheme):
    with opened(browser, page_path, width, height, scheme) as page:
        ids = page.eval_on_selector_all(
            ".live input, .live select, .live button, .live a", "all => all.map((x) => x.id || x.tagName)"
        )
        reached, moved = [], 0
        for _ in range(2 * len(ids) + 20):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
            if page.evaluate("document.activeElement.type === 'range'") and reached[-1] not in reached[:-1]:
                label = page.evaluate("document.activeElement.getAttribute('aria-valuetext')")
                stops = int(page.evaluate("document.activeElement.max"))
                place = int(page.evaluate("document.activeElement.value"))
                page.keyboard.press("ArrowLeft" if place == stops else "ArrowRight")
                now = int(page.evaluate("document.activeElement.value"))
                assert abs(now - place) == 1 and label and page.evaluate("document.activeElement.labels.length") == 1
                moved += 1
        assert set(ids) <= set(reached) and moved == len([each for each in ids if each.startswith("live-")]) - 1


def test_a_link_holds_the_setting_and_reset_clears_it(browser, page_path):
    with opened(browser, page_path, *SIZES[1], link="#tp=4&power_budget_w=2e7&chips=20000&unknown=3") as page:
        verdict, why = page.locator(".live .verdict"), page.locator(".live .why")
        assert verdict.inner_text() == "Infeasible:" and "power budget exceeded by" in why.inner_text()
        assert "of 20 MW" in why.inner_text() and page.evaluate("location.hash").startswith("#machine=train_cost&tp=4&")
        before = page.locator(".live .now").inner_text()
        page.reload()
        assert page.locator(".live .now").inner_text() == before
        assert "unknown" not in page.evaluate("location.hash")
        page.get_by_role("button", name="Reset").click()
        assert "tp=4" not in page.evaluate("location.hash") and page.locator(".live .change").inner_text() == ""
        page.locator("#live-machine").select_option("1")
        assert "machine=train_cost%2C%20servers" in page.evaluate("location.hash")


def test_the_command_of_a_page_reproduces_its_numbers(browser, page_path, capsys):
    link = "#tp=2&pp=2&chips=512&cluster.facility.electricity_usd_per_j=5e-8&time_budget_s=1e7"
    with opened(browser, page_path, *SIZES[0], link=link) as page:
        command = shlex.split(page.locator(".live .command").inner_text())
        value = page.evaluate("hwopt.run(hwopt.machines[0], hwopt.present().v)[0]")
    assert command[:3] == ["hwopt", "estimate", "--design"]
    main([*command[1:], "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["objective"]["value"] == pytest.approx(value, rel=EQUAL)
    assert document["design"]["tp"]["value"] == 2 and document["design"]["chips"]["value"] == 512


def test_the_start_of_a_page_is_its_answer(browser, page_path):
    with opened(browser, page_path, *SIZES[1]) as page:
        value = page.evaluate("hwopt.machines[0].best.out[0]")
    assert value == pytest.approx(solution_of("train_cost").objective, rel=EQUAL)
