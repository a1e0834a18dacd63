"""The agent API through a real web process: bodies without a length, bodies that are too long, HEAD, HTTP itself."""

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.agent_calls import WebServer, new_key, submission, web_server
from tests.factories import World, world

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture(scope="module")
def server(django_db_setup: None) -> Iterator[WebServer]:
    with web_server() as running:
        yield running


@pytest.fixture
def made() -> World:
    return world()


def post(server: WebServer, made: World, content: bytes | Iterator[bytes]) -> httpx.Response:
    """A submission over a connection of its own."""
    headers = {
        "Authorization": f"Bearer {made.token}",
        "Idempotency-Key": new_key(),
        "Content-Type": "application/json",
    }
    return httpx.post(f"{server.url}/v1/actions", content=content, headers=headers, timeout=20)


def test_a_chunked_body_is_read(server: WebServer, made: World) -> None:
    text = json.dumps(submission()).encode()
    answer = post(server, made, iter([text[:40], text[40:]]))
    assert answer.status_code == 201


def test_a_body_that_is_too_long_is_413_with_and_without_a_length(server: WebServer, made: World) -> None:
    answer = post(server, made, b" " * 65_537)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    answer = post(server, made, iter([b" " * 33_000, b" " * 33_000]))
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_head_and_errors_over_http(server: WebServer, made: World) -> None:
    headers = {"Authorization": f"Bearer {made.token}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=20) as client:
        obj = client.post("/v1/actions", json=submission(), headers={"Idempotency-Key": new_key()}).json()
        for _ in range(2):  # on one connection: the answers stay in step
            head = client.head(f"/v1/actions/{obj['id']}")
            got = client.get(f"/v1/actions/{obj['id']}")
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["ETag"] == got.headers["ETag"]
            assert (
                client.get(
                    f"/v1/actions/{obj['id']}", headers={"If-None-Match": got.headers["ETag"]}
                ).status_code
                == 304
            )
            assert client.delete("/v1/actions").headers["Content-Type"] == "application/problem+json"
    assert httpx.get(f"{server.url}/v1/me", timeout=20).status_code == 401
    assert httpx.get(f"{server.url}/readyz", timeout=20).status_code == 200
