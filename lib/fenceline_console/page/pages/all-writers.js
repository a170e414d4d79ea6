// @ts-check
// All topics with a partition that is exclusive, and who holds it; locks; and what each process holds.
import { html, useSignal, useRepeated, Link, Search, Pager, Trouble, Nothing, Bones, address, go } from "../ui.js";
import * as api from "../api.js";
import { grouped, visible } from "../format.js";
import { ranges } from "../ranges.js";
import { Locks, Sessions } from "./locks.js";
import { Rest, called, left, second, useWalk } from "./parts.js";

const PAGE = 50;
const PARTITIONS = 100; // of a topic that are looked at here

/** @typedef {{topic: string, of: number, isCut: boolean, holder: any, partitions: number[], waiting: number}} Row */

export function AllWriters() {
  const at = address.value.searchParams;
  const wanted = at.get("q") ?? "", start = Math.max(0, Number(at.get("from")) || 0);
  const every = api.about.value?.refresh_ms ?? 1000;
  const walk = useWalk("/topics", "topics", { totals: true, limit: PAGE }, 5 * every);
  // A topic of more than 1,000 partitions has no totals: whether it is exclusive is seen by a look at it.
  const topics = walk.list?.filter((t) => t.totals?.exclusive_partitions !== 0 && t.name.toLowerCase().includes(wanted.toLowerCase())) ?? null;
  const shown = topics?.slice(start, start + PAGE) ?? [];
  const names = shown.map((t) => t.name).join("/");
  const seen = useSignal(/** @type {Record<string, any>} */ ({})), error = useSignal(/** @type {any} */ (null));
  useRepeated(async (s) => {
    const found = await Promise.all(shown.map((t) => api.get(`/topics/${api.part(t.name)}/access`, { limit: PARTITIONS }, s)));
    seen.value = Object.fromEntries(shown.map((t, i) => [`topic ${t.name}`, found[i]]));
  }, every, [names], (e) => (error.value = e));
  const rows = shown.flatMap((t) => rowsOf(t, seen.value[`topic ${t.name}`]));
  const query = { q: wanted || undefined };
  return html`<div class="head"><h1>Who may write</h1><span class="spacer"></span>
      <${Search} label="Filter by topic" placeholder="Filter by topic" value=${wanted} onInput=${(/** @type {string} */ q) => go("writers", { q }, true)} /></div>
    <${Trouble} error=${walk.error} again=${walk.again} /><${Trouble} error=${error.value} />
    <section class="sheet" aria-label="Topics that are exclusive" tabindex="0"><table class="writers">
      <colgroup><col style=${{ width: "24%" }} /><col style=${{ width: "16%" }} /><col /><col style=${{ width: "96px" }} /><col class="wide" style=${{ width: "84px" }} />
        <col class="wide" style=${{ width: "180px" }} /></colgroup>
      <thead><tr><th scope="col">Topic</th><th scope="col">Partitions</th><th scope="col">Holder</th><th scope="col" class="number">Lease</th><th scope="col" class="number wide">Waiting</th>
        <th scope="col" class="wide">Since</th></tr></thead>
      <tbody>${topics === null ? html`<${Bones} widths=${[120, 60, 140, 40, 20, 80]} />` : rows.map((r) => html`<${WriterRow} key=${`${r.topic} ${r.partitions[0]}`} row=${r} />`)}</tbody></table>
      ${topics?.length === 0 && html`<${Nothing} title=${wanted ? `No exclusive topic has “${visible(wanted)}” in its name` : "No topic is exclusive"}>
        Every producer may write to every topic. One that claims a topic for itself is shown here.
        <pre>fenceline producers claim orders</pre><//>`}
      ${topics && topics.length > PAGE && html`<${Pager} label="Pages of topics" to="writers" said=${`${grouped(start + 1)} to ${grouped(start + shown.length)} of ${grouped(topics.length)} topics`}
        before=${start > 0 ? { ...query, from: start > PAGE ? start - PAGE : undefined } : null} after=${start + PAGE < topics.length ? { ...query, from: start + PAGE } : null} />`}</section>
    <${Rest} walk=${walk} what="topics" />
    <${Locks} every=${every} /><${Sessions} every=${every} />`;
}

/** The holders of a topic, each with its partitions; partitions that are exclusive and free are one row. @param {any} topic @param {any} access @returns {Row[]} */
function rowsOf(topic, access) {
  if (!access) return [{ topic: topic.name, of: topic.partitions, isCut: false, holder: undefined, partitions: [], waiting: 0 }];
  /** @type {Map<string, Row>} */
  const rows = new Map();
  for (const p of access.partitions) {
    if (p.access_mode !== "Exclusive") continue;
    const id = p.holder?.session_id ?? "";
    /** @type {Row} */
    const row = rows.get(id) ?? { topic: topic.name, of: topic.partitions, isCut: access.has_more, holder: p.holder, partitions: [], waiting: 0 };
    row.partitions.push(p.partition);
    row.waiting = Math.max(row.waiting, p.waiting);
    rows.set(id, row);
  }
  return [...rows.values()].slice(0, PAGE);
}

/** @param {{row: Row}} props */
function WriterRow({ row }) {
  const now = api.serviceNow(), { holder } = row;
  const what = !row.partitions.length ? "" : row.partitions.length === row.of ? (row.of === 1 ? "0" : `all ${grouped(row.of)}`) : ranges(row.partitions);
  return html`<tr><td><${Link} to=${`topics/${api.part(row.topic)}/writers`} title=${visible(row.topic)}>${visible(row.topic)}<//></td>
    <td class="muted" title=${what}>${what || "…"}${row.isCut ? html` <span class="faint">of the first ${PARTITIONS}</span>` : null}</td>
    <td>${holder === undefined ? "…" : holder ? html`<span class="tag exclusive wide">exclusive</span> <b title=${called(holder)}>
      ${called(holder)}</b>` : html`<span class="tag">exclusive, nobody now</span>`}</td>
    <td class="number">${holder ? left(holder.expires_at, now) : ""}</td><td class="number wide">${row.waiting || html`<span class="faint">none</span>`}</td>
    <td class="wide muted">${holder?.since ? second(holder.since, now) : ""}</td></tr>`;
}
