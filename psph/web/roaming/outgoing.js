// What a client publishes: kept while it moves, and sent one after the other, in order, once.
//
// A publication is in the outbox until a hub has taken it: whichever tab of an origin is the client
// sends them all. It has a Position of its own from the beginning, by which the hub of its topic knows
// it again when it is sent once more from the next place. mobility/outgoing.py is the same in Python.

import { pause } from "./collecting.js";
import { Outbox } from "./outbox.js";

const MOST = 1_000; // publications that wait
const LARGEST = 1 << 20; // characters of all of them: the Positions need room as well
const EPOCH = 1;
const AGAIN = 500; // after a refusal
const PATIENCE = 20_000; // with an answer

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const inBase64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
const fromBase64 = (text) => Uint8Array.from(atob(text), (each) => each.charCodeAt(0));

export class Outgoing {
  #outbox;
  #token;
  #told;
  // A stream of this page's own: no other tab, and no later life of this one, numbers in it.
  #publisher = hex(crypto.getRandomValues(new Uint8Array(16)));
  #version = 0;
  #place = null; // while the client is somewhere: {hub, leaving, sending}

  // `token(topic)` gives what hubs want to see; `told` hears what became of publications.
  constructor(name, { token, told }) {
    this.#outbox = new Outbox(`psph roaming ${name} out `, {
      most: MOST, largest: LARGEST, changed: () => this.#send(),
    });
    this.#token = token;
    this.#told = told;
  }

  get size() {
    return this.#outbox.size;
  }

  // Durable when it returns its Position. An Error when there is no room.
  publish(topic, body, kind) {
    const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
    const position = `${this.#publisher}.${EPOCH}.${this.#version + 1}`;
    this.#outbox.add(position, { topic, position, kind, body: inBase64(bytes) });
    this.#version += 1;
    this.#send();
    return position;
  }

  // Forget one that waits; false when none has that Position.
  withdraw(position) {
    return this.#outbox.remove(position);
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

  async #send() {
    const place = this.#place;
    if (!place || place.sending) return;
    place.sending = true;
    for (let waiting; place === this.#place && (waiting = this.#outbox.entries()).length; ) {
      const [position, item] = waiting[0];
      if (typeof item?.topic !== "string" || typeof item.body !== "string") {
        this.#outbox.remove(position); // not ours
        continue;
      }
      const { topic } = item;
      const { taken, reason } = await this.#offer(place, item);
      if (taken) {
        this.#outbox.remove(position);
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
