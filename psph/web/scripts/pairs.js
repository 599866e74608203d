// From domain to domain: what the streaming job found in the traces, while it runs.

import { arrange, at, duration, element, list, number, text } from "./showing.js";

const lines = new Map();

export function showPairs(live) {
  const pairs = list(live?.pairs).filter((each) => list(each?.windows).length);
  at("live").hidden = pairs.length === 0;
  if (pairs.length === 0) return;
  at("live-note").textContent =
    `Taken by Spark from the trace files, in windows of ${number(live.window_s)} s, ` +
    "with the clocks of both ends corrected.";
  const key = (pair) => `${text(pair.from)} ${text(pair.to)}`;
  arrange(at("live-pairs"), pairs.map((pair) => {
    const words = JSON.stringify(pair);
    const known = lines.get(key(pair));
    if (known?.dataset.shown === words) return known;
    const made = line(pair);
    made.dataset.shown = words;
    lines.set(key(pair), made);
    return made;
  }));
}

function line(pair) {
  const windows = list(pair.windows);
  const last = windows.at(-1);
  const said = (value) => (Number.isFinite(value) ? duration(value) : "–");
  const about = Number.isFinite(last.uncertainty) ? `, give or take ${said(last.uncertainty)}` : "";
  const longest = Math.max(...windows.map((each) => number(each.p50)), 0.001);
  const bars = element("div", { className: "spark", role: "img" });
  bars.setAttribute("aria-label", `p50 of the last ${windows.length} windows`);
  for (const each of windows) {
    const when = new Date(number(each.at) * 1000).toLocaleTimeString();
    const bar = element("i", { title: `${when}: ${said(each.p50)}, ${number(each.count)} crossings` });
    bar.style.height = `${Math.max(4, (number(each.p50) / longest) * 100)}%`;
    bars.append(bar);
  }
  return element(
    "li", {},
    element("p", { className: "meta" },
      element("bdi", {}, text(pair.from)), element("span", {}, `to ${text(pair.to)}`),
      element("b", {}, said(last.p50))),
    bars,
    element("p", { className: "note" },
      `p90 ${said(last.p90)}, p99 ${said(last.p99)}${about}; ${number(last.count)} crossings in the last window`),
  );
}
