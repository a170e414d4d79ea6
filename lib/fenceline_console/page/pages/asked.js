// @ts-check
// What several regions are asked for a topic. A region that is silent leaves the others' answers.
import { html } from "../ui.js";
import * as api from "../api.js";

const ANSWER_MS = 10000;

/** @typedef {{at: string, answer: import("../links.js").Replication|null, error: any}} Asked */

/** The pause before a page of regions asks again: longer for many requests, since each asks other regions in turn. @param {number} [requests] */
export const lookMs = (requests = 1) => Math.max(3, requests * 0.3) * (api.about.value?.refresh_ms ?? 1000);

/** The names of the regions that this console reaches. */
export const reached = () => (api.about.value?.regions ?? []).map((/** @type {{name: string}} */ one) => one.name);

/**
 * As `api.get`, but a region that has not answered in time is silent: a region that is lost must not hold up what the others say.
 * @param {number} ms @param {string} to @param {Record<string, any>} query @param {AbortSignal} signal @param {string} at
 */
export async function getWithin(ms, to, query, signal, at) {
  const late = AbortSignal.timeout(ms);
  try { return await api.get(to, query, AbortSignal.any([signal, late]), at); }
  catch (error) {
    signal.throwIfAborted();
    throw late.aborted ? new api.Problem(0, { detail: `no answer within ${ms / 1000} s` }) : error;
  }
}

/**
 * The replication of a topic, as each of these regions sees it.
 * @param {string} topic @param {string[]} ats @param {Record<string, any>} query @param {AbortSignal} signal @returns {Promise<Asked[]>}
 */
export const askAll = (topic, ats, query, signal) => Promise.all(ats.map(async (at) => {
  try { return { at, answer: await getWithin(ANSWER_MS, `/topics/${api.part(topic)}/replication`, query, signal, at), error: null }; }
  catch (error) { if (signal.aborted) throw error; return { at, answer: null, error }; }
}));

/** The replicated subscriptions, of one topic or of all. @param {Record<string, any>} query @param {AbortSignal} signal */
export async function replicated(query, signal) {
  const found = [];
  for (let after = null, pages = 0; pages < 20; pages += 1) {
    const page = await api.get("/subscriptions", { ...query, start_after: after }, signal);
    found.push(...page.subscriptions.filter((/** @type {any} */ one) => one.replicate_subscription_state));
    const last = page.subscriptions.at(-1);
    after = page.go_on_after ?? (last && `${last.topic}/${last.name}`);
    if (!page.has_more || !after) break;
  }
  return found;
}

/**
 * A table in a box that scrolls by itself. A head that begins with # is of numbers; one without text is of buttons.
 * @param {{label: string, heads: string[], children?: any, rows?: string}} props
 */
export const Box = ({ label, heads, children, rows = "" }) => html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class=${rows}>
  <thead><tr>${heads.map((head) => html`<th scope="col" class=${head.startsWith("#") ? "number" : ""}>${head.replace("#", "") || html`<span class="visually-hidden">Change</span>`}</th>`)}</tr></thead>
  <tbody>${children}</tbody></table></div>`;
