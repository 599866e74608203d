// Chat: a window for each person. A message has an id from here on, so sending it again after a
// failure cannot double it.

import { post } from "./api.js";
import { MOST_MESSAGES, advance } from "./memory.js";
import { arrange, at, clock, element, instant, setText, text } from "./showing.js";

const LONGEST = 2_000;

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const localPart = (jid) => jid.split("@")[0];

class Window {
  #chat;
  #side;
  #heard;
  #lines = new Map();
  #log;
  #presence;
  #input;

  constructor(chat, side, heard) {
    this.#chat = chat;
    this.#side = side;
    this.#heard = heard;
    // What was on its way when the page was left can be sent again by hand.
    for (const message of chat.messages) if (message.state === "pending") message.state = "failed";
    this.element = this.#frame();
    this.#show();
  }

  #frame() {
    const { me, with: buddy } = this.#chat;
    const title = element("h2", { id: `window-${this.#side}` }, me);
    const face = element("span", { className: "face" }, localPart(me).slice(0, 1));
    face.setAttribute("aria-hidden", "true");
    this.#presence = element("p", { className: "presence", role: "status" });
    this.presence("");
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
      this.#input.value = "";
      this.#send({ id: newId(), from: me, to: buddy, text: written, at: Date.now() });
    });
    const frame = element(
      "section", { className: `card window ${this.#side}` },
      element("header", {}, face, element("div", {}, title, this.#presence)), this.#log, form,
    );
    frame.setAttribute("aria-labelledby", title.id);
    return frame;
  }

  presence(state) {
    const buddy = localPart(this.#chat.with);
    const words = { here: `${buddy} is here`, away: `${buddy} is away` };
    this.#presence.dataset.state = state;
    setText(this.#presence, words[state] ?? `talking with ${buddy}`);
  }

  async #send(message) {
    message.state = "pending";
    if (!this.#chat.messages.includes(message)) this.#chat.messages.push(message);
    this.#show(true);
    const { from: me, to, text: written, id } = message;
    try {
      await post("/api/chat", { me, to, text: written, id });
      message.state = "sent";
    } catch (error) {
      if (message.state === "pending") {
        message.state = "failed";
        message.reason = error.message;
      }
    }
    this.#show();
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
    const waits = (message) => (message.state === "pending" || message.state === "failed" ? 1 : 0);
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
    const state = `${className} ${message.at} ${message.reason ?? ""}`;
    if (line.dataset.shown === state) return line;
    line.dataset.shown = state;
    line.className = className;
    const parts = message.kind ? this.#noticeParts(message) : this.#messageParts(message);
    line.replaceChildren(...parts);
    return line;
  }

  #noticeParts({ kind }) {
    return [kind === "gap" ? "Older messages are no longer kept." : "The conversation began anew."];
  }

  #messageParts(message) {
    const meta = element("span", { className: "meta" });
    if (message.state === "pending") meta.append("sending …");
    else if (message.state === "failed") {
      const again = element("button", { type: "button", className: "quiet" }, "Send again");
      again.addEventListener("click", () => this.#send(message));
      meta.append(message.reason || "not sent", " ", again);
    } else meta.append(clock(message.at, { seconds: false }));
    return [
      element("span", { className: "unseen" }, `${localPart(message.from)}: `),
      element("span", { className: "bubble", dir: "auto" }, message.text), meta,
    ];
  }

  // Messages may have come while the view was hidden and nothing could scroll.
  shown() {
    this.#log.scrollTop = this.#log.scrollHeight;
  }
}

export class Chat {
  #windows = [];
  #state;
  #visible = false;
  #unseen = 0;

  constructor({ world, state, memory }) {
    this.#state = state;
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
      this.#windows.push({ chat, view: new Window(chat, side, () => memory.saveSoon()) });
    });
    at("windows").append(...this.#windows.map(({ view }) => view.element));
    if (!this.#windows.length) this.trouble("Nobody can chat in this world.");
  }

  wanted() {
    return this.#windows.map(({ chat }) => ({ me: chat.me, with: chat.with, after: chat.after }));
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
