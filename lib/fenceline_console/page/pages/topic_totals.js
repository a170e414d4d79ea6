// @ts-check
// What the list of topics knows of each: all names, and totals and subscriptions of those that are shown. Topics that lie
// side by side in the service's list come by one request.
import * as api from "../api.js";

const PAGE = 50; // topics of a request with totals
const MOST = 20000; // names that are kept

/** @typedef {{name: string, topic_id: string, partitions: number, config: Record<string, any>, created_at: number}} Topic */
/** @typedef {{id: string, at: number, totals: any, rates: {at: number, rate: number}[]}} Totals */
/** @typedef {{count: number, backlog: number|null}} Behind */

/** All topics, or those with a prefix, shown as they come. @param {string} prefix @param {AbortSignal} signal @param {(topics: Topic[], isAll: boolean) => void} come */
export async function names(prefix, signal, come) {
  /** @type {Topic[]} */
  const found = [];
  for (let after = ""; ; after = found.at(-1)?.name ?? "") {
    const page = await api.get("/topics", { limit: 1000, prefix, start_after: after }, signal);
    found.push(...page.topics);
    const isAll = !page.has_more || page.topics.length === 0;
    come([...found], isAll);
    if (isAll || found.length >= MOST) return;
  }
}

/**
 * The fewest requests that name all that is wanted: runs of the list, each of so many at most.
 * @param {string[]} list all names, as the service sorts them @param {Set<string>} wanted
 * @returns {{after: string, first: string, last: string, count: number}[]}
 */
export function runs(list, wanted) {
  const found = [];
  for (let i = 0; i < list.length; i += 1) {
    if (!wanted.has(list[i])) continue;
    let end = i;
    for (let j = i; j < Math.min(list.length, i + PAGE); j += 1) if (wanted.has(list[j])) end = j;
    found.push({ after: i ? list[i - 1] : "", first: list[i], last: list[end], count: end - i + 1 });
    i = end;
  }
  return found;
}

/** Add a look at a topic's totals to what is known; a topic that was made anew begins anew. @param {Totals|undefined} before @param {any} topic @param {number} now @returns {Totals} */
export function added(before, topic, now) {
  const totals = topic.totals ?? null;
  if (!before || before.id !== topic.topic_id || !totals || !before.totals) return { id: topic.topic_id, at: now, totals, rates: [] };
  const rate = Math.max(0, ((totals.records - before.totals.records) * 1000) / Math.max(1, now - before.at));
  return { id: topic.topic_id, at: now, totals, rates: [...before.rates, { at: now, rate }].filter((r) => r.at > now - 60000) };
}

/** @param {{after: string, last: string, count: number}} run @param {AbortSignal} signal @param {(topic: any) => void} come */
export async function totalsOf(run, signal, come) {
  for (let after = run.after, left = run.count; left > 0; ) {
    const page = await api.get("/topics", { totals: true, limit: left, start_after: after }, signal);
    for (const topic of page.topics) come(topic);
    after = page.topics.at(-1)?.name ?? "";
    left -= page.topics.length;
    if (!page.has_more || !page.topics.length || !isBefore(after, run.last)) return;
  }
}

/** Subscriptions of a run's topics. @param {{after: string, first: string, last: string, count: number}} run @param {AbortSignal} signal @returns {Promise<Map<string, Behind>>} */
export async function behindOf(run, signal) {
  /** @type {Map<string, Behind>} */
  const found = new Map();
  const query = run.count === 1 ? { topic: run.first } : {};
  for (let after = run.count === 1 ? "" : run.after; ; ) {
    const page = await api.get("/subscriptions", { ...query, start_after: after }, signal);
    for (const s of page.subscriptions) {
      const known = found.get(s.topic) ?? { count: 0, backlog: 0 };
      const backlog = s.backlog === undefined || known.backlog === null ? null : Math.max(known.backlog, s.backlog);
      found.set(s.topic, { count: known.count + 1, backlog });
    }
    if (!page.has_more || !page.go_on_after) return found;
    after = page.go_on_after;
    if (!isBefore(after.split("/")[0], `${run.last}\u0000`)) return found;
  }
}

/** Whether a name comes first in the service's list: names are ASCII. @param {string} a @param {string} b */
const isBefore = (a, b) => a < b;
