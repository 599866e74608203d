"""Why a client of a hub cannot go on."""

from push_hub.errors import HubError


class NoHub(HubError):
    """The topic names no hub."""


class HubRefused(HubError):
    """A hub could not be reached, or answered with an error; the text says which."""


class SubscriptionFailed(HubError):
    """No hub of the topic confirmed the subscription."""


class SubscriptionEnded(HubError):
    """The hub ended a subscription that had been confirmed."""
