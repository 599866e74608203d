"""zFilters: a delivery tree as a Bloom filter of its links, or as one exact bit for each.

`tags` makes the Link Id Tags, `filters` the filters and their place in a packet's header. Which
filter is best for a tree is the topology manager's business: `topology.choice`.
"""

from psirp_sim.zfilters.filters import (
    MOST_EXACT_BITS,
    Mode,
    ZFilter,
    combine,
    descriptor_length,
    false_positive_rate,
    fill,
)
from psirp_sim.zfilters.tags import SIZES, Scheme, link_id, link_tags, local_id

__all__ = [
    "MOST_EXACT_BITS",
    "SIZES",
    "Mode",
    "Scheme",
    "ZFilter",
    "combine",
    "descriptor_length",
    "false_positive_rate",
    "fill",
    "link_id",
    "link_tags",
    "local_id",
]
