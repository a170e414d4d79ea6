// @ts-check
// A walk over the logs of several partitions, from either end. Pure: what reads is given.
//
// Rule: within a partition the order is always the log's; between partitions the records' times decide, by merging. So a
// time that runs backwards moves a record between partitions, and never within its own. Nothing that a page leaves out is
// passed over: a page that is cut is followed by the rest of its range before the walk goes on.

/** @typedef {{partition: number, offset: number, timestamp: number}} Placed */
/** @template {Placed} R @typedef {{records: R[], position: number}} Page the position is where to read next; the start, where nothing can be read there yet */
/** @template {Placed} R @typedef {(partition: number, offset: number, count: number) => Promise<Page<R>>} Read */

export const AT_ONCE = 1000; // records of a request
const WINDOW_MAX = 64 * AT_ONCE; // offsets of a window, where most of them hold no record

/** The way through one partition's log, from offset low up to high or back. @template {Placed} R */
export class Lane {
  /** @type {R[]} */ #ready = []; // the next one is last
  /** @type {Promise<void>|null} */ #underWay = null;
  /** @type {{start: number, end: number, records: R[]}[]} */ #held = []; // read on the way back, below what is not read yet

  /** @param {number} partition @param {number} low @param {number} high @param {boolean} isBack @param {Read<R>} read @param {number} [window] */
  constructor(partition, low, high, isBack, read, window = AT_ONCE) {
    this.partition = partition;
    this.low = low;
    this.high = high;
    this.isBack = isBack;
    this.read = read;
    this.window = window;
    this.at = isBack ? high : low; // all on the way to here is read
  }

  get head() { return this.#ready.at(-1); }
  take() { return /** @type {R} */ (this.#ready.pop()); }
  get isRead() { return this.isBack ? this.at <= this.low : this.at >= this.high; }
  get isLow() { return this.#ready.length < this.window / 2 && !this.isRead; }

  /** Read on until there is a head or all is read; calls at once share one reading. @returns {Promise<void>} */
  fill() {
    this.#underWay ??= (this.isBack ? this.#back() : this.#on()).finally(() => (this.#underWay = null));
    return this.#underWay;
  }

  async #on() {
    do {
      const start = this.at;
      const page = await this.read(this.partition, start, Math.min(this.window, this.high - start));
      this.#ready = [...page.records.filter((r) => r.offset < this.high).reverse(), ...this.#ready];
      this.at = page.position > start ? page.position : this.high;
    } while (!this.#ready.length && !this.isRead);
  }

  async #back() {
    while (!this.isRead) {
      const below = this.#held.at(-1);
      if (below && below.end >= this.at) {
        this.#held.pop();
        this.at = below.start;
        if (!below.records.length) continue;
        this.#ready = [...below.records, ...this.#ready];
        return;
      }
      await this.#hold(below?.end ?? this.low);
    }
  }

  /** Read a window that ends where the walk is, and not below a floor. @param {number} floor */
  async #hold(floor) {
    const start = Math.max(floor, this.at - this.window);
    const page = await this.read(this.partition, start, Math.min(this.at - start, AT_ONCE));
    const end = page.position > start ? Math.min(this.at, page.position) : this.at;
    const records = page.records.filter((r) => r.offset < this.at);
    this.#held.push({ start, end, records });
    if (end < this.at) this.window = end - start;
    else if (records.length * 2 < this.at - start) this.window = Math.min(WINDOW_MAX, this.window * 2);
  }
}

/** The lane whose head is next, null where none has a head. @template {Placed} R @param {Lane<R>[]} lanes @param {boolean} isNewest */
function first(lanes, isNewest) {
  let best = null, time = 0;
  for (const lane of lanes) {
    const t = lane.head?.timestamp;
    if (t !== undefined && (best === null || (isNewest ? t > time : t < time))) { best = lane; time = t; }
  }
  return best;
}

/** Records of lanes in one order, as many at once as are known to be next. @template {Placed} R @param {Lane<R>[]} lanes @param {boolean} isNewest @returns {AsyncGenerator<R[]>} */
export async function* merged(lanes, isNewest) {
  for (;;) {
    const readOn = lanes.filter((l) => l.isLow).map((l) => [l, l.fill()]);
    for (const [, filled] of readOn) /** @type {Promise<void>} */ (filled).catch(() => {}); // it is thrown where it is waited for
    await Promise.all(readOn.filter(([l]) => !/** @type {Lane<R>} */ (l).head).map(([, filled]) => filled));
    const out = [];
    let next;
    while (lanes.every((l) => l.head || l.isRead) && (next = first(lanes, isNewest))) out.push(next.take());
    if (out.length) yield out;
    else if (lanes.every((l) => l.isRead)) return;
  }
}

/** What a search looked at, and what it found. @template {Placed & {size: number}} R */
export class Search {
  looked = 0;
  bytes = 0;
  isDone = false;
  /** @type {R[]} */ #left = [];

  /** @param {Lane<R>[]} lanes @param {boolean} isNewest @param {(r: R) => boolean} holds */
  constructor(lanes, isNewest, holds) {
    this.walk = merged(lanes, isNewest);
    this.remake = () => merged(lanes, isNewest); // a walk that failed goes on where it was
    this.holds = holds;
  }

  /**
   * Look on until so many more match, all is read, or it is stopped.
   * @param {number} count @param {{isStopped: () => boolean, found: (records: R[]) => void}} to
   */
  async more(count, { isStopped, found }) {
    let matched = 0;
    while (matched < count && !isStopped()) {
      if (!this.#left.length) {
        const { value, done } = await this.walk.next().catch((error) => { this.walk = this.remake(); throw error; });
        if (done) { this.isDone = true; found([]); return; }
        this.#left = value.reverse();
      }
      const some = [];
      while (this.#left.length && matched < count) {
        const record = /** @type {R} */ (this.#left.pop());
        this.looked += 1;
        this.bytes += record.size;
        if (this.holds(record)) { some.push(record); matched += 1; }
      }
      found(some);
    }
  }
}

/**
 * The newest records of what partitions have grown by, newest first; ranges that are too long to be read are named.
 * @template {Placed} R @param {{partition: number, from: number, end: number}[]} grown @param {Read<R>} read @param {number} [most] of a partition
 * @returns {Promise<{records: R[], skipped: {partition: number, from: number, end: number}[]}>}
 */
export async function latest(grown, read, most = AT_ONCE) {
  const skipped = /** @type {{partition: number, from: number, end: number}[]} */ ([]);
  const lanes = await Promise.all(grown.map(async ({ partition, from, end }) => {
    const part = new Lane(partition, from, end, true, read, Math.min(most, end - from));
    const taken = [];
    for (let asked = 0; taken.length < most && !part.isRead && asked < 8; asked += 1) {
      await part.fill();
      while (part.head && taken.length < most) taken.push(part.take());
    }
    const low = part.head || taken.length >= most ? taken.at(-1)?.offset ?? part.at : part.at;
    if (low > from) skipped.push({ partition, from, end: low });
    return taken.reverse();
  }));
  return { records: mergedLists(lanes), skipped };
}

/** Lists that are each oldest first, as one, newest first. @template {Placed} R @param {R[][]} lists */
function mergedLists(lists) {
  const out = [];
  for (;;) {
    let best = null;
    for (const list of lists) if (list.length && (!best || /** @type {R} */ (list.at(-1)).timestamp > /** @type {R} */ (best.at(-1)).timestamp)) best = list;
    if (!best) return out;
    out.push(/** @type {R} */ (best.pop()));
  }
}
