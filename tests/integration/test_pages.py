"""Every page as a stranger, as another tenant and as a member meets it; and the headers that all of them carry."""

import re
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals import tenants
from approvals.models import Role
from tests.desks import question, row, signed_in
from tests.factories import PASSWORD, World, person, world

pytestmark = pytest.mark.usefixtures("db")

HTMX = {"HX-Request": "true"}
PAGES: tuple[Callable[[UUID], str], ...] = (
    lambda _: "/",
    lambda _: "/help/",
    lambda _: "/audit/",
    lambda action_id: f"/actions/{action_id}/",
    lambda action_id: f"/audit/actions/{action_id}/",
)


@pytest.fixture
def here() -> World:
    return world()


@pytest.mark.parametrize("address", PAGES)
def test_a_stranger_is_sent_to_sign_in(address: Callable[[UUID], str]) -> None:
    path = address(uuid4())
    answer = Client().get(path)
    assert answer.status_code == 302
    assert answer["Location"] == f"/accounts/login/?next={path}"


@pytest.mark.parametrize("address", PAGES)
def test_a_fragment_of_a_stranger_moves_the_whole_page(address: Callable[[UUID], str]) -> None:
    path = address(uuid4())
    assert Client().get(path, headers=HTMX)["HX-Redirect"] == f"/accounts/login/?next={path}"


def test_after_signing_in_a_stale_verdict_goes_back_to_its_question() -> None:
    action_id = uuid4()
    answer = Client().post(f"/actions/{action_id}/decide", {"verdict": "approve"})
    assert answer.status_code == 302
    assert answer["Location"].endswith(f"?next=/actions/{action_id}/")


def test_signing_in_and_out_through_the_forms(here: World) -> None:
    client = Client(enforce_csrf_checks=True)
    page = client.get("/accounts/login/").content.decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
    assert token
    fields = {"login": here.reviewers[0].username, "csrfmiddlewaretoken": token[1]}
    refused = client.post("/accounts/login/", fields | {"password": "wrong"})
    assert refused.status_code == 200
    assert b'role="alert"' in refused.content
    answer = client.post("/accounts/login/", fields | {"password": PASSWORD})
    assert (answer.status_code, answer["Location"]) == (302, "/")
    inbox = client.get("/").content.decode()
    assert "Nothing waits for you." in inbox
    assert "Test tenant" in inbox
    out = re.search(r'action="/accounts/logout/">\s*<input [^>]*value="(\w+)"', inbox)
    assert out
    assert client.get("/accounts/logout/").status_code == 200  # K45: a GET asks, it does not sign out
    assert client.get("/").status_code == 200
    assert client.post("/accounts/logout/", {"csrfmiddlewaretoken": out[1]}).status_code == 302
    assert client.get("/").status_code == 302


def test_nobody_signs_up_by_themselves() -> None:
    page = Client().get("/accounts/signup/")
    assert b"Nobody signs up here by themselves" in page.content
    assert b"<form" not in page.content


def test_without_a_tenant_there_is_a_plain_page() -> None:
    answer = signed_in(person("lone")).get("/")
    assert answer.status_code == 403
    assert b"You belong to no tenant" in answer.content


def test_a_member_whose_roles_were_taken_sees_nothing_more(here: World) -> None:  # K41
    action_id = question(here)
    client = signed_in(here.reviewers[0])
    assert client.get(f"/actions/{action_id}/").status_code == 200
    tenants.revoke_roles(here.tenant_id, here.reviewers[0])
    for path in ("/", f"/actions/{action_id}/"):
        assert client.get(path).status_code == 403
    assert client.post(f"/actions/{action_id}/decide", {}).status_code == 403


def test_in_two_tenants_the_first_is_shown_and_the_session_may_name_the_other(here: World) -> None:
    other = world()
    user = here.reviewers[0]
    tenants.grant_roles(other.tenant_id, user, [Role.REVIEWER])
    action_id = question(other)
    client = signed_in(user)
    assert client.get(f"/actions/{action_id}/").status_code == 404
    session = client.session
    session["tenant_id"] = str(other.tenant_id)
    session.save()
    assert client.get(f"/actions/{action_id}/").status_code == 200
    session["tenant_id"] = str(world().tenant_id)  # one that is not theirs
    session.save()
    assert client.get(f"/actions/{action_id}/").status_code == 404


@pytest.mark.parametrize("path", ["/actions/{}/", "/audit/actions/{}/"])
def test_a_foreign_action_and_none_at_all_are_the_same(here: World, path: str) -> None:  # K43
    foreign = question(world())
    client = signed_in(here.admin)
    answers = [client.get(path.format(one)) for one in (foreign, uuid4())]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].content == answers[1].content


def test_deciding_on_a_foreign_action_is_the_same_as_on_none(here: World) -> None:  # K43
    there = world()
    foreign = question(there)
    client = signed_in(here.reviewers[0])
    own = {"verdict": "approve", "state_version": "1", "fingerprint": "x", "policy_version": "1"}
    for fields in ({}, own | {"view_digest": "y", "seq": "1"}):
        answers = [client.post(f"/actions/{one}/decide", fields) for one in (foreign, uuid4())]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert answers[0].content == answers[1].content
    assert row(there, foreign).status == "pending"


def test_a_foreign_action_is_in_no_list(here: World) -> None:  # K43
    there = world()
    foreign = question(there)
    client = signed_in(here.admin)
    for path in ("/", "/audit/", f"/audit/?q={foreign}", f"/audit/?q={row(there, foreign).run_id}"):
        assert f"actions/{foreign}/".encode() not in client.get(path).content


def test_stories_are_for_auditors_and_administrators(here: World) -> None:
    action_id = question(here)
    reviewer = signed_in(here.reviewers[0])
    for path in ("/audit/", f"/audit/actions/{action_id}/"):
        assert reviewer.get(path).status_code == 403
    assert b"/audit/" not in reviewer.get("/").content
    auditor = person("audra")
    tenants.grant_roles(here.tenant_id, auditor, [Role.AUDITOR])
    assert signed_in(auditor).get(f"/audit/actions/{action_id}/").status_code == 200


def test_every_page_carries_its_headers(here: World) -> None:
    action_id = question(here)
    client = signed_in(here.admin)
    for address in PAGES:
        answer = client.get(address(action_id))
        assert answer.status_code == 200
        policy = answer["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer["Cache-Control"] == "no-store"
        assert "HX-Request" in answer["Vary"]
        assert answer["X-Frame-Options"] == "DENY"
        text = answer.content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text)
        assert text.lower().startswith("<!doctype html>")


def test_a_fragment_is_the_main_region_of_the_same_page(here: World) -> None:
    action_id = question(here)
    client = signed_in(here.admin)
    for address in PAGES:
        fragment = client.get(address(action_id), headers=HTMX).content.decode()
        assert fragment.startswith("<title>")
        assert "<h1" in fragment
        for outside in ("<html", "<body", '<header class="top"', "<script"):
            assert outside not in fragment


def test_the_inbox_costs_as_many_queries_for_fifty_as_for_one(here: World) -> None:
    client = signed_in(here.reviewers[0])
    question(here)
    counts = []
    for more in (0, 49):
        for number in range(more):
            question(here, amount=100 + number)
        with CaptureQueriesContext(
            connection,
        ) as captured:
            page = client.get("/")
        assert page.content.count(b"<tr>") == more + 2
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 20


def test_changing_a_password_through_the_form(here: World) -> None:
    user = here.reviewers[0]
    client = Client()
    client.post("/accounts/login/", {"login": user.username, "password": PASSWORD})
    page = client.get("/accounts/password/change/").content.decode()
    assert "uccessfully" not in page
    fields = {"oldpassword": PASSWORD, "password1": "short", "password2": "short"}
    assert b"errorlist" in client.post("/accounts/password/change/", fields).content
    new = "another horse, another battery"
    fields |= {"password1": new, "password2": new}
    assert client.post("/accounts/password/change/", fields).status_code == 302
    signed_out = Client()
    signed_out.post("/accounts/login/", {"login": user.username, "password": new})
    assert signed_out.get("/").status_code == 200


@pytest.mark.parametrize(
    "name",
    ["login", "logout", "inactive", "signup", "email", "password/change", "password/reset", "reauthenticate"],
)
def test_every_page_of_an_account_has_our_look(here: World, name: str) -> None:
    for client in (Client(), signed_in(here.reviewers[0])):
        answer = client.get(f"/accounts/{name}/", follow=True)
        assert answer.status_code == 200
        text = answer.content.decode()
        assert "/static/css/tokens.css" in text
        assert "Menu:" not in text
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text)
