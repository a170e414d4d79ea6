// @ts-check
// Reading a topic's log for its page: records as they are shown, where a walk begins, and what has come since.
import * as api from "../api.js";
import { Part } from "../format.js";
import { AT_ONCE, Lane } from "../scan.js";

export const CELL_BYTES = 600; // of a value, in a list
export const LANES_MAX = 100; // partitions that are read together

/**
 * @typedef {{producer_id: number, producer_epoch: number, base_offset: number, next_offset: number, codec: string, is_transactional: boolean,
 *   outcome: "committed"|"aborted"|"open"|null, appended_at: number, bytes: number, base_sequence: number}} Batch
 * @typedef {{id: string, partition: number, offset: number, timestamp: number, epoch: number, origin: string|null, key: Part, value: Part,
 *   headers: [string, Part][], size: number, batch: Batch|null, isFresh: boolean}} Shown
 * @typedef {{partition: number, log_start_offset: number, next_offset: number, last_stable_offset: number, compaction_horizon: number, last_append_at?: number}} Offsets
 * @typedef {{from: string, only: string|null, text: string, isAll: boolean, isCompacted: boolean}} Wanted
 */

/** @param {any} page @param {number} partition @returns {Shown[]} */
export function records(page, partition) {
  const batches = /** @type {Batch[]} */ (page.batches ?? []);
  let i = 0;
  return page.records.map((/** @type {any} */ r) => {
    while (i < batches.length && batches[i].next_offset <= r.offset) i += 1;
    const key = new Part(r.key, page.encoding), value = new Part(r.value, page.encoding, r.value_bytes);
    return {
      id: `${partition}-${r.offset}`, partition, offset: r.offset, timestamp: r.timestamp, epoch: r.topic_epoch, origin: r.origin ?? null, key, value,
      headers: r.headers.map((/** @type {any} */ [n, v]) => [n, new Part(v, page.encoding)]),
      size: key.size + value.size, batch: batches[i] && batches[i].base_offset <= r.offset ? batches[i] : null, isFresh: false,
    };
  });
}

/** Resolves once the page is seen: a hidden page asks nothing. @param {AbortSignal} signal */
const seen = (signal) => (!document.hidden ? null : new Promise((/** @type {(v: void) => void} */ go) => {
  const look = () => { if (document.hidden && !signal.aborted) return; document.removeEventListener("visibilitychange", look); go(); };
  document.addEventListener("visibilitychange", look);
  signal.addEventListener("abort", look);
}));

/**
 * What reads a page of a partition. A log start that moved past the offset is a page that only moves the position.
 * @param {string} name @param {Wanted} wanted @param {AbortSignal} signal @returns {import("../scan.js").Read<Shown>}
 */
export const reader = (name, { text, isAll, isCompacted }, signal) => async (partition, offset, count) => {
  await seen(signal);
  const query = {
    offset, max_records: count, isolation: isAll ? "read_uncommitted" : "read_committed", compacted: isCompacted || undefined,
    batches: isAll && !isCompacted || undefined, value_bytes_max: text ? undefined : CELL_BYTES, max_bytes: text ? 4194304 : undefined,
  };
  try {
    const page = await api.records(name, partition, query, signal);
    return { records: records(page, partition), position: page.position };
  } catch (error) {
    if (!(error instanceof api.Problem) || error.code !== "OFFSET_OUT_OF_RANGE") throw error;
    const now = await offsetsOf(name, partition, signal);
    if (now.log_start_offset <= offset) throw error;
    return { records: [], position: now.log_start_offset };
  }
};

/** @param {string} name @param {number} partition @param {AbortSignal} signal @returns {Promise<Offsets>} */
export const offsetsOf = async (name, partition, signal) => ({ partition, ...(await api.get(`/topics/${api.part(name)}/partitions/${partition}/offsets`, {}, signal)) });

/** @param {Offsets} p @param {Wanted} wanted */
export const endOf = (p, wanted) => (wanted.isAll ? p.next_offset : p.last_stable_offset);

/** @param {Offsets[]} parts @param {string|null} only the numbers of those that are chosen */
export function chosen(parts, only) {
  if (only === null) return parts;
  const numbers = new Set(only.split(","));
  return parts.filter((p) => numbers.has(String(p.partition)));
}

/**
 * Where a walk begins in each partition. Of many partitions only some are read: the ones that were appended to last, or the first ones.
 * @param {string} name @param {Offsets[]} parts @param {Wanted} wanted @param {AbortSignal} signal
 */
export async function lanes(name, parts, wanted, signal) {
  const isBack = wanted.from === "newest";
  let some = chosen(parts, wanted.only).filter((p) => endOf(p, wanted) > p.log_start_offset);
  const of = some.length;
  if (of > LANES_MAX && isBack) {
    const counted = new Map((await api.offsets(name, signal, { counts: true })).map((p) => [p.partition, p.last_append_at ?? -1]));
    some = [...some].sort((a, b) => (counted.get(b.partition) ?? -1) - (counted.get(a.partition) ?? -1));
  }
  some = some.slice(0, LANES_MAX);
  const times = wanted.from.startsWith("@") ? await api.offsetsAt(name, Date.parse(wanted.from.slice(1)), signal) : [];
  const byPartition = new Map(times.map((t) => [t.partition, t.offset]));
  const read = reader(name, wanted, signal);
  const window = wanted.text ? AT_ONCE : Math.max(10, Math.ceil(120 / Math.max(1, some.length)));
  const made = some.map((p) => {
    const end = endOf(p, wanted);
    const at = wanted.from.startsWith("@") ? byPartition.get(p.partition) ?? end : /^\d+$/.test(wanted.from) ? Number(wanted.from) : p.log_start_offset;
    return new Lane(p.partition, Math.min(end, Math.max(at, p.log_start_offset)), end, isBack, read, window);
  });
  return { lanes: made, of };
}
