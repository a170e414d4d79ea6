// @ts-check
// A topic's partitions: where each log starts and ends, what readers wait for, how much is kept. Of one of them, its segments.
import { html, useAsked, address, Link, Trouble, Bones, Columns, Pager, Nothing } from "../ui.js";
import * as api from "../api.js";
import { grouped, bytes, ago, iso, visible } from "../format.js";
import { SegmentList } from "./segments.js";

const EVERY_MS = 4000;
const SHOWN = 50;
const WIDTHS = [24, 50, 60, 60, 60, 50, 60, 70, 30];
/** @type {[string, string, string?][]} */
const COLUMNS = [["Partition", "84px"], ["Log start", "9%", "number wide"], ["Next", "9%", "number"], ["Committed reads", ""], ["Records", "9%", "number wide"], ["Stored", "8%", "number wide"],
  ["Last append", "9%", "wide"], ["Who may write", "15%", "wide"], ["Compacted to", "114px", "number wide"]];

/** A whole number of the address, or what stands for a missing one. @param {string|null} text @param {number} otherwise */
const whole = (text, otherwise) => (text !== null && /^\d{1,15}$/.test(text) ? Number(text) : otherwise);

/** @param {{name: string}} props */
export function Partitions({ name }) {
  const at = address.value.searchParams;
  const chosen = whole(at.get("p"), -1);
  const from = whole(at.get("from"), chosen < 0 ? 0 : chosen - (chosen % SHOWN));
  const place = `topics/${api.part(name)}/partitions`;
  const topic = useAsked((s) => api.get(`/topics/${api.part(name)}`, {}, s), [name]);
  const found = useAsked((s) => api.get(`/topics/${api.part(name)}/offsets`, { start_partition: from, limit: SHOWN, counts: true }, s), [name, from], EVERY_MS);
  const parts = /** @type {any[]|null} */ (found.value?.partitions ?? null);
  const held = (parts ?? []).filter((p) => p.last_stable_offset < p.next_offset).map((p) => p.partition);
  const holders = useAsked((s) => held.length ? api.openTransactions(name, held[0], held[held.length - 1] + 1, s) : Promise.resolve([]), [name, held.join()], EVERY_MS);
  const now = api.serviceNow();
  const count = topic.value?.partitions ?? null;
  const last = parts?.at(-1)?.partition ?? from;
  return html`<${Trouble} error=${found.error} again=${found.again} />
    ${!found.error && html`<${Trouble} error=${topic.error ?? holders.error} again=${topic.error ? topic.again : holders.again} />`}
    <section class="sheet" aria-label="Partitions"><table class="parts">
      <${Columns} of=${COLUMNS} />
      <tbody>${parts === null ? html`<${Bones} widths=${WIDTHS} isLate=${found.isLate} />` : parts.map((p) => html`<tr key=${p.partition} class=${p.partition === chosen ? "chosen" : ""}>
        <td><${Link} to=${place} query=${{ p: p.partition, from: from || undefined }} stays class="open" aria-current=${p.partition === chosen ? "true" : undefined}
          aria-label=${`${p.partition}, show its segments`}>${p.partition}<//></td>
        <td class="number wide muted">${grouped(p.log_start_offset)}</td><td class="number">${grouped(p.next_offset)}</td>
        <td class="wrapped"><${Stable} p=${p} name=${name} holders=${holders.value} /></td>
        <td class="number wide">${p.records === undefined ? "…" : grouped(p.records)}</td><td class="number wide muted">${p.bytes === undefined ? "…" : bytes(p.bytes)}</td>
        ${p.last_append_at === undefined ? html`<td class="wide faint">nothing kept</td>` : html`<td class="wide muted" title=${iso(p.last_append_at)}>${ago(p.last_append_at, now)}</td>`}
        <td class="wide"><${Link} to=${`topics/${api.part(name)}/writers`} class=${p.access_mode === "Exclusive" ? "tag exclusive" : "muted"}>${access(p)}<//></td>
        <td class="number wide muted">${p.compaction_horizon ? grouped(p.compaction_horizon) : html`<span class="faint">never</span>`}</td></tr>`)}</tbody></table>
      ${parts?.length === 0 && html`<${Nothing} title="No partition has this number"><${Link} to=${place} class="button">Show the first partitions<//><//>`}
      ${parts !== null && parts.length > 0 && html`<${Pager} label="Pages of partitions" to=${place} said=${`${range(from, last, count)}${choice(chosen)}`}
        before=${from > 0 ? { p: at.get("p"), from: Math.max(0, from - SHOWN) || "0" } : null} after=${found.value?.has_more ? { p: at.get("p"), from: last + 1 } : null} />`}</section>
    ${chosen >= 0 && html`<${SegmentList} key=${chosen} name=${name} partition=${chosen} />`}`;
}

const access = (/** @type {any} */ p) => `${p.access_mode === "Exclusive" ? "exclusive" : "anyone"}${p.topic_epoch >= 0 ? ` · epoch ${p.topic_epoch}` : ""}`;
/** @param {number} from @param {number} last @param {number|null} count */
const range = (from, last, count) => (count !== null && count <= SHOWN ? "" : `${grouped(from)} to ${grouped(last)}${count === null ? "" : `, of ${grouped(count)} partitions`}. `);
const choice = (/** @type {number} */ chosen) => (chosen < 0 ? "Choose a partition to see and check its segments." : `Partition ${chosen} is below.`);

/** Where readers of committed records are held, and by which transaction. @param {{p: any, name: string, holders: any[]|null}} props */
function Stable({ p, name, holders }) {
  if (p.last_stable_offset === p.next_offset) return html`<span class="faint">to the end</span>`;
  const first = holders?.find((h) => h.partition === p.partition);
  const who = first ? visible(first.transactional_id ?? `producer ${first.producer_id}`) : "…";
  return html`<span class="waits">wait at${" "}
      <${Link} to=${`topics/${api.part(name)}`} query=${{ p: p.partition, from: p.last_stable_offset, all: 1 }} class="number">${grouped(p.last_stable_offset)}<//></span>
    <${Link} to="transactions" class="holder-id" title=${who}>${first?.is_hanging ? "hanging: " : "for "}<b class="mono">${who}</b><//>`;
}
