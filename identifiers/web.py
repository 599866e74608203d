"""http and https topics: the syntax-based normal form of RFC 3986 section 6.2.2, as pure ASCII.

Characters outside ASCII are encoded as RFC 3987 section 3.1 says, without Unicode normalisation:
two spellings that a web server can tell apart stay two topics.
"""

import re
from typing import Final

from identifiers import authority, percent
from identifiers.forms import Canonical, bounded

# Square brackets are not legal here, but RFC 3987 section 3.1 forbids to encode them.
_RAW: Final = percent.SUB_DELIMS + ":@/?[]"
_NORMAL: Final = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/?\[\]]*")


def canonical_web(scheme: str, rest: str) -> Canonical:
    """The canonical form of the topic `scheme`:`rest`. The fragment goes, an empty query stays."""
    site, path, query, _ = authority.split(scheme, rest)
    text = f"{scheme}://{site.text}{_without_dots(_normal(path)) or '/'}{_normal(query)}"
    return bounded(text, site.host)


def _normal(part: str) -> str:
    return part if _NORMAL.fullmatch(part) else percent.normalise(part, raw=_RAW)


def _without_dots(path: str) -> str:
    """RFC 3986 section 5.2.4 for a path that is empty or begins with a slash."""
    if "/." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            # The first is the empty segment before the leading slash.
            del kept[max(1, len(kept) - 1) :]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/".join(kept)
