"""A browser that all tests of pages share."""

import pytest

from tests.browsing import FLAGS, installed


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'hwopt[browser]'")
    program = installed()
    if program is None:
        pytest.skip("no browser is installed")
    with playwright.sync_playwright() as driver:
        folder = tmp_path_factory.mktemp("profile")
        context = driver.chromium.launch_persistent_context(folder, executable_path=program, args=FLAGS)
        yield context
        context.close()
