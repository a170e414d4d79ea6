// @ts-check
// Which partitions a topic has, and where in their logs the page is: chips, and the ruler of one.
import { html, useAsked, useSignal, useEffect, useRef, Trouble } from "../ui.js";
import * as api from "../api.js";
import { grouped, visible } from "../format.js";

const CHIPS = 40; // a topic of more partitions shows them by so many
const SUBSCRIPTIONS = 12;
const FENCES = 20;
const LEVELS = 4; // lines of labels
const CHARACTER = 6.2; // its width in a label, about
/** @typedef {import("./log.js").Offsets} Offsets @typedef {import("./log.js").Shown} Shown */
/** @typedef {{kind: string, label: string, offset: number}} Mark */

/** First and last offset shown of each partition. @param {Shown[]} records @returns {Map<number, [number, number]>} */
export function viewed(records) {
  const view = new Map();
  for (const { partition, offset } of records) {
    const known = view.get(partition);
    view.set(partition, known ? [Math.min(known[0], offset), Math.max(known[1], offset)] : [offset, offset]);
  }
  return view;
}

/** Where an offset lies in a partition's log, in percent. @param {Offsets} p @param {number} offset */
const share = (p, offset) => Math.max(0, Math.min(100, (100 * (offset - p.log_start_offset)) / Math.max(1, p.next_offset - p.log_start_offset)));

/** @param {{parts: Offsets[], only: string|null, view: Map<number, [number, number]>, choose: (p: string|undefined) => void}} props */
export function Chips({ parts, only, view, choose }) {
  const chosen = new Set(only?.split(",") ?? []);
  const home = only === null ? 0 : Math.max(0, parts.findIndex((p) => chosen.has(String(p.partition))));
  const start = useSignal(0);
  useEffect(() => { start.value = Math.floor(home / CHIPS) * CHIPS; }, [home, parts.length]);
  if (parts.length < 2) return null;
  const some = parts.slice(start.value, start.value + CHIPS);
  const chip = (/** @type {Offsets} */ p) => {
    const range = view.get(p.partition), left = range ? Math.min(97, share(p, range[0])) : 0;
    return html`<button class="chip" key=${p.partition} aria-pressed=${chosen.has(String(p.partition))} onClick=${() => choose(only === String(p.partition) ? undefined : String(p.partition))}
      title=${`partition ${p.partition}: offsets ${grouped(p.log_start_offset)} to ${grouped(p.next_offset)}${range ? `; shown ${grouped(range[0])} to ${grouped(range[1])}` : ""}`}>
      <b>${p.partition}</b> <span>${grouped(p.next_offset - p.log_start_offset)}</span>
      <i class="bar">${range && html`<i style=${{ left: `${left}%`, width: `${Math.max(3, share(p, range[1]) - left)}%` }}></i>`}</i></button>`;
  };
  const turn = (/** @type {number} */ by) => html`<button class="button quiet" disabled=${start.value + by < 0 || start.value + by >= parts.length}
    onClick=${() => (start.value += by)}>${by < 0 ? "Previous" : "Next"} ${CHIPS}</button>`;
  return html`<div class=${`chips ${only === null ? "" : "some"}`} role="group" aria-label="Partitions">
    <button class="chip" aria-pressed=${only === null} onClick=${() => choose(undefined)}><b>All</b> <span>${grouped(parts.length)} partitions</span><i class="bar"></i></button>${some.map(chip)}
    ${parts.length > CHIPS && html`${turn(-CHIPS)}${turn(CHIPS)}<label class="muted">Partition <input class="input" type="number" min="0" max=${parts.length - 1} value=${only ?? ""}
      onChange=${(/** @type {any} */ e) => choose(e.target.value === "" ? undefined : e.target.value)} /></label>`}</div>`;
}

/** Marks of a partition: subscriptions, fences, and where what is stable or compacted ends. @param {string} name @param {Offsets} p @param {AbortSignal} signal */
async function marksOf(name, p, signal) {
  const path = `/topics/${api.part(name)}`;
  const [listed, fences] = await Promise.all([
    api.get(`${path}/subscriptions`, { limit: SUBSCRIPTIONS }, signal), api.get(`${path}/partitions/${p.partition}/markers`, { limit: FENCES }, signal)]);
  const each = await Promise.all(listed.subscriptions.map(async (/** @type {any} */ s) => {
    const found = await api.get(`${path}/subscriptions/${api.part(s.name)}`, { start_partition: p.partition, limit: 1 }, signal);
    return { kind: "subscription", label: s.name, offset: found.partitions[0]?.mark_delete_offset ?? 0 };
  }));
  const marks = [...each, ...fences.markers.map((/** @type {any} */ m) => ({ kind: "fence", label: `epoch ${m.topic_epoch}`, offset: m.offset }))];
  return { marks, isMore: listed.has_more || fences.has_more };
}

/** @param {{name: string, p: Offsets, view: [number, number]|undefined, jump: (offset: number) => void}} props */
export function Ruler({ name, p, view, jump }) {
  const asked = useAsked((s) => marksOf(name, p, s), [name, p.partition], 5000);
  /** @type {Mark[]} */
  const own = p.last_stable_offset < p.next_offset ? [{ kind: "stable", label: "stable to here", offset: p.last_stable_offset }] : [];
  if (p.compaction_horizon > p.log_start_offset) own.push({ kind: "compacted", label: "compacted to here", offset: p.compaction_horizon });
  const all = [...(asked.value?.marks ?? []), ...own].filter((m) => m.offset >= p.log_start_offset).sort((a, b) => a.offset - b.offset);
  const track = useRef(/** @type {HTMLElement|null} */ (null)), width = useSignal(900);
  useEffect(() => {
    const sized = new ResizeObserver(([entry]) => (width.value = Math.max(1, entry.contentRect.width)));
    sized.observe(/** @type {HTMLElement} */ (track.current));
    return () => sized.disconnect();
  }, []);
  const marks = placed(all, p, width.value);
  const go = (/** @type {any} */ e) => {
    const box = e.currentTarget.getBoundingClientRect();
    jump(Math.min(p.next_offset - 1, Math.floor(p.log_start_offset + ((e.clientX - box.left) / box.width) * (p.next_offset - p.log_start_offset))));
  };
  return html`<div class="ruler" style=${{ paddingTop: `${22 + 14 * Math.max(0, ...marks.map((m) => (m.level < LEVELS ? m.level : 0)))}px` }}>
    <div class="track" ref=${track} role="img" aria-label=${sentence(p, view, all, asked.value?.isMore)} onClick=${go}>
      ${view && html`<span class="view" style=${{ left: `${Math.min(99.5, share(p, view[0]))}%`, width: `${share(p, view[1]) - share(p, view[0])}%` }}></span>`}
      ${marks.map((m) => html`<span class=${`mark ${m.kind}`} style=${{ left: `${Math.min(99.7, m.at)}%`, top: `${m.level < LEVELS ? -1 - 14 * m.level : -1}px` }}
        title=${`${visible(m.label)}: ${grouped(m.offset)}`}>
        ${m.level < LEVELS && html`<em class=${m.side}>${visible(m.label)}</em>`}</span>`)}
    </div><div class="ends"><span>${grouped(p.log_start_offset)} log start</span>
      <span>${p.last_stable_offset < p.next_offset ? `stable to ${grouped(p.last_stable_offset)} · ` : ""}next ${grouped(p.next_offset)}</span></div>
    ${asked.error && html`<${Trouble} error=${asked.error} again=${asked.again} />`}</div>`;
}

/** The ruler in words. @param {Offsets} p @param {[number, number]|undefined} view @param {Mark[]} marks @param {boolean|undefined} isMore */
function sentence(p, view, marks, isMore) {
  const said = [`Partition ${p.partition}, from offset ${grouped(p.log_start_offset)} to ${grouped(p.next_offset)}`];
  if (view) said.push(`shown ${grouped(view[0])} to ${grouped(view[1])}`);
  for (const [kind, word] of [["subscription", "subscriptions"], ["fence", "fences"]]) {
    const some = marks.filter((m) => m.kind === kind);
    if (some.length) said.push(`${word}: ${some.map((m) => `${visible(m.label)} at ${grouped(m.offset)}`).join(", ")}${isMore ? ", and more" : ""}`);
  }
  for (const m of marks.filter((x) => x.kind === "stable" || x.kind === "compacted")) said.push(`${m.label}: ${grouped(m.offset)}`);
  return `${said.join("; ")}. To go to an offset, use Offset above.`;
}

/** Marks of one kind at one offset as one, whose label names the first two. @param {Mark[]} marks */
function joined(marks) {
  const groups = new Map();
  for (const m of marks) groups.set(`${m.kind} ${m.offset}`, [...(groups.get(`${m.kind} ${m.offset}`) ?? []), m]);
  return [...groups.values()].map((/** @type {Mark[]} */ some) => ({ ...some[0], label: some.slice(0, 2).map((m) => m.label).join(", ") + (some.length > 2 ? `, +${some.length - 2}` : "") }));
}

/** Where labels stand: one that would lie on its neighbour's goes above it, and is left out where all lines are taken. @param {Mark[]} marks by offset @param {Offsets} p @param {number} width */
export function placed(marks, p, width) {
  const ends = Array(LEVELS).fill(-1);
  return joined(marks).map((m) => {
    const at = share(p, m.offset), half = (50 * (m.label.length * CHARACTER + 8)) / width;
    const side = at < half ? "first" : at > 100 - half ? "last" : "";
    const start = side === "first" ? at : side === "last" ? at - 2 * half : at - half;
    const level = ends.findIndex((end) => start > end);
    if (level >= 0) ends[level] = start + 2 * half;
    return { ...m, at, side, level: level < 0 ? LEVELS : level };
  });
}
