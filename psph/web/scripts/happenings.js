// What broke in the network, what the fabric noticed, and how long it took to find another way:
// read off the difference between two states.

import { at, clock, duration, element, list, text } from "./showing.js";

const MOST_LINES = 60;

const linkOf = (state, id) => state.links.find((each) => each.id === id);

function nameOf(state, id) {
  const link = linkOf(state, id);
  return link ? `${link.a} – ${link.b}` : id;
}

// Whether a link of the tree is what broke, or ends at it.
function touches(state, id, { link, node }) {
  if (link) return id === link;
  const found = linkOf(state, id);
  return found !== undefined && (found.a === node || found.b === node);
}

const same = (some, others) => [...some].sort().join() === [...others].sort().join();

export class Happenings {
  #last = null;
  #tree = { topic: "", links: [] };
  #broken = null; // what somebody broke, until the tree has found a way around it

  say(words, className = "") {
    at("network-quiet").hidden = true;
    const said = element("span", { className }, words);
    const log = at("network-log");
    log.prepend(element("li", { className: "arriving" }, clock(Date.now()), said));
    while (log.children.length > MOST_LINES) log.lastElementChild.remove();
  }

  // A switch is turned: `what` is {link or node, name}.
  turned(up, words, what) {
    this.say(words, up ? "" : "broken");
    // Only what the tree uses has to be repaired.
    const used = this.#last && this.#tree.links.some((id) => touches(this.#last, id, what));
    this.#broken = !up && used ? { ...what, at: Date.now() } : null;
  }

  // The switch was not turned, for this reason.
  refused(reason) {
    this.say(reason, "broken");
    this.#broken = null;
  }

  update(state) {
    const before = this.#last;
    this.#last = state;
    if (before) {
      this.#links(before, state);
      this.#nodes(before, state);
    }
    this.#follow(state);
  }

  #links(before, state) {
    const was = new Map(before.links.map((each) => [each.id, each.up]));
    for (const { id, a, b, up } of state.links) {
      if (!was.has(id) || was.get(id) === up) continue;
      const name = `${a} – ${b}`;
      this.say(up ? `${name} works again.` : `The fabric noticed that ${name} is down.`);
    }
  }

  #nodes(before, state) {
    const was = new Map(before.nodes.map((each) => [each.name, each.up]));
    for (const { name, up } of state.nodes) {
      if (was.has(name) && was.get(name) !== up) this.say(`${name} is ${up ? "up" : "down"}.`);
    }
  }

  // There may be no tree for a moment: the last one is what the next is compared with.
  #follow(state) {
    const links = list(state.tree?.links);
    if (!links.length) return;
    const before = this.#tree;
    this.#tree = { topic: text(state.tree.topic), links };
    if (before.topic !== this.#tree.topic) {
      this.#broken = null;
      return;
    }
    if (same(before.links, links)) return;
    const added = links.filter((id) => !before.links.includes(id)).map((id) => nameOf(state, id));
    const way = added.length ? `now over ${added.join(", ")}` : "now shorter";
    const broken = this.#broken;
    if (broken && !links.some((id) => touches(state, id, broken))) {
      const took = duration(Date.now() - broken.at);
      this.say(`Repaired ${took} after ${broken.name} went: ${way}.`, "repaired");
      this.#broken = null;
    } else this.say(`The tree goes ${way}.`);
  }
}
