// What waits to be sent, in order, in localStorage: each an item of its own, so that tabs of one
// origin do not overwrite each other's, and whichever of them can send sends them all.

import { storage } from "./memory.js";

export class Outbox {
  #prefix;
  #most;
  #largest;
  #store = storage() ?? stand();

  // Keys begin with `prefix`; of items at most `most`, and `largest` characters of all of them.
  // `changed` is called when another tab has added or removed one.
  constructor(prefix, { most, largest, changed }) {
    this.#prefix = prefix;
    this.#most = most;
    this.#largest = largest;
    window.addEventListener("storage", ({ key }) => key?.startsWith(prefix) && changed());
  }

  get size() {
    return this.#keys().length;
  }

  // Durable when it returns. An Error when there is no room.
  add(name, item) {
    const keys = this.#keys();
    const text = JSON.stringify(item);
    const held = keys.reduce((sum, key) => sum + (this.#store.getItem(key)?.length ?? 0), 0);
    if (keys.length >= this.#most || held + text.length > this.#largest) {
      throw new Error(`${keys.length} wait to be sent, and there is no room for more`);
    }
    const last = keys.length ? Number(keys.at(-1).slice(this.#prefix.length).split(" ", 1)) : 0;
    const serial = String(last + 1).padStart(16, "0");
    this.#store.setItem(`${this.#prefix}${serial} ${name}`, text); // throws when it is full
  }

  // In order, each as [name, item].
  entries() {
    return this.#keys().map((key) => [nameOf(key, this.#prefix), read(this.#store.getItem(key))]);
  }

  // False when none has that name.
  remove(name) {
    const key = this.#keys().find((each) => nameOf(each, this.#prefix) === name);
    if (key) this.#store.removeItem(key);
    return Boolean(key);
  }

  // Those of prefixes that begin alike and are of another time.
  static forget(beginning, except) {
    const store = storage();
    for (const key of Object.keys(store ?? {})) {
      if (key.startsWith(beginning) && !key.startsWith(except)) store.removeItem(key);
    }
  }

  #keys() {
    return Object.keys(this.#store).filter((key) => key.startsWith(this.#prefix)).sort();
  }
}

const nameOf = (key, prefix) => key.slice(prefix.length).split(" ", 2)[1];

// Null when it is not ours.
function read(text) {
  try {
    const item = JSON.parse(text);
    return typeof item === "object" ? item : null;
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
