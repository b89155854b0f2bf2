"""An aiohttp app under its own runner: /slow takes 1.5 s."""
import asyncio
import os

from aiohttp import web


async def slow(_):
    await asyncio.sleep(1.5)
    return web.Response(text="hello " * 100)


async def fast(_):
    return web.Response(text="hello")


app = web.Application()
app.add_routes([web.get("/slow", slow), web.get("/fast", fast)])
web.run_app(app, host="127.0.0.1", port=int(os.environ["PORT"]), print=None)
