// Feeds: subscribe in one domain to a topic of another, see entries arrive, publish.

import { post } from "./api.js";
import { MOST_ENTRIES, MOST_FEEDS, advance, newFeed } from "./memory.js";
import {
  arrange, at, clock, duration, element, instant, list, safeLink, setText, text,
} from "./showing.js";

export class Feeds {
  #world;
  #state;
  #memory;
  #standing;
  #changed;
  #rows = new Map();

  constructor({ world, state, memory, standing, changed }) {
    this.#world = world;
    this.#state = state;
    this.#memory = memory;
    this.#standing = standing;
    this.#changed = changed;
    if (!world.domains.some((each) => each.name === state.reader)) {
      state.reader = world.domains[0]?.name ?? "";
    }
    this.#showReaders();
    this.#showTopics();
    this.#showPublishing();
    for (const entry of [...state.entries].reverse()) this.#showEntry(entry, false);
    this.#showWhetherEmpty();
    at("subscribe").addEventListener("submit", (event) => this.#subscribeByUrl(event));
    at("publish").addEventListener("submit", (event) => this.#publish(event));
    at("clear").addEventListener("click", () => this.#clear());
  }

  wanted() {
    return this.#state.feeds.map((each) => (
      { domain: each.domain, topic: each.topic, after: each.position }
    ));
  }

  // What is subscribed to and not live, by whose PSPH that is.
  gone() {
    return this.#state.feeds.map((feed) => [feed.domain, this.#standing.of(feed)])
      .filter(([, state]) => state === "stopped" || state === "reconnecting");
  }

  // It has changed how something stands.
  standing() {
    this.#showTopics();
  }

  // Subscribing

  #find(domain, topic) {
    return this.#state.feeds.find((each) => each.domain === domain && each.topic === topic);
  }

  #showReaders() {
    const choices = this.#world.domains.map(({ name }) => {
      const radio = element("input", {
        type: "radio", name: "reader", value: name, checked: name === this.#state.reader,
      });
      radio.addEventListener("change", () => {
        this.#state.reader = name;
        this.#memory.saveSoon();
        this.#showTopics();
      });
      const side = this.#world.side(name);
      const dot = element("i", { className: "dot" });
      return element("label", { className: side }, radio, element("span", {}, dot, name));
    });
    at("reader").append(...choices);
  }

  #showTopics() {
    const reader = this.#state.reader;
    const known = this.#world.topics();
    const others = this.#state.feeds
      .filter((each) => each.domain === reader && !known.some(({ url }) => url === each.topic))
      .map((each) => ({ url: each.topic, domain: this.#world.domainOf(each.topic) }));
    // What crosses the fabric comes first: it is what there is to see.
    const ordered = [
      ...known.filter((each) => each.domain !== reader),
      ...known.filter((each) => each.domain === reader),
      ...others,
    ];
    arrange(at("topics"), ordered.map((each) => this.#row(reader, each)));
  }

  #row(reader, { url, domain }) {
    const key = `${reader} ${url}`;
    let row = this.#rows.get(key);
    if (!row) {
      const button = element("button", { type: "button" });
      button.addEventListener("click", () => this.#toggle(reader, url));
      // A name breaks at its path, not at the hyphens of its host.
      const [host, ...path] = this.#world.nameOf(url).split(/(?=\/)/);
      const whole = element("span", {}, host);
      const name = element("bdi", { title: url }, whole, element("wbr"), path.join(""));
      name.classList.toggle("long", host.length > 30);
      const note = element("span", { className: "note" });
      const dot = element("i", { className: "dot" });
      const line = element("li", { className: this.#world.side(domain) }, dot, name, note, button);
      row = { line, button, note };
      this.#rows.set(key, row);
    }
    const feed = this.#find(reader, url);
    const name = this.#world.nameOf(url);
    setText(row.button, feed ? "Leave" : "Subscribe");
    row.button.className = feed || domain === reader ? "small second" : "small";
    const label = feed ? `Leave ${name}` : `Subscribe to ${name} from ${reader}`;
    row.button.setAttribute("aria-label", label);
    const way = domain === reader ? "in this domain" : "across the fabric";
    const state = feed ? this.#standing.of(feed) : "";
    row.line.dataset.state = state;
    setText(row.note, feed ? `${inWords(state, reader)}, ${counted(feed.count)}` : way);
    return row.line;
  }

  #toggle(domain, topic) {
    if (this.#find(domain, topic)) {
      this.#leave(domain, topic);
    } else if (this.#state.feeds.length >= MOST_FEEDS) {
      at("subscribe-note").classList.add("bad");
      setText(at("subscribe-note"), `${MOST_FEEDS} subscriptions are the most. Leave one first.`);
      return false;
    } else {
      this.#state.feeds.push(newFeed(domain, topic));
    }
    this.#showTopics();
    this.#memory.saveSoon();
    this.#changed();
    return true;
  }

  #leave(domain, topic) {
    this.#standing.forget({ domain, topic });
    this.#state.feeds = this.#state.feeds.filter(
      (each) => each.domain !== domain || each.topic !== topic,
    );
  }

  #subscribeByUrl(event) {
    event.preventDefault();
    const typed = at("topic-url").value.trim();
    const note = at("subscribe-note");
    const url = safeLink(/^[a-z][a-z0-9+.-]*:\/\//i.test(typed) ? typed : `http://${typed}`);
    note.classList.toggle("bad", !url || !typed);
    if (!url || !typed) {
      setText(note, "Write the address of a feed, such as http://news.site-b.test/feed.xml.");
      at("topic-url").focus();
      return;
    }
    // A name of this world without its port means the topic that has it.
    const known = this.#world.topics().map((each) => each.url);
    const topic = known.find((each) => `http://${this.#world.nameOf(each)}` === url) ?? url;
    if (this.#find(this.#state.reader, topic)) {
      setText(note, "You are subscribed to that already.");
      return;
    }
    if (!this.#toggle(this.#state.reader, topic)) return;
    setText(note, "Added to the topics above.");
    at("topic-url").value = "";
  }

  // A subscription that the hub does not take, and why: it is none.
  refused(data) {
    const [domain, topic] = [text(data.domain), text(data.topic)];
    if (!this.#find(domain, topic)) return;
    this.#leave(domain, topic);
    this.#showTopics();
    this.#memory.saveSoon();
    this.#changed();
    const reason = text(data.error) || "the hub refuses it";
    at("subscribe-note").classList.add("bad");
    setText(at("subscribe-note"), `Not subscribed to ${this.#world.nameOf(topic)}: ${reason}.`);
  }

  // Arriving

  update(data) {
    const feed = this.#find(text(data.domain), text(data.topic));
    if (!feed || !advance(feed.seen, data.position)) return;
    feed.position = text(data.position) || feed.position;
    const entries = list(data.entries);
    feed.count += entries.length || 1;
    const common = {
      kind: "entry", domain: feed.domain, topic: feed.topic,
      took: Number.isFinite(data.took_ms) ? data.took_ms : null, at: instant(data.arrived),
    };
    const made = (entries.length ? entries : [{ title: "The topic has changed" }]).map((entry) => ({
      ...common, title: text(entry.title), link: safeLink(text(entry.link)),
      summary: text(entry.summary),
    }));
    for (const entry of [...made].reverse()) this.#add(entry);
    setText(at("announcement"), `New from ${this.#world.nameOf(feed.topic)}: ${made[0].title}`);
    this.#showTopics();
  }

  notice(kind, data) {
    const feed = this.#find(text(data.domain), text(data.topic));
    if (!feed) return;
    if (kind === "reset") feed.seen = {};
    if (text(data.position)) feed.position = data.position;
    this.#add({ kind, domain: feed.domain, topic: feed.topic, at: Date.now() });
  }

  #add(entry) {
    this.#state.entries.unshift(entry);
    this.#state.entries.length = Math.min(this.#state.entries.length, MOST_ENTRIES);
    this.#showEntry(entry, true);
    this.#memory.saveSoon();
  }

  #showEntry(entry, arriving) {
    const children = entry.kind === "entry" ? this.#entryParts(entry) : this.#noticeParts(entry);
    const side = this.#world.side(this.#world.domainOf(entry.topic));
    const className = entry.kind === "entry" ? side : "notice";
    const line = element("li", {}, element("article", { className }, ...children));
    if (arriving) line.className = "arriving";
    at("entries").prepend(line);
    while (at("entries").children.length > MOST_ENTRIES) at("entries").lastElementChild.remove();
    this.#showWhetherEmpty();
  }

  #entryParts({ title, link, summary, topic, domain, took, at: moment }) {
    const shown = title || this.#world.nameOf(topic);
    const href = safeLink(text(link));
    const heading = href
      ? element("a", { href, target: "_blank", rel: "noopener noreferrer" }, shown)
      : shown;
    const from = this.#world.domainOf(topic);
    const sides = `${this.#world.side(from)}-${this.#world.side(domain)}`;
    const line = element("i", { className: /^(a-b|b-a)$/.test(sides) ? sides : "none" });
    line.setAttribute("aria-hidden", "true");
    const route = element(
      "span", { className: "route" },
      element("bdi", { title: topic }, this.#world.nameOf(topic)), line,
      element("span", { className: "unseen" }, "read in"), element("bdi", {}, domain),
    );
    const meaning = "From the website's ping to this page";
    const pill = Number.isFinite(took)
      ? element("span", { className: "took", title: meaning }, duration(took))
      : element("span", { className: "took quietly" }, "as it stood");
    return [
      element("h3", {}, heading),
      summary && summary !== title
        ? element("p", { className: "summary" }, summary.slice(0, 400))
        : null,
      element("p", { className: "meta" }, route, pill, clock(moment)),
    ];
  }

  #noticeParts({ kind, topic, at: moment }) {
    const name = this.#world.nameOf(topic);
    return [
      element("h3", {}, kind === "gap" ? `Some updates of ${name} are gone` : `${name} began anew`),
      element("p", { className: "meta" },
        kind === "gap"
          ? "The page was away longer than the hub keeps history."
          : "Its publisher lost its state; what follows is numbered from the start.",
        clock(moment)),
    ];
  }

  #showWhetherEmpty() {
    const none = at("entries").children.length === 0;
    at("empty").hidden = !none;
    at("clear").hidden = none;
  }

  #clear() {
    this.#state.entries = [];
    at("entries").replaceChildren();
    this.#showWhetherEmpty();
    this.#memory.saveSoon();
    at("entries-title").tabIndex = -1;
    at("entries-title").focus();
  }

  // Publishing

  #showPublishing() {
    at("publish-topic").append(...this.#world.options());
    // The first one that a reader in the first domain gets across the fabric.
    const other = this.#world.topics().find((each) => each.domain !== this.#state.reader);
    if (other) at("publish-topic").value = other.url;
  }

  async #publish(event) {
    event.preventDefault();
    const note = at("publish-note");
    const input = at("publish-text");
    const button = at("publish").querySelector("button");
    const headline = input.value.trim();
    note.classList.remove("bad");
    if (!headline) {
      note.classList.add("bad");
      setText(note, "Write a headline first.");
      input.focus();
      return;
    }
    button.disabled = true;
    try {
      await post("/api/topics/publish", { topic: at("publish-topic").value, text: headline });
      input.value = "";
      setText(note, `Published on ${this.#world.nameOf(at("publish-topic").value)}.`);
    } catch (error) {
      note.classList.add("bad");
      setText(note, error.message);
    } finally {
      button.disabled = false;
      input.focus();
    }
  }
}

function inWords(state, reader) {
  return {
    live: "live", connecting: "connecting …", reconnecting: "reconnecting …",
    stopped: `stopped: no PSPH in ${reader}`,
  }[state] ?? state;
}

function counted(count) {
  if (!count) return "no entry yet";
  return count === 1 ? "1 entry" : `${count} entries`;
}
