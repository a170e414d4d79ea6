// @ts-check
// The segments of one partition, each an object that can be downloaded; and whether they are what was stored.
import { html, useAsked, useSignal, address, go, Link, Trouble, Bones, Columns, Pager, Nothing } from "../ui.js";
import * as api from "../api.js";
import { grouped, bytes, visible } from "../format.js";
import { Verify } from "./verify.js";

const SHOWN = 50;
const WIDTHS = [60, 60, 50, 60, 40, 90, 70];
/** @type {[string, string, string?][]} */
const COLUMNS = [["From offset", "12%", "number"], ["To", "12%", "number wide"], ["Records", "10%", "number"], ["Stored", "10%", "number wide"],
  ["Came from", "14%", "wide"], ["Aborted in it", "", "wide"], ["Object", "112px"]];

/** @param {{name: string, partition: number}} props */
export function SegmentList({ name, partition }) {
  const at = address.value.searchParams;
  const offset = at.get("offset");
  const to = `topics/${api.part(name)}/partitions`;
  const kept = { p: partition, from: at.get("from") };
  const found = useAsked((s) => api.get(`/topics/${api.part(name)}/partitions/${partition}/segments`, { offset, limit: SHOWN }, s), [name, partition, offset]);
  const page = found.value;
  return html`<section class="segment-list" aria-label=${`Partition ${partition}`}>
    <div class="head"><h2>Partition ${partition}</h2>${page && html`
      <span class="faint number">${grouped(page.log_start_offset)} to ${grouped(page.next_offset)}</span>`}<span class="spacer"></span>
      <${Offset} value=${offset} choose=${(/** @type {string} */ o) => go(to, { ...kept, offset: o })} /></div>
    <${Verify} name=${name} partition=${partition} />
    <${Trouble} error=${found.error} again=${found.again} />
    ${found.error?.code === "OFFSET_OUT_OF_RANGE" && html`<div><${Link} to=${to} query=${kept} stays class="button">Show the first segments<//></div>`}
    ${(page || !found.error) && html`<div class="sheet"><table class="parts">
      <${Columns} of=${COLUMNS} />
      <tbody>${page === null ? html`<${Bones} widths=${WIDTHS} isLate=${found.isLate} />` : page.segments.map((/** @type {any} */ s) => html`<tr key=${s.base_offset}>
        <td class="number"><${Link} to=${`topics/${api.part(name)}`} query=${{ p: partition, from: Math.max(s.base_offset, page.log_start_offset) }} class="open"
          aria-label=${`${grouped(s.base_offset)}, show its messages`}>${grouped(s.base_offset)}<//></td>
        <td class="number wide muted">${grouped(s.next_offset)}</td><td class="number">${grouped(s.records)}</td><td class="number wide muted">${bytes(s.bytes)}</td>
        <td class="wide muted">${s.origin === null ? html`<span class="faint">here</span>` : visible(s.origin)}</td>
        <td class="wide" title=${aborted(s.aborted)}>${s.aborted.length ? html`<span class="muted">${aborted(s.aborted)}</span>` : html`<span class="faint">none</span>`}</td>
        <td><a class="download" href=${s.url} download=${`${name}-${partition}-${s.base_offset}.segment`}
          aria-label=${`Download the segment from ${grouped(s.base_offset)}`}>Download</a></td></tr>`)}</tbody></table>
      ${page?.segments.length === 0 && html`<${Nothing} title="No segment is kept here">Each append makes one. Append a record to this partition:
        <pre>echo book | fenceline produce ${visible(name)} --partition ${partition}</pre><//>`}
      ${page?.segments.length > 0 && html`<${Pager} label="Pages of segments" to=${to} said=${said(page)} words=${["First", "Next"]}
        before=${offset !== null ? kept : null} after=${page.has_more ? { ...kept, offset: page.position } : null} />`}</div>`}</section>`;
}

const said = (/** @type {any} */ page) =>
  `${page.segments.length === 1 ? "1 segment" : `${page.segments.length} segments`}, offsets ${grouped(page.segments[0].base_offset)} to ${grouped(page.position)}`;

/** The ranges that readers of committed records pass over. @param {any[]} ranges */
const aborted = (ranges) => ranges.map((a) => `${grouped(a.first_offset)} to ${grouped(a.last_offset)} of producer ${a.producer_id}`).join(", ");

/** @param {{value: string|null, choose: (o: string) => void}} props */
function Offset({ value, choose }) {
  const typed = useSignal(value ?? "");
  const submit = (/** @type {Event} */ e) => { e.preventDefault(); choose(typed.value.replace(/[\s,]/g, "")); };
  return html`<form class="inline" onSubmit=${submit}><label>From offset <input class="input number" inputmode="numeric" pattern="[0-9, ]*" title="A whole number" size="10"
      value=${typed.value} onInput=${(/** @type {any} */ e) => (typed.value = e.target.value)} /></label>
    <button class="button">Go</button></form>`;
}
