// @ts-check
// Who may write to each partition of a topic, who waits for it, who reads it for a group, and each fence that its log has.
import { html, useSignal, useEffect, useRef, useRepeated, useAsked, Link, Trouble, Bone, Question, address, go } from "../ui.js";
import * as api from "../api.js";
import { grouped, ago, visible } from "../format.js";
import { NumberedPager, called, second } from "./parts.js";
import { Timeline, useMarkers } from "./timeline.js";

const PAGE = 50;
const OPEN = 3; // partitions that are shown whole where the address names none

/** @typedef {{producer_name: string|null, client_name: string|null, session_id: string, since: number|null, expires_at: number}} Holder */
/** @typedef {{partition: number, topic_epoch: number, access_mode: string, holder: Holder|null, waiting: number, owner: any, group_owners: any[]}} Access */

/** @typedef {{count: number, entries: any[]|null}} Line */

export { AllWriters } from "./all-writers.js";

/** @param {{name: string}} props */
export function Writers({ name }) {
  const at = address.value.searchParams;
  const start = Math.max(0, Number(at.get("from")) || 0);
  const every = api.about.value?.refresh_ms ?? 1000;
  const access = useAsked((s) => api.get(`/topics/${api.part(name)}/access`, { start_partition: start, limit: PAGE }, s), [name, start], every);
  const queue = useAsked((s) => api.get(`/topics/${api.part(name)}/producers`, {}, s), [name], every);
  /** @type {Access[]} */
  const parts = access.value?.partitions ?? [];
  const named = at.get("open");
  const first = useRef(/** @type {{of: string, open: number[]}} */ ({ of: "", open: [] }));
  if (parts.length && first.current.of !== `${name} ${start}`) first.current = { of: `${name} ${start}`, open: firstOpen(parts) };
  const open = named === null ? first.current.open : named.split(",").filter(Boolean).map(Number);
  const place = (/** @type {Record<string, any>} */ change) => go(`topics/${api.part(name)}/writers`, { from: at.get("from"), open: named, ...change }, true);
  const toggle = (/** @type {number} */ p) => place({ open: (open.includes(p) ? open.filter((o) => o !== p) : [...open, p].sort((a, b) => a - b)).join(",") || "," });
  const waiting = queue.value?.waiting ?? null;
  return html`<${Trouble} error=${access.error} again=${access.again} /><${Trouble} error=${queue.error} again=${queue.again} />
    ${!access.value && !access.error && html`<div class="sheet loading holder" role="status" aria-label="Loading"><${Bone} w=${180} /><${Bone} w=${140} /><${Bone} w=${120} /></div>`}
    ${parts.filter((p) => open.includes(p.partition)).map((p) => html`<${Partition} key=${p.partition} name=${name} entry=${p} queue=${queueOf(p, waiting)}
       again=${() => { access.again(); queue.again(); }} />`)}
    ${(parts.length > 1 || start > 0) && html`<div class="sheet" tabindex="0" role="region" aria-label="Partitions"><table class="writers">
      <colgroup><col style=${{ width: "136px" }} /><col /><col style=${{ width: "92px" }} /><col style=${{ width: "92px" }} /><col class="wide" style=${{ width: "200px" }} /></colgroup>
      <thead><tr><th scope="col">Partition</th><th scope="col">Who may write</th><th scope="col" class="number">Epoch</th><th scope="col" class="number">Waiting</th>
        <th scope="col" class="wide">Since</th></tr></thead>
      <tbody>${parts.map((p) => html`<tr key=${p.partition}><td><button type="button" class="button quiet" aria-pressed=${open.includes(p.partition)}
         onClick=${() => toggle(p.partition)}>Partition ${p.partition}</button></td>
        <td><${Who} entry=${p} /></td><td class="number">${p.topic_epoch < 0 ? html`<span class="faint">none</span>` : grouped(p.topic_epoch)}</td>
        <td class="number">${p.waiting ? grouped(p.waiting) : html`<span class="faint">none</span>`}</td><td class="wide muted">
          ${p.holder?.since ? second(p.holder.since, api.serviceNow()) : ""}</td></tr>`)}</tbody></table>
      <${NumberedPager} start=${start} size=${PAGE} count=${parts.length} hasMore=${access.value?.has_more} what="partitions" to=${`topics/${api.part(name)}/writers`} /></div>`}`;
}

/** The partitions that are shown whole at first: some that are exclusive, else one. What changes later leaves the choice. @param {Access[]} parts */
function firstOpen(parts) {
  const held = parts.filter((p) => p.access_mode === "Exclusive");
  return (held.length ? held.slice(0, OPEN) : parts.slice(0, 1)).map((p) => p.partition);
}

/**
 * The queue of a partition, in order, as far as one answer has it.
 * @param {Access} entry @param {any[]|null} waiting
 * @returns {Line}
 */
const queueOf = (entry, waiting) => ({ count: entry.waiting, entries: waiting && waiting.filter((w) => w.partitions.includes(entry.partition)) });

/** @param {{entry: Access}} props */
const Who = ({ entry }) => (entry.holder ? html`<b title=${called(entry.holder)}>${called(entry.holder)}</b>`
  : entry.access_mode === "Exclusive" ? html`<span class="muted">exclusive, nobody now</span>` : html`<span class="muted">anyone</span>`);

/** @param {{name: string, entry: Access, queue: Line, again: () => void}} props */
function Partition({ name, entry, queue, again }) {
  const { partition, holder } = entry;
  const history = useMarkers(name, partition);
  const asks = useSignal(false), fenced = useSignal(/** @type {{session: string, said: string}|null} */ (null));
  const now = api.serviceNow();
  const isExclusive = entry.access_mode === "Exclusive";
  const [newest, before] = history.markers ?? [];
  const run = async () => {
    const said = `${holder ? called(holder) : ""} is fenced${queue.count ? `; ${counted(queue.count)} that waited ${queue.count === 1 ? "was" : "were"} refused` : ""}.`;
    await fence(name, partition);
    fenced.value = { session: holder?.session_id ?? "", said };
    again(); history.again();
  };
  // It is told until another has come.
  const told = fenced.value && (!holder || holder.session_id === fenced.value.session) ? fenced.value.said : null;
  return html`<section class="sheet" aria-label=${`Partition ${partition}`}>
    ${told && html`<p class="pad" role="status">${told}</p>`}
    <div class="holder">
      <div class="now"><span class="faint">Partition ${partition}</span>
        <h2 title=${holder ? called(holder) : ""}>${holder ? called(holder) : isExclusive ? "Nobody now" : "Anyone"}</h2>
        <span class=${`tag ${isExclusive ? "exclusive" : ""}`}>${isExclusive ? "exclusive" : "shared"}${entry.topic_epoch >= 0 ? ` · epoch ${grouped(entry.topic_epoch)}` : ""}${
          entry.owner ? ` · owned, generation ${grouped(entry.owner.generation)}` : ""}</span>
        ${isExclusive && newest && newest.topic_epoch === entry.topic_epoch && html`<span class="muted">
          ${before && before.access_mode === "Exclusive" ? (holder ? `took over from ${called(before)} at ${second(newest.timestamp, now)}`
            : `${called(before)} was fenced at ${second(newest.timestamp, now)} by ${called(newest)}`) : `exclusive since ${second(newest.timestamp, now)}`}</span>`}
        ${isExclusive && !holder && html`<span class="muted">The next producer that claims it may write. An append without a claim is refused.</span>`}
        ${holder && api.canWrite() && html`<button type="button" class="button" onClick=${() => (asks.value = true)}>Fence the holder</button>`}</div>
      <div class="lease"><span class="faint">Lease</span>${holder ? html`<${Lease} holder=${holder} key=${holder.session_id} />` : html`<span class="muted">none</span>`}</div>
      <${Queue} queue=${queue} now=${now} />
    </div>
    ${entry.group_owners?.length > 0 && html`<dl class="readers"><dt>Readers</dt>
      ${entry.group_owners.map((o) => html`<dd>group <${Link} to=${`topics/${api.part(name)}/subscriptions/${api.part(o.group)}`}>${visible(o.group)}<//> → <b>${called(o)}</b>
      <span class="muted">, generation ${grouped(o.generation)}${o.since ? `, since ${second(o.since, now)}` : ""}, until ${second(o.until, now)}</span></dd>`)}</dl>`}
    <${Timeline} history=${history} name=${name} entry=${entry} />
    ${asks.value && holder && html`<${Question} title="Fence the holder" action="Fence the holder" isBad=${true} name=${name} close=${() => (asks.value = false)} run=${run}>
      ${queue.count > 0 && html`<p><b>The queue does not move up:</b> ${queue.count === 1 ? "the producer that waits is" : `the ${grouped(queue.count)} producers that wait are`} refused, too.</p>`}
      <p><b>${called(holder)}</b> loses partition ${partition}: its next append is refused; the partition stays exclusive and free.</p><//>`}
  </section>`;
}

const counted = (/** @type {number} */ n) => `${grouped(n)} ${n === 1 ? "producer" : "producers"}`;

/** Take the partition from its holder, and give it up at once. The session's lease is the shortest one, in case the second request never arrives. */
async function fence(/** @type {string} */ name, /** @type {number} */ partition) {
  const path = `/topics/${api.part(name)}/producers`;
  const { producer } = await api.send("POST", path, { access_mode: "ExclusiveWithFencing", partitions: [partition], lease_ms: 1000, client_name: "console" });
  await api.send("DELETE", `${path}/${api.part(producer.producer_name)}?session_id=${api.part(producer.session_id)}`);
  await api.send("DELETE", `/sessions/${api.part(producer.session_id)}`);
}

/** A lease, counted down by the service's clock. The bar is full at the longest time that was seen. @param {{holder: Holder}} props */
function Lease({ holder }) {
  const tick = useSignal(0), whole = useRef(0);
  useRepeated(async () => { tick.value += 1; }, 1000, [], () => {});
  const now = api.serviceNow(), left = tick.value < 0 ? 0 : Math.max(0, holder.expires_at - now);
  whole.current = Math.max(whole.current, left);
  const share = Math.min(1, left / (whole.current || 1));
  return html`<span class=${`number ${left === 0 ? "over" : ""}`}>${left === 0 ? "is over" : `${Math.ceil(left / 1000)} s left`}</span>
    <svg class=${left < 5000 ? "short" : ""} width="120" height="6" aria-hidden="true"><rect class="whole" width="120" height="6" rx="3" />
      <rect class="left" width=${120 * share} height="6" rx="3" /></svg>
    <span class="faint">${holder.since ? `since ${second(holder.since, now)} · ` : ""}session <span class="mono">${visible(holder.session_id).slice(0, 8)}</span></span>`;
}

/** @param {{queue: Line, now: number}} props */
function Queue({ queue, now }) {
  const shown = queue.entries?.slice(0, PAGE) ?? [], count = Math.max(queue.count, queue.entries?.length ?? 0);
  return html`<div class="queue"><span class="faint">Waiting${count > 1 ? html` <span class="number">${grouped(count)}</span>` : null}</span>
    ${count === 0 ? html`<span class="muted">nobody</span>` : shown.length === 0 ? html`<span>${grouped(count)}</span>` : html`<ol>${shown.map((w, i) => html`<li key=${w.producer_name}>
      <b>${i + 1}</b> <span title=${called(w)}>${called(w)}</span><span class="faint"> ${w.since ? ago(w.since, now) : ""}</span></li>`)}</ol>`}</div>`;
}
