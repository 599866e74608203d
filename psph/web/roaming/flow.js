// The merge queue of one topic: what came directly and what an earlier proxy kept, on one Position.
//
// The cursor says how far the page has come in each stream (publisher). What directly follows it
// passes at once, wherever it came from; what it has passed is a duplicate. Everything else is held
// while there may be somebody who has what lies between. `flush` is called when there is nobody:
// only then is a hole a gap. mobility/merging.py is the same in Python.

const POSITION = /^([0-9a-f]{32})\.([0-9]{1,20})\.([0-9]{1,20})$/;

// Epochs and versions have up to 64 bits, more than a number of JavaScript holds exactly.
export function parsePosition(text) {
  const parts = POSITION.exec(text);
  if (!parts) throw new Error(`no Position: ${String(text).slice(0, 80)}`);
  return { publisher: parts[1], epoch: BigInt(parts[2]), version: BigInt(parts[3]) };
}

export const writePosition = ({ publisher, epoch, version }) => `${publisher}.${epoch}.${version}`;

const before = (one, other) =>
  one.epoch < other.epoch || (one.epoch === other.epoch && one.version < other.version);

const order = (one, other) => (before(one, other) ? -1 : 1);

export class Flow {
  #held = new Map(); // by publisher: Map from the text of a Position to [Position, message]
  #goal = new Map(); // by publisher: everything up to there exists
  #owed = new Map(); // by publisher: up to there the hub itself has yet to bring it
  #marks = new Map(); // by publisher: so far the hub's stream is, and brings what is newer
  #fresh = false; // the topic began here: a buffer that began earlier has nothing of use
  #blind = false; // the hub could not say from where on it brings everything
  // By publisher, of streams without a cursor that count from nowhere: the first that is known to
  // exist. It could not be consumed yet, and must not go missing without a word.
  #heard;
  #whole;
  #begun;
  #cursor;

  // `kept` is what `keep` gave, of an earlier life of the page; undefined for a new subscription.
  constructor(topic, kept) {
    this.topic = topic;
    this.#begun = Array.isArray(kept?.places);
    this.#whole = this.#begun && kept.whole === true;
    const byPublisher = (written) =>
      new Map((written ?? []).map(parsePosition).map((each) => [each.publisher, each]));
    this.#cursor = byPublisher(this.#begun ? kept.places : []);
    this.#heard = byPublisher(kept?.heard);
    this.noted = this.heard.join(); // as it was last written
    this.restart();
  }

  // The client moved: what is not consumed is asked for again.
  restart() {
    this.ready = false; // the stream of the new hub is in effect
    this.live = false; // nothing is waited for any more; set by who knows that
    this.#blind = this.#fresh = false;
    for (const each of [this.#held, this.#owed, this.#marks]) each.clear();
    this.#goal = new Map(this.#heard);
  }

  // As it is stored, and as questions to proxies have it.
  keep() {
    return { places: this.places, whole: this.#whole, heard: this.heard };
  }

  // Null while no subscription has ever been in effect.
  get places() {
    return this.#begun ? [...this.#cursor.values()].map(writePosition) : null;
  }

  get heard() {
    return [...this.#heard.values()].map(writePosition);
  }

  // What comes

  // The hub's stream is in effect, and everything after `base` comes through it.
  subscribed(base) {
    this.ready = true;
    if (!this.#begun) {
      this.#begun = this.#fresh = true;
      this.#whole = base.length > 0;
      for (const each of base) {
        this.#cursor.set(each.publisher, each);
        this.#mark(each);
      }
      this.#held.clear();
      this.#goal.clear();
      return;
    }
    this.#blind = base.length === 0;
    for (const each of base) {
      if (!this.#isNew(each)) {
        this.#mark(each);
        continue;
      }
      this.aim(each);
      this.#owed.set(each.publisher, each);
    }
  }

  // A buffer's word that everything up to there exists: it comes, or is missing.
  aim(position) {
    if (!this.#fresh) this.#aim(position);
  }

  #aim(position) {
    // Of a stream never heard of, nothing before its first message can be missed.
    const heardOf = [this.#cursor, this.#heard].some((each) => each.has(position.publisher));
    if (!heardOf && !this.#whole && !this.#held.get(position.publisher)?.size) return;
    const goal = this.#goal.get(position.publisher);
    if (!goal || before(goal, position)) this.#goal.set(position.publisher, position);
  }

  offer(position, message, direct) {
    if (direct) this.#cameDirectly(position);
    else if (this.#fresh) return;
    if (!this.#isNew(position)) return;
    if (this.#begun && !this.#whole && !this.#cursor.has(position.publisher)) {
      const heard = this.#heard.get(position.publisher);
      if (!heard || before(position, heard)) this.#heard.set(position.publisher, position);
    }
    let held = this.#held.get(position.publisher);
    if (!held) this.#held.set(position.publisher, (held = new Map()));
    const key = writePosition(position);
    if (!held.get(key)?.[1]) held.set(key, [position, message]);
  }

  // The hub cannot bring what comes before `resumes` any more; another proxy may.
  missing(resumes) {
    const last = { ...resumes, version: resumes.version - 1n };
    this.#cameDirectly(last);
    this.#aim(last);
  }

  // What goes on

  // The hub has brought what it can of the time before its stream began.
  get caughtUp() {
    return this.ready && this.#owed.size === 0;
  }

  // Something exists, or may, that is not here and will not come directly.
  get lacking() {
    return this.#blind || this.hasHole;
  }

  // The hub's stream has passed something that is not here: only an earlier proxy can have it.
  get hasHole() {
    const known = (publisher) => {
      const goal = this.#goal.get(publisher);
      return this.#held.get(publisher)?.size > 0 || (goal !== undefined && this.#isNew(goal));
    };
    const marks = [...this.#marks.values()];
    return this.#begun && marks.some((mark) => this.#isNew(mark) && known(mark.publisher));
  }

  // Everything that directly follows the cursor. Each one yielded has moved the cursor.
  *take() {
    for (const [publisher, held] of this.#held) {
      for (let next; (next = held.get(this.#next(publisher, held))); ) {
        yield* this.#pass(held, next);
      }
    }
  }

  // Everything up to where the hub's stream is, with gaps where something is missing. What is newer
  // comes directly; only where the hub could not tell, everything goes.
  *flush(reason) {
    const reached = (position) => {
      const mark = this.#marks.get(position.publisher);
      return this.#blind || (mark !== undefined && !before(mark, position));
    };
    for (const publisher of new Set([...this.#held.keys(), ...this.#goal.keys()])) {
      const held = this.#held.get(publisher) ?? new Map();
      for (const each of [...held.values()].sort(([one], [other]) => order(one, other))) {
        if (!reached(each[0])) continue;
        yield* this.#hole(each[0], reason);
        yield* this.#pass(held, each);
      }
      let goal = this.#goal.get(publisher);
      if (goal && !reached(goal)) goal = this.#marks.get(publisher);
      if (goal && this.#isNew(goal)) {
        yield* this.#hole({ ...goal, version: goal.version + 1n }, reason);
        this.#reach(goal);
      }
    }
    this.#goal.clear();
    this.#blind = false;
    yield* this.take();
  }

  #isNew(position) {
    const at = this.#cursor.get(position.publisher);
    return !at || before(at, position);
  }

  #mark(position) {
    const mark = this.#marks.get(position.publisher);
    if (!mark || before(mark, position)) this.#marks.set(position.publisher, position);
  }

  #cameDirectly(position) {
    this.#mark(position);
    const owed = this.#owed.get(position.publisher);
    if (owed && !before(position, owed)) this.#owed.delete(position.publisher);
  }

  // The key of what comes next, if it is known.
  #next(publisher, held) {
    const at = this.#cursor.get(publisher);
    if (at) return writePosition({ ...at, version: at.version + 1n });
    if (held.size === 0) return "";
    // What is heard first of a stream passes at once only if nothing can be before it.
    const [first] = [...held.values()].map(([each]) => each).sort(order);
    const begins = this.#whole ? first.version === 1n : this.#fresh;
    return begins ? writePosition(first) : "";
  }

  *#hole({ publisher, epoch, version }, reason) {
    const heard = this.#heard.get(publisher);
    let at = this.#cursor.get(publisher);
    if (!at && heard && heard.epoch < epoch) {
      at = this.#reach(heard);
      yield this.#gap(at, at.version, reason);
    }
    if (at && at.epoch !== epoch) {
      yield { type: "reset", topic: this.topic, publisher, after: writePosition(at) };
      return;
    }
    const first = at ? at.version + 1n : this.#whole ? 1n : heard?.version ?? version;
    if (first >= version) return;
    yield this.#gap(this.#reach({ publisher, epoch, version: version - 1n }), first, reason);
  }

  // From that version to that Position.
  #gap({ publisher, version }, first, reason) {
    return {
      type: "gap", topic: this.topic, publisher, first: Number(first), last: Number(version),
      missed: Number(version - first + 1n), reason,
    };
  }

  #reach(position) {
    this.#cursor.set(position.publisher, position);
    this.#heard.delete(position.publisher);
    return position;
  }

  *#pass(held, [position, message]) {
    this.#reach(position);
    held.delete(writePosition(position));
    // Without a message it was excluded from the service, which is no gap.
    if (!message) return;
    const [written, version] = [writePosition(position), Number(position.version)];
    yield { type: "update", topic: this.topic, position: written, version, ...message };
  }
}
