// The connection to the hub's /stream. Each topic resumes after its own position, so the page opens
// the stream anew instead of letting EventSource repeat the URL it began with.

const LONGEST_URL = 6_000; // servers and proxies accept about 8,000
const MOST_TOPICS = 100;
const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 30_000;

function query(topic) {
  return `topic=${encodeURIComponent(topic.topic)}&after=${encodeURIComponent(topic.position ?? "")}`;
}

// The topics in as many streams as their URLs need, nearly always one.
function urls(topics) {
  const groups = [];
  let group = [];
  let length = 0;
  for (const part of topics.map(query)) {
    if (group.length && (length + part.length > LONGEST_URL || group.length >= MOST_TOPICS)) {
      groups.push(group);
      group = [];
      length = 0;
    }
    group.push(part);
    length += part.length + 1;
  }
  if (group.length) groups.push(group);
  return groups.map((each) => `stream?${each.join("&")}`);
}

export class Stream {
  #topics;
  #handlers;
  #sources = [];
  #open = new Set();
  #failures = 0;
  #timer = 0;
  #generation = 0;

  // `topics` is asked whenever a connection is made. Handlers: update(data), gap(data),
  // reset(data), state(name, detail).
  constructor(topics, handlers) {
    this.#topics = topics;
    this.#handlers = handlers;
    window.addEventListener("online", () => this.restart());
    window.addEventListener("pagehide", () => this.#close());
    window.addEventListener("pageshow", (event) => event.persisted && this.restart());
  }

  // Connect, or connect again because the topics changed or the visitor asked.
  restart() {
    this.#failures = 0;
    this.#connect();
  }

  #close() {
    this.#generation += 1;
    clearTimeout(this.#timer);
    for (const source of this.#sources) source.close();
    this.#sources = [];
    this.#open.clear();
  }

  #connect() {
    this.#close();
    const wanted = urls(this.#topics());
    if (!wanted.length) {
      this.#handlers.state("idle", "");
      return;
    }
    if (!this.#failures) this.#handlers.state("connecting", "");
    const generation = this.#generation;
    const current = (handler) => (event) => {
      if (generation === this.#generation) handler(event);
    };
    this.#sources = wanted.map((url) => {
      const source = new EventSource(url);
      const told = (kind) => current((event) => this.#handlers[kind](JSON.parse(event.data)));
      source.addEventListener("message", told("update"));
      source.addEventListener("gap", told("gap"));
      source.addEventListener("reset", told("reset"));
      source.addEventListener(
        "open",
        current(() => {
          this.#open.add(source);
          if (this.#open.size < wanted.length) return;
          this.#failures = 0;
          this.#handlers.state("live", "");
        }),
      );
      source.addEventListener(
        "error",
        current(() => this.#lost(source.readyState === EventSource.CLOSED ? url : null)),
      );
      return source;
    });
  }

  // `refused` is the URL of a stream that the hub answered with an error, whose text says why.
  async #lost(refused) {
    this.#close();
    const generation = this.#generation;
    this.#failures += 1;
    const longest = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (this.#failures - 1));
    const pause = longest * (0.5 + Math.random() / 2); // not all browsers at once
    this.#timer = setTimeout(() => this.#connect(), pause);
    this.#handlers.state("lost", Math.max(1, Math.round(pause / 1000)));
    if (refused === null) return;
    const reason = await why(refused);
    if (reason && generation === this.#generation) this.#handlers.state("refused", reason);
  }
}

async function why(url) {
  const stop = new AbortController();
  try {
    const answer = await fetch(url, { signal: stop.signal });
    return answer.ok ? "" : (await answer.text()).trim().slice(0, 500) || `${answer.status}`;
  } catch {
    return "";
  } finally {
    stop.abort();
  }
}
