// Small pieces of the page. Whatever comes from the server is put in as text, never as markup.

export const at = (id) => document.getElementById(id);

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((each) => each !== null));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The same children as before stay where they are, so that focus and animations survive.
export function arrange(parent, children) {
  const wanted = new Set(children);
  for (const each of [...parent.children]) if (!wanted.has(each)) each.remove();
  children.forEach((each, index) => {
    if (parent.children[index] !== each) parent.insertBefore(each, parent.children[index] ?? null);
  });
}

export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// The address if a browser may follow it, else null: feeds are written by strangers.
export function safeLink(text) {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

// Seconds or milliseconds since 1970, or a date as text: all as milliseconds.
export function instant(value) {
  if (Number.isFinite(value)) return value < 1e11 ? value * 1000 : value;
  const parsed = typeof value === "string" ? Date.parse(value) : NaN;
  return Number.isNaN(parsed) ? Date.now() : parsed;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const SHORT = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export function clock(milliseconds, { seconds = true } = {}) {
  const moment = new Date(Math.min(milliseconds, Number.MAX_SAFE_INTEGER / 10));
  const today = moment.toDateString() === new Date().toDateString();
  return element(
    "time",
    { dateTime: moment.toISOString(), title: DAY.format(moment) },
    (!today ? DAY : seconds ? CLOCK : SHORT).format(moment),
  );
}

export function duration(milliseconds) {
  if (milliseconds < 10) return `${milliseconds.toFixed(1)} ms`;
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 100_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return `${Math.round(milliseconds / 60_000)} min`;
}

export function longer(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

export function percent(share) {
  const value = share * 100;
  return `${value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

export const number = (value) => (Number.isFinite(value) ? value : 0);
export const list = (value) => (Array.isArray(value) ? value : []);
export const text = (value) => (typeof value === "string" ? value : "");
