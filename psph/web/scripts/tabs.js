// Tabs as screen readers and keyboards expect them: one stop for Tab, arrow keys in between.

import { at } from "./showing.js";

export class Tabs {
  #names;
  #listener = () => {};
  selected = "";

  constructor(names) {
    this.#names = names;
    for (const name of names) {
      const tab = at(`tab-${name}`);
      tab.addEventListener("click", () => this.#choose(name));
      tab.addEventListener("keydown", (event) => this.#key(event, name));
    }
    window.addEventListener("hashchange", () => this.#fromAddress());
    this.#fromAddress();
  }

  listen(listener) {
    this.#listener = listener;
    listener(this.selected);
  }

  #fromAddress() {
    const named = location.hash.slice(1);
    if (this.#names.includes(named)) this.#show(named);
    else if (!named || !this.selected) this.#show(this.#names[0]);
  }

  #key(event, name) {
    const [at_, count] = [this.#names.indexOf(name), this.#names.length];
    const next = {
      ArrowRight: (at_ + 1) % count, ArrowLeft: (at_ - 1 + count) % count, Home: 0, End: count - 1,
    }[event.key];
    if (next === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.#choose(this.#names[next]);
    at(`tab-${this.#names[next]}`).focus();
  }

  #choose(name) {
    if (name === this.selected) return;
    // In the address, so that a reload or a link leads to the same view; and in the history, so that
    // Back leads to the view before it, and out of the page only from the first.
    history.pushState(null, "", `#${name}`);
    this.#show(name);
  }

  #show(name) {
    if (name === this.selected) return;
    this.selected = name;
    for (const each of this.#names) {
      const tab = at(`tab-${each}`);
      tab.setAttribute("aria-selected", String(each === name));
      tab.tabIndex = each === name ? 0 : -1;
      at(each).hidden = each !== name;
    }
    this.#listener(name);
  }
}
