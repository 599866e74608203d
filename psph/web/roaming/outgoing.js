// What a client publishes: kept while it moves, and sent one after the other, in order, once.
//
// A publication is an item of localStorage of its own until a hub has taken it: tabs of one origin
// do not overwrite each other's, and whichever of them is the client sends them all. It has a
// Position of its own from the beginning, by which the hub of its topic knows it again when it is
// sent once more from the next place. mobility/outgoing.py is the same in Python.

import { pause } from "./collecting.js";
import { storage } from "./memory.js";

const MOST = 1_000; // publications that wait
const LARGEST = 1 << 20; // characters of all of them: the Positions need room as well
const EPOCH = 1;
const AGAIN = 500; // after a refusal
const PATIENCE = 20_000; // with an answer

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const inBase64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
const fromBase64 = (text) => Uint8Array.from(atob(text), (each) => each.charCodeAt(0));

export class Outgoing {
  #prefix;
  #token;
  #told;
  #store; // what localStorage does, or stands in for it where it is forbidden
  // A stream of this page's own: no other tab, and no later life of this one, numbers in it.
  #publisher = hex(crypto.getRandomValues(new Uint8Array(16)));
  #version = 0;
  #place = null; // while the client is somewhere: {hub, leaving, sending}

  // `token(topic)` gives what hubs want to see; `told` hears what became of publications.
  constructor(name, { token, told }) {
    this.#prefix = `psph roaming ${name} out `;
    this.#token = token;
    this.#told = told;
    this.#store = storage() ?? stand();
    window.addEventListener("storage", ({ key, newValue }) => {
      if (key?.startsWith(this.#prefix) && newValue !== null) this.#send(); // from another tab
    });
  }

  get size() {
    return this.#keys().length;
  }

  // Durable when it returns its Position. An Error when there is no room.
  publish(topic, body, kind) {
    const keys = this.#keys();
    const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
    const position = `${this.#publisher}.${EPOCH}.${this.#version + 1}`;
    const item = JSON.stringify({ topic, position, kind, body: inBase64(bytes) });
    const held = keys.reduce((sum, key) => sum + (this.#store.getItem(key)?.length ?? 0), 0);
    if (keys.length >= MOST || held + item.length > LARGEST) {
      throw new Error(`${keys.length} publications wait, and there is no room for more`);
    }
    const last = keys.length ? Number(keys.at(-1).slice(this.#prefix.length).split(" ", 1)) : 0;
    const serial = String(last + 1).padStart(16, "0");
    this.#store.setItem(`${this.#prefix}${serial} ${position}`, item); // throws when it is full
    this.#version += 1;
    this.#send();
    return position;
  }

  // Forget one that waits; false when none has that Position.
  withdraw(position) {
    const key = this.#keys().find((each) => each.endsWith(` ${position}`));
    if (key) this.#store.removeItem(key);
    return Boolean(key);
  }

  // The client came: send.
  open(hub) {
    this.close();
    this.#place = { hub, leaving: new AbortController(), sending: false };
    this.#send();
  }

  // It goes: keep.
  close() {
    this.#place?.leaving.abort();
    this.#place = null;
  }

  // In order.
  #keys() {
    return Object.keys(this.#store).filter((key) => key.startsWith(this.#prefix)).sort();
  }

  async #send() {
    const place = this.#place;
    if (!place || place.sending) return;
    place.sending = true;
    for (let keys; place === this.#place && (keys = this.#keys()).length; ) {
      const item = read(this.#store.getItem(keys[0]));
      if (!item) {
        this.#store.removeItem(keys[0]); // not ours
        continue;
      }
      const { topic, position } = item;
      const { taken, reason } = await this.#offer(place, item);
      if (taken) {
        this.#store.removeItem(keys[0]);
        this.#told({ type: "published", topic, position, as: taken });
      } else if (place === this.#place) {
        this.#told({ type: "unsent", topic, position, reason });
        await pause(AGAIN);
      }
    }
    place.sending = false;
  }

  // To the hub of the place: the Position that the topic's own hub gave it, or why it has none.
  async #offer({ hub, leaving }, { topic, position, kind, body }) {
    const token = this.#token(topic);
    const headers = { "Content-Type": kind, "Psph-Publication": position };
    if (token) headers.Authorization = `Bearer ${token}`;
    const signal = AbortSignal.any([leaving.signal, AbortSignal.timeout(PATIENCE)]);
    try {
      const answer = await fetch(`${hub}/mobility/publish?${new URLSearchParams({ topic })}`, {
        method: "POST", headers, body: fromBase64(body), signal,
      });
      if (answer.ok) return { taken: (await answer.json()).position };
      return { reason: `${answer.status} ${(await answer.text()).trim().slice(0, 200)}` };
    } catch (error) {
      return { reason: error.message };
    }
  }
}

function read(text) {
  try {
    const item = JSON.parse(text);
    return typeof item?.topic === "string" && typeof item.body === "string" ? item : null;
  } catch {
    return null;
  }
}

// Without localStorage: for as long as the page is there.
function stand() {
  const methods = {
    getItem(key) { return this[key] ?? null; },
    setItem(key, value) { this[key] = value; },
    removeItem(key) { delete this[key]; },
  };
  return Object.create(methods);
}
