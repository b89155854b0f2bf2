"""An ASGI app: /slow takes 1.5 s."""
import asyncio


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": kind + ".complete"})
            if kind.endswith("shutdown"):
                return
    if scope["path"] == "/slow":
        await asyncio.sleep(1.5)
    body = b"hello " * 100
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})
