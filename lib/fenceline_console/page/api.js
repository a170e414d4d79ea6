// @ts-check
// Requests to the service that is looked at. Rule: nothing else in the console calls fetch.
import { signal } from "./vendor/signals.mjs";

/** What a request was refused with, or that nothing answered (status 0): neither this origin, nor the service behind its proxy. */
export class Problem extends Error {
  /** @param {number} status @param {any} body a problem document, or what a gateway says in its place */
  constructor(status, body) {
    super(body?.detail ?? `the service answered ${status}${body?.message ? `: ${body.message}` : ""}`);
    this.status = body?.code === "UNREACHABLE" ? 0 : status;
    this.code = body?.code ?? (status ? `HTTP ${status}` : "UNREACHABLE");
  }
}

/** @typedef {{version: string, is_read_only: boolean, has_export: boolean, refresh_ms: number, regions: {name: string, path: string}[]}} About */

/** What this console is: read once, before the first page. */
export const about = signal(/** @type {About|null} */ (null));
export const canWrite = () => about.value !== null && !about.value.is_read_only;

/** The region that is looked at, by its name in `about`; the first one where the address names none. */
export const region = signal(/** @type {string|null} */ (null));
const path = (/** @type {string|undefined} */ name) => {
  const regions = about.value?.regions ?? [];
  return (regions.find((r) => r.name === (name ?? region.value)) ?? regions[0])?.path ?? "";
};

/** The service's clock minus this one's, in ms: leases are counted down by the service's. */
export let skew = 0;
let isSaid = false; // by the service itself, in ms; the date of an answer has only seconds
export const serviceNow = () => Date.now() + skew;

const AT_ONCE = 6; // as many as a browser sends to one origin
/** @type {(() => void)[]} */
const waiting = [];
let underWay = 0;

async function turn() {
  if (underWay >= AT_ONCE) await new Promise((/** @type {(v: void) => void} */ go) => waiting.push(go));
  underWay += 1;
}
const done = () => { underWay -= 1; waiting.shift()?.(); };

/** Integers that a number of JavaScript would change stay exact, as BigInt. @type {any} */
const exact = (/** @type {string} */ _, /** @type {any} */ value, /** @type {{source?: string}|undefined} */ context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? BigInt(/** @type {string} */ (context?.source)) : value;

/**
 * @param {string} method @param {string} url
 * @param {{body?: any, signal?: AbortSignal, isExact?: boolean}} given `body` as JSON text is sent as it is
 */
async function ask(method, url, { body, signal, isExact = false }) {
  await turn();
  try {
    signal?.throwIfAborted();
    /** @type {Record<string, string>} */
    const headers = { accept: "application/json" };
    if (body !== undefined) headers["content-type"] = "application/json";
    const answer = await fetch(url, { method, signal, headers, body: body === undefined || typeof body === "string" ? body : JSON.stringify(body) });
    const date = answer.headers.get("date");
    if (date && !isSaid) skew = Date.parse(date) + 500 - Date.now();
    if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => null));
    const text = await answer.text();
    return text === "" ? null : JSON.parse(text, isExact ? exact : undefined);
  } catch (error) {
    if (error instanceof Problem || signal?.aborted) throw error;
    throw new Problem(0, { detail: "the service does not answer; is it running?" });
  } finally {
    done();
  }
}

/** @param {Record<string, string|number|boolean|null|undefined>} query */
function queried(query) {
  const given = Object.entries(query).filter(([, v]) => v !== undefined && v !== null && v !== "");
  return given.length ? `?${new URLSearchParams(given.map(([k, v]) => [k, String(v)]))}` : "";
}

/**
 * @param {string} to below /v1, its parts already encoded by `part`
 * @param {Record<string, string|number|boolean|null|undefined>} [query]
 * @param {AbortSignal} [signal]
 * @param {string} [at] another region than the one that is looked at
 */
export const get = (to, query = {}, signal, at) => ask("GET", `${path(at)}/v1${to}${queried(query)}`, { signal });

/** As `get`, for answers in which integers may be greater than 2^53: those are BigInt. @type {typeof get} */
export const getExact = (to, query = {}, signal, at) => ask("GET", `${path(at)}/v1${to}${queried(query)}`, { signal, isExact: true });

/** @param {string} method @param {string} to @param {any} [body] @param {string} [at] */
export const send = (method, to, body, at) => ask(method, `${path(at)}/v1${to}`, { body });

/** A file of this console's own server, beside the contract: about.json, usage.json. @param {string} name @param {AbortSignal} [signal] */
export const own = (name, signal) => ask("GET", `/console/${name}`, { signal });

export const part = encodeURIComponent;

/**
 * All entries of a list that is cut.
 * @param {string} to @param {string} member that holds the entries
 * @param {(last: any) => Record<string, any>} after the query that goes on after the last entry
 * @param {{query?: Record<string, any>, signal?: AbortSignal, most?: number, at?: string}} [given]
 */
export async function all(to, member, after, { query = {}, signal, most = 20000, at } = {}) {
  const found = [];
  for (let more = {}; ; more = after(found.at(-1))) {
    const page = await get(to, { ...query, ...more }, signal, at);
    found.push(...page[member]);
    if (!page.has_more || page[member].length === 0 || found.length >= most) return found;
  }
}

const topicPath = (/** @type {string} */ name) => `/topics/${part(name)}`;

/** How the service is; of the region that is looked at it also tells its clock. @param {AbortSignal} signal @param {string} [at] */
export async function health(signal, at) {
  const asked = Date.now(), found = await get("/health", {}, signal, at);
  if (at === undefined && typeof found.now === "number") { isSaid = true; skew = found.now - (asked + Date.now()) / 2; }
  return found;
}
export const topics = (/** @type {AbortSignal} */ signal) => all("/topics", "topics", (t) => ({ start_after: t.name }), { query: { limit: 1000 }, signal });
/** @type {(name: string, signal?: AbortSignal, at?: string) => Promise<any>} */
export const topic = (name, signal, at) => get(topicPath(name), {}, signal, at);
/** @type {(name: string, signal?: AbortSignal, query?: any, at?: string) => Promise<any[]>} */
export const offsets = (name, signal, query = {}, at) =>
  all(`${topicPath(name)}/offsets`, "partitions", (p) => ({ start_partition: p.partition + 1 }), { query, signal, at });
export const offsetsAt = (/** @type {string} */ name, /** @type {number} */ timestamp, /** @type {AbortSignal} */ signal) => offsets(name, signal, { timestamp });
export const records = (/** @type {string} */ name, /** @type {number} */ p, /** @type {any} */ query, /** @type {AbortSignal} */ signal) =>
  get(`${topicPath(name)}/partitions/${p}/records`, query, signal);

/**
 * What is open in partitions [first, end) of a topic, by partition and by first offset.
 * @param {string} name @param {number} first @param {number} end @param {AbortSignal} signal
 */
export async function openTransactions(name, first, end, signal) {
  const found = [];
  for (let at = first; at < end; ) {
    const page = await get(`${topicPath(name)}/open-transactions`, { start_partition: at, limit: Math.min(100, end - at) }, signal);
    found.push(...page.transactions);
    at = page.has_more ? page.next_partition : end;
  }
  return found.filter((t) => t.partition < end);
}
