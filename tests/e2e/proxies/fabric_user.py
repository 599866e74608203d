"""A node of the fabric in the process of the test, whose user publishes what the test says."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import identify
from psirp_sim.runtime.client import FabricClient
from psph.configuration import NodeConfiguration
from psph.configuration.loading import load

STRANGERS_KEY = Ed25519PrivateKey.from_private_bytes(b"a key that nobody vouches for ..")


def fabric_user(world, name):
    """`async with fabric_user(world, "forger") as fabric`: it has the fabric's key, as a forger in
    the fabric would."""
    node = world.fabric[-1]
    configuration = load(node.directory / "node.toml", NodeConfiguration)
    settings = configuration.fabric.settings(
        configuration.rendezvous.settings(), configuration.publications.settings()
    )
    return FabricClient.connect(
        name, servers=[("127.0.0.1", world.ports[node.name])], settings=settings, timeout=60
    )


async def publish(fabric, topic, content, metadata, *, key=None):
    """A version of a topic, as the metadata describes it."""
    found = identify(topic)
    item = (found.sid, found.rid)
    if (found.sid.raw, found.rid.raw) not in fabric.node.client.offers:
        await fabric.offer(*item, key=key, timeout=60)
    return str(await fabric.publish(*item, content, metadata))
