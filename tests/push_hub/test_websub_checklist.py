"""websub.md, point by point, over real HTTP, for each dialect.

`POINTS` says for every numbered point which tests prove it; the last test here sees to it that they
exist.
"""

import ast
import asyncio
import hmac
import time
from pathlib import Path

from tests.push_hub.dialects import DIALECTS, ask, change, each_dialect
from tests.push_hub.world import run, until, world

POINTS = {
    "1": ["test_websub_requests.TestPoint1", "test_requests.test_unknown_parameters_are_ignored",
          "test_subscribing.test_other_bodies_and_large_ones_are_refused"],
    "2": ["test_websub_requests.TestPoint2",
          "test_subscribing.test_a_failed_renewal_leaves_the_live_subscription"],
    "3": ["test_websub_requests.TestPoint3",
          "test_subscribing.test_a_subscription_is_verified_and_told_its_lease"],
    "4": ["test_websub_requests.TestPoint4", "test_subscribing.TestPubSubHubbub03",
          "test_subscribing.test_a_bad_request_gets_a_reason_in_plain_text"],
    "5": ["test_subscribing.test_a_topic_that_is_not_served_is_denied_at_the_callback",
          "test_subscribing.test_an_operator_can_end_a_subscription"],
    "6": ["test_subscribing.test_each_challenge_is_used_once",
          "test_subscribing.test_any_2xx_with_the_challenge_confirms",
          "test_subscribing.test_everything_else_refuses",
          "test_subscribing.test_unsubscribing_is_verified_too"],
    "7": ["test_websub_requests.TestPoint7", "test_subscribing.test_leases_run_out"],
    "8": ["test_websub_updates.TestPoint8",
          "test_publishing.test_a_ping_is_followed_by_a_fetch_and_deliveries",
          "test_publishing.test_a_ping_nobody_cares_about_is_answered_and_forgotten"],
    "9": ["test_websub_updates.TestPoint9",
          "test_publishing.test_redirects_are_followed_and_join_the_spellings",
          "test_publishing.test_fetches_are_conditional_and_say_who_asks_for_how_many",
          "test_publishing.test_compressed_topics_are_read_and_bombs_are_not",
          "test_guarding.test_redirects_are_checked_again"],
    "10": ["test_publishing.TestContentSentDirectly"],
    "11": ["test_websub_updates.TestPoint11",
           "test_distribution.test_a_delivery_has_the_content_and_an_allow_list_of_headers",
           "test_distribution.test_a_secret_signs"],
    "12": ["test_websub_updates.TestPoint12",
           "test_distribution.test_new_entries_only_where_asked_for"],
    "13": ["test_distribution.test_2xx_is_success",
           "test_distribution.test_everything_else_is_retried_under_the_same_id_and_then_dropped",
           "test_distribution.test_retry_after_is_honoured",
           "test_distribution.test_410_ends_the_subscription"],
    "14": ["test_websub_updates.TestPoint14",
           "test_publishing.test_odd_documents_are_delivered_as_they_are"],
    "discovery": ["test_discovery.test_headers_come_first",
                  "test_discovery.test_each_kind_of_document",
                  "test_subscriber.test_links_in_documents_are_found"],
    # Faults of peers that ours must not have.
    "lost concurrent subscriptions": ["test_subscribing.test_two_hundred_at_once_all_survive"],
    "latency bound to polling": ["test_websub_checklist.test_a_ping_is_not_waited_for"],
    "the publisher's headers relayed": [
        "test_distribution.test_a_delivery_has_the_content_and_an_allow_list_of_headers"],
    "only 200 accepted": ["test_subscribing.test_any_2xx_with_the_challenge_confirms"],
    "Upgrade: h2c": ["interop.test_others.test_curl_subscribes_and_publishes"],
    "redirects followed on delivery": [
        "test_distribution.test_everything_else_is_retried_under_the_same_id_and_then_dropped"],
}  # fmt: skip


@each_dialect
def test_a_whole_conversation(tmp_path, dialect):
    """Points 1, 2, 4, 6, 7, 8, 11: subscribe, deliver, renew, unsubscribe."""

    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"one")
            await ask(w, dialect, topic=topic, secret="geheim", lease_seconds="2000")
            asked = w.reader.verifications[-1].query
            assert asked["hub.mode"] == "subscribe"
            assert asked["hub.topic"] == topic
            assert asked["hub.lease_seconds"] == "2000"
            assert asked.get("hub.verify_token") == DIALECTS[dialect].get("verify_token")
            await change(w, b"one")
            await until(lambda: len(w.reader.received) == 1)
            name = "sha256" if dialect == "websub" else "sha1"
            expected = f"{name}={hmac.new(b'geheim', b'one', name).hexdigest()}"
            assert w.reader.received[0].headers["X-Hub-Signature"] == expected

            await ask(w, dialect, topic=topic)
            assert w.reader.verifications[-1].query["hub.lease_seconds"] == "1000"
            await change(w, b"two")
            await until(lambda: len(w.reader.received) == 2)
            assert "X-Hub-Signature" not in w.reader.received[1].headers

            await ask(w, dialect, mode="unsubscribe", topic=topic)
            asked = w.reader.verifications[-1].query
            assert asked["hub.mode"] == "unsubscribe"
            assert asked.get("hub.verify_token") == DIALECTS[dialect].get("verify_token")
            await change(w, b"three")
            await asyncio.sleep(0.1)
            assert len(w.reader.received) == 2

    run(main())


def test_a_ping_is_not_waited_for(tmp_path):
    """From the ping to the delivery there is no polling interval."""

    async def main():
        async with world(tmp_path) as w:
            topic = w.site.put("/t", b"x")
            await w.subscribe(topic)
            times = []
            for n in range(5):
                w.site.put("/t", b"%d" % n)
                begun = time.monotonic()
                await w.ping(topic)
                await until(lambda n=n: len(w.reader.received) == n + 1)
                times.append(time.monotonic() - begun)
            assert sorted(times)[2] < 2  # peers that poll do so every few seconds, or minutes

    run(main())


def test_every_point_has_its_tests():
    assert [str(n) for n in range(1, 15)] == [name for name in POINTS if name.isdigit()]
    here = Path(__file__).parent
    for point, tests in POINTS.items():
        assert tests, point
        for test in tests:
            module, _, name = test.rpartition(".")
            tree = ast.parse((here / f"{module.replace('.', '/')}.py").read_text())
            names = {node.name for node in tree.body if hasattr(node, "name")}
            assert name in names, f"{point}: {test} does not exist"
