// The page: topics on one side, what they bring on the other.

import { advance, bounded, changedElsewhere, load, save, saveTopics, startOver } from "./memory.js";
import { element, itemElement, preview, time } from "./showing.js";
import { Stream } from "./stream.js";

const COLOURS = 6;
const SAVE_PAUSE = 150;
const TITLE = document.title;

const at = (id) => document.getElementById(id);
const state = load();
const shown = new Map(); // item to its element
let unseen = 0;
let saving = 0;

function byCanonical(canonical) {
  return state.topics.find((each) => each.canonical === canonical);
}

function name(topic) {
  return topic.title || topic.topic.replace(/^https?:\/\//i, "");
}

function saveSoon() {
  clearTimeout(saving);
  saving = setTimeout(saveNow, SAVE_PAUSE);
}

function saveNow() {
  clearTimeout(saving);
  saving = 0;
  save(state);
}

// Items

function source(canonical) {
  const topic = byCanonical(canonical);
  return { title: name(topic), topic: topic.topic, colour: topic.colour };
}

function addItems(items) {
  for (const item of [...items].reverse()) {
    const made = itemElement(item, source(item.canonical));
    shown.set(item, made);
    at("entries").prepend(made);
  }
  state.items = [...items, ...state.items];
  const kept = new Set(bounded(state.items));
  dropItems((item) => !kept.has(item));
}

function dropItems(unwanted) {
  for (const item of state.items.filter(unwanted)) {
    shown.get(item)?.remove();
    shown.delete(item);
  }
  state.items = state.items.filter((item) => !unwanted(item));
  showWhetherEmpty();
}

function showWhetherEmpty() {
  at("empty").hidden = state.items.length > 0;
  at("clear").hidden = state.items.length === 0;
  at("empty").textContent = state.topics.length
    ? "Nothing has come yet. The hub shows what a topic publishes from now on."
    : "Name a feed or a home page to begin. What you watch is remembered in this browser only.";
}

function announce(text) {
  at("announcement").textContent = text;
}

function brought(topic, count) {
  topic.last = Date.now();
  announce(`${count} new from ${name(topic)}`);
  if (document.hidden) unseen += count;
  document.title = unseen ? `(${unseen}) ${TITLE}` : TITLE;
  at("topics").querySelectorAll("li").forEach((each) => {
    if (each.dataset.canonical === topic.canonical) showLast(each, topic);
  });
  saveSoon();
}

function update(data) {
  const topic = state.topics.find((each) => each.topic === data.topic);
  if (!topic || !advance(topic, data.position)) return;
  const common = { canonical: topic.canonical, position: data.position, at: Date.now() };
  if (!Array.isArray(data.entries)) {
    const found = preview(data.content_type, data.body_b64);
    addItems([{ ...common, kind: "document", ...found }]);
    brought(topic, 1);
    return;
  }
  const ours = state.items.filter(
    (item) => item.kind === "entry" && item.canonical === topic.canonical,
  );
  // What is new to a hub that the page goes on at may have been shown already.
  const entries = data.entries.filter((entry) => !ours.some((item) => unchanged(item.entry, entry)));
  const ids = new Set(entries.map((entry) => entry.id));
  const older = ours.filter((item) => ids.has(item.entry.id));
  const known = new Set(older.map((item) => item.entry.id));
  const replaced = new Set(older);
  dropItems((item) => replaced.has(item));
  addItems(
    entries.map((entry) => ({
      ...common, kind: "entry", entry, changed: known.has(entry.id),
    })),
  );
  if (entries.length) brought(topic, entries.length);
  else saveSoon();
}

function unchanged(shownEntry, entry) {
  const fields = new Set([...Object.keys(shownEntry), ...Object.keys(entry)]);
  return [...fields].every((field) => (shownEntry[field] ?? "") === (entry[field] ?? ""));
}

function noticed(kind, data) {
  const topic = state.topics.find((each) => each.topic === data.topic);
  if (!topic) return;
  const { after, resumes } = data;
  if (kind === "reset") startOver(topic, resumes);
  const same = (item) => item.kind === kind && item.after === after && item.resumes === resumes;
  if (state.items.some((item) => item.canonical === topic.canonical && same(item))) return;
  addItems([{ canonical: topic.canonical, kind, after, resumes, at: Date.now() }]);
  saveSoon();
}

// Topics

function showLast(line, topic) {
  const last = line.querySelector(".last");
  last.replaceChildren();
  if (topic.last) last.append("last update ", time(topic.last));
  else last.append("no update yet");
}

function detailsOf(topic) {
  return `${stream.hub}topics?url=${encodeURIComponent(topic.topic)}`;
}

function topicElement(topic) {
  const remove = element("button", { type: "button", className: "quiet" }, "Remove");
  remove.setAttribute("aria-label", `Stop watching ${name(topic)}`);
  remove.addEventListener("click", () => {
    const buttons = [...at("topics").querySelectorAll("button")];
    const next = buttons[buttons.indexOf(remove) + 1] ?? buttons[buttons.indexOf(remove) - 1];
    (next ?? at("url")).focus();
    forget(topic.canonical);
    saveTopics(state);
    stream.restart();
  });
  const details = element("a", { href: detailsOf(topic) }, "Details");
  details.setAttribute("aria-label", `What the hub knows about ${name(topic)}`);
  const line = element(
    "li",
    {},
    element("bdi", { className: `name c${topic.colour}` }, name(topic)),
    element("bdi", { className: "url" }, topic.topic),
    element("span", { className: "last" }),
    element("span", { className: "actions" }, details, remove),
  );
  line.dataset.canonical = topic.canonical;
  showLast(line, topic);
  return line;
}

function showTopics() {
  at("topics").replaceChildren(...state.topics.map(topicElement));
  at("topics-title").hidden = state.topics.length === 0;
  showWhetherEmpty();
}

function forget(canonical) {
  dropItems((item) => item.canonical === canonical);
  state.topics = state.topics.filter((each) => each.canonical !== canonical);
  showTopics();
}

function watch({ topic, canonical, title }) {
  if (byCanonical(canonical)) {
    announce("You are watching that already.");
  } else {
    const used = state.topics.map((each) => each.colour);
    const free = [...Array(COLOURS).keys()].find((each) => !used.includes(each));
    const colour = free ?? state.topics.length % COLOURS;
    state.topics.push({ topic, canonical, title: title || "", colour, position: "", seen: {} });
    showTopics();
    saveTopics(state);
    stream.restart();
  }
  showOffers();
  at("url").value = "";
  at("url").focus();
}

// Adding

function showOffers(...children) {
  at("offers").replaceChildren(...children);
  at("offers").hidden = children.length === 0;
}

function offer(found, label) {
  const button = element("button", { type: "button" }, "Watch");
  button.setAttribute("aria-label", `Watch ${found.title || found.topic}`);
  button.addEventListener("click", () => watch(found));
  return element(
    "li",
    {},
    element("bdi", { className: "name" }, label || found.title || "Feed"),
    element("bdi", { className: "url" }, found.topic),
    button,
  );
}

function showFindings(found) {
  const itself = found.itself ?? { topic: found.topic, canonical: found.canonical, title: "" };
  const paragraph = (text, className = "") => element("p", { className }, text);
  if (found.error) {
    const list = element("ul", {}, offer(itself, "Watch it anyway"));
    showOffers(paragraph(`The hub cannot fetch that: ${found.error}.`, "problem"), list);
  } else if (found.kind !== "page") {
    watch(itself);
  } else if (found.feeds.length) {
    const count = found.feeds.length;
    const text = count === 1 ? "That page offers a feed:" : `That page offers ${count} feeds:`;
    const offers = found.feeds.map((each) => offer(each));
    if (found.hubs.length) offers.push(offer(itself, "The page itself"));
    showOffers(paragraph(text), element("ul", {}, ...offers));
  } else {
    const text = found.hubs.length
      ? "That page offers no feed, but names a hub that tells of its changes:"
      : "That page offers no feed and names no hub. It can be watched if this hub hears of it:";
    showOffers(paragraph(text), element("ul", {}, offer(itself, "The page itself")));
  }
}

async function find(text) {
  const url = /^[a-z][a-z0-9+.-]*:/i.test(text) && !/^[^/]*:\d+(\/|$)/.test(text)
    ? text
    : `https://${text}`;
  const button = at("add").querySelector("button");
  button.disabled = true;
  showOffers(element("p", { className: "hint" }, "Looking at it …"));
  try {
    const answer = await fetch(`${stream.hub}find?url=${encodeURIComponent(url)}`);
    if (answer.ok) showFindings(await answer.json());
    else showOffers(element("p", { className: "problem" }, (await answer.text()).trim()));
  } catch {
    showOffers(element("p", { className: "problem" }, "The hub does not answer. Try again."));
  } finally {
    button.disabled = false;
  }
}

at("add").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = at("url").value.trim();
  if (text) find(text);
});

at("clear").addEventListener("click", () => {
  dropItems(() => true);
  saveNow();
  at("url").focus();
});

// Connection

const STATES = {
  idle: () => "Nothing to watch yet",
  connecting: () => "Connecting …",
  live: (_, other) => (other ? `Live: goes on at another hub, ${other}` : "Live"),
  lost: (seconds, other) =>
    other
      ? `Connection lost, going on at ${other} in ${seconds} s`
      : `Connection lost, trying again in ${seconds} s`,
  refused: (reason) => `The hub refuses: ${reason}`,
};

const stream = new Stream(() => state.topics, {
  update,
  gap: (data) => noticed("gap", data),
  reset: (data) => noticed("reset", data),
  shown: () => ({ topics: state.topics, items: state.items }),
  show: adopt,
  state: (kind, detail, hub) => {
    at("connection").dataset.state = kind;
    at("connection").textContent = STATES[kind](detail, hub && new URL(hub).host);
    if (kind === "live") showHub(hub);
  },
});

// Links lead to the hub in use: the one that the page came from may be gone.
function showHub(hub) {
  at("all-topics").href = `${hub}topics`;
  for (const line of at("topics").querySelectorAll("li")) {
    line.querySelector("a").href = detailsOf(byCanonical(line.dataset.canonical));
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    if (saving) saveNow();
    return;
  }
  unseen = 0;
  document.title = TITLE;
});
window.addEventListener("pagehide", () => saving && saveNow());

// Another tab added or removed topics.
changedElsewhere((theirs) => {
  const before = state.topics.map((each) => each.canonical);
  const now = theirs.topics.map((each) => each.canonical);
  const added = theirs.topics.filter((each) => !before.includes(each.canonical));
  const removed = before.filter((each) => !now.includes(each));
  if (!added.length && !removed.length) return;
  removed.forEach(forget);
  state.topics.push(...added);
  addItems(theirs.items.filter((item) => added.some((each) => each.canonical === item.canonical)));
  showTopics();
  stream.restart();
});

// What the tab with the stream shows. What was added or removed here a moment ago it may not know yet.
function adopt({ topics, items }) {
  const places = (some) => JSON.stringify(some.map(({ canonical, seen }) => [canonical, seen]));
  const ours = topics.filter((each) => byCanonical(each.canonical));
  if (places(ours) === places(ours.map((each) => byCanonical(each.canonical)))) return;
  for (const { canonical, title, position, seen, last } of ours) {
    Object.assign(byCanonical(canonical), { title, position, seen, last });
  }
  const known = new Set(topics.map((each) => each.canonical));
  dropItems((item) => known.has(item.canonical));
  addItems(items.filter((item) => byCanonical(item.canonical)));
  showTopics();
  saveSoon();
}

const remembered = state.items;
state.items = [];
showTopics();
addItems(remembered);
stream.restart();

// A site may link to this page with ?topic=URL; watching it is left to the visitor.
const proposed = new URLSearchParams(location.search).get("topic")?.trim();
if (proposed) at("url").value = proposed;
