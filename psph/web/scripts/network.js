// Network: the map, a switch for each link and node, and a log of what broke and was repaired.

import { post } from "./api.js";
import { NetworkMap } from "./map.js";
import { arrange, at, clock, duration, element, list, number, percent, setText, text } from "./showing.js";

const MOST_LINES = 60;

// The tree as a Map from link id to the node where packets enter the link, walked from the
// publisher's node.
function directed(state, root) {
  const ids = new Set(list(state.tree?.links));
  const links = state.links.filter((each) => ids.has(each.id));
  const reached = new Set([root]);
  const found = new Map();
  for (let grew = true; grew; ) {
    grew = false;
    for (const { id, a, b } of links) {
      if (found.has(id) || reached.has(a) === reached.has(b)) continue;
      found.set(id, reached.has(a) ? a : b);
      reached.add(a).add(b);
      grew = true;
    }
  }
  for (const { id } of links) if (!found.has(id)) found.set(id, "");
  return found;
}

const pick = (node) => (node ? { domain: node.domain, roles: node.roles } : {});

export class Network {
  #world;
  #state;
  #memory;
  #changed;
  #map;
  #rows = new Map();
  #last = null;
  #picked = ""; // the row of what was pointed at on the map
  #known = new Map();
  #waiting = new Map(); // switches that were turned, and to what
  #tree = { topic: "", links: [] };
  #cut = null; // what was cut last, until the tree has found a way around it

  constructor({ world, state, memory, changed }) {
    this.#world = world;
    this.#state = state;
    this.#memory = memory;
    this.#changed = changed;
    this.#map = new NetworkMap(at("map"), (domain) => world.side(domain), (kind, name) => {
      this.#picked = `${kind} ${name}`;
      this.#map.mark(kind, name);
      this.#showPicked();
    });
    const select = at("tree-topic");
    const options = world.topics().map(({ url }) => element("option", { value: url }, world.nameOf(url)));
    select.append(...options);
    if (world.topics().some(({ url }) => url === state.tree)) select.value = state.tree;
    select.addEventListener("change", () => {
      state.tree = select.value;
      this.#cut = null;
      memory.saveSoon();
      this.#changed();
    });
  }

  // The topic whose tree is shown: the one chosen, else the first somebody reads across the fabric.
  topic() {
    const known = this.#world.topics().map(({ url }) => url);
    if (known.includes(this.#state.tree)) return this.#state.tree;
    const crossing = this.#state.feeds.find(
      (feed) => known.includes(feed.topic) && this.#world.domainOf(feed.topic) !== feed.domain,
    );
    return crossing?.topic ?? known[0] ?? null;
  }

  shown() {
    at("tree-topic").value = this.topic() ?? "";
  }

  update(data) {
    const state = {
      nodes: list(data.nodes).filter((each) => text(each?.name)),
      links: list(data.links).filter((each) => text(each?.id)),
      shards: list(data.shards),
      tree: data.tree ?? null,
    };
    state.nodes = state.nodes.map((node) => this.#remembered(node));
    const tree = directed(state, text(state.tree?.publisher));
    this.#note(state);
    this.#map.show(state, tree);
    this.#showTree(state, tree);
    this.#showFigures(state);
    arrange(at("links"), state.links.map((link) => this.#linkRow(link, tree)));
    arrange(at("nodes"), state.nodes.map((node) => this.#nodeRow(node)));
    this.#showShards(state);
    this.#showPicked();
    this.#last = state;
  }

  // A node that is stopped says nothing of itself: what it said before still holds.
  #remembered(node) {
    if (!node.up) return { ...node, ...pick(this.#known.get(node.name)) };
    this.#known.set(node.name, node);
    return node;
  }

  // The same switch as in the list, below the map: on a phone the list is far away.
  #showPicked() {
    const row = this.#rows.get(this.#picked);
    if (!row) return;
    const bar = at("picked");
    if (bar.dataset.row !== this.#picked) {
      bar.dataset.row = this.#picked;
      const button = element("button", { type: "button", className: row.button.className });
      button.addEventListener("click", () => this.#rows.get(bar.dataset.row).turn());
      bar.replaceChildren(
        element("bdi", { className: "name" }, row.label), element("span", { className: "note" }), button,
      );
    }
    const button = bar.querySelector("button");
    setText(bar.querySelector(".note"), row.note.textContent);
    setText(button, row.button.textContent);
    button.className = row.button.className;
    button.setAttribute("aria-label", row.button.getAttribute("aria-label"));
  }

  #showTree({ tree }, directions) {
    const count = directions.size;
    const astray = list(tree?.false_links).length;
    const words = count
      ? [
          `${count} links`,
          Number.isFinite(tree.fill) ? `a zFilter that is ${percent(tree.fill)} full` : "",
          astray === 1 ? "1 link matches by accident" : astray ? `${astray} links match by accident` : "",
        ].filter(Boolean).join(", ")
      : "no tree: nobody in the other domain is subscribed. Subscribe in Feeds.";
    setText(at("tree-note"), words);
  }

  #showFigures({ nodes, links, tree }) {
    const up = (some) => `${some.filter((each) => each.up).length}`;
    const rate = links.reduce((sum, each) => sum + number(each.packets_per_s), 0);
    const copies = nodes.reduce((sum, each) => sum + number(each.false_copies), 0);
    figures(at("figures"), [
      ["nodes up", up(nodes), `of ${nodes.length}`],
      ["links up", up(links), `of ${links.length}`],
      ["packets on all links", `${Math.round(rate)}`, "a second"],
      ["of the tree's zFilter is set", Number.isFinite(tree?.fill) ? percent(tree.fill) : "–", ""],
      ["false copies, the price of Bloom filters", `${copies}`, ""],
    ]);
  }

  // Switches

  #row(kind, name, label, turn) {
    const key = `${kind} ${name}`;
    let row = this.#rows.get(key);
    if (!row) {
      const button = element("button", { type: "button", className: "small second" });
      const note = element("span", { className: "note" });
      const dot = element("i", { className: "dot" });
      const line = element("li", {}, dot, element("bdi", { className: "name" }, label), note, button);
      row = { line, note, button, label, up: true, turn: () => turn(!row.up) };
      button.addEventListener("click", () => row.turn());
      this.#rows.set(key, row);
    }
    return row;
  }

  #linkRow(link, tree) {
    const label = `${link.a} – ${link.b}`;
    const row = this.#row("link", link.id, label, (up) =>
      this.#turn(`link ${link.id}`, `/api/network/links/${encodeURIComponent(link.id)}`, up, () => {
        this.#log(up ? `You healed ${label}.` : `You cut ${label}.`, up ? "" : "broken");
        this.#broke(up, { link: link.id, name: label });
      }));
    // What was asked for: the switch follows it at once, the fabric finds out by itself.
    row.up = link.cut === undefined ? link.up : !link.cut;
    row.line.classList.toggle("down", !link.up || !row.up);
    row.line.classList.toggle("in-tree", tree.has(link.id));
    this.#showButton(row, `link ${link.id}`, ["Cut", "Heal"], `the link ${link.a} to ${link.b}`);
    const fill = Number.isFinite(link.fill) && link.fill > 0 ? `, filters to ${percent(link.fill)} full` : "";
    const rate = `${Math.round(number(link.packets_per_s))} packets/s`;
    // Cut and not yet noticed is the interesting moment.
    const state = row.up ? "down" : link.up ? "cut, not noticed yet" : "cut";
    setText(row.note, link.up && row.up ? `${rate}${fill}` : state);
    return row.line;
  }

  #nodeRow(node) {
    const row = this.#row("node", node.name, node.name, (up) =>
      this.#turn(`node ${node.name}`, `/api/network/nodes/${encodeURIComponent(node.name)}`, up, () => {
        this.#log(up ? `You started ${node.name}.` : `You stopped ${node.name}.`, up ? "" : "broken");
        this.#broke(up, { node: node.name, name: node.name });
      }));
    row.up = node.up === true;
    row.line.classList.toggle("down", !row.up);
    this.#showButton(row, `node ${node.name}`, ["Stop", "Start"], `the node ${node.name}`);
    const parts = [this.#job(node)];
    if (row.up && number(node.false_copies)) parts.push(`${node.false_copies} false copies`);
    setText(row.note, row.up ? parts.join(", ") : `${parts[0]}, stopped`);
    return row.line;
  }

  #job(node) {
    if (this.#world.side(node.domain)) return `the PSPH of ${node.domain}`;
    const roles = list(node.roles).map(text);
    const jobs = [
      roles.includes("rendezvous") ? "rendezvous server" : "",
      roles.includes("topology") ? `topology manager${node.active_manager === true ? ", active" : ""}` : "",
    ].filter(Boolean);
    return jobs.join(", ") || "forwarding node";
  }

  #showButton(row, key, [off, on], what) {
    const waiting = this.#waiting.get(key);
    if (waiting !== undefined && waiting === row.up) this.#waiting.delete(key);
    const word = row.up ? off : on;
    setText(row.button, word);
    row.button.className = row.up ? "small second danger" : "small";
    row.button.setAttribute("aria-label", `${word} ${what}`);
    row.button.setAttribute("aria-busy", String(this.#waiting.has(key)));
  }

  async #turn(key, path, up, done) {
    if (this.#waiting.has(key)) return;
    this.#waiting.set(key, up);
    try {
      await post(path, { up });
      done();
    } catch (error) {
      this.#waiting.delete(key);
      this.#log(error.message, "broken");
    }
    setTimeout(() => this.#waiting.delete(key), 10_000);
  }

  // What happened

  #log(words, className = "") {
    at("network-quiet").hidden = true;
    const line = element("li", { className: "arriving" }, clock(Date.now()), element("span", { className }, words));
    at("network-log").prepend(line);
    while (at("network-log").children.length > MOST_LINES) at("network-log").lastElementChild.remove();
  }

  // Only what the tree uses has to be repaired.
  #broke(up, what) {
    const used = this.#last && this.#tree.links.some((id) => this.#touches(this.#last, id, what));
    this.#cut = !up && used ? { ...what, at: Date.now() } : null;
  }

  #note(state) {
    const before = this.#last;
    if (!before) return this.#noteTree(state);
    const was = new Map(before.links.map((each) => [each.id, each.up]));
    for (const { id, a, b, up } of state.links) {
      if (was.has(id) && was.get(id) !== up) {
        this.#log(up ? `${a} – ${b} works again.` : `The fabric noticed that ${a} – ${b} is down.`, "");
      }
    }
    const wasNode = new Map(before.nodes.map((each) => [each.name, each.up]));
    for (const { name, up } of state.nodes) {
      if (wasNode.has(name) && wasNode.get(name) !== up) this.#log(up ? `${name} is up.` : `${name} is down.`);
    }
    return this.#noteTree(state);
  }

  // There may be no tree for a moment: the last one is what the next is compared with.
  #noteTree(state) {
    const ids = list(state.tree?.links);
    const { topic, links: old } = this.#tree;
    if (!ids.length) return;
    this.#tree = { topic: text(state.tree.topic), links: ids };
    if (topic !== this.#tree.topic || [...ids].sort().join() === [...old].sort().join()) return;
    const added = ids.filter((id) => !old.includes(id));
    const name = (id) => {
      const link = state.links.find((each) => each.id === id);
      return link ? `${link.a} – ${link.b}` : id;
    };
    const avoids = this.#cut && !ids.some((id) => this.#touches(state, id, this.#cut));
    const way = added.length ? `now over ${added.map(name).join(", ")}` : "now shorter";
    if (avoids) {
      this.#log(`Repaired ${duration(Date.now() - this.#cut.at)} after ${this.#cut.name} went: ${way}.`, "repaired");
      this.#cut = null;
    } else this.#log(`The tree goes ${way}.`);
  }

  #touches(state, id, cut) {
    if (cut.link) return id === cut.link;
    const link = state.links.find((each) => each.id === id);
    return link !== undefined && (link.a === cut.node || link.b === cut.node);
  }

  #showShards({ shards }) {
    const words = JSON.stringify(shards);
    if (at("shards").dataset.shown === words) return;
    at("shards").dataset.shown = words;
    const lines = shards.map((shard) => {
      const name = element("span", { className: "name" }, element("i", { className: "dot" }), text(shard.server));
      const homes = `first home of ${counted(shard.first, "scope")}, second of ${number(shard.second)}`;
      const holds = `${counted(shard.items, "topic")}, ${counted(shard.registrations, "registration")} of ${counted(shard.clients, "client")}`;
      return element("li", {}, name, element("p", { className: "note" }, `${homes}: ${holds}`));
    });
    at("shards").replaceChildren(...lines);
  }
}

function counted(value, noun) {
  return `${number(value)} ${noun}${number(value) === 1 ? "" : "s"}`;
}

// Figures with their words, changed in place.
export function figures(target, rows) {
  arrange(target, rows.map(([words, value, unit], index) => {
    const row = target.children[index] ?? element("div", {}, element("dt"), element("dd", {}, element("span"), element("small")));
    setText(row.querySelector("dt"), words);
    setText(row.querySelector("dd span"), value);
    setText(row.querySelector("small"), unit);
    return row;
  }));
}
