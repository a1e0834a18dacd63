"""A real web process and a real Chromium for the tests of the pages.

Without Chromium they are skipped, except in CI, where that is a failure: what nobody ran proves nothing.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect, sync_playwright

from tests.agent_calls import web_server
from tests.factories import PASSWORD

PATHS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
# Told to the page before anything of it runs, so that no violation is missed.
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


def executable() -> str | None:
    """Chromium, wherever it is."""
    named = os.environ.get("CHROMIUM")
    found = [named] if named else [*PATHS, shutil.which("chromium") or ""]
    return next((path for path in found if path and Path(path).exists()), None)


expect.set_options(timeout=15_000)  # the machine may be busy; what does not come at all fails all the same


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    """Playwright; its loop runs in this thread, where Django is told that the database may be used."""
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with sync_playwright() as running:
        yield running
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(scope="package")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    """One Chromium for the whole run."""
    path = executable()
    if path is None:
        message = "no Chromium found; install Debian's package chromium, or name one with CHROMIUM=/path"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
    yield browser
    browser.close()


@pytest.fixture(scope="package")
def site(django_db_setup: None) -> Iterator[str]:
    """The address of a web process on this run's database."""
    with web_server() as running:
        yield running.url


@dataclass
class Seen:
    """A page with everything it complained about and everywhere it went."""

    page: Page
    site: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def sign_in(self, username: str) -> None:
        """Through the form."""
        self.page.goto(f"{self.site}/accounts/login/")
        self.page.fill("[name=login]", username)
        self.page.fill("[name=password]", PASSWORD)
        self.page.click("main button")
        self.page.wait_for_url(f"{self.site}/")

    def open(self, path: str) -> None:
        """Go to an address of the site."""
        self.page.goto(self.site + path)

    def sideways(self) -> int:
        """By how many pixels the page is wider than its window."""
        width: int = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width

    def clean(self) -> None:
        """Nothing was refused by the content security policy, no script failed, nobody else was asked."""
        assert self.page.evaluate("window.violations") == []
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith((self.site, "data:"))] == []


def seen(context: BrowserContext, site: str) -> Seen:
    """A fresh page of a context, watched."""
    context.add_init_script(WATCH)
    page = context.new_page()
    page.set_default_timeout(10_000)
    made = Seen(page, site)
    # a refused request (409, 422) is an answer here, and Chromium's line about it is no complaint
    page.on(
        "console",
        lambda message: (
            made.complaints.append(message.text)
            if message.type in {"error", "warning"} and "Failed to load resource" not in message.text
            else None
        ),
    )
    page.on("pageerror", lambda error: made.complaints.append(str(error)))
    page.on("request", lambda request: made.requests.append(request.url))
    return made


@pytest.fixture
def visitor(chromium: Browser, site: str, db: None) -> Iterator[Seen]:
    """A person at a desk, not signed in."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    yield seen(context, site)
    context.close()
