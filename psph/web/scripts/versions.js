// The line of versions of each topic: what was consumed, through which hub, and whether it directly
// followed the one before. It counts for itself: the client is not asked whether it did well.

import { arrange, at, element, list, number, setText, text } from "./showing.js";

const MOST = 60; // shown of a topic

export const NOTHING = { lines: {}, last: {}, consumed: 0, holes: 0, twice: 0 };

// What is kept in localStorage after one more event; `side` says through whom it came.
export function noted(effect, event, side) {
  const { lines, last, ...counts } = { ...NOTHING, ...effect };
  const had = list(lines[event.topic]);
  const add = (chip) => ({ ...lines, [event.topic]: [...had, chip].slice(-MOST) });
  if (event.type === "reset") return { ...counts, last: {}, lines: add({ words: "anew", side }) };
  if (event.type === "gap") {
    const words = `${event.first} to ${event.last} missing`;
    counts.holes += event.missed;
    return { ...counts, last, lines: add({ words, side, bad: true }) };
  }
  const stream = event.position.split(".", 2).join(".");
  const key = `${event.topic} ${stream}`;
  const before = last[key];
  const late = before !== undefined && event.version <= before;
  const early = before !== undefined && event.version > before + 1;
  counts.consumed += 1;
  counts.twice += late ? 1 : 0;
  counts.holes += early ? event.version - before - 1 : 0;
  const chip = { words: `${event.version}`, side, stream, bad: late || early };
  return { ...counts, last: { ...last, [key]: event.version }, lines: add(chip) };
}

export class Lines {
  #world;
  #rows = new Map();

  constructor(world, topics) {
    this.#world = world;
    for (const topic of topics) {
      const name = world.nameOf(topic);
      const side = world.side(world.domainOf(topic));
      const note = element("span", { className: "note" });
      const chips = element("ol", { className: "versions" });
      chips.setAttribute("aria-label", `Versions of ${name}`);
      const heading = element("h3", { className: side }, element("i", { className: "dot" }), name);
      this.#rows.set(topic, { note, chips });
      at("lines").append(element("div", { className: "line" }, heading, note, chips));
    }
  }

  // `effect` as `noted` made it.
  show(effect) {
    for (const [topic, { note, chips }] of this.#rows) {
      const known = list(effect?.lines?.[topic]);
      // They come at the end and go at the beginning: those that stay are found by their words.
      const kept = new Map([...chips.children].map((each) => [each.dataset.key, each]));
      arrange(chips, known.map((chip) => this.#chip(chip, kept)));
      setText(note, known.length ? "" : "waiting for the next version");
    }
  }

  #chip({ words, side, stream, bad }, kept) {
    const key = `${words} ${side} ${stream} ${bad}`;
    const known = kept.get(key);
    kept.delete(key);
    if (known) return known;
    const domain = this.#world.domains.find(({ name }) => this.#world.side(name) === side)?.name;
    const made = element("li", { className: bad ? "bad" : text(side) }, text(words));
    made.classList.add("arriving");
    made.dataset.key = key;
    made.dataset.stream = text(stream);
    if (domain) made.title = `through ${domain}`;
    return made;
  }
}

// For `figures`.
export function counted(effect, moves) {
  const of = (name) => `${number(effect?.[name])}`;
  return [
    ["versions consumed", of("consumed"), ""],
    ["missing", of("holes"), ""],
    ["came twice", of("twice"), ""],
    ["hand-offs", `${moves}`, ""],
  ];
}
