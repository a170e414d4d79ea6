// @ts-check
// Looks at transactions: the list of those under way, and what is open in the partitions of topics.
import { SILENT_MS, useSignal, useEffect, useRef, useRepeated } from "../ui.js";
import * as api from "../api.js";
import { placed, windows } from "../held.js";

const EVERY_MS = 3000;
const TOPICS_BY_ITSELF = 100;
const PARTITIONS_BY_ITSELF = 1000;
const LISTED_MOST = 5000;
const TOPICS_AT_ONCE = 4;

/** @param {any} error */
const isRefusal = (error) => error instanceof api.Problem && error.status === 403;

/** Whether this principal may list the ids of all others. */
let isOperator = true;

/** What is ongoing or prepared. @param {AbortSignal} signal */
async function underway(signal) {
  const listed = [];
  for (let after = ""; ; ) {
    let page;
    try { page = await api.get(isOperator ? "/operator/transactions" : "/transactions", { longer_than_ms: 0, start_after: after, limit: 1000 }, signal); }
    catch (error) {
      if (!isOperator || !isRefusal(error)) throw error;
      isOperator = false;
      continue;
    }
    listed.push(...page.transactions);
    if (!page.has_more || listed.length >= LISTED_MOST) return { listed, isCut: page.has_more, isOfAll: isOperator };
    after = page.go_on_after ?? page.transactions.at(-1)?.transactional_id;
  }
}

/**
 * What is open in these partitions of a topic, with where its readers wait. A topic that is deleted meanwhile has nothing open.
 * @param {string} topic @param {[number, number][]} ranges @param {AbortSignal} signal
 */
async function openIn(topic, ranges, signal) {
  try {
    const opened = (await Promise.all(ranges.map(([first, end]) => api.openTransactions(topic, first, end, signal)))).flat();
    const held = windows(opened.map((o) => o.partition));
    const pages = await Promise.all(held.map(([first, end]) => api.get(`/topics/${api.part(topic)}/offsets`, { start_partition: first, limit: end - first }, signal)));
    return placed(topic, opened, new Map(pages.flatMap((page) => page.partitions.map((/** @type {any} */ p) => [p.partition, p]))));
  } catch (error) {
    if (error instanceof api.Problem && error.status === 404) return [];
    throw error;
  }
}

/**
 * Everything that this page knows, looked at again and again; `scan` looks at every topic, at the first ones by itself.
 * @returns {any}
 */
export function useLooks() {
  const list = useSignal(/** @type {any} */ (null));
  const places = useSignal(/** @type {Map<string, import("../held.js").Opened[]>} */ (new Map()));
  const scan = useSignal({ topics: 0, partitions: 0, of: /** @type {number|null} */ (null), refused: 0, at: 0, isRunning: false });
  const error = useSignal(/** @type {any} */ (null));
  const scanError = useSignal(/** @type {any} */ (null));
  const turn = useSignal(0);
  const stop = useRef(/** @type {AbortController|null} */ (null));

  useRepeated(async (signal) => {
    const found = await underway(signal);
    const wanted = /** @type {Map<string, number[]>} */ (new Map());
    const want = (/** @type {{topic: string, partition: number}} */ p) => { wanted.set(p.topic, wanted.get(p.topic) ?? []); wanted.get(p.topic)?.push(p.partition); };
    for (const t of found.listed) t.partitions.forEach(want);
    for (const opened of places.value.values()) opened.forEach(want);
    const looked = await Promise.all([...wanted].map(async ([topic, partitions]) => {
      try { return /** @type {const} */ ([topic, await openIn(topic, windows(partitions), signal)]); }
      catch (failed) { if (isRefusal(failed)) return /** @type {const} */ ([topic, []]); throw failed; }
    }));
    const next = /** @type {Map<string, import("../held.js").Opened[]>} */ (new Map(places.value)); // a scan may have added partitions meanwhile, which stay
    for (const [topic, opened] of looked) next.set(topic, [...(next.get(topic) ?? []).filter((o) => !wanted.get(topic)?.includes(o.partition)), ...opened]);
    places.value = next;
    list.value = found;
  }, EVERY_MS, [turn.value], (e) => (error.value = e));

  const look = async (/** @type {boolean} */ isWhole) => {
    stop.current?.abort();
    const { signal } = (stop.current = new AbortController());
    scanError.value = null;
    let topics = 0, partitions = 0, refused = 0;
    const say = (/** @type {boolean} */ isRunning, /** @type {number|null} */ of) => (scan.value = { topics, partitions, of, refused, at: api.serviceNow(), isRunning });
    try {
      say(true, null);
      const all = await api.topics(signal);
      while (topics < all.length && (isWhole || (topics < TOPICS_BY_ITSELF && partitions < PARTITIONS_BY_ITSELF))) {
        await Promise.all(all.slice(topics, topics + TOPICS_AT_ONCE).map(async (t) => {
          try {
            const opened = await openIn(t.name, [[0, t.partitions]], signal);
            if (opened.length || places.value.has(t.name)) places.value = new Map(places.value).set(t.name, opened);
            partitions += t.partitions;
          } catch (failed) {
            if (!isRefusal(failed)) throw failed;
            refused += 1;
          }
        }));
        topics = Math.min(all.length, topics + TOPICS_AT_ONCE);
        say(true, all.length);
      }
      say(false, all.length);
    } catch (failed) {
      if (signal.aborted) return;
      scanError.value = failed;
      scan.value = { ...scan.value, isRunning: false };
      if (failed instanceof api.Problem && failed.status === 0) setTimeout(() => signal.aborted || look(isWhole), SILENT_MS); // it goes on by itself
    }
  };
  useEffect(() => { look(false); return () => stop.current?.abort(); }, []);
  const halt = () => { stop.current?.abort(); scan.value = { ...scan.value, isRunning: false }; };
  return { list: list.value, opened: [...places.value.values()].flat(), scan: scan.value, error: error.value, scanError: scanError.value, look, halt, again: () => (turn.value += 1) };
}

/** Fence an id: as its own principal where that is allowed, else as an operator. An id that is gone is not made. @param {string} id */
export async function fence(id) {
  try {
    const before = await api.get(`/transactions/${api.part(id)}`);
    await api.send("POST", "/producer-ids", { transactional_id: id, transaction_timeout_ms: before.transaction_timeout_ms });
  } catch (error) {
    if (!isRefusal(error)) throw error;
    await api.send("POST", `/operator/transactions/${api.part(id)}/fence`, {});
  }
}

/** Abort what hangs in a partition, in the same way. @param {import("../held.js").Opened} o */
export async function abort({ topic, partition, producer_id, producer_epoch }) {
  try { await api.send("POST", `/topics/${api.part(topic)}/partitions/${partition}/abort-transaction`, { producer_id, producer_epoch }); }
  catch (error) {
    if (!isRefusal(error)) throw error;
    await api.send("POST", "/operator/abort-transaction", { topic, partition, producer_id, producer_epoch });
  }
}
