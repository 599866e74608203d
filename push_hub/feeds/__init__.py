"""What is new in a feed: `reading` finds the entries, `differences` compares them with those
known, `trimming` cuts known ones out of the bytes, `sanitising` makes them fit for a browser.

Pure functions of bytes. Anything that is no feed is a document: it is new when its digest is.
"""

from push_hub.feeds.differences import Change, Known, compare
from push_hub.feeds.reading import Entry, Feed, may_be_feed, read_feed
from push_hub.feeds.trimming import trim

__all__ = ["Change", "Entry", "Feed", "Known", "compare", "may_be_feed", "read_feed", "trim"]
