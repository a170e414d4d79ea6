// @ts-check
// The history of access to a partition: a block for each epoch, and a post for each fence.
import { html, useSignal, useEffect, useRef, useRepeated, Link, Trouble, Nothing, Bone } from "../ui.js";
import * as api from "../api.js";
import { grouped, visible } from "../format.js";
import { called, second } from "./parts.js";

const AT_ONCE = 20;

/** @typedef {{offset: number, timestamp: number, topic_epoch: number, access_mode: string, session_id: string|null, client_name: string|null, producer_name: string|null, records: number}} Marker */

/** @typedef {{markers: Marker[], has_more: boolean, go_on_before?: number}} Seen */

/**
 * The markers of a partition, newest first. One marker is asked for every time; the others only when a new one has come.
 * @param {string} name @param {number} partition
 */
export function useMarkers(name, partition) {
  const seen = useSignal(/** @type {Seen|null} */ (null));
  const error = useSignal(/** @type {any} */ (null)), turn = useSignal(0);
  const path = `/topics/${api.part(name)}/partitions/${partition}/markers`;
  useRepeated(async (s) => {
    const old = seen.value, known = old?.markers[0]?.offset;
    const newest = await api.get(path, { limit: known === undefined ? AT_ONCE : 1 }, s);
    if (!old || known === undefined) { if (!old || newest.markers.length) seen.value = newest; return; }
    if (newest.markers[0]?.offset === known) { seen.value = { ...old, markers: [newest.markers[0], ...old.markers.slice(1)] }; return; }
    const page = await api.get(path, { limit: AT_ONCE }, s);
    const isJoined = page.markers.some((/** @type {Marker} */ m) => m.offset === known);
    const before = old.markers.filter((m) => m.offset < page.markers.at(-1)?.offset);
    seen.value = isJoined && before.length ? { ...old, markers: [...page.markers, ...before] } : page;
  }, api.about.value?.refresh_ms ?? 1000, [name, partition, turn.value], (e) => (error.value = e));
  const older = async () => {
    const old = seen.value;
    if (!old) return;
    try {
      const page = await api.get(path, { limit: AT_ONCE, before_offset: old.go_on_before });
      seen.value = { ...page, markers: [...old.markers, ...page.markers] };
    } catch (failed) { error.value = failed; }
  };
  return { markers: seen.value?.markers ?? null, hasMore: seen.value?.has_more ?? false, error: error.value, older, again: () => (turn.value += 1) };
}

/** @param {{history: ReturnType<typeof useMarkers>, name: string, entry: any}} props */
export function Timeline({ history, name, entry }) {
  const strip = useRef(/** @type {any} */ (null));
  const newest = history.markers?.[0]?.offset;
  useEffect(() => { if (strip.current) strip.current.scrollLeft = strip.current.scrollWidth; }, [newest]);
  if (history.error && !history.markers) return html`<div class="pad"><${Trouble} error=${history.error} again=${history.again} /></div>`;
  if (!history.markers) return html`<div class="strip loading bare"><${Bone} w=${320} /></div>`;
  if (!history.markers.length && history.hasMore) return html`<${Nothing} title="No fence in the newest part of the log">
    <button type="button" class="button" onClick=${history.older}>Look further back</button><//>`;
  if (!history.markers.length) return html`<${Nothing} title="No fence in the log yet">
    Every producer of this topic may write. One that claims it for itself puts the first fence.<pre>fenceline producers claim ${visible(name)}</pre><//>`;
  const eldest = history.markers.length - 1;
  return html`${history.error && html`<div class="pad"><${Trouble} error=${history.error} again=${history.again} /></div>`}
    <div class="strip" ref=${strip} tabindex="0" role="region" aria-label=${`Epochs of partition ${entry.partition}, oldest first`}>
      ${history.hasMore && html`<button type="button" class="button older" onClick=${history.older}>Older</button>`}
      <ol>${!history.hasMore && history.markers[eldest].offset > 0 && html`<${Before} name=${name} entry=${entry} first=${history.markers[eldest]} />`}
      ${history.markers.map((m, i) => html`<${Block} key=${m.offset} marker=${m} next=${history.markers?.[i - 1] ?? null} name=${name} entry=${entry} />`).reverse()}</ol></div>
    <p class="caption">Each post is a marker in the log. Whatever an earlier epoch still sends after it never lands.</p>`;
}

/** What lies before the first marker that the log still has. @param {{name: string, entry: any, first: Marker}} props */
const Before = ({ name, entry, first }) => html`<li><${Link} to=${`topics/${api.part(name)}`} query=${{ p: entry.partition, from: "oldest" }} class="epoch">
  <strong>before</strong><span class="who">${first.topic_epoch > 0 ? "earlier epochs" : "anyone"}</span><span class="faint">up to offset ${grouped(first.offset - 1)}</span>
  ${first.topic_epoch > 0 ? html`<span class="faint">markers not kept</span>` : null}<//></li>`;

/** One epoch: who, how many records, from where, since when, and who fenced it. @param {{marker: Marker, next: Marker|null, name: string, entry: any}} props */
function Block({ marker, next, name, entry }) {
  const now = api.serviceNow();
  const isHeld = marker.access_mode === "Exclusive";
  const isFree = isHeld && !next && !entry.holder;
  const who = isHeld ? called(marker) : "anyone";
  return html`<li style=${{ flexGrow: 1 + Math.log10(1 + marker.records) }}>
    <${Link} to=${`topics/${api.part(name)}`} query=${{ p: entry.partition, from: marker.offset }} class=${`epoch ${isHeld ? "held" : ""} ${next ? "" : isFree ? "ended" : "now"}`}>
    <span class="post" aria-hidden="true"></span><strong>epoch ${grouped(marker.topic_epoch)}${next || isFree ? null : html`<em>now</em>`}</strong>
    <span class="who" title=${who}>${who}</span>
    <span class="faint">${grouped(marker.records)} ${marker.records === 1 ? "record" : "records"}</span>
    <span class="faint">from offset ${grouped(marker.offset)}</span>
    <span class="faint">since ${second(marker.timestamp, now)}</span>
    ${next ? html`<span class="faint">until ${second(next.timestamp, now)}</span><span class="faint by" title=${next.access_mode === "Exclusive" ? called(next) : ""}>
      ${next.access_mode === "Exclusive" ? `fenced by ${called(next)}` : "then shared again"}</span>`
      : isFree ? html`<span class="muted">ended: nobody now</span>` : null}<//></li>`;
}
