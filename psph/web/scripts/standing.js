// The state of each topic and each conversation: that of the server's connection to the reader's
// PSPH. While the page's own connection is gone, nothing is live.

import { text } from "./showing.js";

export class Standing {
  #states = new Map();
  #connected = false;
  #changed;

  constructor(changed) {
    this.#changed = changed;
  }

  connected(is) {
    if (is === this.#connected) return;
    this.#connected = is;
    this.#changed();
  }

  // An event of the stream.
  told(data) {
    this.#states.set(keyOf(data), text(data.state));
    this.#changed();
  }

  // Not followed any more: a later state is of a new subscription.
  forget(wish) {
    this.#states.delete(keyOf(wish));
  }

  // "connecting", "live", "reconnecting" or "stopped"; `wish` as it is sent to the server.
  of(wish) {
    const known = this.#states.get(keyOf(wish));
    if (this.#connected) return known ?? "connecting";
    return known ? "reconnecting" : "connecting";
  }
}

const keyOf = ({ domain, topic, me, with: buddy }) => (me ? `${me} ${buddy}` : `${domain} ${topic}`);
