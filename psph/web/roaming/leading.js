// One tab of a browser leads the others of its origin: it has the connections, and tells the others
// what they bring. A browser opens six connections to a server of HTTP/1.1, however many tabs it has.
//
// The leader holds a Web Lock, which ends with its tab, and tabs talk by a BroadcastChannel, which
// keeps the order of each sender. A leader that does not answer, because the browser has put its tab
// to sleep, loses the lock to a tab that is looked at. Browsers give locks to secure contexts only
// (https, and http from the machine itself): elsewhere each tab leads itself.
//
// push_hub/pages/leading.js is a link to this file: a hub serves its pages by itself.

const SILENT = 5_000; // after which a tab that is looked at asks for a sign of life
const PATIENCE = 3_000; // with the answer

export const canShare = () => Boolean(globalThis.navigator?.locks && globalThis.BroadcastChannel);

export class Leading {
  #name;
  #handlers;
  #channel = null;
  #ending = null; // aborts the wait for the lock
  #release = null; // gives the lock back
  #heard = 0;
  #asked = false; // the leader, for a sign of life
  #watching = 0;
  leads = false;

  // `lead()`: this tab is the leader from now on; `follow()`: another has taken its place;
  // `heard(message)`: of another tab; `greet()`: what the leader says to a tab that has just come.
  constructor(name, { lead, follow, heard, greet }) {
    this.#name = name;
    this.#handlers = { lead, follow, heard, greet };
  }

  // Come: as the leader, when there is none. `take`: in place of the one that there is.
  start(take = false) {
    if (!canShare()) {
      if (!this.leads) this.#lead();
      return;
    }
    if (!this.#channel) {
      this.#channel = new BroadcastChannel(this.#name);
      this.#channel.addEventListener("message", ({ data }) => this.#message(data));
      this.#heard = performance.now();
      this.#watching = setInterval(() => this.#watch(), PATIENCE);
      this.ask();
    }
    if (!this.leads && (take || !this.#ending)) this.#request(take);
  }

  // Go.
  stop() {
    clearInterval(this.#watching);
    this.#channel?.close();
    this.#channel = null;
    this.#ending?.abort();
    this.#ending = null;
    this.#yield();
  }

  // Ask the leader to repeat its greeting for a new tab.
  ask() {
    this.#post({ type: "who" });
  }

  // To all other tabs.
  say(message) {
    this.#post({ type: "said", message });
  }

  #post(message) {
    this.#channel?.postMessage(message);
  }

  #message({ type, message }) {
    if (type === "who") {
      if (this.leads) this.#post({ type: "said", message: this.#handlers.greet() });
      return;
    }
    if (this.leads) return; // the last words of one whose place was taken
    this.#heard = performance.now();
    this.#asked = false;
    this.#handlers.heard(message);
  }

  async #request(take) {
    this.#ending?.abort();
    const ending = (this.#ending = new AbortController());
    const options = take ? { steal: true } : { signal: ending.signal };
    try {
      await navigator.locks.request(this.#name, options, () => {
        if (ending !== this.#ending) return null;
        const held = new Promise((resolve) => (this.#release = resolve));
        this.#lead();
        return held;
      });
    } catch {
      // Not waited for any more, or taken by another tab.
    }
    if (ending !== this.#ending) return;
    this.#ending = null;
    this.#yield();
    this.ask();
    this.#request(false); // to be the leader when the other has gone
  }

  #lead() {
    this.leads = true;
    this.#handlers.lead();
  }

  #yield() {
    this.#release?.();
    this.#release = null;
    if (!this.leads) return;
    this.leads = false;
    this.#heard = performance.now();
    this.#handlers.follow();
  }

  #watch() {
    if (this.leads || document.hidden || performance.now() - this.#heard < SILENT) {
      this.#asked = false;
    } else if (this.#asked) {
      this.start(true);
    } else {
      this.#asked = true;
      this.ask();
    }
  }
}
