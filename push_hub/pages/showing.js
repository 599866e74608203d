// From what strangers wrote to elements. The hub has sanitised it; here it is built again from a
// list of harmless elements, so that neither has to trust the other. Nothing is ever set as HTML.

const ALLOWED = new Set(
  `A ABBR B BLOCKQUOTE BR CITE CODE DD DEL DL DT EM H1 H2 H3 H4 H5 H6 HR I INS KBD LI OL P PRE Q S
   SMALL STRONG SUB SUP TABLE TBODY TD TH THEAD TR U UL`.split(/\s+/),
);
// Their text is no text for people.
const DROPPED = new Set(
  `APPLET AUDIO BASE CANVAS EMBED FORM FRAME FRAMESET IFRAME INPUT LINK MATH META NOEMBED NOFRAMES
   NOSCRIPT OBJECT SCRIPT SELECT STYLE SVG TEMPLATE TEXTAREA TITLE VIDEO XMP`.split(/\s+/),
);
// Headings of an entry stand below the entry's own.
const INSTEAD = { H1: "h3", H2: "h4", H3: "h4", H4: "h5", H5: "h6" };
const MAX_DEPTH = 40;
const MAX_DOCUMENT = 4_000;
const LONG = 700;

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// An absolute http, https or mailto URL, or nothing.
function safeUrl(text, base) {
  try {
    const url = new URL(text, base);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : "";
  } catch {
    return "";
  }
}

export function link(href, ...children) {
  return element("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

export function safeContent(markup, base) {
  const target = document.createDocumentFragment();
  // A document of its own, which runs and loads nothing.
  const source = new DOMParser().parseFromString(markup, "text/html");
  copy(source.body, target, base, 0);
  return target;
}

function copy(source, target, base, depth) {
  for (const node of source.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) {
      target.append(node.data);
    } else if (node.nodeType === Node.ELEMENT_NODE) {
      copyElement(node, target, base, depth);
    }
  }
}

function copyElement(node, target, base, depth) {
  const name = node.nodeName.toUpperCase();
  if (DROPPED.has(name)) return;
  if (name === "IMG") {
    target.append(picture(node, base));
    return;
  }
  if (!ALLOWED.has(name) || depth > MAX_DEPTH) {
    if (depth <= 2 * MAX_DEPTH) copy(node, target, base, depth + 1);
    return;
  }
  let made = document.createElement(INSTEAD[name] ?? name);
  if (name === "A") {
    const href = node.hasAttribute("href") && safeUrl(node.getAttribute("href"), base);
    made = href ? link(href) : document.createElement("span");
  }
  if (node.hasAttribute("title")) made.title = node.getAttribute("title");
  copy(node, made, base, depth + 1);
  target.append(made);
}

// Images are offered, not loaded: loading them would tell the publisher who is watching.
function picture(node, base) {
  const url = node.hasAttribute("src") && safeUrl(node.getAttribute("src"), base);
  const text = `Image: ${node.getAttribute("alt")?.trim() || "no description"}`;
  const inside = node.closest("a") !== null;
  return element("span", { className: "picture" }, url && !inside ? link(url, text) : text);
}

export function time(at, text = "") {
  const moment = new Date(at);
  if (Number.isNaN(moment.getTime())) return text;
  const shown = moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  return element("time", { dateTime: moment.toISOString(), title: text || shown }, shown);
}

// `source` is the topic an item belongs to: {title, topic, colour}.
export function itemElement(item, source) {
  const from = element("bdi", { className: `source c${source.colour}` }, source.title);
  if (item.kind === "gap" || item.kind === "reset") return notice(item, from);
  const article = element("article", {});
  const meta = element("p", { className: "meta" }, from);
  if (item.changed) meta.append(" ", element("span", { className: "tag" }, "changed"));
  article.append(meta);
  if (item.kind === "document") documentBody(item, article);
  else entryBody(item, meta, article, source);
  meta.append(" ", element("span", { className: "received" }, "received ", time(item.at)));
  return element("li", {}, article);
}

function entryBody(item, meta, article, source) {
  const { entry } = item;
  const href = safeUrl(entry.link || "about:blank");
  const title = entry.title || entry.link || "Untitled";
  article.append(element("h2", { dir: "auto" }, href ? link(href, title) : title));
  if (entry.author) meta.append(" ", element("bdi", { className: "author" }, entry.author));
  if (entry.published) meta.append(" ", time(entry.published, entry.published));
  if (!entry.content) return;
  const content = element("div", { className: "content", dir: "auto" });
  content.append(safeContent(entry.content, href || source.topic));
  if (!content.textContent.trim() && !content.querySelector("hr")) return;
  article.append(content);
  if (content.textContent.length > LONG) foldable(content, article);
}

function foldable(content, article) {
  content.classList.add("folded");
  content.inert = true; // links that cannot be seen are not reached by keyboard either
  const button = element("button", { type: "button", className: "quiet" }, "Show all");
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => {
    const folded = content.classList.toggle("folded");
    content.inert = folded;
    button.textContent = folded ? "Show all" : "Show less";
    button.setAttribute("aria-expanded", String(!folded));
  });
  article.append(button);
}

function documentBody(item, article) {
  article.append(element("h2", {}, "New version"));
  const size = `${item.size.toLocaleString()} bytes`;
  article.append(element("p", { className: "hint" }, `${item.type}, ${size}`));
  if (item.text) article.append(element("pre", { className: "document" }, item.text));
}

function missing(item) {
  const [, , last] = item.after.split(".");
  const [, , next] = item.resumes.split(".");
  const [from, to] = [BigInt(last) + 1n, BigInt(next) - 1n];
  if (from > to) return "Some versions are missing";
  return from === to ? `Version ${from} is missing` : `Versions ${from} to ${to} are missing`;
}

function notice(item, from) {
  const gap = item.kind === "gap";
  const text = gap
    ? "The hub does not have them any more, or never had them."
    : "The versions from here on count from another beginning. Some in between may be missing.";
  const article = element("article", { className: "notice" });
  article.append(
    element("p", { className: "meta" }, from, " ", time(item.at)),
    element("h2", {}, gap ? missing(item) : "The numbering began anew"),
    element("p", { title: `after ${item.after}, on with ${item.resumes}` }, text),
  );
  return element("li", {}, article);
}

// What to show of a document that is no feed: its text, when it is one.
export function preview(contentType, encoded) {
  const bytes = Uint8Array.from(atob(encoded), (character) => character.charCodeAt(0));
  const found = { type: contentType, size: bytes.length, text: "" };
  if (/^(text\/|[\w.-]+\/([\w.-]+\+)?(json|xml)\b)/i.test(contentType)) {
    const text = new TextDecoder().decode(bytes.subarray(0, 4 * MAX_DOCUMENT));
    found.text = text.length > MAX_DOCUMENT ? `${text.slice(0, MAX_DOCUMENT)}…` : text;
  }
  return found;
}
