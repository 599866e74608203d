// A client that moves between hubs: every message of its topics once and in order, or an explicit
// gap. docs/mobility.md says how to use it; psph/mobility/roamer.py is the same in Python.
//
//   const roamer = new Roamer({
//     name: "news", hubs: ["http://hub-a.test", "http://hub-b.test"], topics: [URL],
//     consume: (event, effect) => [...(effect ?? []), event.version],
//   });
//   roamer.start();
//   roamer.move("http://hub-b.test");
//   roamer.publish(URL, "text");
//
// A move, a reload and a stream that broke are the same thing: the client claims its next epoch,
// goes on at a hub after the Positions it keeps, and asks the proxies of earlier stays for what
// that hub cannot bring. So all that survives is in Memory, and the rest is made anew at each move.
//
// All tabs of an origin are one client: one leads, and is it; the others see what it consumed, and go
// on in its place when it is closed.

import { emptied, pause } from "./collecting.js";
import { Flow, parsePosition } from "./flow.js";
import { Leading, canShare } from "./leading.js";
import { Link } from "./link.js";
import { Memory } from "./memory.js";
import { Outgoing } from "./outgoing.js";
import { Speeds, askHub } from "./speeds.js";

const MOST_DEBTS = 16; // stays that may keep something; of more, the oldest is given up
const ALIVE = 20; // seconds between signs of life: a tab in the background may do little more often
const REPORT = 5; // likewise, to a proxy that wants to know what was consumed
const LOOK = 2_000; // between looks at how fast the hubs answer
const FIRST_PAUSE = 300; // while no hub answers
const LONGEST_PAUSE = 5_000;
const LEAVING = 1_000; // for the proxy to take over before the client just goes

function bytes(text) {
  return Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
}

// The media type, as proxies keep it.
const kindOf = (type) => type.split(";", 1)[0].trim().toLowerCase();

export class Roamer {
  #consume;
  #notice;
  #memory;
  #outgoing;
  #leading;
  #taking = false; // back what a copy elsewhere has taken
  #destination = null; // where a tab that takes the lead goes: [hub, reason]
  #topics;
  #service;
  #kept = null;
  #flows = new Map();
  #link = null;
  #attempt = 0; // counts moves: a later one ends an earlier
  #who = {};
  #proxy = "";
  #welcomed = false;
  #report = false;
  #timers = [];

  hubs;
  speeds;
  followFaster = false; // whether it moves when another hub answers clearly faster
  hub = ""; // where it is, or comes to
  stage = "nowhere"; // "nowhere", "moving", "live", "superseded"

  // `consume(event, effect)` gets updates, gaps and resets in order, and what it returned last;
  // what it returns is written together with the Position. `notice(notice)` hears of moves. `name`
  // is what this client is called in localStorage. `service` is what docs/mobility.md says. `token`,
  // or what it returns for a topic, is what the topic's hub wants to see of who publishes.
  constructor({
    name, hubs, topics, consume, notice = () => {}, service = {}, token = "", distance,
  }) {
    this.hubs = hubs.map((hub) => hub.replace(/\/(hub)?$/, ""));
    this.speeds = new Speeds(distance);
    this.#topics = [...topics];
    this.#consume = consume;
    this.#notice = notice;
    this.#service = service;
    this.#memory = new Memory(name);
    this.#kept = this.#memory.load();
    this.#outgoing = new Outgoing(name, {
      token: typeof token === "function" ? token : () => token,
      told: (notice) => this.#tell(notice),
    });
    this.#leading = new Leading(`psph roaming ${name}`, {
      lead: () => this.#lead(),
      follow: () => this.#follow(),
      heard: (message) => this.#hear(message),
      greet: () => this.#shown({ type: "following" }),
    });
    this.#memory.watch(() => this.#checkClaim());
  }

  // What `consume` returned last, in this life of the page or an earlier one.
  get effect() {
    return this.#kept.effect;
  }

  // Whether this tab is the one with the connections.
  get leads() {
    return this.#leading.leads;
  }

  // Begin where the client was last, or at the hub that answers; in a browser where another tab leads,
  // see what that consumes, until it is closed.
  start() {
    this.#watch();
    this.#taking = this.stage === "superseded";
    if (this.leads) this.#begin();
    else this.#leading.start(this.#taking);
  }

  // Lead, in place of the tab that does.
  take() {
    if (!this.leads) this.#leading.start(true);
  }

  // Go there, whatever was going on.
  async move(hub, reason = "asked to") {
    this.#watch();
    if (!this.leads) {
      this.#destination = [hub, reason];
      this.#leading.start(true);
      return;
    }
    const attempt = (this.#attempt += 1);
    await this.#leave();
    if (attempt === this.#attempt) await this.#go([hub], reason, this.hub);
  }

  // Be nowhere. `start` goes on; other tabs do without this one.
  stop() {
    this.#leading.stop();
    this.#follow();
    for (const each of this.#timers) clearInterval(each);
    this.#timers = [];
  }

  // Publish once, in order, from here or from wherever the client is next: its Position, which
  // `withdraw` takes. An Error when too much waits already.
  publish(topic, body, kind = "text/plain") {
    return this.#outgoing.publish(topic, body, kind);
  }

  // Forget a publication that no hub has taken; false when there is none.
  withdraw(position) {
    return this.#outgoing.withdraw(position);
  }

  // Publications that no hub has taken yet.
  get unsent() {
    return this.#outgoing.size;
  }

  // Tabs

  #lead() {
    const destination = this.#destination;
    this.#destination = null;
    this.#kept = this.#memory.load();
    if (destination) this.#go([destination[0]], destination[1], this.#kept.hub ?? "");
    // A copy elsewhere is the client until `start` takes it back.
    else if (this.stage !== "superseded" || this.#taking) this.#begin();
    this.#taking = false;
  }

  #begin() {
    const last = this.#kept.hub;
    const known = this.hubs.includes(last);
    const first = known ? [last, ...this.hubs.filter((hub) => hub !== last)] : this.hubs;
    if (!known) return this.#go(first, "the beginning", "");
    return this.#go(first, this.stage === "superseded" ? "taken back" : "loaded again", last);
  }

  #follow() {
    this.#attempt += 1;
    this.#detach();
  }

  #shown(notice) {
    return { notice, stage: this.stage, hub: this.hub, effect: this.#kept.effect };
  }

  // This page, and the other tabs.
  #tell(notice) {
    this.#notice(notice);
    this.#leading.say(this.#shown(notice));
  }

  // The tab that leads.
  #hear({ notice, stage, hub, effect }) {
    [this.stage, this.hub, this.#kept.effect] = [stage, hub, effect];
    this.#notice(notice);
  }

  // Moving

  // To the first of these that answers, then to any.
  async #go(candidates, reason, from) {
    const attempt = (this.#attempt += 1);
    const began = performance.now();
    this.#detach();
    for (let wait = FIRST_PAUSE; ; wait = Math.min(2 * wait, LONGEST_PAUSE)) {
      for (const hub of candidates) {
        const said = await askHub(hub).catch((error) => error);
        if (attempt !== this.#attempt) return;
        if (!(said instanceof Error)) {
          this.#arrive(hub, said.proxy, { from, to: hub, reason, began });
          return;
        }
        this.#tell({ type: "unusable", hub, reason: said.message });
      }
      await pause(wait);
      if (attempt !== this.#attempt) return;
      candidates = this.speeds.order(this.hubs);
    }
  }

  #arrive(hub, proxy, move) {
    const kept = (this.#kept = this.#memory.load());
    // The stay is noted before the proxy hears of it: whatever happens, it is known who may keep
    // something for this client.
    kept.epoch += 1;
    kept.hub = hub;
    kept.debts = [...kept.debts, [proxy, kept.epoch]].slice(-MOST_DEBTS);
    const nonce = crypto.getRandomValues(new Uint32Array(1))[0] + 1;
    this.#memory.claim(kept.epoch, nonce);
    this.#memory.save();
    this.#who = { secret: kept.secret, epoch: kept.epoch, nonce };
    [this.hub, this.#proxy, this.stage] = [hub, proxy, "moving"];
    this.#tell({ type: "moving", ...move });
    const link = (this.#link = new Link(hub, {
      broken: (reason) => this.#lost(reason),
      refused: (answer) => this.#refused(answer),
    }));
    const flows = this.#topics.map((topic) => [topic, new Flow(topic, kept.topics[topic])]);
    this.#flows = new Map(flows);
    for (const flow of this.#flows.values()) {
      link.stream(flow.topic, flow.places, {
        update: ({ position, content_type: type, body_b64: body }) =>
          this.#heard(flow, move, () =>
            flow.offer(parsePosition(position), { kind: kindOf(type), body: bytes(body) }, true)),
        gap: ({ resumes }) =>
          this.#heard(flow, move, () => flow.missing(parsePosition(resumes))),
        base: (positions) =>
          this.#heard(flow, move, () => {
            flow.subscribed(positions.map(parsePosition));
            this.#note(flow);
            // Until its proxy knows where a new subscription began it could not take over there.
            this.#signOfLife();
          }),
      });
    }
    this.#moveIn(link, move);
    this.#outgoing.open(hub);
  }

  async #moveIn(link, move) {
    for (;;) {
      const question = { topics: this.#places(), service: this.#service, alive: ALIVE };
      const answer = await link.ask({ type: "move_in", ...this.#who, ...question });
      if (link !== this.#link) return;
      if (answer.type === "welcome") {
        this.#welcomed = true;
        this.#report = answer.report === true;
        this.#signOfLife();
        this.#release(link);
        if (answer.prepared && move) this.#expected(answer.prepared, move, link);
        if (!this.#flows.size) this.#arrived(move); // it only publishes
        return;
      }
      await pause(LONGEST_PAUSE);
      if (link !== this.#link) return;
    }
  }

  // Properly: the proxy has taken over when it answers. If it does not, it notices by itself.
  async #leave() {
    const link = this.#link;
    if (!link || !this.#welcomed) return;
    const question = { type: "move_out", ...this.#who, topics: this.#places() };
    await Promise.race([link.ask(question), pause(LEAVING)]);
  }

  #detach() {
    this.#outgoing.close();
    this.#link?.close();
    this.#link = null;
    this.#welcomed = this.#report = false;
    if (this.stage !== "superseded") this.stage = "nowhere";
  }

  #lost(reason) {
    const gone = this.hub;
    this.#detach();
    this.#tell({ type: "lost", hub: gone, reason });
    const others = this.hubs.filter((hub) => hub !== gone);
    this.#go([...this.speeds.order(others), gone], reason, gone);
  }

  // Consuming

  // Something came from the hub: it changes the flow, and may let others pass or end the move.
  #heard(flow, move, change) {
    const link = this.#link;
    change();
    this.#pass(flow, flow.take());
    // What waits here may be nowhere else.
    const more = link === this.#link && flow.heard.join() !== flow.noted;
    if (more && this.#checkClaim()) this.#note(flow);
    if (link !== this.#link) return;
    if (!flow.caughtUp) {
      // What waits behind a hole need not wait for the rest of the history, too.
      if (flow.hasHole && !flow.unfilled) this.#collect(flow, move, link);
      return;
    }
    // Of a flow that is live nobody is left who could fill a hole.
    if (flow.live) this.#pass(flow, flow.flush("history"));
    else if (!flow.lacking) this.#settle(flow, move, []);
    else this.#collect(flow, move, link);
  }

  #pass(flow, events) {
    let count = 0;
    for (const event of events) {
      if (!this.#checkClaim()) return;
      try {
        this.#kept.effect = this.#consume(event, this.#kept.effect) ?? this.#kept.effect;
      } catch (error) {
        this.stop(); // it counts as not consumed, and comes again
        reportError(error);
        return;
      }
      this.#note(flow);
      count += 1;
    }
    if (count) this.#leading.say(this.#shown({ type: "consumed" }));
  }

  // Position and effect in one write.
  #note(flow) {
    this.#kept.topics[flow.topic] = flow.keep();
    flow.noted = flow.heard.join();
    this.#memory.save();
  }

  #settle(flow, move, reasons) {
    flow.live = true;
    this.#pass(flow, flow.flush([...new Set(reasons)].join(", ") || "history"));
    if (this.#link === null) return;
    const ms = performance.now() - move.began;
    this.#tell({ type: "live", topic: flow.topic, ...move, ms });
    this.#arrived(move);
  }

  #arrived(move) {
    if (this.stage !== "moving" || ![...this.#flows.values()].every((each) => each.live)) return;
    this.stage = "live";
    this.#link.ask({ type: "arrived", ...this.#who, bytes: move.collected ?? 0 });
    this.#release(this.#link);
    this.#tell({ type: "moved", ...move, ms: performance.now() - move.began });
  }

  // Collecting: only what the hub's own history cannot bring.

  async #collect(flow, move, link) {
    if (flow.collecting) return;
    flow.collecting = true;
    const wanted = () => link === this.#link && flow.lacking;
    const reasons = await Promise.all(this.#kept.debts.slice(0, -1).map((debt) =>
      emptied(this.#asking(debt, link), wanted, (batch) => this.#offer(batch, move))));
    flow.collecting = false;
    if (link !== this.#link || flow.live) return;
    if (flow.caughtUp) this.#settle(flow, move, reasons.filter(Boolean));
    else flow.unfilled = flow.hasHole; // asked again when the stream has caught up
  }

  #asking([proxy, stay], link) {
    return (where) => link.ask({ type: "fetch", ...this.#who, proxy, stay, ...where });
  }

  // This proxy was told that the client would come, and has what earlier ones have: whatever is no
  // longer lacking need not be waited for.
  #expected(batch, move, link) {
    const lacking = () => [...this.#flows.values()].filter((each) => !each.live && each.lacking);
    const offer = (found) => {
      this.#offer(found, move);
      for (const flow of this.#flows.values()) {
        const whole = link === this.#link && flow.caughtUp && !flow.lacking;
        if (whole && !flow.live) this.#settle(flow, move, []);
      }
    };
    offer(batch);
    const own = this.#asking(this.#kept.debts.at(-1), link);
    if (batch.more) emptied(own, () => link === this.#link && lacking().length > 0, offer);
  }

  // What a proxy kept is of all topics.
  #offer({ items = [], seen = {} }, move) {
    for (const [topic, position, body, kind = ""] of items) {
      const flow = this.#flows.get(topic);
      if (!flow || !position) continue;
      const message = body === null ? null : { kind, body: bytes(body) };
      move.collected = (move.collected ?? 0) + (message?.body.length ?? 0);
      flow.offer(parsePosition(position), message, false);
      this.#pass(flow, flow.take());
    }
    for (const [topic, places] of Object.entries(seen)) {
      for (const each of places ?? []) this.#flows.get(topic)?.aim(parsePosition(each));
    }
  }

  // Everything has been consumed: earlier stays may be forgotten, once this proxy has taken over.
  #release(link) {
    if (this.stage !== "live" || !this.#welcomed) return;
    for (const debt of this.#kept.debts.slice(0, -1)) this.#pay(debt, link);
  }

  async #pay([proxy, stay], link) {
    for (let type = ""; type !== "released"; ) {
      if (type) await pause(LONGEST_PAUSE);
      ({ type } = await link.ask({ type: "release", ...this.#who, proxy, stay }));
      if (link !== this.#link || !this.#checkClaim()) return;
    }
    this.#kept.debts = this.#kept.debts.filter((each) => each[1] !== stay);
    this.#memory.save();
  }

  // Being there

  #places() {
    return Object.fromEntries([...this.#flows].map(([topic, flow]) => [topic, flow.places]));
  }

  // With what was consumed, if the proxy wants to know; if it does not, only when it is `due`.
  async #signOfLife(due = false) {
    const link = this.#link;
    if (!link || !this.#welcomed || !(due || this.#report)) return;
    const topics = this.#report ? this.#places() : {};
    const answer = await link.ask({ type: "alive", ...this.#who, topics });
    if (link === this.#link && answer.code === "stranger") this.#moveIn(link, {});
  }

  #watch() {
    if (this.#timers.length) return;
    this.#timers.push(setInterval(() => this.#look(), LOOK));
    this.#timers.push(setInterval(() => this.#signOfLife(true), ALIVE * 1_000));
    this.#timers.push(setInterval(() => this.#signOfLife(), REPORT * 1_000));
    this.#look();
  }

  async #look() {
    await Promise.all(this.hubs.map((hub) => this.speeds.look(hub)));
    this.#notice({ type: "speeds" });
    const better = this.followFaster && this.#link && this.stage === "live"
      ? this.speeds.better(this.hubs, this.hub) : null;
    if (better) this.move(better, "it answers faster");
  }

  // Somebody else is this client now: a copy elsewhere, which a proxy tells, or another tab.
  #refused({ code, epoch = 0, nonce = 0 }) {
    if (code !== "superseded") return;
    const mine = this.#who;
    if (epoch < mine.epoch || (epoch === mine.epoch && nonce <= mine.nonce)) return;
    if (this.#memory.isOurs) {
      this.#kept.epoch = epoch; // the next move is meant to win
      this.#memory.save();
    }
    this.#supersede();
  }

  #checkClaim() {
    if (this.#memory.isOurs) return true;
    // Of the tabs of one browser another has the lead, which this one is about to hear.
    if (canShare()) this.#follow();
    else this.#supersede();
    return false;
  }

  #supersede() {
    if (!this.#link) return;
    this.#follow();
    this.stage = "superseded";
    this.#tell({ type: "superseded" });
  }
}
