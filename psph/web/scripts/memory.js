// What this tab remembers over a reload: subscriptions with how far each was seen, entries, and the
// conversations. A position is written together with what it stands for, so that nothing is lost or
// shown twice.

import { list, number, text } from "./showing.js";

const KEY = "psph world";
const VERSION = 1;
export const MOST_FEEDS = 16; // as many as the server follows for a page
const MOST_PUBLISHERS = 8;
export const MOST_ENTRIES = 100;
export const MOST_MESSAGES = 200;

function storage() {
  try {
    return window.sessionStorage;
  } catch {
    return null; // forbidden by the visitor: the page works, and forgets
  }
}

const isObject = (value) => typeof value === "object" && value !== null;

function feedOf(feed) {
  if (!isObject(feed) || !text(feed.domain) || !text(feed.topic)) return null;
  const seen = isObject(feed.seen) ? feed.seen : {};
  return {
    domain: feed.domain, topic: feed.topic, position: text(feed.position) || null, seen,
    count: number(feed.count),
  };
}

const isEntry = (entry) =>
  isObject(entry) && ["kind", "domain", "topic"].every((key) => text(entry[key])) && entry.at > 0;
const isMessage = (message) => isObject(message) && text(message.id) && message.at > 0;

function chatOf(chat) {
  if (!isObject(chat) || !text(chat.me)) return null;
  const seen = isObject(chat.seen) ? chat.seen : {};
  return { me: chat.me, with: text(chat.with), after: chat.after ?? null, seen,
           messages: list(chat.messages).filter(isMessage) };
}

// What was stored may come from another version of this page, or from a curious visitor.
export function load() {
  let kept = null;
  try {
    kept = JSON.parse(storage()?.getItem(KEY) ?? "null");
  } catch {
    // not ours
  }
  if (!isObject(kept) || kept.version !== VERSION) kept = {};
  return {
    world: text(kept.world),
    reader: text(kept.reader),
    tree: text(kept.tree),
    feeds: list(kept.feeds).map(feedOf).filter(Boolean).slice(0, MOST_FEEDS),
    entries: list(kept.entries).filter(isEntry).slice(0, MOST_ENTRIES),
    chats: list(kept.chats).map(chatOf).filter(Boolean),
  };
}

// Positions of one world mean nothing in another: `psph up` without --data starts a new one.
// Returns whether this tab has not been in this world before.
export function belongsTo(state, world) {
  if (state.world === world) return false;
  state.world = world;
  state.feeds = [];
  state.entries = [];
  state.chats = [];
  state.tree = "";
  return true;
}

export const newFeed = (domain, topic) => ({ domain, topic, position: null, seen: {}, count: 0 });

export class Memory {
  #state;
  #timer = 0;

  constructor(state) {
    this.#state = state;
    window.addEventListener("pagehide", () => this.saveNow());
    document.addEventListener("visibilitychange", () => document.hidden && this.saveNow());
  }

  saveSoon() {
    this.#timer ||= setTimeout(() => this.saveNow(), 150);
  }

  saveNow() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    try {
      storage()?.setItem(KEY, JSON.stringify({ version: VERSION, ...this.#state }));
    } catch {
      // full: the page goes on, and a reload starts from what was saved last
    }
  }
}

const POSITION = /^([0-9a-f]{32})\.([0-9]{1,20})\.([0-9]{1,20})$/;

// Whether the update at this position was not seen yet in `seen`; it counts as seen from now on.
export function advance(seen, position) {
  const parts = POSITION.exec(position);
  if (!parts) return true;
  const [, publisher, epoch, version] = parts;
  const before = /^([0-9]{1,20})\.([0-9]{1,20})$/.exec(seen[publisher] ?? "");
  if (before) {
    const [lastEpoch, lastVersion] = [BigInt(before[1]), BigInt(before[2])];
    const older = BigInt(epoch) < lastEpoch;
    if (older || (BigInt(epoch) === lastEpoch && BigInt(version) <= lastVersion)) return false;
  }
  delete seen[publisher]; // so that the one used last is also the last in order
  seen[publisher] = `${epoch}.${version}`;
  for (const each of Object.keys(seen).slice(0, -MOST_PUBLISHERS)) delete seen[each];
  return true;
}
