// How each topic and each conversation stands: live, or not, and why. The server says it of its
// connection to the reader's PSPH; while the page's own connection is gone, nothing is live.

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

  // Not followed any more: what is said of it later is told again.
  forget(wish) {
    this.#states.delete(keyOf(wish));
  }

  // "connecting", "live", "reconnecting" or "stopped"; of a wish as the server is told of it.
  of(wish) {
    const known = this.#states.get(keyOf(wish));
    if (this.#connected) return known ?? "connecting";
    return known ? "reconnecting" : "connecting";
  }
}

const keyOf = ({ domain, topic, me, with: buddy }) => (me ? `${me} ${buddy}` : `${domain} ${topic}`);
