// The one event stream of the page. All tabs of a browser share it: one of them leads, has the
// connection and passes events on; each sends by itself, with PUT /api/pages/PAGE/tabs/TAB, the
// whole list of what it shows. So a change and a new connection are the same thing, and each feed and
// chat resumes after its own position.

import { Leading, canShare } from "../roaming/leading.js";
import { put, read, remove } from "./api.js";

const NAME = "psph page";
const EVENTS = [
  "update", "gap", "reset", "refused", "state", "chat", "presence", "network", "crossing",
  "latency", "status",
];
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10_000;
const SETTLE = 40; // several changes at once become one request
const AGAIN = 1_000; // after a request that was not answered
const LOOK = 10_000; // between looks whether a tab is still there

function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Take a Web Lock, which ends with this tab.
function holdForLife(name) {
  return new Promise((held) => {
    navigator.locks.request(name, () => new Promise(() => held()));
  });
}

export class Stream {
  #tab = randomId(); // new for every load: a copied tab is a tab of its own
  #page = randomId(); // what the stream is called: as the first leader did
  #last = ""; // the id of the last event
  #toldPage = ""; // the page that knows what this tab wants
  #wanted;
  #handlers;
  #leading;
  #source = null;
  #present; // settled once this tab holds the lock that shows the leader that it is there
  #heard = false; // the server has greeted the connection
  #before = false; // there was one earlier
  #state = ["connecting", 0];
  #looked = new Map(); // by tab: when it was there
  #failures = 0;
  #timer = 0;
  #settling = 0;
  #generation = 0;
  #putting = false;
  #dirty = false;

  // `wanted` is asked for the whole state whenever it is sent. Handlers: one for each event,
  // connection (state, detail), trouble (why the server does not take the state, or "") and
  // forgotten (it no longer knows this page).
  constructor(wanted, handlers) {
    this.#wanted = wanted;
    this.#handlers = handlers;
    this.#leading = new Leading(NAME, {
      lead: () => this.restart(),
      follow: () => this.#close(),
      heard: (message) => this.#hear(message),
      greet: () => this.#message({ type: this.#heard ? "hello" : "state", resumed: true }),
    });
    this.#present = canShare() ? holdForLife(`${NAME} ${this.#tab}`) : Promise.resolve();
    window.addEventListener("online", () => this.#leading.leads && this.restart());
    window.addEventListener("pagehide", () => this.#leave());
    window.addEventListener("pageshow", (event) => event.persisted && this.start());
  }

  start() {
    this.#handlers.connection(...this.#state);
    this.#leading.start();
  }

  // Something else is to be shown from now on.
  changed() {
    if (!this.#heard) return; // said when the connection is made
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => this.#say(), SETTLE);
  }

  #leave() {
    if (this.#toldPage) remove(`/api/pages/${this.#toldPage}/tabs/${this.#tab}`);
    this.#toldPage = "";
    this.#heard = false;
    this.#leading.stop();
  }

  // One request at a time: the state said last is the one that holds.
  async #say() {
    this.#dirty = true;
    if (this.#putting) return;
    this.#putting = true;
    try {
      await this.#present; // with the first event for this tab the leader looks for it
      while (this.#dirty) {
        this.#dirty = false;
        this.#toldPage = this.#page;
        await put(`/api/pages/${this.#page}/tabs/${this.#tab}`, this.#wanted());
      }
      this.#handlers.trouble("");
    } catch (error) {
      this.#toldPage = "";
      if (this.#heard) this.#handlers.trouble(error.message);
      // A refusal is final. A request without an answer is repeated: until the server takes it,
      // this tab receives nothing.
      if (this.#heard && !(error.status < 500)) {
        clearTimeout(this.#settling);
        this.#settling = setTimeout(() => this.#say(), AGAIN);
      }
    } finally {
      this.#putting = false;
    }
  }

  // What the leader tells all tabs, itself included

  // With what a tab needs to take the leader's place.
  #message(message) {
    return { ...message, page: this.#page, last: this.#last, state: this.#state };
  }

  #tell(message) {
    const whole = this.#message(message);
    this.#leading.say(whole);
    this.#hear(whole);
  }

  #hear({ type, page, last, state, resumed, name, data }) {
    [this.#page, this.#last] = [page, last];
    if (type === "event") {
      if (!data.tab || data.tab === this.#tab) this.#handlers[name](data);
      return;
    }
    this.#heard = type === "hello";
    if (state.join() !== this.#state.join() || this.#leading.leads) {
      this.#state = state;
      this.#handlers.connection(...state);
    }
    if (type === "hello" && !(resumed && this.#toldPage === page)) this.#begin(page);
  }

  async #begin(page) {
    if (this.#before) await this.#handlers.forgotten();
    this.#before = true;
    if (this.#heard && page === this.#page) this.#say();
  }

  // The connection, of the leader

  restart() {
    this.#failures = 0;
    this.#connect();
  }

  #close() {
    this.#generation += 1;
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #connect() {
    this.#close();
    const generation = this.#generation;
    const current = (handler) => (event) => generation === this.#generation && handler(event);
    const query = new URLSearchParams({ page: this.#page, after: this.#last });
    const source = (this.#source = new EventSource(`/api/events?${query}`));
    for (const name of EVENTS) {
      source.addEventListener(name, current(({ data, lastEventId }) => {
        this.#last = lastEventId || this.#last;
        const read = JSON.parse(data);
        this.#tell({ type: "event", name, data: read });
        if (read.tab && read.tab !== this.#tab) this.#look(read.tab);
      }));
    }
    source.addEventListener("hello", current(({ data }) => {
      this.#failures = 0;
      this.#state = [this.#state[0] === "lost" ? "resumed" : "live", 0];
      this.#tell({ type: "hello", resumed: JSON.parse(data).resumed === true });
      this.#state = ["live", 0]; // for tabs that come later
    }));
    source.addEventListener("error", current(() => this.#lost()));
  }

  #lost() {
    this.#close();
    this.#failures += 1;
    const longest = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (this.#failures - 1));
    const pause = longest * (0.5 + Math.random() / 2);
    this.#timer = setTimeout(() => this.#connect(), pause);
    this.#state = ["lost", Math.max(1, Math.round(pause / 1000))];
    this.#tell({ type: "state" });
    if (this.#failures > 1) this.#askWhy(this.#generation);
  }

  // An EventSource does not tell why it was refused.
  async #askWhy(generation) {
    try {
      await read("/api/world");
    } catch (error) {
      if (error.status !== 401 || generation !== this.#generation) return;
      this.#close();
      this.#state = ["refused", error.message];
      this.#tell({ type: "state" });
    }
  }

  // A tab that crashed said no goodbye, and its lock is free.
  async #look(tab) {
    const now = performance.now();
    if (!canShare() || now - (this.#looked.get(tab) ?? -LOOK) < LOOK) return;
    this.#looked.set(tab, now);
    const { held } = await navigator.locks.query();
    if (held.some(({ name }) => name === `${NAME} ${tab}`)) return;
    this.#looked.delete(tab);
    remove(`/api/pages/${this.#page}/tabs/${tab}`);
  }
}
