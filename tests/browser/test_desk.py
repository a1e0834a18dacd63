"""The desk in a real browser: by keyboard alone, with hostile text, twice at once, and after a rival."""

from collections.abc import Callable
from uuid import UUID

import pytest
from playwright.sync_api import Browser, expect

from approvals.models import Vote
from ledger.transactions import tenant_reads
from tests.browser.conftest import Seen, seen
from tests.desks import decide, observe, question, row, signed_in, submit
from tests.factories import PASSWORD, World, world

BAD = (
    "</textarea></td></table></main><img src=http://evil.invalid/x onerror=alert(1)>"
    "<script>document.title='taken'</script><b hx-get=/ hx-trigger=load>x</b>\"' onfocus=alert(1) "
    "{{ 7|add:7 }} {% now 'Y' %} javascript:alert(1)"
)
HIDDEN = "\u202e\u2066\u200b\u2060\ufeff\U000e0041\u3164\u2800"


@pytest.fixture
def here(db: None) -> World:
    return world()


def press_until(visitor: Seen, selector: str, limit: int = 40) -> None:
    """Tab until an element has the focus; AssertionError where it never gets it."""
    for _ in range(limit):
        visitor.page.keyboard.press("Tab")
        if visitor.page.evaluate("selector => document.activeElement?.matches(selector) ?? false", selector):
            return
    raise AssertionError(f"{selector} cannot be reached by Tab")


def test_from_signing_in_to_a_verdict_by_keyboard_alone(visitor: Seen, here: World) -> None:
    action_id = question(here)
    following = question(here, amount=700)
    page, keys = visitor.page, visitor.page.keyboard
    visitor.open("/")
    expect(page).to_have_title("Sign in · Second Key")
    keys.type(here.reviewers[0].username)  # the field has the focus
    keys.press("Tab")
    keys.type(PASSWORD)
    keys.press("Enter")
    page.wait_for_url(f"{visitor.site}/")
    press_until(visitor, ".inbox tbody a")
    first = page.evaluate("document.activeElement.href")
    keys.press("ArrowDown")
    assert page.evaluate("document.activeElement.href") != first
    keys.press("k")
    assert page.evaluate("document.activeElement.href") == first
    visitor.open(f"/actions/{action_id}/")
    assert not page.evaluate("document.activeElement.matches('[value=approve]')")
    press_until(visitor, "#reason")
    keys.type("order 77 shows it twice")
    keys.press("Enter")  # a new line, never a verdict
    keys.type("and the customer wrote")
    assert row(here, action_id).status == "pending"
    press_until(visitor, "[value=approve]")
    keys.press("Enter")
    expect(page.locator("#outcome")).to_contain_text("approved this")
    assert page.url == f"{visitor.site}/actions/{action_id}/"
    expect(page.locator("h1")).to_be_focused()
    press_until(visitor, f"a[href='/actions/{following}/']")
    stored = row(here, action_id)
    assert stored.status == "approved"
    visitor.clean()


def test_it_works_without_javascript(chromium: Browser, site: str, here: World) -> None:
    action_id = question(here)
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site}/actions/{action_id}/")
    page.fill("[name=login]", here.reviewers[0].username)
    page.fill("[name=password]", PASSWORD)
    page.click("main button")
    page.wait_for_url(f"{site}/actions/{action_id}/")
    page.click("[value=reject]")
    expect(page.locator("#reason-says")).to_contain_text("Say why you reject this")
    page.fill("#reason", "a dispute is open")
    page.click("[value=reject]")
    expect(page.locator("#outcome")).to_contain_text("rejected this")
    assert page.url == f"{site}/actions/{action_id}/"
    page.click("details.menu summary")
    page.click("text=Sign out")
    page.wait_for_url(f"{site}/accounts/login/**")
    context.close()
    assert row(here, action_id).status == "rejected"


def hostile(here: World) -> UUID:
    """A refund in which every text that others write is an attack."""
    return question(
        here,
        reasoning=f"{BAD} {HIDDEN} " + "claim" * 900,
        note=(BAD + HIDDEN + "n" * 5_000)[:5_000],
        customer="D\u0430na \u202exoF\u202c <b>",
        record={"recipient": BAD + HIDDEN, "instrument": BAD},
    )


PLACES: tuple[tuple[str, Callable[[UUID], str]], ...] = (
    ("inbox", lambda _: "/"),
    ("question", lambda action_id: f"/actions/{action_id}/"),
    ("search", lambda _: "/audit/"),
    ("story", lambda action_id: f"/audit/actions/{action_id}/"),
)


@pytest.mark.parametrize("width", [1280, 320])
@pytest.mark.parametrize("direction", ["ltr", "rtl"])
def test_hostile_text_is_text_and_nothing_else(
    visitor: Seen, here: World, width: int, direction: str
) -> None:  # K51, K52, R-A9
    action_id = hostile(here)
    visitor.page.set_viewport_size({"width": width, "height": 700})
    visitor.sign_in(here.admin.username)
    for name, address in PLACES:
        visitor.open(address(action_id))
        visitor.page.evaluate("direction => document.documentElement.dir = direction", direction)
        assert visitor.sideways() <= 0, name
        assert visitor.page.title() != "taken"
        assert visitor.page.locator("main img, main script, main [onfocus], main [onerror]").count() == 0
        assert visitor.page.locator("main b").count() == 0
        text = visitor.page.inner_text("main")
        for character in HIDDEN:
            assert character not in text, (name, hex(ord(character)))
        if name == "question":
            assert "<script>document.title" in text
            assert "{{ 7|add:7 }}" in text
            for number in ("U+202E", "U+2066", "U+200B", "U+2060", "U+FEFF", "U+E0041", "U+3164", "U+2800"):
                assert number in text, number
            assert "n" * 2_000 in text.replace("\n", "")
        visitor.clean()
    assert {url.split("?")[0].split("/")[3] for url in visitor.requests if url.startswith("http")} <= {
        "",
        "accounts",
        "actions",
        "audit",
        "static",
    }


def test_two_presses_at_once_are_one_verdict(visitor: Seen, here: World) -> None:  # K29
    action_id = question(here)
    visitor.sign_in(here.reviewers[0].username)
    visitor.open(f"/actions/{action_id}/")
    visitor.page.dblclick("[value=approve]")
    expect(visitor.page.locator("#outcome")).to_contain_text("approved this")
    with tenant_reads(here.tenant_id):
        assert Vote.objects.filter(action_id=action_id).count() == 1
    visitor.clean()


def test_who_comes_second_sees_who_was_first_in_the_same_place(visitor: Seen, here: World) -> None:  # K29
    action_id = question(here)
    visitor.sign_in(here.reviewers[0].username)
    visitor.open(f"/actions/{action_id}/")
    visitor.page.fill("#reason", "my reason")
    decide(signed_in(here.reviewers[1]), action_id, "approve")
    visitor.page.click("[value=reject]")
    said = visitor.page.locator(".refusal h2")
    expect(said).to_contain_text(f"{here.reviewers[1].username} approved this")
    expect(said).to_be_focused()
    assert visitor.page.url == f"{visitor.site}/actions/{action_id}/"
    assert visitor.page.locator("form.verdict").count() == 0
    visitor.clean()


def test_a_refused_field_is_said_beside_it_and_the_reason_stays(visitor: Seen, here: World) -> None:
    action_id = question(here)
    visitor.sign_in(here.reviewers[0].username)
    visitor.open(f"/actions/{action_id}/")
    visitor.page.click("[value=reject]")
    expect(visitor.page.locator("#reason-says")).to_contain_text("Say why")
    visitor.page.fill("#reason", "not ours")
    visitor.page.click("[value=reject]")
    expect(visitor.page.locator("#outcome")).to_contain_text("not ours")
    visitor.clean()


def test_approving_becomes_possible_when_the_record_has_been_read(visitor: Seen, here: World) -> None:
    action_id = submit(here)
    visitor.sign_in(here.reviewers[0].username)
    visitor.open(f"/actions/{action_id}/")
    expect(visitor.page.locator("[value=approve]")).to_be_disabled()
    observe(here, action_id)
    visitor.page.click("#news a")  # it appears by itself
    expect(visitor.page.locator("[value=approve]")).to_be_enabled()
    visitor.clean()


def test_a_lost_session_moves_the_whole_page_to_sign_in(visitor: Seen, here: World) -> None:
    action_id = question(here)
    visitor.sign_in(here.reviewers[0].username)
    visitor.open(f"/actions/{action_id}/")
    visitor.page.context.clear_cookies(name="sessionid")
    visitor.page.click("[value=approve]")
    visitor.page.wait_for_url(f"{visitor.site}/accounts/login/?next=/actions/{action_id}/")
    assert row(here, action_id).status == "pending"


@pytest.mark.parametrize("width", [320, 640, 1280])
def test_the_verdict_can_be_reached_at_every_width(
    chromium: Browser, site: str, here: World, width: int
) -> None:
    action_id = question(here)
    context = chromium.new_context(viewport={"width": width, "height": 640}, has_touch=True)
    visitor = seen(context, site)
    visitor.sign_in(here.reviewers[0].username)
    assert visitor.sideways() <= 0
    visitor.open(f"/actions/{action_id}/")
    assert visitor.sideways() <= 0
    for name in ("approve", "reject"):
        box = visitor.page.locator(f"[value={name}]").bounding_box()
        assert box is not None
        assert box["height"] >= 36
        if width <= 640:
            assert box["y"] + box["height"] <= 640  # stuck to the bottom, seen without scrolling
    visitor.clean()
    context.close()
