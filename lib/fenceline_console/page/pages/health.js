// @ts-check
// What the service was asked for, what it refused, and what that costs on AWS.
import { html, useAsked, useSignal, Trouble, Bone, Bones } from "../ui.js";
import * as api from "../api.js";
import { grouped, visible, clock } from "../format.js";
import { dollars } from "../money.js";
import { Box } from "./asked.js";
import { Stored } from "./stored.js";

const LOOK_MS = 5000;
const SHOWN = 12; // operations, until all are asked for
const MOST = 50;

/**
 * @typedef {{operation: string|null, count: number, held: number, p50_ms: number|null, p99_ms: number|null}} Requests
 * @typedef {{prices: {date: string, region: string}, total: number, parts: {what: string, count: number, dollars: number}[], gib_month: number, assumed: string|null}} Dollars
 * @typedef {object} Usage as `usage.json` is; what is null is not known
 * @property {"server"|"cloudwatch"} source
 * @property {string} region
 * @property {number|null} since
 * @property {number|null} until
 * @property {number} workers
 * @property {number} counted_workers
 * @property {Requests[]|null} requests
 * @property {{code: string, count: number}[]|null} refusals
 * @property {Record<string, number>|null} log
 * @property {{call: string, count: number}[]|null} stores
 * @property {Dollars|null} dollars
 * @property {string[]} notes
 * @property {{code: string, detail: string}|null} error
 */

export function Health() {
  const at = api.region.value;
  const every = Math.max(LOOK_MS, api.about.value?.refresh_ms ?? 0);
  const asked = useAsked((s) => /** @type {Promise<Usage>} */ (api.own(at ? `usage.json?at=${api.part(at)}` : "usage.json", s)), [at], every);
  const usage = asked.value;
  const given = { usage, isLate: asked.isLate, isLost: usage === null && asked.error !== null };
  return html`<div class="head"><h1>Health and cost</h1><span class="spacer"></span><span class="muted" role="status">${usage ? since(usage) : ""}</span></div>
    <${Trouble} error=${asked.error} again=${asked.again} />
    ${usage?.error ? html`<div class="problem" role="alert"><div><strong>${visible(usage.error.code)}</strong> ${visible(usage.error.detail)} What is known is shown.</div></div>` : null}
    <${Log} ...${given} />
    <div class="halves"><${Operations} ...${given} /><div class="stack"><${Refusals} ...${given} /><${Cost} ...${given} />
      <${Stored} gibMonth=${usage?.dollars?.gib_month ?? null} prices=${usage?.dollars?.prices ?? null} /></div></div>
    ${usage?.notes.length ? html`<p class="said">${usage.notes.map((note) => html`${sentence(note)} `)}</p>` : null}`;
}

/** @param {string} text */
const sentence = (text) => visible(`${text.slice(0, 1).toUpperCase()}${text.slice(1).replace(/\.$/, "")}.`);

/** @param {Usage} usage */
function since(usage) {
  if (usage.since === null) return "";
  const from = clock(usage.since, api.serviceNow()).replace(/\.\d+$/, "");
  const part = usage.counted_workers < usage.workers ? `, in ${usage.counted_workers} of ${usage.workers} processes` : "";
  return `${usage.source === "cloudwatch" ? "CloudWatch’s figures" : "counted by the server"} of ${visible(usage.region)} since ${from}${part}`;
}

/** @typedef {{usage: Usage|null, isLate: boolean, isLost: boolean}} Given */

/** What is said where a part of the figures is not known. @param {{usage: Usage|null, isLost: boolean}} props */
const Unknown = ({ usage, isLost }) => html`<p class="within muted">${isLost ? "Not known while the figures do not come."
  : usage?.source === "cloudwatch" ? "CloudWatch does not know this." : "This server does not count this."}</p>`;

const FIGURES = [["appends", "Appends"], ["creates", "Creates of segments"], ["lost_races", "Lost races"], ["conflicts", "Conflicts of the store"], ["duplicates", "Duplicates"]];

/** @param {Given} props */
function Log({ usage, isLost }) {
  if (isLost || (usage && usage.log === null)) return html`<section class="sheet" aria-label="The log"><${Unknown} usage=${usage} isLost=${isLost} /></section>`;
  return html`<dl class="sheet figures">${FIGURES.map(([member, label]) => html`<div><dt>${label}</dt>
    <dd>${usage?.log ? grouped(usage.log[member] ?? 0) : html`<${Bone} w=${60} />`}</dd></div>`)}</dl>`;
}

const ms = (/** @type {number|null} */ n) => (n === null ? "–" : `${n >= 100 ? grouped(Math.round(n)) : n} ms`);

/** @param {Given} props */
function Operations({ usage, isLate, isLost }) {
  const all = usage?.requests ?? [], shown = useSignal(SHOWN);
  const total = all.reduce((sum, one) => sum + one.count, 0), held = all.reduce((sum, one) => sum + one.held, 0);
  return html`<section class="sheet" aria-label="Requests"><header class="copy"><div><h2>Requests</h2>
      <p class="muted">${isLost || (usage && usage.requests === null) ? null : !usage ? html`<${Bone} w=${120} />`
      : `${grouped(total)} in all${held ? `, of which ${grouped(held)} asked to be held; those are not in the times` : ""}`}</p></div></header>
    ${isLost || (usage && usage.requests === null) ? html`<${Unknown} usage=${usage} isLost=${isLost} />`
    : html`<${Box} label="Requests by operation" rows="operations" heads=${["Operation", "#Requests", "#p50", "#p99"]}>
      ${usage === null ? html`<${Bones} widths=${[140, 50, 50, 50]} isLate=${isLate} />` : all.slice(0, shown.value).map((one) => html`<tr><td title=${visible(one.operation ?? "")}>
        ${one.operation === null ? html`<span class="muted">a path that is no route</span>` : one.operation === "*" ? "all operations" : visible(one.operation)}</td>
        <td class="number">${grouped(one.count)}</td><td class="number">${ms(one.p50_ms)}</td><td class="number">${ms(one.p99_ms)}</td></tr>`)}<//>
      ${all.length > shown.value ? html`<div class="foot">The ${shown.value} with most requests<span class="spacer"></span>
        <button class="button" onClick=${() => (shown.value = Infinity)}>Show all ${all.length}</button></div>` : null}`}</section>`;
}

/** @param {Given} props */
function Refusals({ usage, isLate, isLost }) {
  const all = usage?.refusals ?? [];
  const name = (/** @type {string} */ code) => (/^[A-Z_]+$/.test(code)
    ? html`<a class="code" href=${`/docs/errors#${code.toLowerCase()}`} target="_blank" rel="noreferrer">${code}</a>` : visible(code));
  return html`<section class="sheet" aria-label="Refusals"><header class="copy"><div><h2>Refusals</h2><p class="muted">Each code leads to what it means, and what to do.</p></div></header>
    ${isLost || (usage && usage.refusals === null) ? html`<${Unknown} usage=${usage} isLost=${isLost} />`
    : usage && all.length === 0 ? html`<p class="within muted">None.</p>`
    : html`<${Box} label="Refusals by code" heads=${["Code", "#Answers"]} rows="refusals">${usage === null ? html`<${Bones} widths=${[140, 50]} isLate=${isLate} />`
      : all.slice(0, MOST).map((one) => html`<tr><td>${name(one.code)}</td><td class="number">${grouped(one.count)}</td></tr>`)}<//>`}</section>`;
}

/** @param {Given} props */
function Cost({ usage, isLate, isLost }) {
  const found = usage?.dollars ?? null;
  const count = (/** @type {number} */ n) => grouped(n >= 100 ? Math.round(n) : Math.round(n * 100) / 100);
  return html`<section class="sheet" aria-label="What these requests cost on AWS"><header class="copy"><div><h2>What these requests cost on AWS</h2>
      <p class="muted">${found ? `By the list prices of ${visible(found.prices.region)}, as of ${visible(found.prices.date)}: the prices that fenceline cost uses`
        : isLost || usage ? null : html`<${Bone} w=${200} />`}</p></div><span class="spacer"></span>
      ${found ? html`<b class="figure">${dollars(found.total)}</b>` : null}</header>
    ${isLost || (usage && found === null) ? html`<${Unknown} usage=${usage} isLost=${isLost} />`
    : html`<${Box} label="Cost by what is charged" heads=${["Charged", "#Count", "#Dollars"]} rows="costs">
      ${found === null ? html`<${Bones} widths=${[140, 50, 50]} isLate=${isLate} />` : found.parts.map((one) => html`<tr>
        <td title=${visible(one.what)}>${visible(one.what)}</td><td class="number">${count(one.count)}</td><td class="number">${dollars(one.dollars)}</td></tr>`)}<//>
      ${found?.assumed ? html`<p class="said within">${sentence(found.assumed)}</p>` : null}`}</section>`;
}
