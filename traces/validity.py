"""Whether an event is what its stage and its types promise: for tests and generators.

Nothing on the path of a packet calls this; a writer takes what it is given.
"""

import msgspec

from traces.event import TraceEvent
from traces.stages import STAGES


class InvalidTraceEvent(ValueError):
    """An event breaks the rules of its stage or of a column's type; the message says which."""


def check(event: TraceEvent) -> None:
    """Raise `InvalidTraceEvent` unless the event may stand in a trace as it is."""
    columns = msgspec.structs.asdict(event)
    try:
        # Without bytes among the builtin types text would pass for base64.
        msgspec.convert(columns, TraceEvent, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise InvalidTraceEvent(f"{event.stage} event: {error}; correct that column") from None
    rule = STAGES[event.stage]
    required = rule.requires if event.reason else rule.requires | rule.unless_reason
    missing = [name for name, value in columns.items() if value is None and name in required]
    if missing:
        raise InvalidTraceEvent(
            f"{event.stage} event without {', '.join(missing)}: its stage requires that"
        )
