// How long hubs take to answer, smoothed, and whether another one is clearly faster.

const WEIGHT = 0.3; // of the latest answer
const SURE = 3; // answers before a hub is compared
const CLEARLY = 0.5; // of the time that the present one takes
const LEAST_GAIN = 20; // milliseconds
const PATIENCE = 3_000;

// What a hub says of its mobility proxy. An Error with a reason for people when there is none.
export async function askHub(hub) {
  let said;
  try {
    const answer = await fetch(`${hub}/mobility`, {
      cache: "no-store", signal: AbortSignal.timeout(PATIENCE),
    });
    if (!answer.ok) throw new Error(`it has no mobility proxy (${answer.status})`);
    said = await answer.json();
  } catch (error) {
    const silent = error.name === "TypeError" || error.name === "TimeoutError";
    throw new Error(`${hub}: ${silent ? "it does not answer" : error.message}`);
  }
  if (typeof said?.proxy !== "string") throw new Error(`${hub}: its answer makes no sense`);
  return said;
}

export class Speeds {
  #known = new Map(); // by hub: {ms, answers}
  #distance;

  // `distance(hub)` is added to what is measured, for who wants to see the rule at work.
  constructor(distance = () => 0) {
    this.#distance = distance;
  }

  // Milliseconds, or null while it does not answer.
  of(hub) {
    return this.#known.get(hub)?.ms ?? null;
  }

  async look(hub) {
    const began = performance.now();
    try {
      await askHub(hub);
    } catch {
      this.#known.delete(hub);
      return;
    }
    const ms = performance.now() - began + this.#distance(hub);
    const known = this.#known.get(hub) ?? { ms, answers: 0 };
    this.#known.set(hub, { ms: known.ms + (ms - known.ms) * WEIGHT, answers: known.answers + 1 });
  }

  // The fastest first, those that do not answer last.
  order(hubs) {
    return [...hubs].sort((one, other) => (this.of(one) ?? 1e9) - (this.of(other) ?? 1e9));
  }

  // A hub that is clearly faster than the present one, or null.
  better(hubs, present) {
    const sure = hubs.filter((hub) => this.#known.get(hub)?.answers >= SURE);
    if (!sure.includes(present)) return null;
    const [best] = this.order(sure);
    const [here, there] = [this.of(present), this.of(best)];
    return there < here * CLEARLY && here - there > LEAST_GAIN ? best : null;
  }
}
