// @ts-check
// One subscription of a topic: its marks, what is acknowledged out of order, and its group's members.
import { html, useAsked, Link, Trouble, Bones, address } from "../ui.js";
import * as api from "../api.js";
import { grouped, ago, visible } from "../format.js";
import { NumberedPager, called } from "./parts.js";
import { Members, named } from "./group.js";

const PAGE = 50;
const TICKS = 240; // parts of a strip

/** @typedef {{partition: number, mark_delete_offset: number, individually_acknowledged: [number, number][], backlog: number, oldest_unread_at: number|null, has_more?: boolean}} Cursor */

/** @param {{topic: string, name: string}} props */
export function Subscription({ topic, name }) {
  const start = Math.max(0, Number(address.value.searchParams.get("from")) || 0);
  const every = api.about.value?.refresh_ms ?? 1000, path = `/topics/${api.part(topic)}`, here = `topics/${api.part(topic)}/subscriptions/${api.part(name)}`;
  const marks = useAsked((s) => cursors(`${path}/subscriptions/${api.part(name)}`, start, s), [topic, name, start], 2 * every);
  const ends = useAsked((s) => byPartition(`${path}/offsets`, start, s), [topic, start], 2 * every);
  const access = useAsked((s) => byPartition(`${path}/access`, start, s), [topic, start], 5 * every);
  // What this lacks is in the section of members, with its trouble.
  const members = useAsked(async (s) => ({ by: (await named(name, s)) ? await holders(name, topic, s) : null }), [name, topic], 5 * every);
  const one = marks.value, parts = one?.partitions ?? [];
  const owner = (/** @type {number} */ p) => {
    const found = access.value?.get(p)?.group_owners.find((/** @type {any} */ o) => o.group === name);
    return found ? called(found) : members.value?.by?.get(p);
  };
  const behind = parts.reduce((/** @type {number} */ n, /** @type {Cursor} */ p) => n + p.backlog, 0), isAll = start === 0 && one && !one.has_more;
  return html`<div class="head"><h2 class="named" title=${visible(name)}>${visible(name)}</h2>
      ${isAll && html`<span class="muted number">${behind ? `${grouped(behind)} behind` : "caught up"}</span>`}
      ${one && html`<span class="tag">${one.replicate_subscription_state ? "replicated" : "not replicated"}</span>`}
      ${one?.active_region && html`<span class="tag">active in ${visible(one.active_region)}</span>`}<span class="spacer"></span>
      <${Link} to=${members.value?.by ? `subscriptions/${api.part(name)}` : "subscriptions"} query=${members.value?.by ? {} : { q: name }} class="button">On all topics<//>
      <${Link} to=${`${here}/seek`} class="button">Seek<//></div>
    <${Trouble} error=${marks.error} again=${marks.again} /><${Trouble} error=${ends.error} again=${ends.again} /><${Trouble} error=${access.error} again=${access.again} />
    <section class="sheet" aria-label="Partitions" tabindex="0"><table class="marks">
      <colgroup><col style=${{ width: "40px" }} /><col style=${{ width: "104px" }} /><col style=${{ width: "84px" }} /><col style=${{ width: "118px" }} class="wide" /><col class="wide" />
        <col class="wide" style=${{ width: "18%" }} /><col style=${{ width: "104px" }} /></colgroup>
      <thead><tr><th scope="col" class="number">P</th><th scope="col" class="number">Mark</th><th scope="col" class="number">Behind</th><th scope="col" class="wide">Oldest unread</th>
        <th scope="col" class="wide">Acknowledged after the mark</th><th scope="col" class="wide">Owner or member</th><th scope="col"><span class="visually-hidden">Messages</span></th></tr></thead>
      <tbody>${!one ? html`<${Bones} widths=${[16, 60, 50, 60, 160, 80, 60]} />` : parts.map((/** @type {Cursor} */ p) => html`<tr key=${p.partition}><td class="number">${p.partition}</td>
        <td class="number">${grouped(p.mark_delete_offset)}</td>
        <td class="number">${p.backlog ? html`<b>${grouped(p.backlog)}</b>` : html`<span class="faint">0</span>`}</td><td class="wide muted">
          ${isOpen(p, ends.value?.get(p.partition)) ? "not readable yet" : p.oldest_unread_at ? ago(p.oldest_unread_at, api.serviceNow()) : "caught up"}</td>
        <td class="wide"><${Acknowledged} cursor=${p} end=${ends.value?.get(p.partition)?.next_offset} /></td>
        <td class="wide">${owner(p.partition) ? html`<span title=${owner(p.partition)}>${owner(p.partition)}</span>` : html`<span class="faint">
          ${access.value && (members.value || members.error) ? "none" : "…"}</span>`}</td>
        <td><${Link} to=${`topics/${api.part(topic)}`} query=${{ p: p.partition, from: p.mark_delete_offset }} class="under"
           aria-label=${`Read here: partition ${p.partition} from ${p.mark_delete_offset}`}>Read here<//></td></tr>`)}</tbody></table>
      <${NumberedPager} start=${start} size=${PAGE} count=${parts.length} hasMore=${one?.has_more} what="partitions" to=${here} /></section>
    <section class="part" aria-labelledby="members"><h2 id="members">Members of the group</h2><${Members} group=${name} topic=${topic} /></section>`;
}

/** Whether all that is behind is of transactions that are open: readers of committed records do not see it yet. @param {Cursor} p @param {any} bounds */
const isOpen = (p, bounds) => p.backlog > 0 && bounds !== undefined && p.mark_delete_offset >= bounds.last_stable_offset;

/** The member that reads each partition of a topic. @param {string} group @param {string} topic @param {AbortSignal} signal @returns {Promise<Map<number, string>>} */
async function holders(group, topic, signal) {
  const all = await api.all(`/groups/${api.part(group)}`, "members", (m) => ({ start_after: m.member_id }), { query: { limit: 1000 }, signal });
  return new Map(all.flatMap((m) => m.partitions.filter((/** @type {any} */ h) => h.topic === topic)
    .flatMap((/** @type {any} */ h) => h.partitions.map((/** @type {any} */ p) => [p.partition, visible(m.client_name ?? m.instance_id ?? m.member_id)]))));
}

/** @param {string} path @param {number} start @param {AbortSignal} signal */
async function byPartition(path, start, signal) {
  const page = await api.get(path, { start_partition: start, limit: PAGE }, signal);
  return new Map(page.partitions.map((/** @type {any} */ p) => [p.partition, p]));
}

/**
 * A page of a subscription's partitions. A partition whose acknowledgements fill an answer ends it, so what is left is asked for.
 * @param {string} path @param {number} start @param {AbortSignal} signal
 */
async function cursors(path, start, signal) {
  /** @type {Cursor[]} */
  const partitions = [];
  for (;;) {
    const page = await api.get(path, { start_partition: start + partitions.length, limit: PAGE - partitions.length }, signal);
    partitions.push(...page.partitions);
    if (!page.has_more || !page.partitions.length || partitions.length >= PAGE) return { ...page, partitions };
  }
}

/** What lies acknowledged between the mark and the end, as a strip. @param {{cursor: Cursor, end?: number}} props */
function Acknowledged({ cursor, end }) {
  const ranges = cursor.individually_acknowledged, mark = cursor.mark_delete_offset;
  if (!ranges.length) return html`<span class="faint">none</span>`;
  const last = Math.max(end ?? 0, ranges.at(-1)?.[1] ?? 0), scale = TICKS / Math.max(1, last - mark);
  const count = ranges.reduce((n, [a, b]) => n + b - a, 0);
  const ticks = new Set(ranges.flatMap(([a, b]) => {
    const from = Math.floor((a - mark) * scale), to = Math.max(from + 1, Math.ceil((b - mark) * scale));
    return Array.from({ length: Math.min(TICKS, to) - from }, (_, i) => from + i);
  }));
  const said = `${grouped(count)}${cursor.has_more ? " and more" : ""} in ${grouped(ranges.length)} ${ranges.length === 1 ? "range" : "ranges"}`;
  return html`<span class="acknowledged"><svg viewBox=${`0 0 ${TICKS} 8`} preserveAspectRatio="none" role="img"
     aria-label=${`from ${grouped(ranges[0][0])} to ${grouped((ranges.at(-1)?.[1] ?? 1) - 1)}, of ${grouped(mark)} to ${grouped(last)}`}>
    <rect class="whole" width=${TICKS} height="8" />${[...ticks].map((x) => html`<rect x=${x} width="1.2" height="8" />`)}</svg><span class="muted number">${said}</span></span>`;
}
