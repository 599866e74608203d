"""The topic registry: what it finds, what it refuses, and what it survives."""

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import psph.registry
from identifiers import (
    ID_VERSION,
    InvalidHost,
    InvalidTopic,
    RendezvousId,
    identify,
    scope_id,
)
from psph.registry import RegistryError, TopicRegistry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "topics.db"


@pytest.fixture
def registry(path: Path) -> Iterator[TopicRegistry]:
    with TopicRegistry(path) as registry:
        yield registry


# --- Finding --------------------------------------------------------------------------------------


def test_a_topic_is_found_by_its_ids(registry: TopicRegistry) -> None:
    topic = registry.add("HTTP://Example.com:80/feed")
    assert topic == identify("HTTP://Example.com:80/feed")
    assert registry.topic_of(topic.sid, topic.rid) == "http://example.com/feed"
    assert registry.ids_of("http://EXAMPLE.com/feed") == (topic.sid, topic.rid)
    assert "http://example.com/./feed" in registry
    assert len(registry) == 1


def test_what_is_not_known_is_not_found(registry: TopicRegistry) -> None:
    topic = registry.add("http://example.com/feed")
    other = identify("http://example.com/other")
    assert registry.topic_of(other.sid, other.rid) is None
    assert registry.ids_of("http://example.com/other") is None
    assert "http://example.com/other" not in registry
    assert "not a topic" not in registry
    assert 7 not in registry
    # Ids belong together: the right RId under the wrong SId is nobody's.
    assert registry.topic_of(scope_id("example.org"), topic.rid) is None
    # The first 8 bytes find a topic, the others still count.
    assert registry.topic_of(topic.sid, RendezvousId(topic.rid.raw[:31] + b"?")) is None


def test_adding_twice_is_adding_once(registry: TopicRegistry) -> None:
    registry.add("http://example.com/a")
    registry.add("http://example.com/a")
    assert registry.add_many(["http://example.com/b", "http://EXAMPLE.com/a"]) == 1
    assert registry.add_many([]) == 0
    assert len(registry) == 2


def test_removing(registry: TopicRegistry) -> None:
    registry.add_many(["http://example.com/a", "http://example.com/b"])
    assert registry.remove("http://EXAMPLE.com/a")
    assert not registry.remove("http://example.com/a")
    assert list(registry.under("com")) == ["http://example.com/b"]
    assert len(registry) == 1


def test_a_refused_topic_leaves_nothing_behind(registry: TopicRegistry) -> None:
    with pytest.raises(InvalidTopic):
        registry.add("feed.xml")
    with pytest.raises(InvalidTopic):
        registry.add_many(["http://example.com/a", "ftp://example.com/b"])
    assert len(registry) == 0
    registry.add("http://example.com/a")  # and the lock is free again


def test_more_topics_than_go_into_a_batch(registry: TopicRegistry) -> None:
    topics = [f"http://site{n % 100}.example/{n}" for n in range(10_050)]
    assert registry.add_many(topics) == len(registry) == len(topics)
    assert sum(1 for _ in registry.under("example")) == len(topics)


# --- Domains --------------------------------------------------------------------------------------

DOMAINS = [
    "http://example.com/1",
    "http://example.com/2",
    "https://example.com:8443/3",
    "http://www.example.com/",
    "http://a.b.example.com/",
    "xmpp:alice@example.com?to=bob@example.org",
    "mqtt://broker.example.com/a/b",
]
STRANGERS = [
    "http://example.com.evil.org/",
    "http://notexample.com/",
    "http://example-com.com/",
    "http://example.co/",
    "http://example.comx/",
    "http://com/",
    "http://192.0.2.1/",
    "http://[2001:db8::1]/",
    "http://bücher.example/",
    "http://localhost/",
]


def test_everything_under_a_domain(registry: TopicRegistry) -> None:
    registry.add_many(DOMAINS + STRANGERS)
    assert sorted(registry.under("example.com")) == sorted(DOMAINS)
    assert list(registry.under("EXAMPLE.com.")) == list(registry.under("example.com"))
    assert list(registry.under("b.example.com")) == ["http://a.b.example.com/"]
    assert list(registry.under("ple.com")) == []
    assert set(registry.under("com")) == {
        *DOMAINS,
        "http://notexample.com/",
        "http://example-com.com/",
        "http://com/",
    }


@pytest.mark.parametrize(
    ("host", "topic"),
    [
        ("192.0.2.1", "http://192.0.2.1/"),
        ("[2001:DB8:0::1]", "http://[2001:db8::1]/"),
        ("bücher.example", "http://xn--bcher-kva.example/"),
        ("localhost", "http://localhost/"),
    ],
)
def test_under_a_host_that_has_nothing_below(
    registry: TopicRegistry, host: str, topic: str
) -> None:
    registry.add_many(DOMAINS + STRANGERS)
    assert list(registry.under(host)) == [topic]


@pytest.mark.parametrize("domain", ["", ".com", "0.2.1", "a b"])
def test_under_what_is_no_domain(registry: TopicRegistry, domain: str) -> None:
    with pytest.raises(InvalidHost):
        list(registry.under(domain))


def test_a_listing_shows_the_moment_it_began(registry: TopicRegistry) -> None:
    registry.add_many(["http://a.example/", "http://b.example/"])
    listing = registry.under("example")
    assert next(listing) == "http://a.example/"
    registry.remove("http://b.example/")
    registry.add("http://c.example/")
    assert list(listing) == ["http://b.example/"]
    assert list(registry.under("example")) == ["http://a.example/", "http://c.example/"]


def test_a_listing_may_be_left_early(registry: TopicRegistry) -> None:
    registry.add_many(DOMAINS)
    for _ in range(20):
        next(registry.under("com"))
    registry.add("http://example.net/")


# --- RIds that begin alike ------------------------------------------------------------------------


def test_topics_whose_ids_begin_alike_are_told_apart(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psph.registry, "_head", lambda rid: 7)
    topics = ["http://a.example/1", "http://a.example/2", "http://b.example/1"]
    with TopicRegistry(path) as registry:
        assert registry.add_many(topics) == 3
        for topic in topics:
            ids = identify(topic)
            assert registry.topic_of(ids.sid, ids.rid) == topic
        assert list(registry.under("b.example")) == ["http://b.example/1"]
        assert sorted(registry.under("example")) == topics
        assert registry.remove("http://a.example/1")
        assert sorted(registry.under("example")) == topics[1:]
        assert registry.remove("http://a.example/2")
        assert list(registry.under("a.example")) == []
        assert list(registry.under("example")) == topics[2:]


# --- The file -------------------------------------------------------------------------------------


def test_topics_are_there_after_opening_again(path: Path) -> None:
    with TopicRegistry(path) as registry:
        topic = registry.add("http://example.com/feed")
    with TopicRegistry(path) as registry:
        assert registry.topic_of(topic.sid, topic.rid) == topic.canonical


def test_ids_of_another_version_are_made_anew(path: Path) -> None:
    with TopicRegistry(path) as registry:
        topic = registry.add("http://example.com/feed")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE made_for SET id_version = '1-2001-01-01'")
        db.execute("UPDATE topics SET head = head / 2")
        db.execute("INSERT INTO topics VALUES (1, 'gopher://example.com/no longer a topic')")
    db.close()
    with TopicRegistry(path) as registry:
        assert registry.topic_of(topic.sid, topic.rid) == topic.canonical
        assert list(registry.under("example.com")) == [topic.canonical]
        assert len(registry) == 1
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT * FROM made_for").fetchall() == [(str(ID_VERSION),)]
    db.close()


def test_ids_that_do_not_match_are_not_believed(path: Path) -> None:
    with TopicRegistry(path) as registry:
        topic = registry.add("http://example.com/feed")
        with sqlite3.connect(path) as db:
            db.execute("UPDATE topics SET canonical = 'http://evil.example/'")
        db.close()
        assert registry.topic_of(topic.sid, topic.rid) is None


def test_a_newer_format_is_refused(path: Path) -> None:
    TopicRegistry(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(RegistryError, match=r"format 2.*use a newer program"):
        TopicRegistry(path)


def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(RegistryError, match="another program: name another file"):
        TopicRegistry(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    path.write_text("these are notes, not topics\n" * 100)
    with pytest.raises(RegistryError, match="not a topic registry; name another file"):
        TopicRegistry(path)
    assert path.read_text().startswith("these are notes")


def test_a_directory_that_cannot_hold_it(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="check that its directory exists"):
        TopicRegistry(tmp_path / "missing" / "topics.db")


def test_a_damaged_file_says_so(path: Path) -> None:
    with TopicRegistry(path) as registry:
        registry.add_many(f"http://example.com/{n}" for n in range(1_000))
    with path.open("r+b") as file:
        file.seek(4_096)
        file.write(b"\xff" * (path.stat().st_size - 4_096))
    with pytest.raises(RegistryError, match="damaged"):
        TopicRegistry(path)


def test_a_closed_registry_says_so(path: Path) -> None:
    registry = TopicRegistry(path)
    registry.close()
    registry.close()
    with pytest.raises(RegistryError, match="was closed: open it again"):
        registry.add("http://example.com/")


# --- Many at a time -------------------------------------------------------------------------------


def test_threads_read_while_one_writes(registry: TopicRegistry) -> None:
    """Readers see each batch whole or not at all, and what was there before at any time."""
    first = registry.add("http://first.example/")
    batch, batches, readers = 20, 40, 4
    writing = threading.Event()
    failures: list[str] = []
    rounds = [0] * readers

    def read(reader: int) -> None:
        while True:
            last = not writing.is_set()
            found = sum(1 for _ in registry.under("batch.example"))
            if found % batch or registry.topic_of(first.sid, first.rid) != first.canonical:
                failures.append(f"{found} topics")
            rounds[reader] += 1
            if last:
                return

    writing.set()
    threads = [threading.Thread(target=read, args=[reader]) for reader in range(readers)]
    for thread in threads:
        thread.start()
    for n in range(batches):
        registry.add_many(f"http://batch.example/{n}/{m}" for m in range(batch))
    writing.clear()
    for thread in threads:
        thread.join()
    assert not failures
    assert min(rounds) > 1
    assert len(registry) == 1 + batch * batches


OPEN_AND_ADD = """
import sys
from psph.registry import TopicRegistry
path, name = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
with TopicRegistry(path) as registry:
    for n in range(20):
        registry.add(f"http://{name}.example/{n}")
        assert f"http://{name}.example/{n}" in registry
"""


def test_processes_share_a_file_from_its_creation_on(path: Path) -> None:
    names = [f"p{n}" for n in range(5)]
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", OPEN_AND_ADD, str(path), name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for name in names
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        # All at once, when none of them has seen the file.
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.wait(60) for process in processes] == [0] * len(names)
    with TopicRegistry(path) as registry:
        assert len(registry) == 20 * len(names)


# --- Sudden death ---------------------------------------------------------------------------------

WRITE_UNTIL_KILLED = """
import sys
from psph.registry import TopicRegistry
path, life = sys.argv[1:]
registry = TopicRegistry(path)
n = 0
while True:
    registry.add(f"http://life{life}.example/{n}")
    print("one", n, flush=True)
    registry.add_many(f"http://life{life}.example/{n}/{m}" for m in range(50))
    print("many", n, flush=True)
    n += 1
"""


def test_kill_9_loses_nothing_that_was_acknowledged(path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    acknowledged: list[str] = []
    for life in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", WRITE_UNTIL_KILLED, str(path), str(life)],
            stdout=subprocess.PIPE,
            text=True,
        ) as writer:
            assert writer.stdout is not None
            first = writer.stdout.readline()
            time.sleep(moments.uniform(0.0, 0.15))
            writer.send_signal(signal.SIGKILL)
            # A line that was cut off was not acknowledged.
            lines = [first, *writer.stdout]
        assert writer.returncode == -signal.SIGKILL
        acknowledged += [f"{life} {line}" for line in lines if line.endswith("\n")]

    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
    with TopicRegistry(path) as registry:
        for line in acknowledged:
            life_text, kind, n = line.split()
            base = f"http://life{life_text}.example/{n}"
            topics = [base] if kind == "one" else [f"{base}/{m}" for m in range(50)]
            for topic in map(identify, topics):
                assert registry.topic_of(topic.sid, topic.rid) == topic.canonical
        # What was not acknowledged is there whole or not at all, in both tables.
        everything = list(registry.under("example"))
        assert len(everything) == len(set(everything)) == len(registry)
        assert sum(topic.count("/") == 4 for topic in everything) % 50 == 0
        for topic in map(identify, everything):
            assert registry.topic_of(topic.sid, topic.rid) == topic.canonical
