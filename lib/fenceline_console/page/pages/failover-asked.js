// @ts-check
// What a move of a subscription asks of two regions, and does in them: the requests of `fenceline failover`, in its order.
import * as api from "../api.js";
import { getWithin } from "./asked.js";
import { hasMoved, marksOf } from "../move.js";

const ANSWER_MS = 5000; // for one request: the region that is left may be lost
const SNAPSHOT_MS = 10000;
const LOOK_MS = 200;

/** @typedef {{topic: string, name: string, from: string, to: string}} Move */

/** A refusal that names the region. @param {string} region @param {any} error */
const named = (region, error) => (error instanceof api.Problem ? Object.assign(error, { message: `in ${region}: ${error.message}` }) : error);

/** Whether an error is that a region does not answer, or is not able to. @param {any} error */
const isSilence = (error) => error instanceof api.Problem && (error.status === 0 || error.status === 429 || error.status > 501);

/** @param {any} error */
const inWords = (error) => `${error.code}: ${error.message}`;

/** @param {string} detail */
const refusal = (detail) => Object.assign(new Error(detail), { name: "This cannot be moved:" });

/** @typedef {(to: string, query?: Record<string, any>) => Promise<any>} Ask asks one region, for 5 s at most */

/** @param {string} region @param {AbortSignal} signal @returns {Ask} */
const asking = (region, signal) => async (to, query = {}) => {
  try { return await getWithin(ANSWER_MS, to, query, signal, region); }
  catch (error) { throw signal.aborted ? error : named(region, error); }
};

const topicOf = (/** @type {Move} */ move) => `/topics/${api.part(move.topic)}`;
const pathOf = (/** @type {Move} */ move) => `${topicOf(move)}/subscriptions/${api.part(move.name)}`;

/** The subscription in a region with its marks of all partitions; null if it is not there. @param {Ask} ask @param {Move} move */
async function subscriptionIn(ask, move) {
  try {
    const whole = await ask(pathOf(move));
    for (let page = whole; page.has_more; ) {
      const last = page.partitions.at(-1);
      const next = last.has_more ? { start_partition: last.partition, start_offset: last.individually_acknowledged.at(-1)[1] } : { start_partition: last.partition + 1 };
      page = await ask(pathOf(move), next);
      whole.partitions.push(...page.partitions.filter((/** @type {any} */ one) => one.partition !== last.partition));
    }
    return whole;
  } catch (error) {
    if (error instanceof api.Problem && error.code === "UNKNOWN_SUBSCRIPTION") return null;
    throw error;
  }
}

/** Where a subscription begins that is created at earliest: each log start, and the records from there on. @param {Ask} ask @param {Move} move */
async function beginnings(ask, move) {
  const found = [];
  for (let page = null, next = 0; page === null || page.has_more; next = found.length) {
    page = await ask(`${topicOf(move)}/offsets`, { counts: true, start_partition: next });
    found.push(...page.partitions.map((/** @type {any} */ one) => ({ partition: one.partition, mark_delete_offset: one.log_start_offset, backlog: one.records ?? 0 })));
  }
  return found;
}

/** @param {Ask} ask @param {Move} move @param {string} region */
const linkIn = async (ask, move, region) => (await ask(`${topicOf(move)}/replication`)).regions.find((/** @type {any} */ one) => one.region === region) ?? null;

/** What the region that is left knows, as far as it answers. @param {Ask} ask @param {Move} move */
async function leftIn(ask, move) {
  /** @type {Pick<import("../move.js").Plan, "silence"|"left"|"lacked"|"reverse">} */
  const unknown = { silence: null, left: null, lacked: null, reverse: null };
  try {
    const { region } = await ask("/health");
    if (region !== move.from) throw refusal(`the service that this console calls ${move.from} is region ${region}`);
    const left = await subscriptionIn(ask, move);
    return { ...unknown, left, lacked: left === null ? /** @type {const} */ ("subscription") : null, reverse: await linkIn(ask, move, move.to).catch(() => null) };
  } catch (error) {
    if (error instanceof api.Problem && error.code === "UNKNOWN_TOPIC_OR_PARTITION") return { ...unknown, lacked: /** @type {const} */ ("topic") };
    if (isSilence(error)) return { ...unknown, silence: inWords(error) };
    throw error;
  }
}

/**
 * The plan of a move. The region to which it moves is asked later: what is written meanwhile must not seem to lack there.
 * @param {Move} move @param {AbortSignal} signal @returns {Promise<import("../move.js").Plan>}
 */
export async function planOf(move, signal) {
  const ask = asking(move.to, signal);
  const [{ region }, topic] = await Promise.all([ask("/health"), ask(topicOf(move))]);
  if (region !== move.to) throw refusal(`the service that this console calls ${move.to} is region ${region}`);
  if (!topic.regions.includes(move.from))
    throw refusal(`${move.topic} in ${move.to} is not connected with ${move.from}: its regions are ${topic.regions.join(", ")}. Its records may lack there, so move no subscription`);
  const found = await leftIn(asking(move.from, signal), move);
  const right = await subscriptionIn(ask, move);
  if (right === null && found.left === null && found.silence === null) throw refusal(`neither ${move.from} nor ${move.to} has a subscription ${move.name} of ${move.topic}`);
  if (right !== null && !right.replicate_subscription_state)
    throw refusal(`${move.name} is not replicated in ${move.to}, so its marks there have no meaning. It is made so by "fenceline subscription create ${move.topic} ${move.name} --replicated"`);
  const partitions = marksOf(found.left, right?.partitions ?? await beginnings(ask, move));
  return { ...found, right, partitions, link: await linkIn(ask, move, move.from) };
}

/**
 * Take a snapshot in the region that is left, and wait until the marks in the other one have followed it. It only changes how many records repeat.
 * @param {Move} move @param {import("../move.js").Plan} plan @param {AbortSignal} signal @param {(step: string) => void} says
 */
async function snapshot(move, plan, signal, says) {
  if (plan.left === null || !plan.left.replicate_subscription_state) return;
  const from = asking(move.from, signal), to = asking(move.to, signal);
  const until = performance.now() + SNAPSHOT_MS;
  try {
    const id = (await api.send("POST", `${topicOf(move)}/replication/snapshots`, {}, move.from)).snapshot_id;
    says("waits until the marks have followed a snapshot, 10 s at most");
    for (;;) {
      const [found, left, right] = await Promise.all([from(`${topicOf(move)}/replication`), subscriptionIn(from, move), subscriptionIn(to, move)]);
      if (left !== null && right !== null && hasMoved(found, id, left, right, move.to)) return;
      if (performance.now() + LOOK_MS > until) return;
      await new Promise((go) => setTimeout(go, LOOK_MS));
    }
  } catch (error) { signal.throwIfAborted(); }
}

/**
 * Make a move: a snapshot if the region that is left answers, the subscription where it is missing, and the active region in both.
 * @param {Move} move @param {import("../move.js").Plan} plan @param {AbortSignal} signal @param {(step: string) => void} says
 * @returns {Promise<{plan: import("../move.js").Plan, untold: string|null}>}
 */
export async function make(move, plan, signal, says) {
  says("takes a snapshot");
  await snapshot(move, plan, signal, says);
  says(`sets the active region to ${move.to}`);
  try {
    await api.send("PUT", pathOf(move), { initial_position: "earliest", replicate_subscription_state: true }, move.to);
    await api.send("PUT", pathOf(move), { initial_position: "earliest", active_region: move.to }, move.to);
  } catch (error) { throw named(move.to, error); }
  let untold = plan.left === null ? plan.silence ?? `it has no such ${plan.lacked}` : null;
  if (plan.left !== null)
    try { await api.send("PUT", pathOf(move), { initial_position: "earliest", active_region: move.to }, move.from); }
    catch (error) { untold = inWords(error); }
  says("looks at what was moved");
  return { plan: await planOf(move, signal), untold };
}
