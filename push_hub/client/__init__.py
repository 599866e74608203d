"""The other side of a hub: following topics, pinging hubs, checking what a site says.

Works with any WebSub or PubSubHubbub hub. `callback` (what may arrive at a callback and what it is
answered) and `checks` (what is right and wrong about a topic) are rules, without I/O; `finding`
fetches a topic and its links, `asking` sends forms to hubs, `server` listens for a callback;
`subscriber` puts them together, `checking` looks at a topic. `streaming` follows topics by stream,
at whichever of several hubs is there.
"""

from push_hub.client.callback import Notification
from push_hub.client.errors import HubRefused, NoHub, SubscriptionEnded, SubscriptionFailed
from push_hub.client.streaming import StreamFollower
from push_hub.client.subscriber import Subscriber
from push_hub.stream_events import StreamBase, StreamEvent, StreamGap, StreamReset, StreamUpdate

__all__ = [
    "HubRefused",
    "NoHub",
    "Notification",
    "StreamBase",
    "StreamEvent",
    "StreamFollower",
    "StreamGap",
    "StreamReset",
    "StreamUpdate",
    "Subscriber",
    "SubscriptionEnded",
    "SubscriptionFailed",
]
