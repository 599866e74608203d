// The page: views over one stream of events. Roam has connections of its own, to the hubs.

import { read } from "./api.js";
import { Chat } from "./chat.js";
import { Feeds } from "./feeds.js";
import { Latency } from "./latency.js";
import { Memory, belongsTo, load } from "./memory.js";
import { Network } from "./network.js";
import { Roam } from "./roam.js";
import { at, longer, number, setText } from "./showing.js";
import { Standing } from "./standing.js";
import { Stream } from "./stream.js";
import { Tabs } from "./tabs.js";
import { World } from "./world.js";

const RESUMED_FOR = 4_000;
const AGAIN = 2_000;

function trouble(reason) {
  at("trouble").hidden = !reason;
  setText(at("trouble"), reason);
}

let fading = 0;

// How the page's own connection is and, while that is live, whether all that it follows is.
function showConnection(state, detail) {
  const words = {
    connecting: "Connecting …",
    live: "Live",
    partly: detail,
    resumed: "Reconnected, nothing missed",
    lost: `Reconnecting in ${detail} s`,
    refused: "Refused",
  };
  at("connection").dataset.state = state;
  setText(at("connection"), words[state]);
  if (state === "refused") trouble(detail);
}

// A world that is still starting, or that was stopped, is asked again.
async function world() {
  for (;;) {
    try {
      const found = new World(await read("/api/world"));
      trouble("");
      return found;
    } catch (error) {
      trouble(error.message);
      if (error.status === 401) showConnection("refused", error.message);
      else showConnection("lost", AGAIN / 1000);
      await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
  }
}

// Who stops `psph up` and starts it again has another world at the same address, with other topics:
// the page begins anew as well.
async function reloadUnless(identity) {
  try {
    if (new World(await read("/api/world")).identity !== identity) location.reload();
  } catch {
    // gone again, which the stream notices
  }
}

async function begin() {
  const tabs = new Tabs(["feeds", "chat", "network", "latency", "roam"]);
  const state = load();
  const memory = new Memory(state);
  const found = await world();
  if (belongsTo(state, found.identity)) state.feeds = found.firstFeeds();

  let stream = null;
  let own = ["connecting", 0];
  const standing = new Standing(() => showStanding());
  const parts = { world: found, state, memory, standing, changed: () => stream?.changed() };
  const feeds = new Feeds(parts);
  const chat = new Chat(parts);
  const network = new Network(parts);
  const latency = new Latency(parts);
  const roam = new Roam(parts);

  function showStanding() {
    feeds.standing();
    chat.standing();
    const gone = [...feeds.gone(), ...chat.gone()];
    const live = own[0] === "live" || own[0] === "resumed";
    if (live && gone.length) showConnection("partly", summed(gone));
    else showConnection(...own);
  }

  function connection(name, detail) {
    own = [name, detail];
    clearTimeout(fading);
    if (name === "resumed") fading = setTimeout(() => connection("live", 0), RESUMED_FOR);
    standing.connected(name === "live" || name === "resumed");
    showStanding();
  }

  const wanted = () => ({
    feeds: feeds.wanted(),
    chats: chat.wanted(),
    network: tabs.selected === "network",
    latency: tabs.selected === "latency",
    topic: network.topic(),
  });
  const notice = (kind) => (data) => (data.me ? chat : feeds).notice(kind, data);
  stream = new Stream(wanted, {
    update: (data) => feeds.update(data),
    gap: notice("gap"),
    reset: notice("reset"),
    refused: (data) => (data.me ? chat.trouble(data.error) : feeds.refused(data)),
    chat: (data) => chat.message(data),
    presence: (data) => chat.presence(data),
    network: (data) => network.update(data),
    crossing: (data) => latency.crossing(data),
    latency: (data) => latency.latency(data),
    status: (data) => setText(at("world-status"), summary(data)),
    state: (data) => standing.told(data),
    connection,
    trouble,
    forgotten: () => reloadUnless(found.identity),
  });
  tabs.listen((name) => {
    chat.visible(name === "chat");
    if (name === "network") network.shown();
    if (name === "roam") roam.shown();
    stream.changed();
  });
  stream.start();
}

// In words: those that are not live, each as [domain, state].
function summed(gone) {
  const stopped = gone.filter(([, state]) => state === "stopped");
  const domains = [...new Set((stopped.length ? stopped : gone).map(([domain]) => domain))];
  const verb = domains.length === 1 ? "is" : "are";
  const names = domains.join(" and ");
  return stopped.length ? `${names} ${verb} stopped` : `Reconnecting to ${names}`;
}

function summary(data) {
  const nodes = Number.isFinite(data.nodes_up) ? ` with ${data.nodes_up} nodes` : "";
  return `This world has been up for ${longer(number(data.uptime_s))}${nodes}.`;
}

begin();
