// @ts-check
// One topic in several regions: what each region has of the others' records, and which subscriptions can move.
import { html, useSignal, useAsked, Link, Pager, Trouble, Bone, Bones, Question, address, go } from "../ui.js";
import * as api from "../api.js";
import { grouped, visible } from "../format.js";
import { records, verdict } from "../links.js";
import { Box, askAll, lookMs, reached, replicated } from "./asked.js";
import { Counts } from "./region-counts.js";
import { Gaps, Links, Snapshots } from "./region-links.js";

const SHOWN = 50; // partitions whose gaps and snapshots are shown at once, and subscriptions

/** @param {{name: string}} props */
export function TopicRegions({ name }) {
  const topic = useAsked((s) => api.get(`/topics/${api.part(name)}`, {}, s), [name]);
  const regions = /** @type {string[]} */ (topic.value?.regions ?? []);
  const several = regions.filter((one) => reached().includes(one));
  return html`<div class="head"><h1 title=${visible(name)}><${Link} to="regions" class="crumb">Regions /<//> ${visible(name)}</h1><span class="spacer"></span>
      <${Link} to=${`topics/${api.part(name)}`} class="button">Messages<//></div>
    <${Trouble} error=${topic.error} again=${topic.again} />
    ${topic.value === null ? (topic.error ? null : html`<div class="sheet"><table><tbody><${Bones} widths=${[120, 90, 90]} isLate=${topic.isLate} /></tbody></table></div>`)
      : regions.length < 2 ? html`<p class="said">This topic is in one region only. Each of its regions is told of another one by itself:
        <code>fenceline topic alter ${visible(name)} --regions ${visible(regions.join(","))},REGION</code></p>`
      : html`<${Copies} name=${name} ats=${several.length ? several : [api.region.value ?? ""]} partitions=${topic.value.partitions} />
        <${Counts} name=${name} ats=${several} regions=${regions} partitions=${topic.value.partitions} /><${Movable} name=${name} />`}`;
}

/** @param {{name: string, ats: string[], partitions: number}} props */
function Copies({ name, ats, partitions }) {
  const first = Math.max(0, Number.parseInt(address.value.searchParams.get("p") ?? "0", 10) || 0);
  const looks = useAsked((s) => askAll(name, ats, { start_partition: first, limit: SHOWN }, s), [name, ats.join(), first], lookMs());
  const question = useSignal(/** @type {any} */ (null));
  const shown = looks.value ?? ats.map((at) => ({ at, answer: null, error: null }));
  const query = (/** @type {number} */ p) => ({ snapshots: address.value.searchParams.get("snapshots"), p: p || null });
  return html`${shown.map((one) => html`<${Copy} key=${one.at} name=${name} one=${one} again=${looks.again} ask=${(/** @type {any} */ asked) => (question.value = asked)} />`)}
    ${partitions > SHOWN ? html`<div class="sheet"><${Pager} label="Pages of partitions" to=${`regions/${api.part(name)}`}
      said=${`Gaps and snapshots of partitions ${grouped(first)} to ${grouped(Math.min(first + SHOWN, partitions) - 1)} of ${grouped(partitions)}`}
      before=${first > 0 ? query(Math.max(0, first - SHOWN)) : null} after=${first + SHOWN < partitions ? query(first + SHOWN) : null} /></div>` : null}
    ${question.value && html`<${Question} ...${question.value} close=${() => { question.value = null; looks.again(); }}>${question.value.text}<//>`}`;
}

/** What one region has of the others' records. @param {{name: string, one: import("./asked.js").Asked, again: () => void, ask: (question: any) => void}} props */
function Copy({ name, one, again, ask }) {
  const { at, answer, error } = one;
  const here = answer?.region ?? at;
  const taken = useSignal(""), failed = useSignal(/** @type {any} */ (null));
  const isOpen = address.value.searchParams.get("snapshots") === here;
  const snapshot = async () => {
    failed.value = null;
    try { taken.value = (await api.send("POST", `/topics/${api.part(name)}/replication/snapshots`, {}, at)).snapshot_id; again(); }
    catch (refusal) { failed.value = refusal; }
  };
  const toggle = () => go(`regions/${api.part(name)}`, { p: address.value.searchParams.get("p"), snapshots: isOpen ? null : here }, true);
  return html`<section class="sheet" aria-label=${`In ${visible(here)}`}>
    <header class="copy"><div><h2>In ${visible(here)}</h2>
        ${answer?.regions.map((link) => { const { kind, text } = verdict(link, here); return html`<p class=${`state is-${kind}`}>${visible(text)}.</p>`; })}
        ${answer?.skipped_records ? html`<p class="state is-broken">${records(answer.skipped_records)} ${answer.skipped_records === 1 ? "was" : "were"} given up here for good.</p>` : null}
        ${answer || error ? null : html`<${Bone} w=${240} />`}
        ${taken.value ? html`<p class="muted" role="status">Snapshot <span class="mono">${taken.value.slice(0, 8)}</span> ${stage(answer, taken.value)}.</p>` : null}</div><span class="spacer"></span>
      ${at !== api.region.value && reached().includes(at) ? html`<${Link} class="button" to=${`regions/${api.part(name)}`} query=${{ at }}>Look from ${visible(at)}<//>` : null}
      ${answer && html`<button class="button" aria-expanded=${isOpen} onClick=${toggle}>Snapshots</button>`}
      ${answer && api.canWrite() ? html`<button class="button" onClick=${snapshot}>Take a snapshot</button>` : null}</header>
    ${error || failed.value ? html`<div class="within"><${Trouble} error=${error ?? failed.value} again=${again} /></div>` : null}
    ${answer && html`<${Links} name=${name} at=${at} answer=${answer} ask=${ask} /><${Gaps} name=${name} at=${at} answer=${answer} ask=${ask} />`}
    ${answer && (isOpen || answer.pending.length) ? html`<${Snapshots} answer=${answer} isOpen=${isOpen} />` : null}</section>`;
}

/** @param {import("../links.js").Replication|null} answer @param {string} id */
const stage = (answer, id) => (answer?.pending.some((one) => one.snapshot_id === id) ? "is under way" : answer?.snapshots.some((one) => one.snapshot_id === id) ? "is complete" : "began");

/** Subscriptions that can move to another region. @param {{name: string}} props */
function Movable({ name }) {
  const found = useAsked((s) => replicated({ topic: name }, s), [name], lookMs());
  return html`<section class="sheet" aria-label="Subscriptions that can move"><header class="copy"><h2>Subscriptions that can move</h2></header>
    ${found.error ? html`<div class="within"><${Trouble} error=${found.error} again=${found.again} /></div>` : null}
    <${MovableTable} found=${found} /></section>`;
}

/** @param {{found: {value: any[]|null, isLate: boolean}, hasTopic?: boolean}} props */
export const MovableTable = ({ found, hasTopic = false }) => html`<${Box} label="Replicated subscriptions"
    heads=${[...(hasTopic ? ["Topic"] : []), "Subscription", "#Behind", "Active region"]}>
  ${found.value === null ? html`<${Bones} widths=${[110, 50, 60]} isLate=${found.isLate} />`
    : found.value.slice(0, SHOWN).map((one) => html`<tr>${hasTopic ? html`<td title=${visible(one.topic)}>${visible(one.topic)}</td>` : null}
    <td><${Link} class="name" title=${visible(one.name)} to=${`failover/${api.part(one.topic)}/${api.part(one.name)}`}>${visible(one.name)}<//></td>
    <td class="number">${one.backlog === undefined ? "…" : grouped(one.backlog)}</td>
    <td>${one.active_region ? visible(one.active_region) : html`<span class="faint">none is named</span>`}</td></tr>`)}
  ${found.value && found.value.length > SHOWN ? html`<tr><td colspan="4" class="muted">${grouped(found.value.length - SHOWN)} more: open a topic below Regions for its own.</td></tr>` : null}
  ${found.value?.length === 0 ? html`<tr><td colspan="4" class="muted">No subscription is replicated. One becomes so:
    <code>fenceline subscription create TOPIC NAME --replicated</code></td></tr>` : null}<//>`;
