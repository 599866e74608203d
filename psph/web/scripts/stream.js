// The one event stream of the page. What it carries is said by PUT /api/pages/ID, the whole of it
// every time: so a change and a new connection are the same thing, and each feed and chat resumes
// after its own position.

import { put, read } from "./api.js";

const EVENTS = [
  "update", "gap", "reset", "refused", "chat", "presence", "network", "crossing", "latency",
  "status",
];
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10_000;
const SETTLE = 40; // several changes at once become one request

function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Stream {
  #page = randomId(); // new for every load: a copied tab is a page of its own
  #wanted;
  #handlers;
  #source = null;
  #heard = false; // the server has greeted this connection
  #before = false; // there was one earlier
  #failures = 0;
  #timer = 0;
  #settling = 0;
  #generation = 0;
  #putting = false;
  #dirty = false;

  // `wanted` is asked for the whole state whenever it is sent. Handlers: one for each event, state
  // (name, detail), trouble (why the server does not take the state, or "") and forgotten (it no
  // longer knows this page).
  constructor(wanted, handlers) {
    this.#wanted = wanted;
    this.#handlers = handlers;
    window.addEventListener("online", () => this.restart());
    window.addEventListener("pagehide", () => this.#close());
    window.addEventListener("pageshow", (event) => event.persisted && this.restart());
  }

  restart() {
    this.#failures = 0;
    this.#connect();
  }

  // Something else is to be shown from now on.
  changed() {
    if (!this.#heard) return; // said when the connection is made
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => this.#say(), SETTLE);
  }

  // One request at a time: the state said last is the one that holds.
  async #say() {
    this.#dirty = true;
    if (this.#putting) return;
    this.#putting = true;
    try {
      while (this.#dirty) {
        this.#dirty = false;
        await put(`/api/pages/${this.#page}`, this.#wanted());
      }
      this.#handlers.trouble("");
    } catch (error) {
      if (this.#heard) this.#handlers.trouble(error.message);
    } finally {
      this.#putting = false;
    }
  }

  #close() {
    this.#generation += 1;
    clearTimeout(this.#timer);
    clearTimeout(this.#settling);
    this.#source?.close();
    this.#source = null;
    this.#heard = false;
  }

  #connect() {
    this.#close();
    const generation = this.#generation;
    const current = (handler) => (event) => generation === this.#generation && handler(event);
    if (!this.#before && !this.#failures) this.#handlers.state("connecting");
    const source = new EventSource(`/api/events?page=${this.#page}`);
    this.#source = source;
    for (const name of EVENTS) {
      const told = (event) => this.#handlers[name](JSON.parse(event.data));
      source.addEventListener(name, current(told));
    }
    source.addEventListener("hello", current(async (event) => {
      const again = this.#before;
      this.#heard = true;
      this.#failures = 0;
      this.#handlers.state(again ? "resumed" : "live");
      this.#before = true;
      if (JSON.parse(event.data).resumed === true) return;
      if (again) await this.#handlers.forgotten();
      if (generation === this.#generation) this.#say();
    }));
    source.addEventListener("error", current(() => this.#lost()));
  }

  #lost() {
    this.#close();
    this.#failures += 1;
    const longest = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (this.#failures - 1));
    const pause = longest * (0.5 + Math.random() / 2);
    this.#timer = setTimeout(() => this.#connect(), pause);
    this.#handlers.state("lost", Math.max(1, Math.round(pause / 1000)));
    if (this.#failures > 1) this.#askWhy(this.#generation);
  }

  // An EventSource does not tell why it was refused.
  async #askWhy(generation) {
    try {
      await read("/api/world");
    } catch (error) {
      if (error.status !== 401 || generation !== this.#generation) return;
      this.#close();
      this.#handlers.state("refused", error.message);
    }
  }
}
