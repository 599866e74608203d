"""What operators see of PSPHs: traces, metrics, health, the probe, and the check of a file."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tomllib

import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from psph.commands.serve import serve
from tests.e2e.domains import PSPH
from tests.e2e.node_process import PATIENCE, ROOT
from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.names import BLOG, LIAR, SHOP, A, B, C
from tests.push_hub.feeds.documents import atom

COLUMNS = ["trace_id", "stage", "topic", "wall_ns"]


def psph(*arguments):
    return subprocess.run(
        [*PSPH, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def traced(world, topic):
    """All trace events of a topic that the processes of the world have written."""
    events = []
    for proxy in world.proxies.values():
        for path in (proxy.directory / "traces").rglob("*.parquet"):
            # By itself: the folders of a dataset are columns, too.
            rows = parquet.ParquetFile(path).read(columns=COLUMNS).to_pylist()
            node = path.parent.name.removeprefix("node=")
            events += [{**row, "node": node} for row in rows if row["topic"] == topic]
    return events


def test_one_trace_id_leads_through_all_stages(world):
    async def story(around):
        topic, reader = around.site(f"news.{B}", "/traced.xml"), around.callback("traced")
        around.put("/traced.xml", atom(("a", "1")))
        async with around.browser(A, topic) as browser:
            await around.subscribe(A, topic, reader)
            await around.is_brought(A, topic)
            around.put("/traced.xml", atom(("b", "2"), ("a", "1")))
            await around.ping(B, topic)
            await until(lambda: reader.posts and browser.updates)
            await until(lambda: browser.updates[-1]["position"] == reader.posts[-1].position)
            trace_id = browser.updates[-1]["trace_id"]
            expected = {
                "ping_received": "psph-site-b", "fetched": "psph-site-b",
                "published": "psph-site-b", "delivered": "psph-site-a",
                "pushed": "psph-site-a", "browser_sent": "psph-site-a",
            }  # fmt: skip

            def stages():
                found = [each for each in traced(world, topic) if _hex(each) == trace_id]
                return {each["stage"]: each for each in found}

            await until(
                lambda: set(stages()) >= set(expected),
                lambda: (trace_id, traced(world, topic)),
            )
            found = stages()
            assert {stage: found[stage]["node"] for stage in expected} == expected
            # One machine has one clock: the stages are in order.
            times = [found[stage]["wall_ns"] for stage in list(expected)[:4]]
            assert times == sorted(times)
            await around.unsubscribe(A, topic, reader)

    run(world, story)


def _hex(event):
    trace_id = event["trace_id"]
    return trace_id.hex() if isinstance(trace_id, bytes) else trace_id


def test_the_probe_times_crossings(world):
    dns = f"127.0.0.1:{world.dns_port}"
    said = psph("probe", B, "--hub", world.hub(A), "--dns", dns, "--count", "3", "--json",
                "--timeout", "60")  # fmt: skip
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert set(found) == {"domain", "p50_ms", "crossings"}
    assert found["domain"] == B
    assert len(found["crossings"]) == 3
    for crossing in found["crossings"]:
        assert set(crossing) == {"position", "trace_id", "ms"}
        assert crossing["ms"] > 0
    assert len({crossing["position"] for crossing in found["crossings"]}) == 3
    assert sorted(crossing["ms"] for crossing in found["crossings"])[1] == found["p50_ms"]
    table = psph("probe", B, "--hub", world.hub(C), "--dns", dns, "--count", "1", "--timeout", "60")
    assert table.returncode == 0, table.stderr
    assert "crossings from site-b.test" in table.stdout


@pytest.mark.parametrize("domain", ["nothing.test", LIAR])
def test_the_probe_says_what_is_wrong(world, domain):
    said = psph("probe", domain, "--hub", world.hub(A), "--dns", f"127.0.0.1:{world.dns_port}",
                "--timeout", "1")  # fmt: skip
    assert said.returncode == 1
    assert "Traceback" not in said.stderr
    assert len(said.stderr.splitlines()) == 1, said.stderr


def test_every_configuration_is_right(world):
    """And whoever breaks one is told, without anything being started."""
    for each in world.all:
        file = str(each.directory / "node.toml")
        checked = CliRunner().invoke(serve, ["--check", "--config", file])
        assert (checked.exit_code, checked.output) == (0, f"{file} is valid\n")
    broken = world.directory / "broken.toml"
    text = (world.proxies[B].directory / "node.toml").read_text()
    broken.write_text(text.replace("[proxy]", '[proxy]\nhosts = ["not a host"]'))
    said = psph("serve", "--check", "--config", str(broken))
    assert said.returncode == 1
    assert "'not a host' is not a valid host" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_psph_is_told_its_domain_its_keys_and_a_name_server(world):
    """And neither an address nor a name of another node, but for who votes on writer leases."""
    for key in (A, B, C, BLOG, SHOP):
        configuration = tomllib.loads((world.proxies[key].directory / "node.toml").read_text())
        assert set(configuration["fabric"]) == {"keys", "link_seed", "hello_ms"}
        assert "rendezvous" not in configuration["bootstrap"]
        joining = world.proxies[key].ask("/proxy/status")["joining"]
        assert joining == "linked to 2 rendezvous servers found in DNS"


def test_crossings_are_measured_as_often_as_the_callback_was_called(world):
    name = 'psph_hub_crossing_seconds_count{to="callback"}'

    async def measured(around):
        _, _, body = await around.get(f"http://127.0.0.1:{world.proxies[A].admin}/metrics")
        found = [line for line in body.decode().splitlines() if line.startswith(name)]
        return float(found[0].rpartition(" ")[2])

    async def story(around):
        topic, reader = f"http://news.{B}/measured", around.callback("measured")
        await around.subscribe(A, topic, reader)
        before = await measured(around)
        for n in range(3):
            await around.publish(B, topic, b"%d" % n)
        await until(lambda: len(reader.posts) == 3)
        async with asyncio.timeout(PATIENCE):  # the last answer may not have reached the hub
            while (found := await measured(around)) < before + 3:
                await asyncio.sleep(0.01)
        assert found == before + 3
        await around.unsubscribe(A, topic, reader)

    run(world, story)


def test_every_role_serves_health_and_metrics(world):
    async def story(around):
        said = {"dns": "psph_dns_questions_total", "psph-site-a": "psph_proxy_topics",
                "n0": "psph_rendezvous", "n2": "psph_forwarding"}  # fmt: skip
        for each in world.all:
            status, _, body = await around.get(f"http://127.0.0.1:{each.admin}/healthz")
            assert (status, json.loads(body)["status"]) == (200, "ok"), each.name
            status, _, body = await around.get(f"http://127.0.0.1:{each.admin}/metrics")
            assert status == 200
            assert said.get(each.name, "psph_") in body.decode(), each.name
        for key in world.proxies:
            assert (await around.get(f"{world.hub(key)}/healthz"))[0] == 200
            assert (await around.get(f"{world.hub(key)}/metrics"))[0] == 404
            admin = world.proxies[key].admin
            status, _, body = await around.get(f"http://127.0.0.1:{admin}/metrics")
            assert (status, b"psph_hub_topics" in body) == (200, True)

    run(world, story)
