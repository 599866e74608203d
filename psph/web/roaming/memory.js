// What a client keeps across reloads, in localStorage: its secret, how often it moved, where
// something may wait for it, its Positions, and what the page made of what it consumed. The last
// two are written in one item, so that a page closed at any moment finds them in step.
//
// The claim is an item of its own: all tabs of one origin see it, and only the tab that wrote it
// last may go on.

const VERSION = 1;

export function storage() {
  try {
    return window.localStorage;
  } catch {
    return null; // forbidden by the visitor: the client works, and a reload begins anew
  }
}

function secret() {
  return btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32))));
}

export class Memory {
  #key;
  #claim = "";
  #kept = null;

  constructor(name) {
    this.#key = `psph roaming ${name}`;
  }

  // As the tab that was here last left it; new, when there was none or it cannot be read.
  load() {
    let kept = this.#kept;
    try {
      kept = JSON.parse(storage()?.getItem(this.#key) ?? JSON.stringify(kept));
    } catch {
      // not ours
    }
    if (kept?.version !== VERSION) {
      kept = { version: VERSION, secret: secret(), epoch: 0, debts: [], topics: {}, effect: null };
    }
    this.#kept = kept;
    return kept;
  }

  // False when it could not be written; then the page goes on, and a reload from what was.
  save() {
    try {
      storage()?.setItem(this.#key, JSON.stringify(this.#kept));
      return true;
    } catch {
      return false; // full
    }
  }

  // From now on this tab is the client.
  claim(epoch, nonce) {
    this.#claim = `${epoch}.${nonce}`;
    try {
      storage()?.setItem(`${this.#key} claim`, this.#claim);
    } catch {
      this.#claim = storage()?.getItem(`${this.#key} claim`); // full: other tabs are not told
    }
  }

  get isOurs() {
    const claimed = storage()?.getItem(`${this.#key} claim`);
    return !claimed || claimed === this.#claim;
  }

  // Calls back when another tab has claimed to be this client.
  watch(taken) {
    window.addEventListener("storage", ({ key }) => key === `${this.#key} claim` && taken());
  }
}
