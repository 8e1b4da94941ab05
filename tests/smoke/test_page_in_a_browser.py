"""Pages in a real browser: on a phone and on a desk nothing overflows or fails, and a point of the front answers."""

import contextlib
import io

import pytest

from hwopt.cli import main
from tests.browsing import SIZES, opened

pytestmark = pytest.mark.slow

SMALL = "tp=8:8,pp=8:8,virtual_stages=16:16,micro_batch=1:1"


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """A page of each command."""
    folder = tmp_path_factory.mktemp("reports")
    commands = {
        "optimize": ["optimize", "train_cost", "--bounds", SMALL],
        "sweep": [
            "sweep",
            "train_time",
            "--capex-budget-usd",
            "1e10",
            "--power-budget-w",
            "3e8",
            "--samples",
            "20,000",
        ],
    }
    for name, command in commands.items():
        with contextlib.redirect_stdout(io.StringIO()):
            assert main([*command, "--report", str(folder / f"{name}.html")]) == 0
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_answer_of_optimize_is_seen(browser, reports, width, height, scheme):
    with opened(browser, reports / "optimize.html", width, height, scheme) as page:
        answer = page.locator(".answer .big").bounding_box()
        assert answer is not None and answer["y"] + answer["height"] < height  # without scrolling
        for title in ("Budgets", "Design", "Sensitivities", "How good is it"):
            assert page.get_by_role("heading", name=title, exact=True).is_visible()
        assert page.get_by_role("row", name="chips").first.is_visible()
        assert page.locator("section > .budgets .bar").count() == 3


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_point_of_the_front_says_what_it_is(browser, reports, width, height):
    with opened(browser, reports / "sweep.html", width, height) as page:
        assert page.get_by_role("heading", name="Best design: variant").is_visible()
        points, tip = page.locator("figure.points .point"), page.locator("figure.points .tip")
        assert points.count() > 1 and tip.is_hidden()
        points.nth(1).scroll_into_view_if_needed()
        points.nth(1).hover(force=True)
        assert tip.is_visible() and "run time" in tip.inner_text() and "chips" in tip.inner_text()
        box = tip.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width
        page.mouse.move(2, 2)
        assert tip.is_hidden()


def test_the_keyboard_goes_from_point_to_point(browser, reports):
    with opened(browser, reports / "sweep.html", *SIZES[1]) as page:
        tip = page.locator("figure.points .tip")
        page.locator("figure.points .point[tabindex='0']").focus()
        first = tip.inner_text()
        page.keyboard.press("ArrowRight")
        second = tip.inner_text()
        assert first and second and first != second
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == second.replace("\n", ", ")
        page.keyboard.press("Escape")
        assert tip.is_hidden()
