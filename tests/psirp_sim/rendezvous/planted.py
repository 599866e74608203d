"""Fabric nodes whose rendezvous has a bug each. The fault schedules must find every one of them.

The parts are made when a node begins, so a bug is planted in the part right afterwards. Servers
and clients repair much of what the other gets wrong; these are bugs that they cannot repair.
"""

from __future__ import annotations

from psirp_sim.rendezvous.correspondence import Correspondence
from psirp_sim.rendezvous.writer import WriterLease
from tests.psirp_sim.forwarding.planted import Careless


class AsksOnce(Careless):
    """A registration that was not answered is never repeated."""

    def plant(self):
        class Impatient(Correspondence):
            def _pause(self, tries):
                return 3600 * 10**9

        corresponding = self.rendezvous.registrar._correspondence

        def impatiently(server):
            found = corresponding(server)
            found.__class__ = Impatient
            return found

        self.rendezvous.registrar._correspondence = impatiently


class NeverTimesOut(Careless):
    """A request that nobody answers never ends."""

    def plant(self):
        self.rendezvous.registrar._time_out = lambda want: None


class EndsTwice(Careless):
    """The second home's answer ends a request again."""

    def plant(self):
        registrar = self.rendezvous.registrar

        def resolve(want, code):
            registrar._unresolved.pop((want.entry.side, want.entry.sid, want.entry.rid), None)
            want.done(code)

        registrar._resolve = resolve


class NeverRefreshes(Careless):
    """Leases run out although the client is there."""

    def plant(self):
        class Silent(Correspondence):
            def send_due(self):
                self._refresh_due = self._env.now() + 10**12
                super().send_due()

        corresponding = self.rendezvous.registrar._correspondence

        def silently(server):
            found = corresponding(server)
            found.__class__ = Silent
            return found

        self.rendezvous.registrar._correspondence = silently


class StaysWithItsFirstHomes(Careless):
    """Registrations do not move when servers come and go."""

    def plant(self):
        registrar = self.rendezvous.registrar
        place = registrar._place
        registrar._place = lambda want: None if want.homes else place(want)


class AlwaysInStep(Careless):
    """A server that has lost its disk says that it holds everything."""

    def plant(self):
        if self.server is not None:
            self.server.registrations.in_step = lambda *asked: True


class NeverForgets(Careless):
    """Clients that vanished are matched for ever."""

    def plant(self):
        if self.server is not None:
            self.server.registrations._expire = lambda: None


class BelievesEarlierLives(Careless):
    """A client that was restarted is taken for the one it was."""

    def plant(self):
        if self.server is not None:
            registrations = self.server.registrations
            make = registrations._client

            def client(name, epoch):
                known = registrations.clients.get(name)
                return make(name, epoch) if known is None else known

            registrations._client = client


class TellsMatchesOnce(Careless):
    """A publisher that missed a match is not told again."""

    def plant(self):
        if self.server is not None:
            matching = self.server.matching
            matching.hurry = lambda client: None
            matching._repeat = lambda: None
            matching.tell_again = lambda client, sid, rid: None


class CountsMatchesAnew(Careless):
    """The number of a match starts over after the last listener has left."""

    def plant(self):
        if self.server is not None:
            matching = self.server.matching
            look = matching._look

            def forgetfully():
                matching._version = 0
                look()

            matching._look = forgetfully


class KeepsWhatFormerHomesSaid(Careless):
    """A listener that only a former home knew never leaves."""

    def plant(self):
        self.rendezvous.publishing._let_age = lambda publication, said: None


class AnnouncesOnce(Careless):
    """A subscriber that missed that it is subscribed is not told again."""

    def plant(self):
        publishing = self.rendezvous.publishing
        announce = publishing._announce

        def once(publication):
            fresh = [a for a in publication.announcements.values() if not a.tries]
            for announcement in publication.announcements.values():
                if announcement not in fresh:
                    announcement.due = 1 << 62
            announce(publication)

        publishing._announce = once


class VotesForEverybody(Careless):
    """A server promises a topic to whoever asks."""

    def plant(self):
        if self.server is not None:
            voting = self.server.voting
            vote = voting._vote

            def freely(topic, ask):
                voting.promises.pop(topic, None)
                return vote(topic, ask)

            voting._vote = freely


class HoldsWhatRanOut(Careless):
    """A writer does not look at the clock."""

    def plant(self):
        class Endless(WriterLease):
            @property
            def held(self):
                return self.mine

        writers = self.rendezvous.writers
        acquire = writers.acquire

        def endlessly(sid, rid, changed):
            lease = acquire(sid, rid, changed)
            lease.__class__ = Endless
            return lease

        writers.acquire = endlessly
        writers._lose = lambda lease: None


class FencesAnew(Careless):
    """Every holder has the same fencing epoch."""

    def plant(self):
        if self.server is not None:
            self.server.voting._fence = lambda topic: (0, "")
        writers = self.rendezvous.writers
        begin = writers._begin
        writers._begin = lambda lease, fence: begin(lease, min(fence, 7))


PLANTED = {
    AsksOnce: 9,
    NeverTimesOut: 50,
    EndsTwice: 4,
    NeverRefreshes: 4,
    StaysWithItsFirstHomes: 7,
    AlwaysInStep: 8,
    NeverForgets: 50,
    BelievesEarlierLives: 9,
    TellsMatchesOnce: 8,
    CountsMatchesAnew: 9,
    KeepsWhatFormerHomesSaid: 8,
    AnnouncesOnce: 9,
    VotesForEverybody: 7,
    HoldsWhatRanOut: 17,
    FencesAnew: 4,
}
"""Each with a seed that finds it."""
