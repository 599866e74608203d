"""Where the packets of a topic go that this node publishes: its filters, followed link by link."""

from __future__ import annotations

from aiohttp import web

from identifiers import InvalidTopic, identify
from psirp_sim.node import FabricNode
from psirp_sim.topology.graph import Edge, NoPath
from psirp_sim.topology.spread import TaggedGraph
from psirp_sim.zfilters import Mode, ZFilter


def tree_of(core: FabricNode, topic: str) -> dict[str, object] | None:
    """The links that packets of the topic cross; None when this node does not publish it.

    `links` are those of the shortest paths to the listeners, `false_links` those that Bloom
    filters add. InvalidTopic when it is no topic.
    """
    ids = identify(topic)
    publication = core.rendezvous.publishing.publications.get((ids.sid.raw, ids.rid.raw))
    if publication is None:
        return None
    graph, source = core.database.graph, core.env.node
    listeners = sorted(publication.listeners.keys() - {source})
    reachable = graph.reachable(source)
    try:
        meant = set(graph.tree(source, [each for each in listeners if each in reachable]))
    except NoPath:
        meant = set()
    tagged = TaggedGraph(graph, core.settings.link_seed, core.settings.scheme)
    crossed = {edge for each in publication.filters for edge in follow(tagged, source, each)}
    fills = [each.bits.bit_count() / (8 * each.length) for each in publication.filters]
    return {
        "topic": topic,
        "publisher": source,
        "listeners": listeners,
        "links": [_shown(edge) for edge in sorted(crossed & meant)],
        "false_links": [_shown(edge) for edge in sorted(crossed - meant)],
        "filters": len(fills),
        "bits": max((8 * each.length for each in publication.filters), default=0),
        "fill": round(max(fills), 4) if fills else None,
    }


def follow(tagged: TaggedGraph, source: str, zfilter: ZFilter) -> set[Edge]:
    """The directed links that copies of one packet cross, the first copy at each node going on."""
    if source not in tagged.node_index:
        return set()
    exact = zfilter.mode is Mode.EXACT
    if exact and (tagged.numbering is None or tagged.numbering.number != zfilter.numbering):
        return set()
    tags = tagged.exact if exact else tagged.bloom(8 * zfilter.length, zfilter.table)
    crossed: set[Edge] = set()
    visited: set[str] = set()
    arrivals: list[tuple[str, tuple[str, str] | None]] = [(source, None)]
    while arrivals:
        node, back = arrivals.pop(0)
        if node in visited:
            continue  # its loop cache knows the packet
        visited.add(node)
        for tag, index in tags[tagged.node_index[node]].tags:
            edge = tagged.edges[index]
            if zfilter.bits & tag == tag and (edge.sender, edge.name) != back:
                crossed.add(edge)
                arrivals.append((edge.receiver, edge.back))
    return crossed


def _shown(edge: Edge) -> dict[str, str]:
    return {"from": edge.sender, "to": edge.receiver}


async def tree(core: FabricNode, request: web.Request) -> web.Response:
    """`GET /fabric/tree?topic=URL` at the node that publishes the topic."""
    if not core.begun:
        raise web.HTTPServiceUnavailable(text="the node is starting\n")
    try:
        found = tree_of(core, request.query.get("topic", ""))
    except InvalidTopic as error:
        raise web.HTTPBadRequest(text=f"topic: {error}\n") from None
    if found is None:
        raise web.HTTPNotFound(text="this node does not publish that topic\n")
    return web.json_response(found)
