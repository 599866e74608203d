"""Why a name was refused: one exception per reason, each with a sentence.

The sentence says what is wrong and what to write instead; it is made where the fault is found.
It does not repeat the whole topic: whoever shows the error knows which topic it belongs to.
"""


class InvalidTopic(ValueError):
    """The topic has no ids. Every refusal of a topic is a subclass of this."""


class RelativeTopic(InvalidTopic):
    """No scheme, or no host where the scheme needs one."""


class UnsupportedScheme(InvalidTopic):
    """A scheme that is none of http, https, xmpp and mqtt."""


class UserinfoInTopic(InvalidTopic):
    """A user name or password before the host."""


class InvalidHost(InvalidTopic):
    """A host that is neither a valid domain name nor an IP address."""


class InvalidPort(InvalidTopic):
    """A port that is not a number from 1 to 65535."""


class ControlCharacter(InvalidTopic):
    """A control character or a lone surrogate, which no URL may contain."""


class SurroundingWhitespace(InvalidTopic):
    """White space before or after the topic."""


class BadPercentEncoding(InvalidTopic):
    """A "%" without two hexadecimal digits, or escapes that are not UTF-8 where text is needed."""


class TopicTooLong(InvalidTopic):
    """More than 2,048 bytes in canonical form."""


class InvalidJid(InvalidTopic):
    """An xmpp: topic that is neither a bare JID nor an ordered pair of them."""


class InvalidMqttTopic(InvalidTopic):
    """An mqtt: topic whose path is not one MQTT topic name."""


class InvalidZone(ValueError):
    """A text that is not the zone of any topic."""


class InvalidId(ValueError):
    """A text or bytes that are not an id, or not an id version."""


class InvalidPosition(ValueError):
    """A text or numbers that are not a Position."""


def shown(text: str) -> str:
    """`text` quoted for an error message, cut where it would drown the sentence."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
