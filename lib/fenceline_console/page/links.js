// @ts-check
// What a link between two regions means in words. Pure: no document, no fetch, no clock.
import { grouped } from "./format.js";

/**
 * @typedef {{region: string, connected: boolean, suspended: boolean, lag_records: number|null, lag_ms: number|null,
 *   last_seen_at: number|null, answered_at: number|null, problem: string|null}} Link another region, as the one that was asked sees it
 * @typedef {{partition: number, region: string, from_offset: number, to_offset: number, records: number}} Gap
 * @typedef {{snapshot_id: string, partition: number, local_offset: number, offsets: Record<string, number>, completed_at: number, final: boolean}} Snapshot
 * @typedef {{snapshot_id: string, partition: number, started_at: number, waiting_for: string[]}} Pending
 * @typedef {{region: string, regions: Link[], gaps: Gap[], skipped_records: number, snapshots: Snapshot[], pending: Pending[], has_more: boolean}} Replication
 */

/** A duration in the unit that says it shortest. @param {number} ms */
export function lasting(ms) {
  for (const [size, unit] of /** @type {const} */ ([[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]]))
    if (ms >= size) return `${(ms / size).toFixed(ms / size < 10 ? 1 : 0).replace(/\.0$/, "")} ${unit}`;
  return `${Math.round(ms)} ms`;
}

/** @param {number} n @param {string} [one] */
export const records = (n, one = "record") => `${grouped(n)} ${one}${n === 1 ? "" : "s"}`;

/** The word for a region's state, as the command line says it. @param {Link} link */
export const stateOf = (link) => (link.suspended ? "suspended" : link.connected ? "connected" : "away");

/**
 * Whether a region's copy of another one's records is whole.
 * @param {Link} link @param {string} here the region that was asked @returns {{kind: "whole"|"behind"|"unknown"|"broken", text: string}}
 */
export function verdict(link, here) {
  const { region, problem, lag_records: lag, lag_ms: age } = link;
  if (!link.connected || lag === null) {
    const why = link.connected ? `${region} answers too slowly` : `${here} does not hear from ${region}`;
    return { kind: problem === null ? "unknown" : "broken", text: `${why}, so what ${here} lacks is not known` };
  }
  const text = lag === 0 ? `${here} has all that ${region} has written` : `${here} lacks ${grouped(lag)} of the records that ${region} has written, the oldest for ${lasting(age ?? 0)}`;
  return { kind: problem !== null ? "broken" : lag === 0 ? "whole" : "behind", text };
}

/**
 * The batch at which a link stopped, by its problem; null where it stopped at none.
 * @param {Link} link @returns {{partition: number, from: number, to: number}|null}
 */
export function refusedBatch(link) {
  const found = /a batch of the source is refused.* from=(\d+) to=(\d+) reason=.* partition=(\d+)/.exec(link.problem ?? "");
  return found && { from: Number(found[1]), to: Number(found[2]), partition: Number(found[3]) };
}

/** @typedef {{kept: number|null, of: Record<string, number|null>}} Has what a region keeps, and has taken or written of each region's records */

/** What partitions come to; a number that one of them lacks is not known of all. @param {Has[]} parts @param {string[]} regions @returns {Has} */
export function total(parts, regions) {
  const sum = (/** @type {(one: Has) => number|null|undefined} */ of) =>
    parts.reduce((/** @type {number|null} */ n, one) => { const more = of(one); return n === null || more === null || more === undefined ? null : n + more; }, parts.length ? 0 : null);
  /** @type {Record<string, number|null>} */
  const all = Object.create(null);
  for (const region of regions) all[region] = sum((one) => one.of[region]);
  return { kept: sum((one) => one.kept), of: all };
}

/** The newest snapshot of each partition, by partition. @param {Snapshot[]} snapshots */
export function newest(snapshots) {
  /** @type {Map<number, Snapshot>} */
  const found = new Map();
  for (const one of snapshots) if (one.local_offset >= (found.get(one.partition)?.local_offset ?? -1)) found.set(one.partition, one);
  return [...found.values()].sort((a, b) => a.partition - b.partition);
}
