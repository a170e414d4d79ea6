// @ts-check
// Which transaction holds up which readers: listed transactions joined with what is open in partitions. Pure: no document, no fetch, no clock.
import { grouped } from "./format.js";

/**
 * What is open in a partition. `wait` is where readers of committed records wait, `next` the log's end.
 * @typedef {{topic: string, partition: number, producer_id: number, producer_epoch: number, start_offset: number, since: number,
 *   transactional_id: string|null, is_hanging: boolean, wait: number, next: number, isFirst: boolean}} Opened
 */
/**
 * A transaction that is under way. `holds` are the partitions whose readers wait for it, `behind` those in which it is not the first.
 * @typedef {{id: string, state: string|null, producer_id: number, producer_epoch: number, since: number|null, ends: number|null, timeout: number|null,
 *   partitions: {topic: string, partition: number}[], groups: string[], holds: Opened[], behind: Opened[]}} Underway
 */

/**
 * What is open in the partitions of one topic, each with where its readers wait.
 * @param {string} topic @param {any[]} opened by partition and by first offset @param {Map<number, any>} offsets by partition @returns {Opened[]}
 */
export function placed(topic, opened, offsets) {
  let last = -1;
  return opened.map((o) => {
    const isFirst = o.partition !== last, at = offsets.get(o.partition);
    last = o.partition;
    return { ...o, topic, isFirst, wait: at?.last_stable_offset ?? o.start_offset, next: at?.next_offset ?? o.start_offset };
  });
}

/** Where its records lie, as far as is known: it begins at its first one, and may go on to the log's end. @param {Opened} o */
export const within = (o) => `${grouped(o.start_offset)}${o.next - 1 > o.start_offset ? ` to ${grouped(o.next - 1)}` : ""}, the last offset of the log`;

/** Whether the time of an ongoing transaction is over; the service then aborts it by itself. @param {Underway} r @param {number} now */
export const isTimedOut = (r, now) => r.ends !== null && r.ends <= now;

/** Whether readers wait for it now. @param {Opened} o */
export const holds = (o) => o.isFirst && o.wait < o.next;

/**
 * Every transaction that is under way, those that hold up readers first, then by age.
 * @param {any[]} listed by the service @param {Opened[]} opened in partitions; one that the list lacks is of another principal, and is shown, too
 * @returns {Underway[]}
 */
export function joined(listed, opened) {
  /** @type {Map<string, Underway>} */ const rows = new Map();
  for (const t of listed)
    rows.set(t.transactional_id, {
      id: t.transactional_id, state: t.state, producer_id: t.producer_id, producer_epoch: t.producer_epoch, since: t.started_at, timeout: t.transaction_timeout_ms,
      ends: t.started_at === null || t.state !== "Ongoing" ? null : Math.max(t.started_at + t.transaction_timeout_ms, t.expires_at ?? 0),
      partitions: t.partitions, groups: t.groups, holds: [], behind: [],
    });
  for (const o of opened) {
    if (o.is_hanging || o.transactional_id === null) continue;
    let row = rows.get(o.transactional_id);
    if (!row) {
      const { transactional_id: id, producer_id, producer_epoch, since } = o;
      row = { id, state: null, producer_id, producer_epoch, since, ends: null, timeout: null, partitions: [], groups: [], holds: [], behind: [] };
      rows.set(row.id, row);
    }
    if (row.state === null) { row.partitions.push({ topic: o.topic, partition: o.partition }); row.since = Math.min(row.since ?? o.since, o.since); }
    if (holds(o)) row.holds.push(o); else if (!o.isFirst) row.behind.push(o);
  }
  return [...rows.values()].sort((a, b) => Math.sign(b.holds.length) - Math.sign(a.holds.length) || (a.since ?? 0) - (b.since ?? 0));
}

/** Partitions in windows that one request covers. @param {number[]} wanted @param {number} [most] @returns {[number, number][]} half-open */
export function windows(wanted, most = 100) {
  /** @type {[number, number][]} */ const found = [];
  for (const p of [...new Set(wanted)].sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && p < last[0] + most) last[1] = p + 1; else found.push([p, p + 1]);
  }
  return found;
}
