# The Python clients of the transparency suite. Each line of standard input is a task, "ID KIND URL WORD…"; each line of
# standard output its result, "ID WORD…". README.md describes the words.
import asyncio, concurrent.futures, http.client, ssl, sys, threading, time, urllib.parse, warnings, zlib

import aiohttp, httpx, requests, urllib3

warnings.simplefilter("ignore")
LIMIT = 5
INSECURE = ssl.create_default_context()
INSECURE.check_hostname, INSECURE.verify_mode = False, ssl.CERT_NONE


def answered(status, body):
    return "%d:%d:%08x" % (status, len(body), zlib.crc32(body))


def failed(error, status=None):
    text, seen = "", error
    while seen is not None and len(text) < 10000:
        text += repr(seen)
        seen = seen.__cause__ or seen.__context__
    if "imeout" in text or "imed out" in text:
        return "error:timeout"
    if status:
        return "truncated:%d" % status
    for name, words in (
        ("connect", ("refused",)),
        ("eof", ("RemoteDisconnected", "ServerDisconnected", "without sending a response", "without response")),
        ("reset", ("reset by peer", "BrokenPipe", "Broken pipe", "ReadError", "WriteError", "Cannot write to closing transport")),
    ):
        if any(word in text for word in words):
            return "error:" + name
    return "error:protocol"


def words(text):
    """yields method, path, body, chunked, or a pause"""
    for word in text:
        if word.startswith("~"):
            yield None, int(word[1:]), None, None
            continue
        request, _, times = word.partition("*")
        method, _, path = request.partition("@")
        path, _, size = path.partition(":")
        chunked = size.endswith("c")
        size = size.rstrip("c")
        for _ in range(int(times or 1)):
            yield method, path, b"x" * int(size) if size else None, chunked


def parts(body):
    for at in range(0, len(body), 20000):
        yield body[at : at + 20000]


def with_http_client(url, text):
    at = urllib.parse.urlsplit(url)
    connection = (http.client.HTTPSConnection(at.netloc, timeout=LIMIT, context=INSECURE) if at.scheme == "https"
                  else http.client.HTTPConnection(at.netloc, timeout=LIMIT))
    for method, path, body, chunked in words(text):
        if method is None:
            time.sleep(path / 1000)
            continue
        status = None
        try:
            connection.request(method, path, parts(body) if chunked else body, encode_chunked=bool(chunked),
                               headers={"Transfer-Encoding": "chunked"} if chunked else {})
            response = connection.getresponse()
            status = response.status
            yield answered(status, response.read())
        except Exception as error:
            connection.close()
            yield failed(error, status)
    connection.close()


def with_requests(url, text):
    with requests.Session() as session:
        for method, path, body, chunked in words(text):
            if method is None:
                time.sleep(path / 1000)
                continue
            status = None
            try:
                with session.request(method, url + path, data=parts(body) if chunked else body, timeout=LIMIT, stream=True,
                                     allow_redirects=False, verify=False) as response:
                    status = response.status_code
                    yield answered(status, response.content)
            except Exception as error:
                yield failed(error, status)


def with_httpx(url, text, **options):
    with httpx.Client(timeout=LIMIT, verify=INSECURE, **options) as session:
        for method, path, body, chunked in words(text):
            if method is None:
                time.sleep(path / 1000)
                continue
            status = None
            try:
                with session.stream(method, url + path, content=parts(body) if chunked else body) as response:
                    status = response.status_code
                    yield answered(status, response.read())
            except Exception as error:
                yield failed(error, status)


async def chunks(body):
    for part in parts(body):
        yield part


async def aio(url, text):
    results = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(LIMIT)) as session:
        for method, path, body, chunked in words(text):
            if method is None:
                await asyncio.sleep(path / 1000)
                continue
            status = None
            try:
                async with session.request(method, url + path, data=chunks(body) if chunked else body, allow_redirects=False,
                                           ssl=INSECURE) as response:
                    status = response.status
                    results.append(answered(status, await response.read()))
            except Exception as error:
                results.append(failed(error, status))
    return results


def with_websockets(url, text):
    from websockets.sync.client import connect
    try:
        with connect(url.replace("http", "ws", 1) + "/websocket", open_timeout=LIMIT, max_size=None) as socket:
            for word in text:
                socket.send("y" * int(word) if word.isdigit() else word)
                yield "message:%08x" % zlib.crc32(str(socket.recv(LIMIT)).encode())
    except Exception as error:
        received = getattr(error, "rcvd", None)
        yield "closed:%d" % received.code if received else "error:" + type(error).__name__


KINDS = {
    "http.client": with_http_client,
    "requests": with_requests,
    "httpx": with_httpx,
    "httpx-h2": lambda url, text: with_httpx(url, text, http1=False, http2=True),
    "aiohttp": lambda url, text: asyncio.run(aio(url, text)),
    "websockets": with_websockets,
}
printing = threading.Lock()


def task(line):
    name, kind, url, *text = line.split()
    try:
        result = " ".join(KINDS[kind](url, text))
    except Exception as error:
        result = "broken:" + repr(error).replace(" ", "_")
    with printing:
        print(name, result, flush=True)


with concurrent.futures.ThreadPoolExecutor(160) as pool:
    for each in sys.stdin:
        pool.submit(task, each)
