"""The standard library's http.server: HTTP/1.0, and no length unless LENGTH is set. /slow sends for 1.5 s.

At SIGTERM, EXIT exits at once, and FINISH finishes."""
import http.server
import os
import signal
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        parts = 15 if self.path == "/slow" else 1
        self.send_response(200)
        if "LENGTH" in os.environ:
            self.send_header("Content-Length", str(60 * parts))
        self.end_headers()
        for _ in range(parts):
            self.wfile.write(b"hello " * 10)
            if parts > 1:
                time.sleep(0.1)


http.server.ThreadingHTTPServer.daemon_threads = False
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
if "EXIT" in os.environ:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
if "FINISH" in os.environ:
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
server.server_close()
