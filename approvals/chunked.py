"""Bodies that come without a length (`Transfer-Encoding: chunked`): read whole, up to a bound, and given one.

WSGI has no word for them, and Django would read an empty body. Only the transport's business; nothing is parsed.
"""

from approvals.asgitypes import Application, Message, Receive, Scope, Send

MOST_BYTES = 256 * 1024
"""More than any address of this application takes; each has its own bound below."""


class WithLength:
    """A wrapper around an ASGI application."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not lacks_length(scope):
            await self.application(scope, receive, send)
            return
        body = await read_whole(receive)
        if body is None:
            return
        if len(body) > MOST_BYTES:
            await refuse(send)
            return
        headers = [pair for pair in scope["headers"] if pair[0] != b"transfer-encoding"]
        headers.append((b"content-length", str(len(body)).encode()))
        given = False

        async def receive_whole() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.application({**scope, "headers": headers}, receive_whole, send)


def lacks_length(scope: Scope) -> bool:
    """Whether a body is announced without its length."""
    names = {name for name, _ in scope["headers"]}
    return b"transfer-encoding" in names and b"content-length" not in names


async def read_whole(receive: Receive) -> bytes | None:
    """The body, cut off where it is too long; None where the client has gone."""
    body = bytearray()
    while len(body) <= MOST_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return bytes(body)


async def refuse(send: Send) -> None:
    """413, and the connection is closed, for the rest of the body is not read."""
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
