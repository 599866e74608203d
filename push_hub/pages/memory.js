// What the page remembers in this browser: the topics, how far each was seen, and what was shown.
// Position and entries are written together, so that a reload neither loses nor doubles anything.
// Every tab saves them shortly after an update. The list of topics has a key of its own, written only
// when a topic is added or removed, so that a tab with an outdated list does not undo the change.

export const KEY = `psph hub ${location.pathname}`;
const TOPICS = `${KEY} topics`;
const MAX_ITEMS = 200;
const MAX_CHARACTERS = 1_500_000;

export function storage() {
  try {
    return window.localStorage;
  } catch {
    return null; // forbidden by the visitor: the page works, and forgets
  }
}

const POSITION = /^([0-9a-f]{32})\.([0-9]{1,20})\.([0-9]{1,20})$/;
const MAX_PUBLISHERS = 8;

const text = (value) => (typeof value === "string" ? value : "");
const number = (value) => (Number.isFinite(value) ? value : 0);

// What was stored may come from another version of this page, or from a curious visitor.
function understood(value) {
  if (!Array.isArray(value?.topics) || !Array.isArray(value?.items)) return null;
  const topics = new Map();
  for (const each of value.topics) {
    if (text(each?.topic) && text(each?.canonical)) topics.set(each.canonical, topicOf(each));
  }
  const items = value.items.filter((each) => topics.has(each?.canonical)).map(itemOf);
  return { topics: [...topics.values()], items: items.filter((each) => each !== null) };
}

function topicOf({ topic, canonical, title, colour, position, seen, last }) {
  const valid = Object.entries(seen ?? {}).filter(
    ([publisher, place]) => POSITION.test(`${publisher}.${place}`),
  );
  return {
    topic,
    canonical,
    title: text(title),
    colour: number(colour),
    position: POSITION.test(position) ? position : "",
    seen: Object.fromEntries(valid),
    last: number(last),
  };
}

function itemOf(item) {
  const { kind, canonical, entry, after, resumes } = item;
  const common = { kind, canonical, at: number(item.at), position: text(item.position) };
  if (kind === "entry" && entry) {
    const fields = ["id", "title", "link", "published", "author", "content"];
    const texts = fields.map((field) => [field, text(entry[field])]);
    return { ...common, entry: Object.fromEntries(texts), changed: item.changed === true };
  }
  if (kind === "document") {
    return { ...common, type: text(item.type), size: number(item.size), text: text(item.text) };
  }
  const placed = POSITION.test(after) && POSITION.test(resumes);
  return (kind === "gap" || kind === "reset") && placed ? { ...common, after, resumes } : null;
}

function parse(stored) {
  try {
    return JSON.parse(stored ?? "null");
  } catch {
    return null;
  }
}

export function load() {
  const seen = understood(parse(storage()?.getItem(KEY))) ?? { topics: [], items: [] };
  const chosen = understood({ topics: parse(storage()?.getItem(TOPICS)), items: [] });
  if (!chosen) return seen; // written by an earlier version of this page
  const places = new Map(seen.topics.map((each) => [each.canonical, each]));
  const topics = chosen.topics.map((each) => ({ ...each, ...places.get(each.canonical) }));
  const items = seen.items.filter((each) => topics.some((one) => one.canonical === each.canonical));
  return { topics, items };
}

// Items are kept newest first; the oldest are let go. Returns those that remain.
export function bounded(items) {
  let characters = 0;
  const kept = items.slice(0, MAX_ITEMS);
  for (let at = 0; at < kept.length; at += 1) {
    characters += JSON.stringify(kept[at]).length;
    if (characters > MAX_CHARACTERS && at > 0) return kept.slice(0, at);
  }
  return kept;
}

export function save(state) {
  let items = state.items;
  for (;;) {
    try {
      storage()?.setItem(KEY, JSON.stringify({ topics: state.topics, items }));
      return;
    } catch {
      if (!items.length) return; // full with other things
      items = items.slice(0, Math.floor(items.length / 2));
    }
  }
}

// After a topic was added or removed here.
export function saveTopics(state) {
  const topics = state.topics.map(({ topic, canonical, title, colour }) => ({
    topic, canonical, title, colour,
  }));
  try {
    storage()?.setItem(TOPICS, JSON.stringify(topics));
  } catch {
    // Full with other things.
  }
  save(state);
}

// Calls back when another tab of this page added or removed topics.
export function changedElsewhere(callback) {
  window.addEventListener("storage", (event) => {
    if (event.key === TOPICS && event.newValue !== null) callback(load());
  });
}

// Whether an update at this position was not seen yet; it counts as seen from now on.
export function advance(topic, position) {
  const parts = POSITION.exec(position);
  if (!parts) return true;
  const [, publisher, epoch, version] = parts;
  const seen = topic.seen ?? {};
  const before = seen[publisher];
  if (before) {
    const [lastEpoch, lastVersion] = before.split(".").map(BigInt);
    const older = BigInt(epoch) < lastEpoch;
    if (older || (BigInt(epoch) === lastEpoch && BigInt(version) <= lastVersion)) return false;
  }
  delete seen[publisher]; // so that the one used last is also the last in order
  seen[publisher] = `${epoch}.${version}`;
  for (const each of Object.keys(seen).slice(0, -MAX_PUBLISHERS)) delete seen[each];
  topic.seen = seen;
  topic.position = position;
  return true;
}

// How far a topic was seen, as /stream wants it: of each publisher, the one heard of last at the end.
// Another hub may know only some of them.
export function positions(topic) {
  const seen = Object.entries(topic.seen ?? {}).map(([publisher, place]) => `${publisher}.${place}`);
  return seen.join(",") || (topic.position ?? "");
}

// The numbering of a topic begins anew at `resumes`. What was seen of other publishers stays: a hub
// that has not heard of them is not the last one.
export function startOver(topic, resumes) {
  const parts = POSITION.exec(resumes);
  if (parts) delete topic.seen?.[parts[1]];
}
