// @ts-check
// How many records each region has, partition by partition: what a region wrote itself, and what the others have of that.
import { html, useAsked, Trouble, Bone, Pager, address } from "../ui.js";
import * as api from "../api.js";
import { grouped, visible } from "../format.js";
import { total } from "../links.js";
import { Box } from "./asked.js";

const SHOWN = 16; // partitions at once: each costs some requests to each region
const STEPS = [1, 64, 4096]; // offsets before the end from which the last record of an origin is sought
const LOOKS = 6;

/** @typedef {import("../links.js").Has} Has */

/** @param {{name: string, ats: string[], regions: string[], partitions: number}} props */
export function Counts({ name, ats, regions, partitions }) {
  const first = Math.max(0, Number.parseInt(address.value.searchParams.get("c") ?? "0", 10) || 0);
  const asked = ats.length ? ats : [api.region.value ?? ""];
  const counted = useAsked((s) => Promise.all(asked.map((at) => countAt(name, at, regions, first, s))), [name, asked.join(), first]);
  const columns = counted.value?.map((one) => one.region) ?? asked;
  const numbers = Array.from({ length: Math.max(0, Math.min(SHOWN, partitions - first)) }, (_, i) => first + i);
  const query = (/** @type {number} */ c) => ({ p: address.value.searchParams.get("p"), snapshots: address.value.searchParams.get("snapshots"), c: c || null });
  const said = `Partitions ${grouped(first)} to ${grouped(Math.min(first + SHOWN, partitions) - 1)} of ${grouped(partitions)}`;
  return html`<section class="sheet" aria-label="Records by partition"><header class="copy"><div><h2>Records by partition</h2>
        <p class="muted">${counted.value ? sum(counted.value, regions) : html`<${Bone} w=${240} />`}</p></div>
      <span class="spacer"></span><button class="button" onClick=${counted.again}>Count again</button></header>
    ${counted.error ? html`<div class="within"><${Trouble} error=${counted.error} again=${counted.again} /></div>` : null}
    ${counted.value?.map((one) => one.error && html`<div class="within"><${Trouble} error=${one.error} again=${counted.again} /></div>`)}
    <${Box} label="Records by partition and region" rows="counts" heads=${["#Partition", "Records", ...columns.map((one) => `#in ${visible(one)}`)]}>
      ${numbers.map((p) => html`<${Rows} key=${p} head=${p} regions=${regions} columns=${columns} has=${counted.value?.map((one) => one.partitions[p])} />`)}
      ${numbers.length > 1 ? html`<${Rows} head=${numbers.length === partitions ? "all" : "these"} regions=${regions} columns=${columns}
        has=${counted.value?.map((one) => total(Object.values(one.partitions), regions))} />` : null}<//>
    ${partitions > SHOWN ? html`<${Pager} label="Pages of counted partitions" to=${`regions/${api.part(name)}`} said=${said}
      before=${first > 0 ? query(Math.max(0, first - SHOWN)) : null} after=${first + SHOWN < partitions ? query(first + SHOWN) : null} />` : null}
    <p class="said within">Each region counts its own records from the first one on. What it keeps differs where the regions trim at different times, or where a transaction was aborted.
      Record by record, this compares them: <code>fenceline verify ${visible(name)} --peer REGION=URL</code></p></section>`;
}

const known = (/** @type {number|null|undefined} */ n) => (n === null || n === undefined ? "…" : grouped(n));

/**
 * What each region has of one partition, or of all that are shown.
 * @param {{head: number|string, regions: string[], columns: string[], has: (Has|undefined)[]|undefined}} props
 */
function Rows({ head, regions, columns, has }) {
  const cell = (/** @type {any} */ content) => (has === undefined ? html`<${Bone} w=${40} />` : content());
  return html`${regions.map((origin, i) => html`<tr key=${origin}>${i === 0 ? html`<td class="number of" rowspan=${regions.length + 1}>${head}</td>` : null}
      <td>written in ${visible(origin)}</td>${columns.map((column, k) => html`<td class="number">${cell(() => html`<${Cell} n=${has?.[k]?.of[origin]}
        own=${has?.[columns.indexOf(origin)]?.of[origin]} isOwn=${column === origin} />`)}</td>`)}</tr>`)}
    <tr><td class="muted">kept of all</td>${columns.map((_, k) => html`<td class="number muted">${cell(() => html`${known(has?.[k]?.kept)}<${Word} />`)}</td>`)}</tr>`;
}

/** @param {Counted[]|null} counted @param {string} origin @param {number} p */
const ownOf = (counted, origin, p) => counted?.find((one) => one.region === origin)?.partitions[p]?.of[origin];

/** The word beside a number, in a place of its own, so that numbers stay in line. @param {{kind?: string, children?: any}} props */
const Word = ({ kind = "", children }) => html`<span class=${`word ${kind && `state is-${kind}`}`}>${children}</span>`;

/** @param {{n: number|null|undefined, own: number|null|undefined, isOwn: boolean}} props */
function Cell({ n, own, isOwn }) {
  if (isOwn) return html`<b>${known(n)}</b><${Word}>its own<//>`;
  if (n === null || n === undefined || own === null || own === undefined) return html`${known(n)}<${Word} />`;
  return html`${grouped(n)}${n >= own ? html`<${Word} kind="whole">all<//>` : html`<${Word} kind="behind">${grouped(own - n)} less<//>`}`;
}

/** @typedef {{at: string, region: string, error: any, partitions: Record<number, Has>}} Counted */

/** What all partitions shown come to, in a sentence. @param {Counted[]} counted @param {string[]} regions */
function sum(counted, regions) {
  let less = 0, unknown = false, compared = 0;
  for (const origin of regions)
    for (const one of counted)
      for (const [p, has] of Object.entries(one.partitions)) {
        const own = ownOf(counted, origin, Number(p)), n = has.of[origin];
        if (one.region === origin) continue;
        if (own === null || own === undefined || n === null || n === undefined) unknown = true;
        else { less += Math.max(0, own - n); compared += own; }
      }
  if (counted.length < 2) return "What the other regions have written is known to a console that reaches them: start it with --at NAME=URL for each.";
  if (less) return `${grouped(less)} of ${grouped(compared)} records had not arrived when they were counted${unknown ? ", in the partitions that are known" : ""}.`;
  return unknown ? "Not every region could be counted." : `All ${grouped(compared)} records had arrived when they were counted.`;
}

/** @param {string} name @param {string} at @param {string[]} regions @param {number} first @param {AbortSignal} signal @returns {Promise<Counted>} */
async function countAt(name, at, regions, first, signal) {
  try {
    const path = `/topics/${api.part(name)}`;
    const page = await api.get(`${path}/offsets`, { start_partition: first, limit: SHOWN, counts: true }, signal, at);
    /** @type {Record<number, Has>} */
    const partitions = {};
    let region = at;
    await Promise.all(page.partitions.map(async (/** @type {any} */ one) => {
      const list = (/** @type {string} */ origin, /** @type {number} */ offset) => api.get(`${path}/partitions/${one.partition}/segments`, { origin, offset, limit: 100 }, signal, at);
      const own = await list("own", one.next_offset);
      region = own.region;
      /** @type {Record<string, number|null>} */
      const of = Object.create(null);
      of[region] = own.stable_own_records;
      for (const origin of regions) if (origin !== region) of[origin] = await taken(list, origin, one);
      partitions[one.partition] = { kept: one.records ?? null, of };
    }));
    return { at, region, error: null, partitions };
  } catch (error) {
    if (signal.aborted) throw error;
    return { at, region: at, error, partitions: {} };
  }
}

/**
 * The number of the last record taken from an origin: sought from near the end, then from farther back. Null where it was not found soon.
 * @param {(origin: string, offset: number) => Promise<any>} list @param {string} origin @param {any} bounds
 */
async function taken(list, origin, bounds) {
  const starts = [...STEPS.map((step) => bounds.next_offset - step).filter((offset) => offset > bounds.log_start_offset), bounds.log_start_offset];
  for (const start of starts) {
    let last = null, offset = start;
    for (let looks = 0; offset < bounds.next_offset; looks += 1) {
      if (looks === LOOKS) return null;
      const page = await list(origin, offset);
      last = page.segments.at(-1)?.origin_count ?? last;
      offset = page.position;
      if (!page.has_more) break;
    }
    if (last !== null) return last;
  }
  return bounds.log_start_offset === 0 ? 0 : null;
}
