"""What a user's code sees: client.py requests|httpx|websockets URL

Prints the status, the body as it comes, and at the end "clean" or the name of the exception.
"""

import asyncio
import sys


def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def use_requests(url):
    import requests

    with requests.get(url, stream=True) as r:
        say(f"{r.status_code}\n")
        for part in r.iter_content(1):
            say(part.decode())


def use_httpx(url):
    import httpx

    with httpx.stream("GET", url) as r:
        say(f"{r.status_code}\n")
        for part in r.iter_bytes():
            say(part.decode())


async def use_websockets(url):
    import websockets

    async with websockets.connect(url) as ws:
        say("101\n")
        while True:
            try:
                say(await ws.recv())
            except websockets.ConnectionClosed as e:
                say(f"\n{e.rcvd.code if e.rcvd else 1006} {e.rcvd.reason if e.rcvd else ''}")
                raise


name, url = sys.argv[1:]
try:
    if name == "websockets":
        asyncio.run(use_websockets(url))
    else:
        {"requests": use_requests, "httpx": use_httpx}[name](url)
    say("\nclean\n")
except Exception as e:
    say(f"\n{type(e).__name__}\n")
