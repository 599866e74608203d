// Network: the map, a switch for each link and node, figures, and what happened.

import { post } from "./api.js";
import { figures } from "./figures.js";
import { Happenings } from "./happenings.js";
import { NetworkMap } from "./map.js";
import { arrange, at, element, list, number, percent, setText, text } from "./showing.js";

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

// Whether links that work lead from one of these nodes to all others.
function joined({ links }, names) {
  const working = links.filter((each) => each.up && !each.cut);
  const reached = new Set(names.slice(0, 1));
  for (const name of reached) { // grows while it is walked
    for (const { a, b } of working) if (a === name || b === name) reached.add(a).add(b);
  }
  return names.every((name) => reached.has(name));
}

const pick = (node) => (node ? { domain: node.domain, roles: node.roles } : {});

export class Network {
  #world;
  #state;
  #memory;
  #changed;
  #map;
  #rows = new Map();
  #picked = ""; // the row of what was pointed at on the map
  #known = new Map();
  #waiting = new Map(); // switches that were turned, and to what
  #happenings = new Happenings();

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
    select.append(...world.options());
    if (world.topics().some(({ url }) => url === state.tree)) select.value = state.tree;
    select.addEventListener("change", () => {
      state.tree = select.value;
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
      walks: list(data.walks).filter((each) => text(each?.a) && text(each?.b)),
    };
    state.nodes = state.nodes.map((node) => this.#remembered(node));
    const tree = directed(state, text(state.tree?.publisher));
    this.#happenings.update(state);
    this.#map.show(state, tree);
    this.#showTree(state, tree);
    this.#showFigures(state);
    arrange(at("links"), state.links.map((link) => this.#linkRow(link, tree)));
    arrange(at("nodes"), state.nodes.map((node) => this.#nodeRow(node)));
    this.#showShards(state);
    this.#showWalks(state);
    this.#showPicked();
  }

  // What mobility proxies learned from hand-offs; nothing while nobody has moved.
  #showWalks({ walks }) {
    at("walks-key").hidden = at("walks-card").hidden = walks.length === 0;
    arrange(at("walks"), walks.map((walk) => {
      const key = `walk ${walk.a} ${walk.b}`;
      let row = this.#rows.get(key);
      if (!row) {
        const name = element("span", { className: "name" }, element("i", { className: "dot" }),
          element("bdi", {}, `${walk.a} – ${walk.b}`));
        const note = element("p", { className: "note" });
        row = { line: element("li", {}, name, note), note };
        this.#rows.set(key, row);
      }
      setText(row.note, inWords(walk));
      return row.line;
    }));
  }

  // A stopped node reports nothing: its last report is shown, with its domain from the world.
  #remembered(node) {
    const domain = this.#world.domains.find((each) => each.node === node.name)?.name ?? null;
    if (!node.up) return { ...node, domain, ...pick(this.#known.get(node.name)) };
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
        element("bdi", { className: "name" }, row.label),
        element("span", { className: "note" }),
        button,
      );
    }
    const button = bar.querySelector("button");
    setText(bar.querySelector(".note"), row.note.textContent);
    setText(button, row.button.textContent);
    button.className = row.button.className;
    button.setAttribute("aria-label", row.button.getAttribute("aria-label"));
  }

  #showTree(state, directions) {
    const { tree } = state;
    const count = directions.size;
    const astray = list(tree?.false_links).length;
    const words = count
      ? [
          `${count} links`,
          Number.isFinite(tree.fill) ? `a zFilter that is ${percent(tree.fill)} full` : "",
          astray ? `matched by accident by ${counted(astray, "link")}` : "",
        ].filter(Boolean).join(", ")
      : this.#whyNoTree(state);
    setText(at("tree-note"), words);
  }

  #whyNoTree(state) {
    const proxies = state.nodes.filter(({ domain }) => this.#world.side(domain));
    const stopped = proxies.find(({ up }) => !up);
    if (stopped) return `no tree: ${stopped.name} is stopped. Start it again.`;
    if (!joined(state, proxies.map(({ name }) => name))) {
      return "no tree: no way is left between the domains. Heal a link, or start a node.";
    }
    return "no tree: nobody in the other domain is subscribed. Subscribe in Feeds.";
  }

  #showFigures({ nodes, links, tree }) {
    const up = (some) => `${some.filter((each) => each.up).length}`;
    const rate = links.reduce((sum, each) => sum + number(each.packets_per_s), 0);
    const fill = Number.isFinite(tree?.fill) ? percent(tree.fill) : "–";
    const copies = nodes.reduce((sum, each) => sum + number(each.false_copies), 0);
    figures(at("figures"), [
      ["nodes up", up(nodes), `of ${nodes.length}`],
      ["links up", up(links), `of ${links.length}`],
      ["packets on all links", `${Math.round(rate)}`, "a second"],
      ["of the tree's zFilter is set", fill, ""],
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
      const title = element("bdi", { className: "name" }, label);
      const line = element("li", {}, dot, title, note, button);
      row = { line, note, button, label, up: true, turn: () => turn(!row.up) };
      button.addEventListener("click", () => row.turn());
      this.#rows.set(key, row);
    }
    return row;
  }

  #linkRow(link, tree) {
    const label = `${link.a} – ${link.b}`;
    const path = `/api/network/links/${encodeURIComponent(link.id)}`;
    const row = this.#row("link", link.id, label, (up) =>
      this.#turn(`link ${link.id}`, path, up, () => {
        const words = up ? `You healed ${label}.` : `You cut ${label}.`;
        this.#happenings.turned(up, words, { link: link.id, name: label });
      }));
    // What was asked for: the switch follows it at once, the fabric finds out by itself.
    row.up = link.cut === undefined ? link.up : !link.cut;
    row.line.classList.toggle("down", !link.up || !row.up);
    row.line.classList.toggle("in-tree", tree.has(link.id));
    this.#showButton(row, `link ${link.id}`, ["Cut", "Heal"], `the link ${link.a} to ${link.b}`);
    const rate = `${Math.round(number(link.packets_per_s))} packets/s`;
    const fill = number(link.fill) > 0 ? `, filters to ${percent(link.fill)} full` : "";
    // Cut and not yet noticed is the interesting moment.
    const state = row.up ? "down" : link.up ? "cut, not noticed yet" : "cut";
    setText(row.note, link.up && row.up ? `${rate}${fill}` : state);
    return row.line;
  }

  #nodeRow(node) {
    const path = `/api/network/nodes/${encodeURIComponent(node.name)}`;
    const row = this.#row("node", node.name, node.name, (up) =>
      this.#turn(`node ${node.name}`, path, up, () => {
        const words = up ? `You started ${node.name}.` : `You stopped ${node.name}.`;
        this.#happenings.turned(up, words, { node: node.name, name: node.name });
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
    const jobs = [];
    if (roles.includes("rendezvous")) jobs.push("rendezvous server");
    if (roles.includes("topology")) jobs.push("topology manager");
    if (node.active_manager === true) jobs.push("active");
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

  async #turn(key, path, up, turned) {
    if (this.#waiting.has(key)) return;
    this.#waiting.set(key, up);
    turned(); // before the answer: the fabric may find another way sooner
    try {
      await post(path, { up });
    } catch (error) {
      this.#waiting.delete(key);
      this.#happenings.refused(error.message);
    }
    setTimeout(() => this.#waiting.delete(key), 10_000);
  }

  #showShards({ shards }) {
    const words = JSON.stringify(shards);
    if (at("shards").dataset.shown === words) return;
    at("shards").dataset.shown = words;
    const lines = shards.map((shard) => {
      const dot = element("i", { className: "dot" });
      const name = element("span", { className: "name" }, dot, text(shard.server));
      const first = counted(shard.first, "scope");
      const registrations = counted(shard.registrations, "registration");
      const words =
        `first home of ${first}, second of ${number(shard.second)}: ` +
        `${counted(shard.items, "topic")}, ${registrations} of ${counted(shard.clients, "client")}`;
      return element("li", {}, name, element("p", { className: "note" }, words));
    });
    at("shards").replaceChildren(...lines);
  }
}

// Of an edge of the neighbour graph.
function inWords({ a, b, to_a: toA, to_b: toB, contexts_a: atA, contexts_b: atB }) {
  const expected = [[atA, a], [atB, b]].filter(([count]) => number(count) > 0)
    .map(([count, name]) => `${counted(count, "client")} expected at ${name}`);
  const moves = `moves: ${number(toB)} to ${b}, ${number(toA)} to ${a}`;
  return [moves, ...expected].join("; ");
}

function counted(value, noun) {
  return `${number(value)} ${noun}${number(value) === 1 ? "" : "s"}`;
}
