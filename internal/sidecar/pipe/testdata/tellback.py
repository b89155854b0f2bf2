"""An app that answers each request with what it has seen of it."""


def app(environ, start_response):
    n = 0
    while data := environ["wsgi.input"].read(65536):
        n += len(data)
    body = f"{environ['REQUEST_METHOD']} {environ['RAW_URI']} {n}".encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
