// @ts-check
// What is open in a partition although no transactional id can end it, and how many topics were looked at for it.
import { html, useSignal, Columns, Link, Trouble, Question } from "../ui.js";
import * as api from "../api.js";
import { ago, clock, grouped, iso, visible } from "../format.js";
import { holds } from "../held.js";
import { abort } from "./looks.js";

const SHOWN = 50;
/** @type {[string, string, string?][]} */
const COLUMNS = [["Partition", "24%"], ["From offset", "104px", "number wide"], ["Holds up", ""], ["Since", "118px", "wide"], ["Producer", "170px", "wide"]];

/** Where readers wait, as a link to all messages there: committed ones end before it. @param {{of: import("../held.js").Opened}} props */
export const Wait = ({ of: o }) => html`<span class="waits">readers of <b>${o.topic}/${o.partition}</b> wait at${" "}
  <${Link} to=${`topics/${api.part(o.topic)}`} query=${{ p: o.partition, from: o.wait, all: 1 }}>${grouped(o.wait)}<//></span>`;

/** @param {any} props */
export function Hanging({ hanging, scan, error, look, halt, again, now, isKnown }) {
  const aborted = useSignal(/** @type {any} */ (null));
  return html`<section class="segment-list" aria-label="Hanging"><div class="head"><h2>Hanging</h2><span class="muted">open in a partition, although no transactional id can end it</span></div>
    <${Trouble} error=${error} again=${() => look(false)} />
    ${hanging.length > 0 && html`<div class="sheet"><table class="transactions">
      <${Columns} of=${[...COLUMNS, api.canWrite() && ["Change", "84px"]]} />
      <tbody>${hanging.slice(0, SHOWN).map((/** @type {any} */ o) => html`<tr key=${`${o.topic}/${o.partition} ${o.producer_id} ${o.producer_epoch}`}>
        <td><b>${o.topic}/${o.partition}</b>${o.transactional_id === null ? null : html` <span class="mono faint" title=${visible(o.transactional_id)}>was ${visible(o.transactional_id)}</span>`}</td>
        <td class="wide number">${grouped(o.start_offset)}</td>
        <td class="wrapped">${holds(o) ? html`<${Wait} of=${o} />` : html`<span class="faint">${o.isFirst ? "nothing" : "nothing yet: it is behind another"}</span>`}</td>
        <td class="wide muted" title=${iso(o.since)}>${ago(o.since, now)}</td>
        <td class="wide muted number-left">${o.producer_id} <span class="faint">epoch ${o.producer_epoch}</span></td>
        ${api.canWrite() && html`<td><button class="button quiet" aria-label=${`Abort what hangs in ${o.topic}/${o.partition}`}
          onClick=${() => (aborted.value = o)}>Abort</button></td>`}</tr>`)}</tbody></table>
      ${hanging.length > SHOWN && html`<div class="foot">The first ${SHOWN} of ${grouped(hanging.length)}. Abort these, and the others are shown.</div>`}</div>
      ${!api.canWrite() && html`<p class="muted flush">Only damage leaves one. <code>fenceline txn find-hanging</code> prints the command that ends it.</p>`}`}
    <div class="head"><span class="muted" role="status">${isKnown && !hanging.length && scan.of !== null ? "Nothing hangs there. " : ""}${looked(scan, now)}</span><span class="spacer"></span>
      ${scan.isRunning ? html`<button class="button" onClick=${halt}>Stop</button>` : html`
        ${scan.of !== null && scan.topics < scan.of && html`<button class="button" onClick=${() => look(true)}>Look at all ${grouped(scan.of)} topics</button>`}
        <button class="button" onClick=${() => look(false)}>Look again</button>`}</div>
    ${aborted.value && html`<${Abort} of=${aborted.value} close=${() => (aborted.value = null)} again=${again} />`}</section>`;
}

/** @param {{of: import("../held.js").Opened, close: () => void, again: () => void}} props */
const Abort = ({ of: o, close, again }) => html`<${Question} title="Abort what hangs?" action="Abort it" name=${`${o.topic}/${o.partition}`} isBad close=${close}
  run=${async () => { await abort(o); again(); }}>
  <p>Readers of committed records never see what producer ${o.producer_id} wrote in epoch ${o.producer_epoch} to ${o.topic}/${o.partition}, from offset ${grouped(o.start_offset)} on.</p>
  <p class="loss">Only damage leaves a transaction that hangs, and its other partitions may have been committed. Look at its records first.</p><//>`;

/** What was looked at. @param {any} scan @param {number} now */
function looked(scan, now) {
  const topics = `${grouped(scan.topics)}${scan.of !== null && scan.of > scan.topics ? ` of ${grouped(scan.of)}` : ""} topic${(scan.of ?? scan.topics) === 1 ? "" : "s"}`;
  const what = `${topics} with ${grouped(scan.partitions)} partition${scan.partitions === 1 ? "" : "s"}`;
  if (scan.isRunning) return scan.of === null ? "Looking at the topics …" : `Looking: ${what} so far …`;
  if (scan.of === null) return "";
  return `Looked at ${what}, at ${clock(scan.at, now).replace(/\.\d+$/, "")}.${scan.refused ? ` ${grouped(scan.refused)} refused the look.` : ""}`;
}
