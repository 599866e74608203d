"""Where mobility meets what is there: adapters to pub/sub systems, and what carries its messages.

* `mqtt`: MQTT brokers as a pub/sub system that clients move in; `mqtt_connection` under it;
* `mqtt_entrance`: Positions for what publishers send that know nothing of them;
* `mqtt_proxy`: a mobility proxy at a broker.
"""
