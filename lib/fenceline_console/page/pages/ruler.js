// @ts-check
// Which partitions a topic has, and where in their logs the page is: chips, and the ruler of one.
import { html, useAsked, useSignal, useEffect, Trouble } from "../ui.js";
import * as api from "../api.js";
import { grouped, visible } from "../format.js";

const CHIPS = 40; // a topic of more partitions shows them by so many
const SUBSCRIPTIONS = 12;
const FENCES = 20;
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
    <button class="chip" aria-pressed=${only === null} onClick=${() => choose(undefined)}><b>All</b> <span>${grouped(parts.length)}</span><i class="bar"></i></button>${some.map(chip)}
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
  const marks = placed([...(asked.value?.marks ?? []), ...own], p);
  const go = (/** @type {any} */ e) => {
    const box = e.currentTarget.getBoundingClientRect();
    jump(Math.min(p.next_offset - 1, Math.floor(p.log_start_offset + ((e.clientX - box.left) / box.width) * (p.next_offset - p.log_start_offset))));
  };
  return html`<div class=${`ruler ${marks.some((m) => m.level === 1) ? "two" : ""}`}><div class="track" role="img" aria-label=${sentence(p, view, marks, asked.value?.isMore)} onClick=${go}>
      ${view && html`<span class="view" style=${{ left: `${Math.min(99.5, share(p, view[0]))}%`, width: `${share(p, view[1]) - share(p, view[0])}%` }}></span>`}
      ${marks.map((m) => html`<span class=${`mark ${m.kind} ${m.level === 1 ? "high" : ""}`} style=${{ left: `${Math.min(99.7, m.at)}%` }} title=${`${visible(m.label)}: ${grouped(m.offset)}`}>
        ${m.level < 2 && html`<em class=${m.at < 4 ? "first" : m.at > 96 ? "last" : ""}>${visible(m.label)}</em>`}</span>`)}
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

/** Marks by offset; a label that would lie on its neighbour's goes above it, and is left out where that is taken, too. @param {Mark[]} marks @param {Offsets} p */
function placed(marks, p) {
  const ends = [-1, -1];
  return marks.filter((m) => m.offset >= p.log_start_offset).sort((a, b) => a.offset - b.offset).map((m) => {
    const at = share(p, m.offset), half = Math.max(3, m.label.length * 0.32);
    const level = ends.findIndex((end) => at - half > end);
    if (level >= 0) ends[level] = at + half;
    return { ...m, at, level: level < 0 ? 2 : level };
  });
}
