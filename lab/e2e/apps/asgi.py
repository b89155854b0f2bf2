"""GET /delay/SECONDS answers after that time, everything else at once."""

import asyncio


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"].startswith("/delay/"):
        await asyncio.sleep(float(scope["path"][7:]))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
    await send({"type": "http.response.body", "body": b"{}\n"})
