"""Flask-WebSub's hub, run as a process of its own. Threads do what Celery would."""

import sys
import threading

from flask import Flask
from flask_websub.hub import Hub, SQLite3HubStorage
from werkzeug.serving import make_server


class Threads:
    """As much of Celery as the hub uses; tasks are not retried."""

    def task(self, bind=False, **options):
        def decorate(function):
            def delay(*arguments):
                given = (None, *arguments) if bind else arguments
                threading.Thread(target=function, args=given, daemon=True).start()

            function.delay = delay
            return function

        return decorate


app = Flask(__name__)
app.config["PUBLISH_SUPPORTED"] = True
hub = Hub(SQLite3HubStorage(sys.argv[1]), Threads(), SIGNATURE_ALGORITHM=sys.argv[2])
app.register_blueprint(hub.build_blueprint(url_prefix="/hub"))
server = make_server("127.0.0.1", 0, app, threaded=True)
print(f"http://127.0.0.1:{server.server_port}/hub", flush=True)
server.serve_forever()
