"""A reviewer and an agent over plain HTTP, as programs outside would be: sessions, CSRF tokens, forms, polls.

Knows nothing of the database or the settings.
"""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, Self

import httpx


class WalkError(Exception):
    """A step did not go as it should; the message says which, and what was answered."""


@dataclass
class Form:
    """A form of a page: where it posts, and its fields' values as they stand."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)


class Forms(HTMLParser):
    """Collects the forms of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a form, or take a field's value."""
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(values.get("action", "")))
            self._inside = True
        elif self._inside and tag == "input" and values.get("name"):
            self.forms[-1].fields[values["name"]] = values.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        """Close a form."""
        if tag == "form":
            self._inside = False


def form_of(page: str, ending: str) -> Form:
    """The form that posts to an address with this ending. Raises WalkError."""
    parser = Forms()
    parser.feed(page)
    for form in parser.forms:
        if form.action.endswith(ending):
            return form
    raise WalkError(f"the page has no form that posts to …{ending}")


class Person:
    """Somebody with a session."""

    def __init__(self, base_url: str) -> None:
        self.http = httpx.Client(base_url=base_url, timeout=30, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def sign_in(self, username: str, password: str) -> Self:
        """Through the form, with its CSRF token. Raises WalkError."""
        page = self.http.get("/accounts/login/")
        fields = form_of(page.text, "/accounts/login/").fields | {"login": username, "password": password}
        answer = self.http.post("/accounts/login/", data=fields, headers=self._origin())
        if answer.status_code != 302:
            raise WalkError(f"{username} could not sign in: {answer.status_code}")
        return self

    def question(self, action_id: str) -> Form:
        """Open an action's page and take its decide form. Raises WalkError."""
        page = self.http.get(f"/actions/{action_id}/")
        if page.status_code != 200:
            raise WalkError(f"the page of action {action_id} answered {page.status_code}")
        return form_of(page.text, "/decide")

    def answer(self, form: Form, verdict: str, reason: str = "") -> httpx.Response:
        """Post a verdict with the bindings of the page that was seen."""
        return self.http.post(
            form.action, data=form.fields | {"verdict": verdict, "reason": reason}, headers=self._origin()
        )

    def decide(self, action_id: str, verdict: str, reason: str = "") -> httpx.Response:
        """Read the page and decide on exactly what it shows."""
        return self.answer(self.question(action_id), verdict, reason)

    def _origin(self) -> dict[str, str]:
        origin = str(self.http.base_url).rstrip("/")
        return {"Origin": origin, "Referer": origin + "/"}


class AgentProgram:
    """An agent: submits under a key that belongs to the operation, and polls until it is final."""

    def __init__(self, base_url: str, token: str) -> None:
        self.http = httpx.Client(
            base_url=base_url, timeout=40, trust_env=False, headers={"Authorization": f"Bearer {token}"}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def submit(self, body: dict[str, Any], key: str) -> httpx.Response:
        """One POST of an action."""
        return self.http.post("/v1/actions", json=body, headers={"Idempotency-Key": key})

    def get(self, action_id: str, wait: int | None = None) -> dict[str, Any]:
        """The action as it is, or as it becomes within `wait` seconds."""
        answer = self.http.get(f"/v1/actions/{action_id}", params={"wait": wait} if wait else None)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def until_final(self, action_id: str, *, polls: int = 8) -> dict[str, Any]:
        """Poll until `final`. Raises WalkError with the last answer."""
        found: dict[str, Any] = {}
        for _ in range(polls):
            found = self.get(action_id, wait=20)
            if found["final"]:
                return found
        raise WalkError(f"action {action_id} did not become final: {found}")
