"""The tables of a made-up world: against duckdb, and against what was made up."""

from __future__ import annotations

import json

import pyarrow.feather as feather
import pytest

from spark_jobs.answers import TABLES
from spark_jobs.journeys import journeys
from spark_jobs.latency import latency_table
from spark_jobs.reading import scan
from tests.spark_jobs import independent

QUANTILES = ("p50_ms", "p90_ms", "p99_ms", "p999_ms")


@pytest.fixture(scope="module")
def made(reported):
    """The clocks and all tables of the report."""
    found = reported.found
    return found.clocks, {name: table.rows for name, table in found.tables.items()}


@pytest.fixture(scope="module")
def db(root, made):
    connection = independent.connect(root, made[0])
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def truth(root):
    return json.loads((root / "_truth" / "truth.json").read_text())


def by(rows, *names):
    return {tuple(row[name] for name in names): row for row in rows}


def summary(row):
    return [row["count"], [row[name] for name in QUANTILES], row["max_ms"], row["histogram"]]


def test_latencies_agree_with_another_computation_exactly(made, db):
    expected = independent.latency(db, "from_domain", "to_domain", "stage")
    found = by(made[1]["latency"], "from_domain", "to_domain", "stage")
    assert found.keys() == expected.keys()
    assert len({stage for *_, stage in found}) >= 5
    for key, (count, quantiles, most, histogram) in expected.items():
        row = found[key]
        assert (row["count"], row["histogram"]) == (count, histogram), key
        assert [row[q] for q in QUANTILES] == pytest.approx(quantiles, rel=1e-12), key
        assert row["max_ms"] == pytest.approx(most, rel=1e-12)


def test_windows_have_the_same_journeys(made):
    totals = by(made[1]["latency"], "from_domain", "to_domain", "stage")
    counted = {}
    for row in made[1]["series"]:
        pair = (row["from_domain"], row["to_domain"])
        counted[pair] = counted.get(pair, 0) + row["count"]
    assert counted == {key[:2]: row["count"] for key, row in totals.items() if key[2] == "total"}
    assert len({row["window_ns"] for row in made[1]["series"]}) > 10


def test_shares_add_up(made, db):
    sums = {}
    for row in made[1]["shares"]:
        pair = (row["from_domain"], row["to_domain"])
        sums[pair] = sums.get(pair, 0) + row["share"]
    assert sums
    assert all(total == pytest.approx(1) for total in sums.values())
    spent = db.execute(
        "WITH spent AS (SELECT from_domain, to_domain, stage, sum(us) AS us FROM latencies"
        "               WHERE stage <> 'total' GROUP BY from_domain, to_domain, stage)"
        " SELECT from_domain, to_domain, stage,"
        "        us / sum(us) OVER (PARTITION BY from_domain, to_domain) FROM spent"
    ).fetchall()
    found = by(made[1]["shares"], "from_domain", "to_domain", "stage")
    assert {key: row["share"] for key, row in found.items()} == pytest.approx(
        {tuple(key): share for *key, share in spent}
    )


def test_losses_repetitions_and_lateness_are_those_that_were_made_up(made, root):
    sends = feather.read_table(root / "_truth" / "sends.arrow").to_pylist()
    expected = {}
    for send in sends:
        row = expected.setdefault((send["topic"], send["subscriber"]), [0, 0, 0, 0, 0])
        came = send["sent"] is not None
        changes = (1, came, not came, send["copies"] - 1 if came else 0, send["late"])
        for place, change in enumerate(changes):
            row[place] += change
    found = {
        (row["topic"], row["subscriber"]):
            [row[name] for name in ("owed", "delivered", "lost", "doubled", "late")]
        for row in made[1]["losses"]
        if " at " not in row["subscriber"]  # of the fabric: proxies
    }  # fmt: skip
    assert found == expected
    assert all(sum(column) > 0 for column in zip(*found.values(), strict=True))


def test_losses_within_the_fabric_agree_with_another_computation(made, db):
    came = db.execute(
        "SELECT topic, subscriber || ' at ' || node, count(DISTINCT trace_id),"
        " count(*) - count(DISTINCT trace_id) FROM events"
        " WHERE stage = 'delivered' AND topic IS NOT NULL GROUP BY ALL"
    ).fetchall()
    found = by(made[1]["losses"], "topic", "subscriber")
    assert len(came) > 5
    for topic, subscriber, delivered, doubled in came:
        row = found[topic, subscriber]
        assert (row["delivered"], row["doubled"]) == (delivered, doubled)
    assert sum(row["lost"] for row in found.values() if " at " in row["subscriber"]) > 0


def test_updates_that_came_to_nobody_are_known(made, db):
    expected = db.execute(
        "SELECT u.topic, count(*), count(*) FILTER (WHERE u.trace_id NOT IN ("
        " SELECT trace_id FROM events WHERE stage IN ('delivered', 'pushed', 'browser_sent')"
        " AND reason IS NULL))"
        " FROM (SELECT DISTINCT trace_id, topic FROM events WHERE topic IS NOT NULL"
        "       AND stage IN ('fetched', 'published') AND reason IS NULL) u GROUP BY ALL"
    ).fetchall()
    found = {row["topic"]: (row["updates"], row["to_nobody"]) for row in made[1]["topics"]}
    assert found == {topic: counts for topic, *counts in expected} | found
    assert {t: list(c) for t, c in found.items()} == {t: c for t, *c in expected}


def test_fan_out_agrees_with_another_computation(made, db):
    expected = db.execute(
        "SELECT topic, count(*), avg(n), avg(nodes), avg(domains), max(n), max(nodes), max(domains)"
        " FROM (SELECT trace_id, topic,"
        " count(DISTINCT CASE WHEN stage = 'delivered' THEN node ELSE subscriber END) AS n,"
        " count(DISTINCT node) AS nodes, count(DISTINCT to_domain) AS domains FROM journeys"
        " JOIN (SELECT DISTINCT trace_id, topic FROM events WHERE topic IS NOT NULL)"
        " USING (trace_id) GROUP BY ALL) GROUP BY topic"
    ).fetchall()
    found = {row["topic"]: tuple(row.values())[1:] for row in made[1]["fan_out"]}
    assert found.keys() == {topic for topic, *_ in expected}
    assert max(domains for *_, domains in found.values()) > 1
    for topic, *figures in expected:
        assert found[topic] == pytest.approx(tuple(figures))


def test_every_hand_off_is_found_with_what_it_lost_and_doubled(made, truth):
    found = by(made[1]["handoffs"], "trace_id")
    assert len(found) == len(truth["handoffs"]) > 3
    for true in truth["handoffs"]:
        row = found[(true["trace_id"],)]
        assert row["subscriber"] == true["subscriber"]
        assert (row["bytes"], row["doubled"]) == (true["bytes"], true["doubled"])
        # What was under way when the client left or was let in counts on one side or the other,
        # and what the fabric lost in that time never waited, but is missing all the same.
        assert row["lost"] == pytest.approx(true["lost"], abs=3)
        assert row["buffered"] + row["lost"] == pytest.approx(true["buffered"], abs=3)
        took = (true["end_ns"] - true["begin_ns"]) / 1e6
        assert row["duration_ms"] == pytest.approx(took, rel=0.001)
        assert row["away_ms"] == pytest.approx((true["begin_ns"] - true["out_ns"]) / 1e6, abs=30)


def test_the_slowest_topics_come_with_their_slowest_update(made, db):
    slowest = made[1]["slowest"]
    order = [row["p99_ms"] for row in slowest]
    assert order == sorted(order, reverse=True)
    for row in slowest:
        most = db.execute(
            "SELECT max(us) / 1000 FROM latencies WHERE stage = 'total' AND trace_id = ?",
            [row["example"]],
        ).fetchone()[0]
        assert row["max_ms"] == most


def test_clocks_are_within_what_is_stated(made, truth):
    clocks = made[0]
    true = {node["node"]: node for node in truth["nodes"]}
    names = [clock.node for clock in clocks.clocks]
    inside = total = 0
    for second in range(0, 60, 10):
        at = truth["start_ns"] + second * 10**9
        for i, one in enumerate(names):
            for j, other in enumerate(names[:i]):
                wrong = _after_correction(clocks, true, one, at, truth) - _after_correction(
                    clocks, true, other, at, truth
                )
                inside += abs(wrong) <= clocks.uncertainties_ns[i][j]
                total += 1
    assert inside / total >= 0.95


def _after_correction(clocks, true, node, at, truth):
    about = true[node]
    elapsed = at - truth["start_ns"]
    wall = at + about["offset_ns"] + about["drift_ppm"] * 1e-6 * elapsed
    return wall - clocks.offset_ns(node, round(wall)) - at


def test_plans_never_pair_everything_with_everything(reported):
    assert reported.plans.keys() >= set(TABLES)
    for name in TABLES:
        plan = reported.plans[name]
        assert "Exchange" in plan, name
        assert "CartesianProduct" not in plan, name
        assert "BroadcastNestedLoopJoin" not in plan, name


def test_events_go_through_the_network_once_and_narrow(made, spark, root):
    events = scan(spark, str(root))
    plan = latency_table(journeys(events, made[0], details=False))._jdf.queryExecution()
    text = plan.executedPlan().toString()
    raw = [line for line in text.splitlines() if "Exchange hashpartitioning(trace_id" in line]
    assert len(raw) == 1
    assert text.count("Sort [trace_id") == 1, "both windows find the order they want"
    assert "Join" not in text.replace("BroadcastHashJoin", ""), "but for the clocks"
    scans = [line for line in text.splitlines() if "FileScan parquet" in line]
    assert scans
    assert all("ReadSchema" in line and "publisher" not in line for line in scans)
    # Latencies are counted before they are sent on: nothing but counts is exchanged after that.
    counted = [line for line in text.splitlines() if "latency_us" in line and "Exchange" in line]
    assert len(counted) == 1
    assert "partial_count" in text[text.index(counted[0].strip()) :]
    assert text.count("percentile(latency_us") <= 2, "all quantiles in one call"
