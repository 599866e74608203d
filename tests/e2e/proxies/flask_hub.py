"""Flask-WebSub's hub as its documentation has it: Celery does the work, over Redis.

    python -m tests.e2e.proxies.flask_hub serve|work REDIS_PORT DATABASE

Two processes of their own, the hub and Celery's worker. Their machine's name service is taken to
know every .test name, which is what the embedded name server says.
"""

from __future__ import annotations

import socket
import sys

from celery import Celery
from flask import Flask
from flask_websub.hub import Hub, SQLite3HubStorage
from werkzeug.serving import make_server

_getaddrinfo = socket.getaddrinfo


def _resolve(host, *arguments, **options):
    known = "127.0.0.1" if isinstance(host, str) and host.endswith(".test") else host
    return _getaddrinfo(known, *arguments, **options)


def main(task, redis_port, database):
    socket.getaddrinfo = _resolve
    redis = f"redis://127.0.0.1:{redis_port}"
    celery = Celery("flask_hub", broker=f"{redis}/0", backend=f"{redis}/1")
    hub = Hub(SQLite3HubStorage(database), celery, SIGNATURE_ALGORITHM="sha256")
    if task == "work":
        celery.worker_main(["worker", "--pool", "threads", "--concurrency", "2", "--loglevel",
                            "warning", "--without-gossip", "--without-mingle"])  # fmt: skip
        return
    app = Flask(__name__)
    app.config["PUBLISH_SUPPORTED"] = True
    app.register_blueprint(hub.build_blueprint(url_prefix="/hub"))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(f"http://127.0.0.1:{server.server_port}/hub", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
