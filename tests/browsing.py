"""Open pages in a browser for tests: collect console messages, network requests and overflow."""

import contextlib
import shutil

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
SIZES = [(390, 844), (1280, 900)]


def installed():
    """The program of an installed browser; None without one."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextlib.contextmanager
def opened(browser, path, width, height, scheme="light", link=""):
    """A page, and what it complains of or asks the network for."""
    page, complaints = browser.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith("file:") else complaints.append(request.url))
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)
    page.goto(path.as_uri() + link)
    yield page
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
