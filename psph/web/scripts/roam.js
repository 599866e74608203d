// Roam: this page as a client that moves between the hubs of the two domains (../roaming/). It has
// connections of its own to the hubs, beside the one stream of events from the page's server.

import { Outbox } from "../roaming/outbox.js";
import { Roamer } from "../roaming/roamer.js";
import { post } from "./api.js";
import { figures } from "./figures.js";
import { at, clock, duration, element, setText } from "./showing.js";
import { Lines, counted, noted } from "./versions.js";

const FAR = 150; // milliseconds that somebody who pretends to be elsewhere is away
const EVERY = 700; // between publications
const MOST_MOVES = 40;
const MOST_SAID = 60;
const NAME = "psph roaming page ";

const isLoopback = (host) => /^(localhost|127\.[0-9.]+|\[::1\])$/.test(host);

// The hubs listen on the machine that the world runs on. Elsewhere the page's server passes on what
// a client that moves asks of them.
const reachable = ({ name, hub }) =>
  isLoopback(location.hostname) ? hub : `${location.origin}/hubs/${name}`;

export class Roam {
  #world;
  #domains; // each with the hub as this page reaches it
  #roamer = null;
  #lines = null;
  #topics;
  #places = new Map();
  #near = "";
  #moves = 0;
  #publishing = 0;
  #published = 0;

  constructor({ world }) {
    this.#world = world;
    this.#domains = world.domains.map((domain) => ({ ...domain, hub: reachable(domain) }));
    // The first feed of each domain: while a PSPH is stopped its website has nobody to tell, and
    // the other line shows that the stream goes on.
    this.#topics = world.domains.map(({ topics }) => topics[0]).filter(Boolean);
  }

  // The view is looked at: now, and not before, the page connects to a hub.
  shown() {
    if (this.#roamer) return;
    // Positions of one world mean nothing in another.
    Outbox.forget(NAME, NAME + this.#world.identity);
    this.#lines = new Lines(this.#world, this.#topics);
    this.#roamer = new Roamer({
      name: `page ${this.#world.identity}`,
      hubs: this.#domains.map(({ hub }) => hub),
      topics: this.#topics,
      consume: (event, effect) => {
        const after = noted(effect, event, this.#sideOf(this.#roamer.hub));
        this.#showSoon();
        return after;
      },
      notice: (notice) => this.#noticed(notice),
      token: this.#world.publishing.token,
      distance: (hub) => (this.#near && this.#near !== hub ? FAR : 0),
    });
    this.#showControls();
    this.#show();
    this.#roamer.start();
  }

  #domainOf(hub) {
    return this.#domains.find((each) => each.hub === hub)?.name ?? hub;
  }

  #sideOf(hub) {
    return this.#world.side(this.#domainOf(hub));
  }

  // Controls

  #showControls() {
    at("places").append(...this.#domains.map((domain) => this.#place(domain)));
    const near = (hub, words, checked) => {
      const radio = element("input", { type: "radio", name: "near", checked });
      radio.addEventListener("change", () => {
        this.#near = hub;
        this.#roamer.take(); // of several tabs, the one that is asked decides
      });
      return element("label", { className: this.#sideOf(hub) }, radio, element("span", {}, words));
    };
    at("near").append(
      near("", "neither", true),
      ...this.#domains.map(({ hub, name }) => near(hub, name, false)),
    );
    at("roam-faster").addEventListener("change", ({ target }) => {
      this.#roamer.followFaster = target.checked;
      this.#roamer.take();
    });
    at("roam-take").addEventListener("click", () => this.#roamer.start());
    at("roam-publish").addEventListener("click", () => this.#publish());
    at("roam-keep").addEventListener("click", () => this.#keepPublishing());
    const { topic } = this.#world.publishing;
    at("roam-say").hidden = !topic;
    setText(at("roam-topic"), this.#world.nameOf(topic));
    at("roam-say").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#say(topic, at("roam-text").value.trim());
    });
  }

  #place({ name, node, hub }) {
    const state = element("p", { className: "note" });
    const move = element("button", { type: "button", className: "small" }, "Move here");
    move.setAttribute("aria-label", `Move to ${name}`);
    move.addEventListener("click", () => this.#roamer.move(hub, "you moved it"));
    const toggle = element("button", { type: "button", className: "small second danger" });
    toggle.addEventListener("click", () => this.#switch(node, hub, toggle));
    this.#places.set(hub, { state, move, toggle, node });
    const heading = element("h2", {}, element("i", { className: "dot" }), name);
    const line = element("li", { className: `card place ${this.#sideOf(hub)}` },
      heading, state, element("div", { className: "row" }, move, toggle));
    this.#places.get(hub).line = line;
    return line;
  }

  async #switch(node, hub, toggle) {
    const up = this.#roamer.speeds.of(hub) === null;
    toggle.disabled = true;
    this.#tell(up ? `Starting ${node} …` : `Stopping ${node} …`);
    try {
      await post(`/api/network/nodes/${node}`, { up });
      this.#tell("");
    } catch (error) {
      this.#tell(error.message, true);
    } finally {
      await this.#roamer.speeds.look(hub);
      toggle.disabled = false;
      this.#show();
    }
  }

  #tell(words, bad = false) {
    at("roam-note").classList.toggle("bad", bad);
    setText(at("roam-note"), words);
  }

  // As a client of the hub that the page is at, and not through the website as the buttons do.
  #say(topic, words) {
    if (!words) return;
    try {
      this.#roamer.publish(topic, words);
      at("roam-text").value = "";
      this.#showUnsent();
    } catch (error) {
      this.#showUnsent(error.message);
    }
  }

  #showUnsent(reason = "") {
    const count = this.#roamer.unsent;
    const waiting = count === 1 ? "One waits" : `${count} wait`;
    at("roam-unsent").classList.toggle("bad", reason !== "");
    setText(at("roam-unsent"), count || reason ? [waiting, reason].filter(Boolean).join(": ") : "");
  }

  async #publish() {
    this.#published += 1;
    const told = this.#topics.map((topic) =>
      post("/api/topics/publish", { topic, text: `Update ${this.#published} while roaming` }));
    const failed = (await Promise.allSettled(told)).find(({ status }) => status === "rejected");
    this.#tell(failed ? failed.reason.message : "", Boolean(failed));
  }

  async #keepPublishing() {
    const round = (this.#publishing = this.#publishing ? 0 : Date.now());
    setText(at("roam-keep"), round ? "Stop publishing" : "Keep publishing");
    while (round && round === this.#publishing) {
      await this.#publish();
      await new Promise((resolve) => setTimeout(resolve, EVERY));
    }
  }

  // Showing

  #noticed(notice) {
    const to = this.#domainOf(notice.to);
    if (notice.type === "moved") {
      const again = notice.from === notice.to || !notice.from;
      const way = again ? `At ${to}` : `From ${this.#domainOf(notice.from)} to ${to}`;
      this.#log(`${way} in ${duration(notice.ms)}: ${notice.reason}.`, "repaired");
      this.#moves += notice.from ? 1 : 0;
    } else if (notice.type === "lost") {
      this.#log(`${this.#domainOf(notice.hub)} is lost: ${notice.reason}.`, "broken");
    } else if (notice.type === "unsent") {
      this.#showUnsent(notice.reason.replace(/^\d+ /, "").split(":", 1)[0]);
    } else if (notice.type === "published") {
      const version = notice.as.split(".").at(-1);
      const side = this.#sideOf(this.#roamer.hub);
      at("roam-said").append(element("li", { className: `${side} arriving` }, version));
      while (at("roam-said").children.length > MOST_SAID) at("roam-said").firstElementChild.remove();
      this.#showUnsent();
    } else if (notice.type === "superseded") {
      this.#log("A copy of this client has taken over.", "broken");
    }
    this.#show();
  }

  #log(words, className) {
    at("moves-quiet").hidden = true;
    const said = element("span", { className }, words);
    at("moves").prepend(element("li", { className: "arriving" }, clock(Date.now()), said));
    while (at("moves").children.length > MOST_MOVES) at("moves").lastElementChild.remove();
  }

  // Many at once are drawn once.
  #drawing = 0;
  #showSoon() {
    this.#drawing ||= requestAnimationFrame(() => {
      this.#drawing = 0;
      this.#show();
    });
  }

  #show() {
    const { stage, hub, speeds, effect } = this.#roamer;
    this.#lines.show(effect);
    figures(at("roam-figures"), counted(effect, this.#moves));
    const name = this.#domainOf(hub);
    setText(at("roam-now"), {
      live: `The page is at ${name}.`,
      moving: `The page is at ${name}, and catches up …`,
      nowhere: "The page is nowhere, and looks for a hub …",
      superseded: "A copy of this client goes on in its place.",
    }[stage]);
    at("roam-now").dataset.stage = stage;
    at("roam-take").hidden = stage !== "superseded";
    for (const [each, { line, state, move, toggle, node }] of this.#places) {
      const ms = speeds.of(each);
      const here = each === hub && (stage === "live" || stage === "moving");
      line.classList.toggle("here", here);
      const answers = ms === null ? "does not answer" : `answers in ${duration(ms)}`;
      setText(state, here ? `The page is here. It ${answers}.` : `It ${answers}.`);
      move.disabled = here || ms === null;
      setText(toggle, ms === null ? `Start ${node}` : `Stop ${node}`);
    }
  }
}
