"""The hub for people: a page to watch topics live, and diagnostics for each topic.

* `serving`: the files beside this one, and the headers every page is sent with;
* `finding`: what a URL that somebody typed offers to watch;
* `diagnostics`: what the hub knows about a topic, as values; `rendering`: the same as HTML;
* `routes`: puts them at their paths.

In the browser, `watch.js` is the page, `stream.js` its connection, `memory.js` what it remembers,
`showing.js` turns what strangers wrote into elements. No framework, nothing inline, nothing from
elsewhere.
"""

from push_hub.pages.routes import add_pages

__all__ = ["add_pages"]
