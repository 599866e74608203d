"""`psph up`: two web domains, the fabric between them, and a page that shows it all.

* `layout` — who is there, and the configuration of each;
* `ports` — which ports they have, the same ones in the next run;
* `parts` — running them, in this process or each in its own;
* `website` — a small site with feeds that grow;
* `world` — everything, started in order and stopped;
* `pages`, `following`, `conversations` — what each page is shown;
* `network`, `crossings` — what the parts tell of themselves;
* `serving` — the page and its API;
* `command` — `psph up` itself.

The parts run as `psph serve` runs them, from configuration files that a person can read, and talk
to each other over loopback sockets only. This room is an ordinary client of theirs.
"""
