// The map of the fabric as SVG. It shows; the switches beside it are the ones to operate.

import { layout } from "./layout.js";
import { list, number, svg } from "./showing.js";

const WIDE = { width: 1000, height: 400, box: { left: 80, top: 70, width: 840, height: 260 } };
const TALL = { width: 440, height: 620, box: { left: 90, top: 45, width: 260, height: 530 } };
const NARROW = window.matchMedia("(max-width: 50rem)");
const CALM = window.matchMedia("(prefers-reduced-motion: reduce)");
const MOST_PACKETS = 3; // drawn on a link at a time
const BUSY = 20; // publications a second that look like full traffic

export class NetworkMap {
  #parent;
  #sideOf;
  #pick;
  #shape = "";
  #links = new Map();
  #nodes = new Map();
  #walks = new Map(); // by the names of both ends: the title of the edge
  #packets = null;
  #last = null;
  #picked = null;

  // `pick(kind, name)` is called when somebody points at a node or link.
  constructor(parent, sideOf, pick) {
    this.#parent = parent;
    this.#sideOf = sideOf;
    this.#pick = pick;
    NARROW.addEventListener("change", () => this.#last && this.show(...this.#last));
  }

  // `tree` is a Map from link id to the node from which packets enter the link.
  show(state, tree) {
    this.#last = [state, tree];
    const shape = JSON.stringify([
      NARROW.matches, state.nodes.map((each) => each.name), state.links.map((each) => each.id),
      state.walks.map(({ a, b }) => [a, b]),
    ]);
    if (shape !== this.#shape) {
      this.#draw(state);
      this.#shape = shape;
    }
    const touched = new Set();
    const astray = new Set(list(state.tree?.false_links));
    for (const link of state.links) {
      const { group, at } = this.#links.get(link.id);
      const works = link.up && !link.cut;
      group.classList.toggle("down", !works);
      group.classList.toggle("in-tree", tree.has(link.id));
      group.classList.toggle("astray", astray.has(link.id));
      // Publications light a link up; hellos and the like, which never end, hardly.
      const rate = number(link.publications_per_s ?? link.packets_per_s);
      const hum = Math.min(0.2, number(link.packets_per_s) / 100);
      const traffic = works ? Math.min(1, hum + Math.sqrt(rate / BUSY)) : 0;
      group.style.setProperty("--traffic", traffic.toFixed(2));
      if (tree.has(link.id)) [link.a, link.b].forEach((name) => touched.add(name));
      if (works && rate > 0) this.#travel(rate, link, at, tree.get(link.id));
    }
    for (const { a, b, to_a: toA, to_b: toB } of state.walks) {
      const title = this.#walks.get(`${a} ${b}`);
      if (title) {
        title.textContent = `Moves of clients from ${a} to ${b}: ${number(toB)}, back: ` +
          `${number(toA)}. Each end is prepared for clients of the other.`;
      }
    }
    for (const node of state.nodes) {
      const group = this.#nodes.get(node.name);
      group.classList.toggle("down", !node.up);
      group.classList.toggle("in-tree", touched.has(node.name));
    }
  }

  // The one thing somebody pointed at stands out.
  mark(kind, name) {
    this.#picked?.classList.remove("picked");
    this.#picked = (kind === "link" ? this.#links.get(name)?.group : this.#nodes.get(name)) ?? null;
    this.#picked?.classList.add("picked");
  }

  #draw(state) {
    const frame = NARROW.matches ? TALL : WIDE;
    const ends = state.nodes
      .filter((each) => this.#sideOf(each.domain))
      .sort((one, other) => (this.#sideOf(one.domain) < this.#sideOf(other.domain) ? -1 : 1));
    const places = layout(
      state.nodes.map((each) => each.name), state.links, ends.map((each) => each.name), frame.box,
    );
    const names = state.nodes.map((each) => each.name).join(", ");
    const title = svg("title", { id: "map-title" });
    const counts = `${state.nodes.length} nodes and ${state.links.length} links`;
    title.textContent = `Map of ${counts}: ${names}. The lists below say the same.`;
    const picture = svg("svg", {
      viewBox: `0 0 ${frame.width} ${frame.height}`, role: "img", "aria-labelledby": "map-title",
    }, title);
    for (const each of [this.#links, this.#nodes, this.#walks]) each.clear();
    for (const link of state.links) {
      const [from, to] = [places.get(link.a), places.get(link.b)];
      if (from && to) picture.append(this.#link(link, from, to));
    }
    for (const walk of state.walks) {
      const [from, to] = [places.get(walk.a), places.get(walk.b)];
      if (from && to) picture.append(this.#walk(walk, from, to, frame));
    }
    this.#packets = svg("g");
    picture.append(this.#packets);
    for (const node of state.nodes) picture.append(this.#node(node, places.get(node.name)));
    this.#parent.replaceChildren(picture);
  }

  #link(link, from, to) {
    const ends = { x1: from.x, y1: from.y, x2: to.x, y2: to.y };
    const [x, y] = [(from.x + to.x) / 2, (from.y + to.y) / 2];
    const cross = svg("path", { class: "cross", d: `M${x - 8} ${y - 8}l16 16m0 -16l-16 16` });
    const parts = ["band", "line", "glow"].map((name) => svg("line", { class: name, ...ends }));
    const grip = svg("line", { class: "grip", ...ends });
    grip.addEventListener("click", () => this.#pick("link", link.id));
    const group = svg("g", { class: "net-link" }, ...parts, cross, grip);
    this.#links.set(link.id, { group, at: { from, to } });
    return group;
  }

  // An edge that clients taught by moving: an arc around the fabric, which has no part in it.
  #walk({ a, b }, from, to, { width, height }) {
    const wide = width > height;
    const bend = wide ? `${from.x} ${-0.14 * height} ${to.x} ${-0.14 * height}`
      : `${-0.1 * width} ${from.y} ${-0.1 * width} ${to.y}`;
    const title = svg("title");
    this.#walks.set(`${a} ${b}`, title);
    const d = `M${from.x} ${from.y}C${bend} ${to.x} ${to.y}`;
    return svg("g", { class: "net-walk" }, title, svg("path", { class: "line", d }),
      svg("path", { class: "grip", d }));
  }

  #node(node, { x, y }) {
    const roles = list(node.roles);
    const side = this.#sideOf(node.domain);
    const proxy = side !== ""; // the fabric's node of a web domain
    const group = svg("g", {
      class: `net-node ${side} ${proxy ? "proxy" : ""}`, transform: `translate(${x} ${y})`,
    });
    if (proxy) {
      group.append(svg("rect", { class: "body", x: -62, y: -32, width: 124, height: 64, rx: 16 }));
    } else group.append(svg("circle", { class: "body", r: 27 }));
    const name = svg("text", { y: proxy ? -10 : 0 });
    name.textContent = node.name;
    group.append(name);
    if (proxy) {
      const domain = svg("text", { class: "domain", y: 12 });
      domain.textContent = node.domain;
      group.append(domain);
    }
    if (roles.includes("rendezvous")) {
      group.append(svg("rect", {
        class: "badge-rendezvous", x: -8, y: -8, width: 16, height: 16, rx: 3,
        transform: "translate(21 -21) rotate(45)",
      }));
    }
    if (roles.includes("topology")) {
      group.append(svg("circle", { class: "badge-manager", cx: -21, cy: -21, r: 8 }));
    }
    group.addEventListener("click", () => this.#pick("node", node.name));
    this.#nodes.set(node.name, group);
    return group;
  }

  // A few dots run along a link that carries packets, the tree's in its direction.
  #travel(rate, link, { from, to }, start) {
    if (CALM.matches || document.hidden) return;
    const count = Math.min(MOST_PACKETS, Math.ceil(rate / 4));
    const backwards = start ? start === link.b : Math.random() < 0.5;
    const [begin, end] = backwards ? [to, from] : [from, to];
    const length = Math.hypot(end.x - begin.x, end.y - begin.y);
    for (let each = 0; each < count; each += 1) {
      const dot = svg("circle", { class: "packet", r: start ? 4.5 : 3 });
      this.#packets.append(dot);
      const running = dot.animate(
        [
          { transform: `translate(${begin.x}px, ${begin.y}px)`, opacity: 0 },
          { opacity: start ? 1 : 0.5, offset: 0.15 },
          { opacity: start ? 1 : 0.5, offset: 0.85 },
          { transform: `translate(${end.x}px, ${end.y}px)`, opacity: 0 },
        ],
        { duration: 250 + length * 2.2, delay: (each * 450) / count, fill: "backwards" },
      );
      running.onfinish = () => dot.remove();
      running.oncancel = () => dot.remove();
    }
  }
}
