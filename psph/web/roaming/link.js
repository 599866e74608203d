// The connection to one hub: its streams of topics, and questions to its mobility proxy.
//
// A browser opens six connections to a server of HTTP/1.1: here each topic takes one, the proxy
// one, and questions at most one. When a stream breaks, or that of the proxy falls silent, the hub
// counts as gone.

const SILENT = 3; // heartbeats that may be missing
const FIRST_RETRY = 1_000;
const LONGEST_RETRY = 8_000;

const randomText = (length) =>
  Array.from(crypto.getRandomValues(new Uint8Array(length)), (byte) =>
    byte.toString(16).padStart(2, "0")).join("");

export class Link {
  #url;
  #broken;
  #session = randomText(16);
  #sources = [];
  #calls = new Map(); // by number: who waits for the answer
  #lastCall = Math.floor(Math.random() * 2 ** 40);
  #silence = 0;
  #queue; // until the last question was sent
  #open = true;

  // `broken(reason)` is called once, when the hub is gone; not after `close`. `refused(answer)` is
  // told of refusals before whoever asked.
  constructor(url, { broken, refused }) {
    this.#url = url;
    this.#broken = broken;
    const source = this.#listen(`/mobility/stream?session=${this.#session}`, {
      alive: (data) => this.#expect(Number(data)),
      mobility: (data) => {
        const answer = JSON.parse(data);
        const waiting = this.#calls.get(answer.call);
        this.#calls.delete(answer.call);
        if (answer.type === "refused") refused(answer);
        waiting?.(answer);
      },
    });
    // A proxy takes a session that speaks and does not listen for one that is over.
    this.#queue = new Promise((resolve) => source.addEventListener("open", resolve));
  }

  // Stream a topic after Positions (null: from now on). Handlers: update and gap get the data, base
  // the Positions after which everything comes, or has come; none, where the hub cannot tell.
  stream(topic, places, { update, gap, base }) {
    const after = places === null ? "now" : places.join(",");
    const query = new URLSearchParams({ topic, after, base: "event", content: "whole" });
    const parsed = (handler) => (data) => handler(JSON.parse(data));
    const path = topic.startsWith("psirp:") ? "/mobility/native" : "/stream";
    this.#listen(`${path}?${query}`, {
      message: parsed(update),
      gap: parsed(gap),
      // It is said when the hub has caught up: what is newer than `places` was sent before it.
      base: parsed((data) => base(data.base.length && places !== null ? places : data.base)),
    });
  }

  // Ask the proxy again and again until it answers; pending for ever once the link is closed.
  ask(question) {
    const call = (this.#lastCall += 1);
    return new Promise((resolve) => {
      this.#calls.set(call, resolve);
      const body = JSON.stringify({ ...question, call });
      const repeat = async (pause) => {
        if (!this.#calls.has(call)) return;
        await this.#post(body);
        setTimeout(repeat, pause * (1 + Math.random() / 4), Math.min(2 * pause, LONGEST_RETRY));
      };
      repeat(FIRST_RETRY);
    });
  }

  close() {
    this.#open = false;
    clearTimeout(this.#silence);
    this.#calls.clear();
    for (const each of this.#sources) each.close();
  }

  #post(body) {
    const url = `${this.#url}/mobility/messages?session=${this.#session}`;
    // Text needs no permission to be asked for first. A question that is lost is asked again.
    const send = () => this.#open
      && fetch(url, { method: "POST", body, signal: AbortSignal.timeout(10_000) }).catch(() => {});
    this.#queue = this.#queue.then(send);
    return this.#queue;
  }

  #listen(path, handlers) {
    const source = new EventSource(this.#url + path);
    this.#sources.push(source);
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, ({ data }) => {
        if (!this.#open) return;
        try {
          handler(data);
        } catch (error) {
          this.#break(`it sent what makes no sense: ${error.message}`);
        }
      });
    }
    // It would come back by itself, with a cursor of this hub: a client that moves has a Position of
    // each topic, which is good at any hub.
    source.addEventListener("error", () => this.#break("its stream ended"));
    return source;
  }

  #expect(seconds) {
    clearTimeout(this.#silence);
    const patience = SILENT * 1_000 * (seconds > 0 ? seconds : 5);
    this.#silence = setTimeout(() => this.#break("it fell silent"), patience);
  }

  #break(reason) {
    if (!this.#open) return;
    this.close();
    this.#broken(reason);
  }
}
