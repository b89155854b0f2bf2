# One app for gunicorn and uWSGI (WSGI) and for uvicorn (ASGI); servers.go describes its paths.
import asyncio, time, zlib

BIG = b"b" * (1 << 20)


def simple(path):
    return {
        "/ok": ("200 OK", b"ok\n", []),
        "/close": ("200 OK", b"ok\n", [("Connection", "close")]),
        "/big": ("200 OK", BIG, []),
        "/204": ("204 No Content", b"", []),
        "/304": ("304 Not Modified", b"", [("ETag", '"1"')]),
        "/early": ("413 Content Too Large", b"too large\n", []),
    }.get(path, ("404 Not Found", b"nothing here\n", []))


def wsgi(environ, start):
    path = environ["PATH_INFO"]
    if path == "/echo":
        source, body = environ["wsgi.input"], b""
        while part := source.read(65536):
            body += part
        answer = b"%d %08x\n" % (len(body), zlib.crc32(body))
        start("200 OK", [("Content-Length", str(len(answer)))])
        return [answer]
    if path == "/stream":
        start("200 OK", [("Content-Type", "text/plain")])
        return stream()
    if path == "/cut":
        start("200 OK", [("Content-Length", "5000")])
        return cut()
    status, body, headers = simple(path)
    if not status.startswith(("204", "304")):
        headers = headers + [("Content-Length", str(len(body)))]
    # PEP 3333 forbids an app to set it.
    start(status, [h for h in headers if h[0] != "Connection"])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def stream():
    for n in range(5):
        yield b"part %d\n" % n
        time.sleep(0.02)


def cut():
    yield b"c" * 1000
    time.sleep(0.05)
    raise OSError("cut")


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": kind + ".complete"})
            if kind == "lifespan.shutdown":
                return
    if scope["type"] == "websocket":
        return await websocket(receive, send)
    path, method = scope["path"], scope["method"]

    async def begin(status, headers):
        await send({"type": "http.response.start", "status": status, "headers": [(k.lower().encode(), v.encode()) for k, v in headers]})

    async def body(data, more=False):
        await send({"type": "http.response.body", "body": data, "more_body": more})

    if path == "/echo":
        got, more = b"", True
        while more:
            event = await receive()
            got, more = got + event.get("body", b""), event.get("more_body", False)
        await begin(200, [])
        await body(b"%d %08x\n" % (len(got), zlib.crc32(got)))
    elif path == "/stream":
        await begin(200, [])
        for n in range(5):
            await body(b"part %d\n" % n, True)
            await asyncio.sleep(0.02)
        await body(b"")
    elif path == "/cut":
        await begin(200, [("Content-Length", "5000")])
        await body(b"c" * 1000, True)
        await asyncio.sleep(0.05)
        raise OSError("cut")
    else:
        status, content, headers = simple(path)
        if not status.startswith(("204", "304")):
            headers = headers + [("Content-Length", str(len(content)))]
        await begin(int(status[:3]), headers)
        await body(b"" if method == "HEAD" else content)


async def websocket(receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while True:
        event = await receive()
        if event["type"] == "websocket.disconnect":
            return
        text = event.get("text") or ""
        if text == "bye":
            return await send({"type": "websocket.close", "code": 4001})
        await send({"type": "websocket.send", "text": text})
