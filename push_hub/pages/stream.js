// The connection to the hub's /stream. Each topic resumes after its own positions, at any hub, so the
// page opens the stream again instead of letting EventSource come back with the URL it began with and
// an id that means nothing to another hub. When it is lost and
// one attempt to have it back fails, the page goes on at another hub of the domain, where there is
// one, and stays there for as long as that works.
//
// All tabs of a browser have the same topics, and share the stream: one of them leads, has it, and
// passes its events on. A tab that is opened later gets all that the leader shows.

import { Leading } from "./leading.js";
import { KEY, positions, storage } from "./memory.js";

const LONGEST_URL = 6_000; // servers and proxies accept about 8,000
const MOST_TOPICS = 100;
const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 30_000;
// Where there are other hubs: how long one may take to answer. A machine that is gone says nothing.
const PATIENCE = 5_000;
const PATIENCE_AFTER_LOSS = 1_500;
const SILENCES = 3; // heartbeats that may be missing: of a machine that is gone no end comes

function query(topic) {
  return `topic=${encodeURIComponent(topic.topic)}&after=${encodeURIComponent(positions(topic))}`;
}

// The topics in as many streams as their URLs need, nearly always one.
function urls(topics) {
  const groups = [];
  let group = [];
  let length = 0;
  for (const part of topics.map(query)) {
    if (group.length && (length + part.length > LONGEST_URL || group.length >= MOST_TOPICS)) {
      groups.push(group);
      group = [];
      length = 0;
    }
    group.push(part);
    length += part.length + 1;
  }
  if (group.length) groups.push(group);
  return groups.map((each) => `stream?heartbeat=event&${each.join("&")}`);
}

// The hubs to try, by the beginning of their URLs; the one that the page came from is "". Its policy
// lets the page connect to those that it names, and the browser not from https to http.
function hubs() {
  const named = (document.body.dataset.hubs ?? "").split(" ").filter(Boolean);
  const reachable = named.filter((each) => location.protocol === "http:" || !/^http:/.test(each));
  return ["", ...reachable.map((each) => `${each}/`)];
}

export class Stream {
  #topics;
  #handlers;
  #leading;
  #followed = ["idle", "", ""]; // the state, as the leader said it last
  #sources = [];
  #open = new Set();
  #hubs = hubs();
  #at = 0;
  #failures = 0;
  #timer = 0;
  #deadline = 0;
  #silences = new Map();
  #generation = 0;

  // `topics` is asked whenever a connection is made. Handlers: update(data), gap(data),
  // reset(data), state(name, detail, hub): the hub in use, "" for the one that the page came from;
  // shown(): all that this tab shows, and show(shown): what the leader does.
  constructor(topics, handlers) {
    this.#topics = topics;
    this.#handlers = handlers;
    // Tabs know each other's topics by what is stored: without that each is on its own.
    const name = storage() ? KEY : `${KEY} ${crypto.getRandomValues(new Uint32Array(4)).join()}`;
    this.#leading = new Leading(name, {
      lead: () => this.#lead(),
      follow: () => this.#close(),
      heard: (message) => this.#hear(message),
      greet: () => ({ kind: "shown", data: this.#handlers.shown(), state: this.#followed }),
    });
    window.addEventListener("online", () => this.#leading.leads && this.restart());
    window.addEventListener("pagehide", () => this.#leading.stop());
    window.addEventListener("pageshow", (event) => event.persisted && this.#leading.start());
  }

  // Connect, or connect again because the topics changed or the visitor asked.
  restart() {
    if (!this.#leading.leads) {
      this.#leading.start();
      this.#leading.ask();
      return;
    }
    this.#failures = 0;
    this.#connect();
  }

  // Where the hub in use is: URLs begin with it.
  get hub() {
    return this.#leading.leads ? this.#hubs[this.#at] : this.#followed[2];
  }

  #lead() {
    this.#at = Math.max(0, this.#hubs.indexOf(this.#followed[2]));
    this.restart();
  }

  #hear({ kind, data, state }) {
    if (kind === "shown") this.#handlers.show(data);
    else if (data) this.#handlers[kind](data);
    if (state.join() === this.#followed.join()) return;
    this.#followed = state;
    this.#handlers.state(...state);
  }

  #state(name, detail) {
    this.#followed = [name, detail, this.hub];
    this.#handlers.state(...this.#followed);
    this.#leading.say({ kind: "state", state: this.#followed });
  }

  // To this page and to the other tabs.
  #told(kind, data) {
    this.#handlers[kind](data);
    this.#leading.say({ kind, data, state: this.#followed });
  }

  #close() {
    this.#generation += 1;
    clearTimeout(this.#timer);
    clearTimeout(this.#deadline);
    for (const silence of this.#silences.values()) clearTimeout(silence);
    this.#silences.clear();
    for (const source of this.#sources) source.close();
    this.#sources = [];
    this.#open.clear();
  }

  #connect() {
    this.#close();
    const wanted = urls(this.#topics()).map((each) => this.hub + each);
    if (!wanted.length) {
      this.#state("idle", "");
      return;
    }
    if (!this.#failures) this.#state("connecting", "");
    if (this.#hubs.length > 1) {
      const patience = this.#failures === 1 ? PATIENCE_AFTER_LOSS : PATIENCE * 2 ** this.#rounds();
      this.#deadline = setTimeout(() => this.#lost(null), Math.min(patience, LONGEST_PAUSE));
    }
    const generation = this.#generation;
    const current = (handler) => (event) => {
      if (generation === this.#generation) handler(event);
    };
    this.#sources = wanted.map((url) => {
      const source = new EventSource(url);
      const told = (kind) => current((event) => this.#told(kind, JSON.parse(event.data)));
      source.addEventListener("message", told("update"));
      source.addEventListener("gap", told("gap"));
      source.addEventListener("reset", told("reset"));
      source.addEventListener(
        "alive",
        current((event) => this.#alive(source, Number(event.data) * 1_000)),
      );
      source.addEventListener(
        "open",
        current(() => {
          this.#open.add(source);
          if (this.#open.size < wanted.length) return;
          clearTimeout(this.#deadline);
          this.#failures = 0;
          this.#state("live", "");
        }),
      );
      source.addEventListener(
        "error",
        current(() => this.#lost(source.readyState === EventSource.CLOSED ? url : null)),
      );
      return source;
    });
  }

  // Heard of a hub, which will be heard again in so many milliseconds.
  #alive(source, every) {
    clearTimeout(this.#silences.get(source));
    this.#silences.set(source, setTimeout(() => this.#lost(null), SILENCES * every));
  }

  // How often all hubs have been tried in vain.
  #rounds() {
    return Math.floor(Math.max(0, this.#failures - 1) / this.#hubs.length);
  }

  // `refused` is the URL of a stream that the hub answered with an error, whose text says why.
  async #lost(refused) {
    this.#close();
    const generation = this.#generation;
    this.#failures += 1;
    // The hub may only have been restarted: it has one more chance.
    if (this.#failures > 1) this.#at = (this.#at + 1) % this.#hubs.length;
    const longest = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** this.#rounds());
    const pause = longest * (0.5 + Math.random() / 2); // not all browsers at once
    this.#timer = setTimeout(() => this.#connect(), pause);
    this.#state("lost", Math.max(1, Math.round(pause / 1000)));
    if (refused === null) return;
    const reason = await why(refused);
    if (reason && generation === this.#generation) this.#state("refused", reason);
  }
}

async function why(url) {
  const stop = new AbortController();
  try {
    const answer = await fetch(url, { signal: stop.signal });
    return answer.ok ? "" : (await answer.text()).trim().slice(0, 500) || `${answer.status}`;
  } catch {
    return "";
  } finally {
    stop.abort();
  }
}
