"""A WSGI app: /slow takes 1.5 s."""
import time


def app(environ, start):
    if environ["PATH_INFO"] == "/slow":
        time.sleep(1.5)
    body = b"hello " * 100
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]
