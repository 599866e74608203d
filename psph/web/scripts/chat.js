// Chat: a window for each person. A message waits in the outbox until the writer's PSPH has taken it,
// also over a reload, and is sent again, in order, when the PSPH is back. It has an id from the
// beginning, so that sending it again cannot double it.

import { pause } from "../roaming/collecting.js";
import { Outbox } from "../roaming/outbox.js";
import { post } from "./api.js";
import { MOST_MESSAGES, advance } from "./memory.js";
import { arrange, at, clock, element, instant, setText, text } from "./showing.js";

const LONGEST = 2_000;
const AGAIN = 1_000; // after a failure
const OUTBOX = "psph chat ";
const MOST_WAITING = 100;
const LARGEST_OUTBOX = 1 << 19; // characters

// What the PSPH says no to stays no; all else may be otherwise a moment later.
const isFinal = (status) => status >= 400 && status < 500 && ![401, 408, 429].includes(status);

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const localPart = (jid) => jid.split("@")[0];

class Window {
  #chat;
  #side;
  #heard;
  #trouble;
  #outbox;
  #sending = false;
  #reason = ""; // why the first that waits was not taken
  #standing = "connecting";
  #presenceState = "";
  #lines = new Map();
  #log;
  #presence;
  #input;

  constructor(chat, { side, identity, heard, trouble }) {
    this.#chat = chat;
    this.#side = side;
    this.#heard = heard;
    this.#trouble = trouble;
    this.#outbox = new Outbox(`${OUTBOX}${identity} ${chat.me} ${chat.with} out `, {
      most: MOST_WAITING, largest: LARGEST_OUTBOX, changed: () => this.#waiting(),
    });
    this.element = this.#frame();
    this.#waiting();
  }

  #frame() {
    const { me, with: buddy } = this.#chat;
    const title = element("h2", { id: `window-${this.#side}` }, me);
    const face = element("span", { className: "face" }, localPart(me).slice(0, 1));
    face.setAttribute("aria-hidden", "true");
    this.#presence = element("p", { className: "presence", role: "status" });
    this.#showPresence();
    this.#log = element("ol", { className: "messages", tabIndex: 0, role: "log" });
    this.#log.setAttribute("aria-label", `What ${me} and ${buddy} wrote`);
    this.#input = element("input", {
      type: "text", maxLength: LONGEST, autocomplete: "off",
      placeholder: `Write to ${localPart(buddy)}`,
    });
    this.#input.setAttribute("aria-label", `Message from ${me} to ${buddy}`);
    const form = element("form", {}, this.#input, element("button", { type: "submit" }, "Send"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const written = this.#input.value.trim();
      if (!written) return;
      const message = { id: newId(), from: me, to: buddy, text: written, at: Date.now() };
      if (this.#write(message)) this.#input.value = "";
    });
    const frame = element(
      "section", { className: `card window ${this.#side}` },
      element("header", {}, face, element("div", {}, title, this.#presence)), this.#log, form,
    );
    frame.setAttribute("aria-labelledby", title.id);
    return frame;
  }

  presence(state) {
    this.#presenceState = state;
    this.#showPresence();
  }

  // How the conversation stands at the PSPH of this window's user: without it the presence of the
  // other user is unknown, and nothing is sent.
  standing(state) {
    if (state === this.#standing) return;
    this.#standing = state;
    if (state !== "live") this.#presenceState = "";
    this.#showPresence();
    this.#show();
    this.#sendAll();
  }

  #showPresence() {
    const buddy = localPart(this.#chat.with);
    const domain = this.#chat.me.split("@")[1];
    const [state, words] = {
      connecting: ["", "connecting …"],
      reconnecting: ["gone", "reconnecting …"],
      stopped: ["gone", `stopped: no PSPH in ${domain}`],
    }[this.#standing] ?? {
      here: ["here", `${buddy} is here`], away: ["away", `${buddy} is away`],
    }[this.#presenceState] ?? ["", `talking with ${buddy}`];
    this.#presence.dataset.state = state;
    setText(this.#presence, words);
  }

  // Into the outbox; false when that is full.
  #write(message) {
    try {
      this.#outbox.add(message.id, message);
    } catch (error) {
      this.#trouble(error.message);
      return false;
    }
    this.#trouble("");
    this.#waiting(true);
    return true;
  }

  // What waits is what is in the outbox: other tabs write there, too.
  #waiting(follow = false) {
    const waiting = new Map(this.#outbox.entries().filter(([, item]) => text(item?.text)));
    const known = new Set();
    this.#chat.messages = this.#chat.messages.filter(({ id, state }) => {
      known.add(id);
      return state !== "waiting" || waiting.has(id);
    });
    for (const [id, item] of waiting) {
      if (!known.has(id)) this.#chat.messages.push({ ...item, id, state: "waiting" });
    }
    this.#show(follow);
    this.#sendAll();
  }

  // One after the other, for as long as the PSPH is there.
  async #sendAll() {
    if (this.#sending) return;
    this.#sending = true;
    for (let waiting; this.#standing === "live" && (waiting = this.#outbox.entries()).length; ) {
      const [[id, item]] = waiting;
      const message = this.#chat.messages.find((each) => each.id === id) ?? {};
      try {
        await post("/api/chat", { me: item.from, to: item.to, text: item.text, id });
        Object.assign(message, { state: "sent" });
      } catch (error) {
        if (!isFinal(error.status)) {
          this.#reason = error.message;
          this.#show();
          await pause(AGAIN);
          continue;
        }
        Object.assign(message, { state: "failed", reason: error.message });
      }
      this.#reason = "";
      this.#outbox.remove(id);
      this.#show();
    }
    this.#sending = false;
  }

  // A message from the stream: the buddy's, or one's own as it was recorded. True if it is news.
  received(data) {
    const message = {
      id: text(data.id), from: text(data.from), to: text(data.to), text: text(data.text),
      at: instant(data.at), state: "sent",
    };
    if (data.after !== undefined) this.#chat.after = data.after;
    const seen = (this.#chat.seen[message.from] ??= {});
    if (!advance(seen, data.position)) return false;
    const known = this.#chat.messages.find((each) => each.id === message.id);
    if (known) Object.assign(known, message, { reason: undefined });
    else this.#chat.messages.push(message);
    this.#outbox.remove(message.id); // it was taken, though the answer may be lost
    this.#show(true);
    return !known && message.from !== this.#chat.me;
  }

  notice(kind) {
    if (kind === "reset") this.#chat.seen = {};
    this.#chat.messages.push({ id: newId(), kind, at: Date.now() });
    this.#show(true);
  }

  #show(follow = false) {
    const { messages } = this.#chat;
    const waits = ({ state }) => (state === "waiting" || state === "failed" ? 1 : 0);
    messages.sort((one, other) => waits(one) - waits(other) || one.at - other.at);
    messages.splice(0, messages.length - MOST_MESSAGES);
    const atBottom = this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight < 40;
    const lines = messages.map((message, index) => this.#line(message, messages[index - 1]));
    const nothing = element("li", { className: "nothing" }, "Nothing has been said yet.");
    const ids = new Set(messages.map((each) => each.id));
    for (const id of this.#lines.keys()) if (!ids.has(id)) this.#lines.delete(id);
    arrange(this.#log, lines.length ? lines : [nothing]);
    if (follow || atBottom) this.#log.scrollTop = this.#log.scrollHeight;
    this.#heard();
  }

  #line(message, before) {
    let line = this.#lines.get(message.id);
    if (!line) {
      line = element("li");
      this.#lines.set(message.id, line);
    }
    const mine = message.from === this.#chat.me;
    const turn = before?.from !== message.from;
    const className = message.kind
      ? "notice"
      : `${mine ? "mine " : ""}${turn ? "turn " : ""}${message.state}`.trim();
    const why = message.state === "waiting" ? this.#why() : message.reason ?? "";
    const state = `${className} ${message.at} ${why}`;
    if (line.dataset.shown === state) return line;
    line.dataset.shown = state;
    line.className = className;
    const parts = message.kind ? this.#noticeParts(message) : this.#messageParts(message, why);
    line.replaceChildren(...parts);
    return line;
  }

  #noticeParts({ kind }) {
    return [kind === "gap" ? "Older messages are no longer kept." : "The conversation began anew."];
  }

  #why() {
    if (this.#standing !== "live") return "waits for the PSPH";
    return this.#reason ? `waits: ${this.#reason}` : "sending …";
  }

  #messageParts(message, why) {
    const meta = element("span", { className: "meta" });
    if (message.state === "waiting") meta.append(why);
    else if (message.state === "failed") {
      const again = element("button", { type: "button", className: "quiet" }, "Send again");
      again.addEventListener("click", () => this.#again(message));
      meta.append(why || "not sent", " ", again);
    } else meta.append(clock(message.at, { seconds: false }));
    return [
      element("span", { className: "unseen" }, `${localPart(message.from)}: `),
      element("span", { className: "bubble", dir: "auto" }, message.text), meta,
    ];
  }

  #again({ id, from, to, text: written, at: moment }) {
    if (!this.#write({ id, from, to, text: written, at: moment })) return;
    this.#chat.messages.find((each) => each.id === id).state = "waiting";
    this.#show();
  }

  // Messages may have come while the view was hidden and nothing could scroll.
  shown() {
    this.#log.scrollTop = this.#log.scrollHeight;
  }
}

export class Chat {
  #windows = [];
  #standing;
  #visible = false;
  #unseen = 0;

  constructor({ world, state, memory, standing }) {
    this.#standing = standing;
    Outbox.forget(OUTBOX, OUTBOX + world.identity);
    const people = world.chat.slice(0, 2);
    people.forEach(({ jid, domain }, index) => {
      const buddy = people[1 - index]?.jid;
      if (!buddy) return;
      let chat = state.chats.find((each) => each.me === jid && each.with === buddy);
      if (!chat) {
        chat = { me: jid, with: buddy, after: null, seen: {}, messages: [] };
        state.chats.push(chat);
      }
      const side = world.side(domain) || "ab"[index];
      const view = new Window(chat, {
        side, identity: world.identity,
        heard: () => memory.saveSoon(), trouble: (reason) => this.trouble(reason),
      });
      this.#windows.push({ chat, domain, view });
    });
    at("windows").append(...this.#windows.map(({ view }) => view.element));
    if (!this.#windows.length) this.trouble("Nobody can chat in this world.");
  }

  wanted() {
    return this.#windows.map(({ chat }) => ({ me: chat.me, with: chat.with, after: chat.after }));
  }

  // Conversations that are not live, by whose PSPH that is.
  gone() {
    return this.#windows.map(({ chat, domain }) => [domain, this.#standing.of(chat)])
      .filter(([, state]) => state === "stopped" || state === "reconnecting");
  }

  // It has changed how something stands.
  standing() {
    for (const { chat, view } of this.#windows) view.standing(this.#standing.of(chat));
  }

  message(data) {
    const found = this.#windows.find(({ chat }) => chat.me === data.me);
    this.trouble("");
    if (found?.view.received(data) && !this.#visible) this.#unseen += 1;
    this.#showUnseen();
  }

  notice(kind, data) {
    this.#windows.find(({ chat }) => chat.me === data.me)?.view.notice(kind);
  }

  presence(data) {
    for (const { chat, view } of this.#windows) {
      if (chat.with === data.jid) view.presence(text(data.state));
    }
  }

  trouble(reason) {
    at("chat-trouble").hidden = !reason;
    const sentence = reason && `${reason[0].toUpperCase()}${reason.slice(1).replace(/\.?$/, ".")}`;
    setText(at("chat-trouble"), sentence);
  }

  visible(is) {
    this.#visible = is;
    if (!is) return;
    this.#unseen = 0;
    this.#showUnseen();
    for (const { view } of this.#windows) view.shown();
  }

  #showUnseen() {
    const tab = at("tab-chat");
    if (this.#unseen) tab.dataset.unseen = String(Math.min(this.#unseen, 99));
    else delete tab.dataset.unseen;
  }
}
