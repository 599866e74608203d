"""A reader made of Flask-WebSub's subscriber, run as a process of its own.

It takes commands as JSON lines on stdin and tells what happens as JSON lines on stdout.
"""

import json
import sys
import threading

from flask import Flask
from flask_websub.subscriber import (
    SQLite3SubscriberStorage,
    SQLite3TempSubscriberStorage,
    Subscriber,
    discover,
)
from werkzeug.serving import make_server


def tell(event, **more):
    print(json.dumps({"event": event, **more}), flush=True)


def main(database):
    app = Flask(__name__)
    subscriber = Subscriber(
        SQLite3SubscriberStorage(database), SQLite3TempSubscriberStorage(database)
    )
    app.register_blueprint(subscriber.build_blueprint(url_prefix="/callbacks"))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    app.config["SERVER_NAME"] = f"127.0.0.1:{server.server_port}"

    @subscriber.add_listener
    def on_content(topic, callback_id, body):
        tell("content", topic=topic, id=callback_id, body=body.decode())

    @subscriber.add_success_handler
    def on_success(topic, callback_id, mode):
        tell("success", topic=topic, id=callback_id, mode=mode)

    @subscriber.add_error_handler
    def on_error(topic, callback_id, reason):
        tell("error", topic=topic, id=callback_id, reason=reason)

    threading.Thread(target=server.serve_forever, daemon=True).start()
    tell("ready", port=server.server_port)
    for line in sys.stdin:
        wish = json.loads(line)
        with app.app_context():
            if wish["do"] == "subscribe":
                wanted = discover(wish["url"])
                options = {"requests_opts": {"verify": wish["ca"]}} if wish.get("ca") else {}
                if wish.get("lease"):
                    options["lease_seconds"] = wish["lease"]
                callback_id = subscriber.subscribe(**wanted, **options)
                tell("asked", id=callback_id)
            else:
                getattr(subscriber, wish["do"])(wish["id"])
                tell("asked", id=wish["id"])


main(sys.argv[1])
