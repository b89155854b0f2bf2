"""A session across a drain: session.py requests|urllib3|httpx|httpx-h2|aiohttp|websockets|aiohttp-ws URL

Makes the requests that sessionapp_test.go knows, until it is told "enough". Prints what has failed, and how many
requests there were.
"""

import asyncio
import os
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor

CA = os.environ["SESSION_CA"]
BODY = b"x" * 3000
PAUSES = [float(s) for s in os.environ["SESSION_PAUSES"].split(",")]  # of each worker, milliseconds

kind, url = sys.argv[1:]
count = failed = 0


def fail(what, e):
    global failed
    failed += 1
    print(f"failed: {what}: {type(e).__name__}: {e}")


# Each is told a method, a path and a body, and returns a status and a body.


async def requests_client():
    import requests

    session = requests.Session()

    def ask(method, path, body):
        r = session.request(method, url + path, data=body, verify=CA)
        return r.status_code, r.content

    return in_threads(ask)


async def urllib3_client():
    import urllib3

    pool = urllib3.PoolManager(maxsize=8, ca_certs=CA)

    def ask(method, path, body):
        r = pool.request(method, url + path, body=body, retries=False)
        return r.status, r.data

    return in_threads(ask)


async def httpx_client(http2=False):
    import httpx

    context = ssl.create_default_context(cafile=CA)
    client = httpx.AsyncClient(http1=not http2, http2=http2, verify=context, timeout=30)

    async def ask(method, path, body):
        r = await client.request(method, url + path, content=body)
        return r.status_code, r.content

    return ask


async def aiohttp_client():
    import aiohttp

    context = ssl.create_default_context(cafile=CA)
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context))

    async def ask(method, path, body):
        try:
            async with session.request(method, url + path, data=body) as r:
                return r.status, await r.read()
        except aiohttp.ClientOSError as e:
            # The connection ended between the pool and the first write: aiohttp has written nothing.
            if "closing transport" not in str(e.__cause__):
                raise
            return await ask(method, path, body)

    return ask


def in_threads(ask):
    threads = ThreadPoolExecutor(16)

    async def asking(*args):
        return await asyncio.get_running_loop().run_in_executor(threads, ask, *args)

    return asking


async def over_http(ask):
    async def want(good, method, path, body=None):
        global count
        count += 1
        try:
            status, answer = await ask(method, path, body)
            if status != 200 or not good(answer):
                raise ValueError(f"{status} {answer[:100]}")
            return answer
        except Exception as e:
            fail(f"{method} {path}", e)

    async def get():
        return await want(lambda answer: answer in (b"more", b"enough"), "GET", "/next")

    await asyncio.gather(*(get() for _ in range(8)))  # connections that are idle at the end of the drain
    enough = False

    async def worker(pause):
        nonlocal enough
        while not enough and failed < 20:
            enough = await get() == b"enough" or enough
            await want(lambda answer: answer == BODY, "POST", "/echo", BODY)
            await asyncio.sleep(pause)

    await asyncio.gather(
        want(lambda answer: answer == b"slow", "GET", "/slow"),
        want(lambda answer: answer == BODY, "POST", "/slow", BODY),
        want(lambda answer: answer.endswith(b"drip\nend\n"), "GET", "/drip"),
        *(worker(pause / 1000) for pause in PAUSES),
    )


async def over_websockets():
    import websockets

    context = ssl.create_default_context(cafile=CA) if url.startswith("https") else None
    global count
    enough = False
    while not enough:
        count += 1
        async with websockets.connect(url.replace("http", "ws", 1) + "/ws", ssl=context) as ws:
            try:
                while not enough:
                    await ws.send("hello")
                    enough = await ws.recv() == "enough"
                    await asyncio.sleep(0.005)
            except websockets.ConnectionClosedOK as e:
                print(f"closed: {e.rcvd.code} {e.rcvd.reason}")
    print("closed: 1000 ")


async def over_aiohttp_ws():
    import aiohttp

    context = ssl.create_default_context(cafile=CA)
    global count
    enough = False
    async with aiohttp.ClientSession() as session:
        while not enough:
            count += 1
            async with session.ws_connect(url + "/ws", ssl=context) as ws:
                await ws.send_str("hello")
                async for message in ws:  # ends with the connection
                    if enough := message.data == "enough":
                        await ws.close()
                        break
                    await asyncio.sleep(0.005)
                    try:
                        await ws.send_str("hello")
                    except ConnectionError:  # the close frame has come meanwhile
                        pass
                print(f"closed: {ws.close_code} ")


async def main():
    if kind == "websockets":
        await over_websockets()
    elif kind == "aiohttp-ws":
        await over_aiohttp_ws()
    else:
        make = {
            "requests": requests_client,
            "urllib3": urllib3_client,
            "httpx": httpx_client,
            "httpx-h2": lambda: httpx_client(http2=True),
            "aiohttp": aiohttp_client,
        }[kind]
        await over_http(await make())
    print(f"{count} requests, {failed} failed", flush=True)
    os._exit(1 if failed else 0)  # clients are left open: nothing is to be learnt from their ends


asyncio.run(main())
