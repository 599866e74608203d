// Latency: the last crossings stage by stage, percentiles, and where the time goes.

import { figures } from "./figures.js";
import { showPairs } from "./pairs.js";
import {
  arrange, at, duration, element, list, number, percent, safeLink, text,
} from "./showing.js";

const MOST = 12;
const FAR = 8; // times the middle one
const WORDS = {
  ping_received: ["Ping", "the website tells its hub"],
  fetched: ["Fetch", "the hub gets the feed and finds what is new"],
  published: ["Publish", "recorded, signed, handed to the fabric"],
  forwarded: ["Forward", "from node to node through the fabric"],
  delivered: ["Deliver", "put together and verified in the other domain"],
  pushed: ["Push", "the hub there posts to callbacks"],
  browser_sent: ["Send", "the hub there writes to the reader's stream"],
};
const word = (stage) => WORDS[stage]?.[0] ?? stage.replaceAll("_", " ");
const className = (stage) => `stage-${stage in WORDS ? stage : "other"}`;

export class Latency {
  #world;
  #crossings = []; // newest first
  #lines = new Map();

  constructor({ world }) {
    this.#world = world;
    this.latency({});
  }

  crossing(data) {
    const id = text(data.trace_id);
    const stages = list(data.stages)
      .filter((each) => text(each?.stage) && Number.isFinite(each.at_ms))
      .sort((one, other) => one.at_ms - other.at_ms);
    // What the proxies say to each other has no topic, and is no update.
    if (!id || !text(data.topic) || stages.length < 2) return;
    const total = number(data.total_ms) || stages.at(-1).at_ms - stages[0].at_ms;
    const made = { id, topic: text(data.topic), to: text(data.to), stages, total };
    // One update may reach several readers; the whole of it is told again when more is known.
    const key = (each) => `${each.id} ${each.to}`;
    const others = this.#crossings.filter((each) => key(each) !== key(made));
    this.#crossings = [made, ...others].slice(0, MOST);
    this.#lines.delete(key(made));
    this.#show(key);
  }

  #show(key) {
    const scale = this.#scale();
    const wanted = this.#crossings.map((each) => {
      let line = this.#lines.get(key(each));
      if (!line) {
        line = this.#line(each);
        this.#lines.set(key(each), line);
      }
      line.querySelector(".bar-fill").style.width = `${Math.min(1, each.total / scale) * 100}%`;
      line.classList.toggle("beyond", each.total > scale);
      return line;
    });
    const kept = new Set(this.#crossings.map(key));
    for (const each of this.#lines.keys()) if (!kept.has(each)) this.#lines.delete(each);
    arrange(at("crossings"), wanted);
    at("crossings-empty").hidden = true;
  }

  // The longest one fills the track. One that waited for a repair, say, would make lines of all
  // others: it is left out of the scale, and its bar runs off the end.
  #scale() {
    const totals = this.#crossings.map((each) => each.total).sort((one, other) => one - other);
    const middle = totals[Math.floor((totals.length - 1) / 2)];
    return Math.max(...totals.filter((each) => each <= FAR * middle), 1);
  }

  #line({ topic, to, stages, total }) {
    const fill = element("div", { className: "bar-fill" });
    const said = [];
    stages.slice(1).forEach(({ stage, node, at_ms: end }, index) => {
      const took = Math.max(0, end - stages[index].at_ms);
      const words = `${word(stage)} ${duration(took)}${text(node) ? ` at ${text(node)}` : ""}`;
      said.push(words);
      const part = element("i", { className: className(stage), title: words });
      part.style.flexGrow = String(Math.max(took, 0.001));
      part.style.flexBasis = "0";
      fill.append(part);
    });
    const track = element("div", { className: "bar-track", role: "img" }, fill);
    track.setAttribute("aria-label", said.join(", "));
    return element(
      "li", { className: "arriving" },
      element("p", { className: "meta" },
        element("bdi", {}, this.#world.nameOf(topic)), to ? element("span", {}, `to ${to}`) : null,
        element("b", {}, duration(total))),
      track,
    );
  }

  latency(data) {
    const shown = (value) => {
      if (!Number.isFinite(value)) return ["–", ""];
      const [amount, unit] = duration(value).split(" ");
      return [amount, unit];
    };
    figures(at("percentiles"), [
      ["p50: half were quicker", ...shown(data.p50)],
      ["p90: nine of ten were quicker", ...shown(data.p90)],
      ["p99: 99 of 100 were quicker", ...shown(data.p99)],
      ["crossings measured", `${number(data.count)}`, ""],
    ]);
    this.#showStages(list(data.by_stage));
    showPairs(data.live);
    this.#showReport(safeLink(new URL(text(data.report) || "about:blank", location.href).href));
  }

  #showStages(stages) {
    // The first stage is where the clock starts.
    const known = stages.filter((each) => text(each?.stage) && each.stage !== "ping_received");
    const words = JSON.stringify(known);
    if (at("stages").dataset.shown === words && words !== "[]") return;
    at("stages").dataset.shown = words;
    const lines = known.map(({ stage, share, p50 }) => {
      const bar = element("i");
      bar.style.width = `${Math.min(100, number(share) * 100)}%`;
      const what = WORDS[stage]?.[1] ?? "";
      const part = percent(number(share));
      return element(
        "li", { className: className(stage) }, element("i", { className: "swatch" }),
        element("b", {}, word(stage)),
        element("span", {}, Number.isFinite(p50) ? `${duration(p50)}, ${part}` : part),
        element("div", { className: "share" }, bar),
        what ? element("span", { className: "note" }, what) : null,
      );
    });
    at("stages").replaceChildren(...lines);
  }

  #showReport(href) {
    const target = at("report");
    if (target.dataset.shown === (href ?? "none")) return;
    target.dataset.shown = href ?? "none";
    if (href) {
      const words = "The last Spark report";
      target.replaceChildren(element("a", { href, target: "_blank", rel: "noopener" }, words));
    } else {
      target.replaceChildren(
        "There is no Spark report of this world yet. To make one: ",
        element("code", {}, this.#world.report),
      );
    }
  }
}
