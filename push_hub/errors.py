"""Why the hub refused something: named exceptions, each with a sentence that says what to do."""


class HubError(Exception):
    """Everything this room raises on purpose."""


class BadRequest(HubError):
    """A form that breaks the rules; the text goes back to whoever sent it, as text/plain."""


class Refused(HubError):
    """A request in good form that this hub does not serve: a policy, a cap."""


class Busy(HubError):
    """Too much of this is under way: the same request may be served later."""


class AddressRefused(HubError, OSError):
    """An address the hub must not connect to. An OSError, so that connecting simply fails."""


class FetchFailed(HubError):
    """A topic could not be fetched; the text says why, for the diagnostics."""


class TooLarge(FetchFailed):
    """More bytes than the hub takes, before or after decompression."""


class StoreError(HubError):
    """The database cannot be used or refused a write: nothing of the operation happened."""


class StoreInUse(StoreError):
    """Another hub runs on the database; two would deliver everything twice."""


class NewerDatabase(StoreError):
    """The file was written by a later version of this program."""
