// @ts-check
// Who may write to each partition of a topic, who waits for it, and every fence that the log has.
import { html, useSignal, useEffect, useRef, useRepeated, Link, Trouble, Nothing } from "../ui.js";
import * as api from "../api.js";
import { grouped, ago, clock } from "../format.js";
import { batches } from "../batches.js";

const LOOK_MS = 1000;

export const AllWriters = () => null;
export function Writers({ name }) {
  const seen = useSignal(/** @type {any} */ (null));
  const lives = useSignal(/** @type {Record<number, any[]>} */ ({}));
  const trouble = useSignal(/** @type {any} */ (null));
  useRepeated(async (signal) => {
    const [parts, found] = await Promise.all([api.offsets(name, signal), api.producers(name)]);
    seen.value = { parts, ...found };
    trouble.value = null;
    for (const p of parts.slice(0, 4)) if ((lives.value[p.partition]?.at(-1)?.to ?? -1) !== p.next_offset) lives.value = { ...lives.value, [p.partition]: await epochs(name, p, signal) };
  }, LOOK_MS, [name], (error) => (trouble.value = error));
  if (trouble.value) return html`<${Trouble} error=${trouble.value} />`;
  if (!seen.value) return html`<div class="sheet loading" style="height:180px"></div>`;
  const now = Date.now() + api.skew;
  return html`${seen.value.parts.slice(0, 4).map((/** @type {any} */ p) => {
    const holder = seen.value.producers.find((/** @type {any} */ x) => x.access_mode !== "Shared" && p.partition in x.topic_epochs);
    const queue = seen.value.waiting;
    return html`<section class="sheet" aria-label=${`Partition ${p.partition}`}>
      <div class="holder">
        <div class="now"><span class="faint">Partition ${p.partition}</span>
          ${holder ? html`<h2>${holder.client_name ?? holder.producer_name}</h2><span class="tag exclusive">exclusive · epoch ${holder.topic_epochs[p.partition]}</span>`
            : p.access_mode === "Exclusive" ? html`<h2>Nobody now</h2><span class="tag exclusive">exclusive · epoch ${p.topic_epoch}</span>`
            : html`<h2>Anyone</h2><span class="tag">shared${p.topic_epoch >= 0 ? ` · epoch ${p.topic_epoch}` : ""}</span>`}</div>
        ${holder && html`<${Lease} until=${holder.expires_at} now=${now} since=${holder.since} session=${holder.session_id} />`}
        <div class="queue"><span class="faint">Waiting</span>${queue.length ? html`<ol>${queue.map((/** @type {any} */ w) => html`<li><b>${w.queue_position + 1}</b> ${w.client_name ?? w.producer_name}<span class="faint"> ${ago(w.since, now)}</span></li>`)}</ol>` : html`<span class="muted">nobody</span>`}</div>
      </div>
      <${Strip} lives=${lives.value[p.partition]} name=${name} partition=${p.partition} holder=${holder} now=${now} />
    </section>`;
  })}`;
}

const Lease = ({ until, now, since, session }) => {
  const left = Math.max(0, until - now), whole = 30000;
  return html`<div class="lease"><span class="faint">Lease</span><span class="number">${(left / 1000).toFixed(0)} s left</span>
    <svg width="120" height="6" aria-hidden="true"><rect width="120" height="6" rx="3" fill="var(--line)" /><rect width=${Math.min(120, (120 * left) / whole)} height="6" rx="3" fill=${left < 5000 ? "var(--bad)" : "var(--fence)"} /></svg>
    <span class="faint">since ${clock(since, now)} · session <span class="mono">${session.slice(0, 8)}</span></span></div>`;
};

function Strip({ lives, name, partition, holder, now }) {
  if (!lives) return html`<div class="strip loading" style="height:120px"><span class="bone" style="width:40%"></span></div>`;
  if (lives.length) return html`<${Posts} lives=${lives} name=${name} partition=${partition} holder=${holder} now=${now} />`;
  return html`<${Nothing} title="No fence in the log yet">Whoever may reach this topic may write. A producer that claims it exclusively puts the first fence.<pre>fenceline lock ${name} -- ./job.sh</pre><//>`;
}

function Posts({ lives, name, partition, holder, now }) {
  const shown = lives.slice(-12);
  const strip = useRef(/** @type {any} */ (null));
  useEffect(() => { if (strip.current) strip.current.scrollLeft = strip.current.scrollWidth; }, [lives.length]);
  return html`<div class="strip" ref=${strip} role="list" aria-label="Epochs, oldest first">${shown.map((e, i) => {
    const isNow = i === shown.length - 1;
    return html`<${Link} to=${`topics/${name}`} query=${{ p: partition, from: e.from }} role="listitem" class=${`epoch ${e.mode === "Exclusive" ? "held" : ""} ${isNow ? "now" : ""}`} style=${{ flexGrow: 1 + Math.log10(1 + e.records) }}>
      <span class="post" aria-hidden="true"></span><strong>${e.epoch < 0 ? "before" : e.epoch}</strong>
      <span class="who">${e.mode !== "Exclusive" ? "anyone" : isNow && holder ? holder.client_name ?? holder.producer_name : html`<span class="mono">${e.session.slice(0, 8)}</span>`}</span>
      <span class="faint">${grouped(e.records)} ${e.records === 1 ? "record" : "records"}</span><span class="faint">from ${grouped(e.from)}</span><span class="faint">${e.at ? clock(e.at, now).replace(/\.\d+$/, "") : ""}</span><//>`;
  })}</div><p class="caption">${lives.length > shown.length ? `The last ${shown.length} of ${lives.length} epochs. ` : ""}Each post is a marker in the log. Whatever an earlier epoch still sends after it never lands.</p>`;
}

/** The epochs of a partition, by the markers in its segments. The contract's list of markers will take this one's place. */
async function epochs(/** @type {string} */ name, /** @type {any} */ p, /** @type {AbortSignal} */ signal) {
  /** @type {any[]} */ const found = [];
  let current = { epoch: -1, mode: "Shared", session: "", from: p.log_start_offset, records: 0, at: 0, to: 0 };
  for (let offset = p.log_start_offset; offset < p.next_offset; ) {
    const page = await api.get(`/topics/${encodeURIComponent(name)}/partitions/${p.partition}/segments`, { offset }, signal);
    for (const s of page.segments) {
      const body = new Uint8Array(await (await fetch(new URL(s.url).pathname + new URL(s.url).search, { signal })).arrayBuffer());
      for (const b of batches(body)) {
        if (b.marker?.type === 64) {
          if (current.records || current.epoch >= 0) found.push(current);
          current = { epoch: b.epoch, mode: b.marker.value.mode, session: b.marker.value.session_id ?? "", from: b.base, records: 0, at: b.at, to: 0 };
        } else if (!b.control) current.records += b.next - b.base;
        current.to = b.next;
      }
    }
    if (!page.has_more) break;
    offset = page.position;
  }
  if (current.records || current.epoch >= 0) found.push(current);
  return found;
}
