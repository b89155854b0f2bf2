"""Workers of four queues, and their producers, for workers_test.go.

    python workers.py produce KIND      puts the numbers that it reads from standard input into the queue
    python workers.py work KIND         handles one message at a time

A message is a number; handling it takes 0.3 to 3.0 s, and writes a line before and after. KIND is celery, rq, nats or
postgres; Celery and RQ have programs of their own for the worker. The workers of nats and postgres have no signal
handler, unless FINISH is set; as PID 1 of a container they would then ignore SIGTERM. They leave their loop when the
file STOP appears, and show that they are in it by the file BUSY, and by a connection to the unix socket WORK.
"""

import os
import pathlib
import signal
import socket
import sys
import threading
import time

KIND = os.environ.get("KIND", "")
BROKER = os.environ.get("BROKER", "")


def note(what, n):
    with open(os.environ["EVENTS"], "a") as f:
        f.write(f"{what} {n} {os.environ['WORKER']}\n")


def handle(n):
    note("begin", n)
    time.sleep(0.3 + int(n) * 7919 % 28 / 10)
    note("end", n)


if KIND == "celery":
    import celery

    app = celery.Celery("workers", broker=BROKER)
    app.conf.worker_prefetch_multiplier = 1
    app.conf.task_ignore_result = True
    app.conf.broker_transport_options = {"visibility_timeout": 8}
    app.task(name="handle")(handle)


class Loop:
    """A consumer's loop: it runs until it is stopped between two messages."""

    def __init__(self):
        self.stopped = False
        if os.environ.get("FINISH"):
            signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopped", True))
        else:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as the kernel does for PID 1

    def __enter__(self):
        pathlib.Path(os.environ["BUSY"]).touch()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.environ["WORK"])
        listener.listen()
        self.connections = []

        def accept():
            while True:
                self.connections.append(listener.accept()[0])  # open until the end of the process

        threading.Thread(target=accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        os.remove(os.environ["BUSY"])

    def goes_on(self):
        return not self.stopped and not os.path.exists(os.environ["STOP"])


def work_nats():
    import asyncio

    import nats

    async def consume():
        connection = await nats.connect(BROKER)
        subscription = await connection.jetstream().pull_subscribe("orders", durable="workers")
        with Loop() as loop:
            while loop.goes_on():
                try:
                    messages = await subscription.fetch(1, timeout=0.5)
                except nats.errors.TimeoutError:
                    continue
                for m in messages:
                    await asyncio.to_thread(handle, m.data.decode())
                    await m.ack_sync()
        await connection.close()

    asyncio.run(consume())


def work_postgres():
    import psycopg

    with psycopg.connect(BROKER) as connection, Loop() as loop:
        while loop.goes_on():
            with connection.transaction():
                row = connection.execute("SELECT id FROM orders ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED").fetchone()
                if row:
                    handle(row[0])
                    connection.execute("DELETE FROM orders WHERE id = %s", row)
            if not row:
                time.sleep(0.1)


def produce():
    if KIND == "celery":
        put = lambda n: app.send_task("handle", [n])
    elif KIND == "rq":
        import redis
        import rq

        queue = rq.Queue(connection=redis.Redis.from_url(BROKER))
        put = lambda n: queue.enqueue("workers.handle", n)
    elif KIND == "nats":
        import asyncio

        import nats

        loop = asyncio.new_event_loop()
        connection = loop.run_until_complete(nats.connect(BROKER))
        stream = connection.jetstream()
        loop.run_until_complete(stream.add_stream(name="orders", subjects=["orders"]))
        loop.run_until_complete(stream.add_consumer("orders", durable_name="workers", ack_policy="explicit", ack_wait=6))
        put = lambda n: loop.run_until_complete(stream.publish("orders", n.encode()))
    else:
        import psycopg

        connection = psycopg.connect(BROKER, autocommit=True)
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id int PRIMARY KEY)")
        put = lambda n: connection.execute("INSERT INTO orders VALUES (%s)", [n])
    for line in sys.stdin:
        put(line.strip())
        print(line.strip(), flush=True)
    if KIND == "nats":
        loop.run_until_complete(connection.close())


if __name__ == "__main__":
    {"produce": produce, "work": lambda: globals()["work_" + KIND]()}[sys.argv[1]]()
