"""django-push's ping_hub, run as a process of its own: hub and topics are the arguments."""

import sys

from django.conf import settings

settings.configure(PUSH_HUB=sys.argv[1])

from django_push.publisher import ping_hub  # noqa: E402 (it reads the settings)

for topic in sys.argv[2:]:
    print(ping_hub(topic).status_code)
