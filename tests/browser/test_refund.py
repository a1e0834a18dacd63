"""The main job with everything real: agent over HTTP, reviewer in Chromium, worker, provider's books (R-G4)."""

from playwright.sync_api import Browser, expect

from tests.browser.conftest import seen
from tests.live import live, refund_body
from tests.sandbox_process import wait_until


def test_a_refund_goes_through_once_under_a_reviewers_eyes(chromium: Browser) -> None:
    with live() as system:
        system.start_worker()
        here = system.world()
        payment = system.payment(here)
        with system.agent(here) as agent:
            answer = agent.submit(refund_body(payment), key="operation-77")
            assert answer.status_code == 201, answer.text
            action_id = answer.json()["id"]
            context = chromium.new_context()
            visitor = seen(context, system.base_url)
            visitor.sign_in(here.reviewers[0].username)
            page = visitor.page
            page.click(".inbox tbody a")
            expect(page.locator("h1")).to_contain_text("Refund 49.00 USD")
            # the record may still be on its way; the page says so and offers the fresh one by itself
            approve = page.locator("[value=approve]")
            if approve.is_disabled():
                page.click("#news a")
            expect(page.locator(".diff-refundable")).to_contain_text("51.00 USD")
            expect(approve).to_be_enabled()
            approve.click()
            outcome = page.locator("#outcome")
            expect(outcome).to_contain_text("approved this")
            expect(outcome).to_contain_text("Done", timeout=20_000)  # by itself, without a reload
            found = wait_until(
                lambda: (body := agent.get(action_id, wait=2))["final"] and body, seconds=20, what="the end"
            )
        reference = found["execution"]["receipt"]["reference"]
        expect(outcome).to_contain_text(reference)
        assert system.refunds(payment) == [4_900]
        assert system.sandbox.calls("refund.create") == 1
        visitor.clean()
        context.close()
