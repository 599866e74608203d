// The world as GET /api/world describes it: whose colour is whose, and what topics are called.

import { newFeed } from "./memory.js";
import { element, list, text } from "./showing.js";

export class World {
  constructor(data) {
    this.domains = list(data?.domains).map((each) => ({
      name: text(each.name),
      node: text(each.node),
      hub: text(each.hub).replace(/\/hub$/, ""),
      topics: list(each.topics).map((topic) => text(topic.url)).filter(Boolean),
    }));
    // What the page itself may publish on, and what it has to show for that.
    this.publishing = { topic: text(data?.publishing?.topic), token: text(data?.publishing?.token) };
    this.report = text(data?.report); // the command that makes one
    this.chat = list(data?.chat).filter((each) => text(each?.jid));
    // Stays the same while the world runs, and after a restart with the same data.
    this.identity = text(data?.id) || this.domains.map((each) => each.topics.join(" ")).join(" ");
  }

  topics() {
    return this.domains.flatMap(({ name, topics }) => topics.map((url) => ({ url, domain: name })));
  }

  // The subscriptions of a page that is opened for the first time: a feed that crosses the fabric.
  firstFeeds() {
    const [reader, other] = this.domains;
    return reader && other?.topics.length ? [newFeed(reader.name, other.topics[0])] : [];
  }

  // For a select.
  options() {
    return this.topics().map(({ url }) => element("option", { value: url }, this.nameOf(url)));
  }

  // "a" for the first domain, "b" for the second, "" for what belongs to neither.
  side(domain) {
    const index = this.domains.findIndex((each) => each.name === domain);
    return ["a", "b"][index] ?? "";
  }

  domainOf(topic) {
    const known = this.topics().find((each) => each.url === topic);
    if (known) return known.domain;
    try {
      const { hostname } = new URL(topic);
      const within = ({ name }) => hostname === name || hostname.endsWith(`.${name}`);
      return this.domains.find(within)?.name ?? hostname;
    } catch {
      return "";
    }
  }

  // Short enough to read. The port of a topic of this world is an accident of the machine.
  nameOf(topic) {
    const own = [this.publishing.topic, ...this.topics().map(({ url }) => url)].includes(topic);
    const short = topic.replace(/^https?:\/\//i, "");
    return own ? short.replace(/:\d+(?=\/|$)/, "") : short;
  }
}
