"""The delivery queue in SQLite: lanes, claims and results. Functions of a connection.

A subscription is a lane. `in_flight` is the delivery being attempted, `next_due` the time at which
the lane may go on; one of them is NULL at any time, and both when nothing waits. So the order is
kept, and finding work does not depend on how much is waiting.

What many deliveries share is one statement with a JSON list in or out: each step of a statement
lets go of the interpreter's lock and has to wait for a busy event loop to get it back.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence

from identifiers import Position, PublisherId
from push_hub.lifecycle import Event
from push_hub.store import sqlite_subscriptions
from push_hub.store.records import (
    Delivery,
    DeliveryResult,
    Exchanged,
    Outcome,
    Progress,
    SubscriptionRecord,
    Waiting,
)


def recover(connection: sqlite3.Connection) -> int:
    """Nobody is attempting anything after a start: what was in flight is due again."""
    return connection.execute(
        "UPDATE subscriptions SET in_flight = NULL, next_due = 0 WHERE in_flight IS NOT NULL"
    ).rowcount


def listing(connection: sqlite3.Connection, after: int, limit: int) -> list[Waiting]:
    """What is owed, oldest first."""
    rows = connection.execute(
        "SELECT d.id, s.id AS lane, s.topic, s.callback, u.publisher, u.epoch, u.version,"
        " d.attempt, s.in_flight IS d.id AS flying, s.next_due, s.last_failure FROM deliveries d"
        " JOIN subscriptions s ON s.id = d.subscription LEFT JOIN updates u ON u.seq = d.seq"
        " WHERE d.id > ? ORDER BY d.id LIMIT ?",
        (after, limit),
    )
    return [
        Waiting(
            row["id"], row["lane"], row["topic"], row["callback"],
            None if row["publisher"] is None
            else str(Position(PublisherId(row["publisher"]), row["epoch"], row["version"])),
            row["attempt"], bool(row["flying"]), row["next_due"], row["last_failure"],
        )
        for row in rows
    ]  # fmt: skip


def progress(connection: sqlite3.Connection, topic_id: int, now: float) -> Progress | None:
    """The latest update of a topic, and how far it is with its callbacks."""
    latest = connection.execute(
        "SELECT seq, publisher, epoch, version, recorded_at, json_array_length(entries) AS entries"
        " FROM updates WHERE topic = ? ORDER BY seq DESC LIMIT 1",
        (topic_id,),
    ).fetchone()
    if latest is None:
        return None
    # `last_seq` alone is not enough: a subscription begins with that of the time.
    (delivered,) = connection.execute(
        "SELECT count(*) FROM subscriptions WHERE topic_id = ? AND last_seq >= ?"
        " AND last_success_at >= ? AND state IN ('active', 'renewing')",
        (topic_id, latest["seq"], latest["recorded_at"]),
    ).fetchone()
    owed, retrying, next_at = connection.execute(
        "SELECT count(*), count(CASE WHEN s.next_due > ?3 THEN 1 END),"
        " min(CASE WHEN s.next_due > ?3 THEN s.next_due END) FROM deliveries d"
        " JOIN subscriptions s ON s.id = d.subscription WHERE d.topic_id = ?1 AND d.seq = ?2",
        (topic_id, latest["seq"], now),
    ).fetchone()
    position = Position(PublisherId(latest["publisher"]), latest["epoch"], latest["version"])
    return Progress(position, latest["entries"], delivered, owed, retrying, next_at)


def exchange(
    connection: sqlite3.Connection,
    results: Sequence[DeliveryResult],
    now: float,
    room: int,
    per_host: Mapping[str, int],
    default_per_host: int,
    probes: Mapping[str, int],
) -> Exchanged:
    """Results in, new work out."""
    superseded = 0
    ended: list[SubscriptionRecord] = []
    delivered = [each for each in results if each.outcome is Outcome.DELIVERED]
    _delivered(connection, delivered)
    for result in results:
        if result.outcome in (Outcome.RETRY, Outcome.PROBED):
            superseded += _retry(connection, result)
        elif result.outcome is Outcome.DROPPED:
            _dropped(connection, result)
        elif result.outcome is Outcome.RELEASED:
            connection.execute(
                "UPDATE subscriptions SET in_flight = NULL, next_due = ? WHERE id = ?"
                " AND in_flight = ?",
                # One that was to be probed rests as long as it would have.
                (result.delivery.rests_until or now, result.delivery.subscription,
                 result.delivery.id),
            )  # fmt: skip
        elif result.outcome is Outcome.GONE:
            gone = sqlite_subscriptions.end(
                connection, result.delivery.subscription, Event.GONE, result.reason or "gone", now
            )
            ended += [] if gone is None else [gone]
    claimed: list[Delivery] = []
    if room > 0:
        # Probes first: they are few, and a host that is due anyway is claimed after them.
        resting = _resting(connection, now, probes) if probes else {}
        due = _due(connection, now, room, per_host, default_per_host)
        claimed = _claim(connection, resting | dict.fromkeys(due))
    (next_due,) = connection.execute(
        "SELECT min(next_due) FROM subscriptions WHERE next_due IS NOT NULL AND next_due > ?",
        (now,),
    ).fetchone()
    return Exchanged(tuple(claimed), next_due, superseded, tuple(ended))


def _delivered(connection: sqlite3.Connection, results: Sequence[DeliveryResult]) -> None:
    if not results:
        return
    rows = json.dumps(
        [
            (each.delivery.id, each.delivery.subscription, each.delivery.seq, each.at)
            for each in results
        ]
    )
    connection.execute(
        "DELETE FROM deliveries WHERE id IN (SELECT json_extract(value, '$[0]') FROM json_each(?))",
        (rows,),
    )
    # The guard on in_flight: the subscription may have ended, or begun anew, meanwhile.
    connection.execute(
        "UPDATE subscriptions SET in_flight = NULL, waiting = waiting - 1, failures = 0,"
        " last_success_at = done.at, last_seq = max(last_seq, done.seq),"
        " next_due = CASE WHEN waiting > 1 THEN done.at END FROM"
        " (SELECT json_extract(value, '$[0]') AS delivery, json_extract(value, '$[1]') AS lane,"
        " json_extract(value, '$[2]') AS seq, json_extract(value, '$[3]') AS at"
        " FROM json_each(?)) AS done"
        " WHERE subscriptions.id = done.lane AND in_flight = done.delivery",
        (rows,),
    )


def _retry(connection: sqlite3.Connection, result: DeliveryResult) -> int:
    """Due again later, or superseded by a newer version. A probe is not counted: with an update
    every minute a delivery would be given up within ten minutes."""
    delivery = result.delivery
    counts = result.outcome is Outcome.RETRY
    connection.execute(
        "UPDATE deliveries SET attempt = attempt + ? WHERE id = ?", (counts, delivery.id)
    )
    superseded = connection.execute(
        "DELETE FROM deliveries WHERE id = ?1 AND superseding = 1 AND EXISTS (SELECT 1 FROM"
        " deliveries WHERE subscription = ?2 AND id > ?1 AND superseding = 1)",
        (delivery.id, delivery.subscription),
    ).rowcount
    connection.execute(
        "UPDATE subscriptions SET in_flight = NULL, waiting = waiting - ?, failures = failures + ?,"
        " last_failure_at = ?, last_failure = ?, next_due = ? WHERE id = ? AND in_flight = ?",
        (superseded, counts, result.at, result.reason, result.retry_at, delivery.subscription,
         delivery.id),
    )  # fmt: skip
    return superseded


def _dropped(connection: sqlite3.Connection, result: DeliveryResult) -> None:
    """That notification only; the next one waits as a retry would."""
    delivery = result.delivery
    connection.execute("DELETE FROM deliveries WHERE id = ?", (delivery.id,))
    connection.execute(
        "UPDATE subscriptions SET in_flight = NULL, waiting = waiting - 1, failures = failures + 1,"
        " last_failure_at = ?, last_failure = ?, next_due = CASE WHEN waiting > 1 THEN ? END"
        " WHERE id = ? AND in_flight = ?",
        (result.at, result.reason, result.retry_at, delivery.subscription, delivery.id),
    )


def _resting(
    connection: sqlite3.Connection, now: float, probes: Mapping[str, int]
) -> dict[int, float | None]:
    """Lanes that are not due yet and may be probed, and when they would be."""
    found: dict[int, float | None] = {}
    for host, count in probes.items():
        # In turn: one whose path is broken must not take the place of all others of its host.
        found |= connection.execute(
            "SELECT id, next_due FROM subscriptions WHERE host = ? AND next_due > ?"
            " AND failures > 0 AND state IN ('active', 'renewing') AND expires_at > ?"
            " ORDER BY last_failure_at LIMIT ?",
            (host, now, now, count),
        ).fetchall()
    return found


def _due(
    connection: sqlite3.Connection,
    now: float,
    room: int,
    per_host: Mapping[str, int],
    default_per_host: int,
) -> list[int]:
    """Lanes that are due and that their hosts have room for."""
    full = json.dumps([host for host, free in per_host.items() if free <= 0])
    (due,) = connection.execute(
        "SELECT json_group_array(json_array(id, host)) FROM (SELECT id, host FROM subscriptions"
        " WHERE next_due <= ? AND state IN ('active', 'renewing') AND expires_at > ?"
        " AND host NOT IN (SELECT value FROM json_each(?)) ORDER BY next_due LIMIT ?)",
        (now, now, full, room),
    ).fetchone()
    taken: dict[str, int] = {}
    lanes: list[int] = []
    for lane, host in json.loads(due):
        count = taken.get(host, 0)
        if count < per_host.get(host, default_per_host):
            taken[host] = count + 1
            lanes.append(lane)
    return lanes


def _claim(connection: sqlite3.Connection, lanes: Mapping[int, float | None]) -> list[Delivery]:
    """The first delivery of each lane; for those that are probed it says until when they rest."""
    if not lanes:
        return []
    (found,) = connection.execute(
        "SELECT json_group_array(json_array(d.id, s.id, d.seq, s.topic_id, s.topic, s.callback,"
        " s.host, d.attempt, s.failures, s.last_seq, s.new_entries_only, s.signature,"
        " hex(s.secret))) FROM json_each(?) AS lane JOIN subscriptions s ON s.id = lane.value"
        " JOIN deliveries d ON d.id = (SELECT min(id) FROM deliveries WHERE subscription = s.id)",
        (json.dumps(list(lanes)),),
    ).fetchone()
    claimed: list[Delivery] = []
    for row in json.loads(found):
        *_, new_entries_only, _, secret = row
        row[-3], row[-1] = bool(new_entries_only), bytes.fromhex(secret) or None
        row.append(lanes[row[1]])
        claimed.append(Delivery(*row))
    connection.execute(
        "UPDATE subscriptions SET in_flight = claim.delivery, next_due = NULL FROM"
        " (SELECT json_extract(value, '$[0]') AS lane, json_extract(value, '$[1]') AS delivery"
        " FROM json_each(?)) AS claim WHERE subscriptions.id = claim.lane",
        (json.dumps([(each.subscription, each.id) for each in claimed]),),
    )
    return claimed
