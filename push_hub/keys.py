"""Where an application keeps its hub: routes of every module find it under this key."""

from __future__ import annotations

from aiohttp import web

from push_hub.hub import Hub

HUB: web.AppKey[Hub] = web.AppKey("hub", Hub)
