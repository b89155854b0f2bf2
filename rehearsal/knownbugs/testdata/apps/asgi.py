"""An ASGI app: /slow takes 1.5 s, /tokens streams a token each 0.1 s for 3 s, as a language model's server does."""
import asyncio


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": kind + ".complete"})
            if kind.endswith("shutdown"):
                return
    if scope["path"] == "/tokens":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(30):
            await send({"type": "http.response.body", "body": b"data: token\n\n", "more_body": True})
            await asyncio.sleep(0.1)
        return await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
    if scope["path"] == "/slow":
        await asyncio.sleep(1.5)
    body = b"hello " * 100
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})
