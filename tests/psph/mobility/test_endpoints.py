"""docs/roaming.md has every endpoint of a mobility proxy, and no other."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.psph.mobility.places import places

DOCS = Path(__file__).parents[3] / "docs" / "roaming.md"
AT_PROXIES = {("GET", "/mobility/native")}
"""Only a PSPH with a fabric has it: test_native_routes.py."""


def test_the_documentation_has_all_endpoints(tmp_path):
    endpoint = r"^\| `([A-Z]+) (/mobility[a-z/]*)"
    documented = set(re.findall(endpoint, DOCS.read_text(), re.MULTILINE))

    async def main():
        async with places(tmp_path, 1) as (place,):
            routes = {
                (each.method, each.resource.canonical)
                for each in place.app.router.routes()
                if each.resource.canonical.startswith("/mobility") and each.method != "HEAD"
            }
            assert routes | AT_PROXIES == documented

    asyncio.run(main())
