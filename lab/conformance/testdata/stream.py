"""Reads streams of model servers without an SDK: stream.py KIND, and a URL on each line of standard input

Prints of each "begun" when some words have come, at last what has come: a line of JSON.
"""

import json
import sys

kind, url, got = sys.argv[1], "", {}
body = b"{}"


def take(line):
    """Counts the words of a line of the response."""
    text = line.decode() if isinstance(line, bytes) else line
    if f'w{got["words"] + 1} ' in text:
        got["words"] += 1
        if got["words"] == 5:
            print("begun", flush=True)
    elif "the server is shutting down" in text:
        got["error"] = "error event"
    elif "[DONE]" in text:
        got["end"] = "stop"


def lines(parts):
    """Cuts what comes in parts of any size into lines."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            take(line)


def with_requests():
    import requests

    with requests.post(url, data=body, stream=True) as r:
        lines(r.iter_content(None))


def with_urllib3():
    import urllib3

    r = urllib3.PoolManager(retries=False).request("POST", url, body=body, preload_content=False)
    lines(r.stream())


def with_httpx(http2):
    import httpx

    with httpx.Client(http1=not http2, http2=http2, timeout=None) as client:
        with client.stream("POST", url, content=body) as r:
            lines(r.iter_bytes())


def with_aiohttp():
    import asyncio

    import aiohttp

    async def ask():
        async with aiohttp.ClientSession() as session:
            async with session.post(url, data=body) as r:
                async for line in r.content:
                    take(line)

    asyncio.run(ask())


def with_grpc():
    import grpc

    address, _, words = url.removeprefix("http://").partition("/")
    one = bytes([8, 1, 16]) + b"\xa0\x9c\x01"  # size 1, interval_us 20000
    request = (b"\x12" + bytes([len(one)]) + one) * int(words.rpartition("=")[2])
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_stream("/grpc.testing.TestService/StreamingOutputCall")
        for _ in call(request):
            take(f'w{got["words"] + 1} ')
        got["end"] = "stop"


kinds = {
    "requests": with_requests,
    "urllib3": with_urllib3,
    "httpx": lambda: with_httpx(False),
    "httpx-h2": lambda: with_httpx(True),
    "aiohttp": with_aiohttp,
    "grpc": with_grpc,
}

for line in sys.stdin:
    url, got = line.strip(), {"words": 0, "error": None, "end": None}
    try:
        kinds[kind]()
    except Exception as e:
        message = e.code().name if kind == "grpc" and hasattr(e, "code") else f"{type(e).__name__}: {e}"
        got["error"] = ", then ".join(filter(None, [got["error"], message]))
    print(json.dumps(got), flush=True)
