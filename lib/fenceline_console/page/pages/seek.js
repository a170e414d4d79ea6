// @ts-check
// Seek: where a subscription would go, what it would skip and repeat, and then the move itself.
import { html, useSignal, useEffect, useAsked, Link, Pager, Segments, Question, Trouble, address, go } from "../ui.js";
import * as api from "../api.js";
import { grouped, visible } from "../format.js";
import { numbers } from "../ranges.js";
import { named } from "./group.js";
import { TimeField, anHourAgo, local, utc } from "./time-field.js";

const PAGE = 50;
const AT_ONCE = 24; // previews that are asked for together
const PAUSE_MS = 250; // after a key, before the preview is asked for
/** @type {[string, string][]} */
const PLACES = [["earliest", "Earliest"], ["latest", "Latest"], ["offset", "Offset"], ["time", "Time"], ["shift", "By −n or +n"]];

/** @typedef {{partition: number, from: number, to: number, skipped: number, repeated: number, error?: any, result?: string}} Move */
/** @typedef {{to: string, n: number|null, only: string}} Wanted */

/** @param {{topic: string, name: string}} props */
export function Seek({ topic, name }) {
  const at = address.value.searchParams, here = `topics/${api.part(topic)}/subscriptions/${api.part(name)}`;
  const to = at.get("to") ?? "", only = at.get("p") ?? "", given = at.get("n");
  const n = given !== null && /^-?\d{1,16}$/.test(given) ? Number(given) : null;
  const place = (/** @type {Record<string, any>} */ change) => go(`${here}/seek`, { ...Object.fromEntries(at), from: undefined, ...change }, true);
  const preview = usePreview(topic, name, { to, n, only });
  const members = useAsked((s) => named(name, s), [name]);
  const asks = useSignal(false), report = useSignal(/** @type {{error: any, at: number|null, moved: number}|null} */ (null));
  useEffect(() => { report.value = null; }, [to, n, only, preview.turn]);
  const moves = preview.moves ?? [], able = moves.filter((m) => !m.error && m.from !== m.to);
  const skipped = able.reduce((sum, m) => sum + m.skipped, 0), repeated = able.reduce((sum, m) => sum + m.repeated, 0);
  const action = said(skipped, repeated, able.length), isReady = preview.isWhole && able.length > 0 && !report.value;
  const run = async () => { report.value = await carryOut(topic, name, able, () => preview.touch()); };
  return html`<div class="head"><h2 class="named">Seek <${Link} to=${here} class="under">${visible(name)}<//></h2></div>
    <form class="sheet seek" onSubmit=${(/** @type {Event} */ e) => e.preventDefault()}>
      <div class="field"><span>To</span><${Segments} label="To" options=${PLACES} chosen=${to}
         choose=${(/** @type {string} */ k) => place({ to: k, n: k === "time" ? anHourAgo(api.serviceNow()) : undefined })} /></div>
      ${to === "offset" && html`<label class="field">Offset<input class="input number" inputmode="numeric" value=${given ?? ""} autocomplete="off"
         onInput=${(/** @type {any} */ e) => place({ n: e.target.value.trim() })} /></label>`}
      ${to === "shift" && html`<label class="field">Offsets, as −100 or +20<input class="input number" value=${given ?? ""} autocomplete="off"
         onInput=${(/** @type {any} */ e) => place({ n: e.target.value.trim().replace("−", "-").replace("+", "") })} /></label>`}
      ${to === "time" && html`<${TimeField} ms=${n ?? NaN} now=${api.serviceNow} choose=${(/** @type {number} */ ms) => place({ n: Number.isNaN(ms) ? undefined : ms })} />`}
      <label class="field">Partitions<input class="input" value=${only} placeholder="all, or 0, 3-7" autocomplete="off" spellcheck=${false}
         onInput=${(/** @type {any} */ e) => place({ p: e.target.value.trim() })} /></label></form>
    ${members.value?.member_count > 0 && html`<p class="sheet pad"
       role="note">The group has ${members.value.member_count === 1 ? "a member" : `${grouped(members.value.member_count)} members`} now, so the service refuses a seek. <${Link} to=${here}
       class="under">Stop ${members.value.member_count === 1 ? "it" : "them"}<//> first.</p>`}
    <${Trouble} error=${members.error} again=${members.again} /><${Trouble} error=${preview.error} again=${preview.again} />
    ${preview.hint && html`<p class="muted facts" role="status">${preview.hint}</p>`}
    ${preview.moves && html`<${Preview} moves=${moves} start=${Math.max(0, Number(at.get("from")) || 0)} to=${`${here}/seek`} query=${Object.fromEntries(at)} />
      <div class="head"><span class="muted number" role="status">${report.value ? ""
        : preview.isWhole ? summary(moves, able.length) : `Looked at ${grouped(moves.length)} of ${grouped(preview.count)} partitions`}</span><span class="spacer"></span>
        <button type="button" class="button" onClick=${preview.again}>Refresh the preview</button>
        ${api.canWrite() && html`<button type="button" class="button main" disabled=${!isReady} onClick=${() => (asks.value = true)}>${action}</button>`}</div>
      ${!api.canWrite() && isReady && html`<div class="part"><span class="muted">${action}: this console only looks. Run</span><pre class="sheet pad command" tabindex="0">
        ${commands(topic, name, { to, n, only }, able).join("\n")}</pre></div>`}`}
    ${report.value && html`<${Report} report=${report.value} able=${able} />`}
    ${asks.value && html`<${Question} title=${`Seek ${visible(name)}`} action=${action} name=${skipped ? name : undefined} isBad=${skipped > 0} close=${() => (asks.value = false)} run=${run}>
      ${to === "time" && html`<p>To the first record of <b class="number">${local(Number(n)).replace("T", " ")}</b> (${utc(Number(n))}) or later.</p>`}
      <p>${able.length === 1 ? "One partition" : `${grouped(able.length)} partitions`} of ${visible(topic)}. ${
        skipped ? `${counted(skipped)} will no longer be delivered. ` : ""}${
        repeated ? `${counted(repeated)} will be delivered again. ` : ""}What was acknowledged out of order is forgotten.</p><//>`}`;
}

const counted = (/** @type {number} */ n) => `${grouped(n)} ${n === 1 ? "record" : "records"}`;

/** What a seek does, as its button says it. @param {number} skipped @param {number} repeated @param {number} moves */
function said(skipped, repeated, moves) {
  if (skipped && repeated) return `Skip ${grouped(skipped)} and repeat ${counted(repeated)}`;
  if (skipped) return `Skip ${counted(skipped)}`;
  return repeated ? `Repeat ${counted(repeated)}` : moves ? "Move past no record" : "Nothing to move";
}

/** @param {Move[]} moves @param {number} able */
function summary(moves, able) {
  const refused = moves.filter((m) => m.error).length, stay = moves.length - able - refused;
  return [`${grouped(able)} of ${grouped(moves.length)} partitions would move`, stay ? `${grouped(stay)} ${stay === 1 ? "is" : "are"} there already` : "",
    refused ? `${grouped(refused)} refuse this place and stay where they are` : ""].filter(Boolean).join("; ");
}

/** What is still to be given; null where the place is whole. @param {string} to @param {number|null} n */
function missing(to, n) {
  if (!PLACES.some(([place]) => place === to)) return "Choose a place. What would be skipped and repeated is shown before anything is done.";
  if (to === "earliest" || to === "latest") return null;
  if (n === null) return to === "time" ? "Choose a day and a time, with its seconds." : "Give a whole number.";
  if (to === "time" && utc(n) === "no time") return "Choose a time before the year 9900.";
  return to === "offset" && n < 0 ? "An offset is 0 or more." : null;
}

/**
 * What the chosen seek would do, partition by partition. Nothing is asked for before a place is whole.
 * @param {string} topic @param {string} name @param {Wanted} wanted
 */
function usePreview(topic, name, { to, n, only }) {
  const moves = useSignal(/** @type {Move[]|null} */ (null)), count = useSignal(0), error = useSignal(/** @type {any} */ (null)), turn = useSignal(0);
  const chosen = only === "" ? [] : numbers(only);
  const hint = chosen === null ? "Partitions are numbers and ranges: 0, 3-7." : missing(to, n);
  useEffect(() => {
    moves.value = null; count.value = 0; error.value = null;
    if (hint) return;
    const stop = new AbortController(), { signal } = stop;
    const timer = setTimeout(() => look(signal).catch((failed) => { if (!signal.aborted) error.value = failed; }), n === null && !only ? 0 : PAUSE_MS);
    return () => { stop.abort(); clearTimeout(timer); };
  }, [topic, name, to, n, only, turn.value]);
  const look = async (/** @type {AbortSignal} */ signal) => {
    const path = `/topics/${api.part(topic)}/subscriptions/${api.part(name)}`;
    const bounds = (await api.offsets(topic, signal)).filter((b) => !chosen?.length || chosen.includes(b.partition));
    const marks = to === "shift" ? new Map((await api.all(path, "partitions", (p) => ({ start_partition: p.partition + 1 }), { signal })).map((p) => [p.partition, p.mark_delete_offset])) : new Map();
    count.value = bounds.length;
    if (!bounds.length) throw new api.Problem(404, { code: "UNKNOWN_TOPIC_OR_PARTITION", detail: "the topic has none of these partitions" });
    /** @type {Move[]} */
    const found = [];
    for (let i = 0; i < bounds.length; i += AT_ONCE) {
      const some = bounds.slice(i, i + AT_ONCE);
      const place = (/** @type {any} */ b) => (to === "time" ? { timestamp: n } : { offset: offsetOf(to, Number(n), b, marks.get(b.partition)) });
      found.push(...await Promise.all(some.map((b) => moveOf(path, b, place(b), signal))));
      moves.value = [...found];
    }
  };
  const isWhole = moves.value !== null && moves.value.length === count.value;
  return { moves: moves.value, count: count.value, isWhole, error: error.value, hint, turn: turn.value, again: () => (turn.value += 1), touch: () => { moves.value = [...(moves.value ?? [])]; } };
}

/** @param {string} to @param {number} n @param {any} bounds @param {number|undefined} mark */
function offsetOf(to, n, bounds, mark) {
  if (to === "earliest") return bounds.log_start_offset;
  if (to === "latest") return bounds.next_offset;
  return to === "offset" ? n : Math.min(bounds.next_offset, Math.max(bounds.log_start_offset, (mark ?? bounds.log_start_offset) + n));
}

/** @param {string} path @param {any} bounds @param {Record<string, any>} place @param {AbortSignal} signal @returns {Promise<Move>} */
async function moveOf(path, { partition }, place, signal) {
  try {
    const found = await api.get(`${path}/seek`, { partition, ...place }, signal);
    return { partition, from: found.mark_delete_offset, to: found.new_mark_delete_offset, skipped: found.skipped, repeated: found.repeated };
  } catch (error) {
    // Only this says something about one partition; any other failure would be that of each of them.
    if (/** @type {any} */ (error).code !== "OFFSET_OUT_OF_RANGE") throw error;
    return { partition, from: -1, to: -1, skipped: 0, repeated: 0, error };
  }
}

/** Move one partition after the other, and stop at the first that fails. @param {string} topic @param {string} name @param {Move[]} able @param {() => void} touch */
async function carryOut(topic, name, able, touch) {
  for (const [moved, move] of able.entries()) {
    try { await api.send("POST", `/topics/${api.part(topic)}/subscriptions/${api.part(name)}/seek`, { partition: move.partition, offset: move.to }); }
    catch (error) {
      const code = /** @type {any} */ (error).code;
      move.result = code === "UNREACHABLE" || code === "OUTCOME_UNKNOWN" ? "unknown: refresh the preview" : `refused: ${code}`;
      touch();
      return { error, at: move.partition, moved };
    }
    move.result = "moved";
    touch();
  }
  return { error: null, at: null, moved: able.length };
}

/** @param {{report: {error: any, at: number|null, moved: number}, able: Move[]}} props */
function Report({ report, able }) {
  const done = able.slice(0, report.moved), skipped = done.reduce((n, m) => n + m.skipped, 0), repeated = done.reduce((n, m) => n + m.repeated, 0);
  const moved = `${grouped(report.moved)} of ${grouped(able.length)} partitions moved: ${counted(skipped)} skipped, ${grouped(repeated)} to come again.`;
  if (!report.error) return html`<p class="sheet pad" role="status"><b>Done.</b> ${moved}</p>`;
  return html`<${Trouble} error=${report.error} /><p class="sheet pad" role="status">
    <b>Stopped at partition ${report.at}.</b> ${moved} ${able.length - report.moved > 1 ? "The others were not tried and stay where they are." : ""}</p>`;
}

/** @param {{moves: Move[], start: number, to: string, query: Record<string, any>}} props */
function Preview({ moves, start, to, query }) {
  const shown = moves.slice(start, start + PAGE);
  const count = (/** @type {number} */ n) => (n ? html`<b>${grouped(n)}</b>` : html`<span class="faint">0</span>`);
  return html`<div class="sheet" tabindex="0" role="region" aria-label="Preview"><table class="preview">
    <colgroup><col style=${{ width: "84px" }} /><col /><col /><col /><col /><col class="wide" style=${{ width: "28%" }} /></colgroup>
    <thead><tr><th scope="col" class="number">Partition</th><th scope="col" class="number">From</th><th scope="col" class="number">To</th><th scope="col" class="number">Skipped</th>
      <th scope="col" class="number">Repeated</th><th scope="col" class="wide">Result</th></tr></thead>
    <tbody>${shown.map((m) => html`<tr key=${m.partition}><td class="number">${m.partition}</td>${m.error ? html`<td colspan="4" class="muted" title=${visible(m.error.message)}>
      ${m.error.code}: stays where it is</td>`
      : html`<td class="number">${grouped(m.from)}</td><td class="number">${grouped(m.to)}</td><td class="number">${count(m.skipped)}</td><td class="number">
        ${count(m.repeated)}</td>`}<td class="wide muted">${m.result ?? (m.error ? "" : m.from === m.to ? "is there already" : "")}</td></tr>`)}</tbody></table>
    ${moves.length > PAGE && html`<${Pager} label="Pages of the preview" to=${to} said=${`${grouped(start + 1)} to ${grouped(start + shown.length)} of ${grouped(moves.length)} partitions`}
      before=${start > 0 ? { ...query, from: start > PAGE ? start - PAGE : undefined } : null} after=${start + PAGE < moves.length ? { ...query, from: start + PAGE } : null} />`}</div>`;
}

/** The commands that do the same. @param {string} topic @param {string} name @param {Wanted} wanted @param {Move[]} able */
function commands(topic, name, { to, n, only }, able) {
  const all = `fenceline subscription seek ${topic} ${name}`;
  const place = to === "offset" ? String(n) : to === "time" ? new Date(Number(n)).toISOString() : to;
  return only === "" && to !== "shift" ? [`${all} ${place}`] : able.map((m) => `${all} ${to === "shift" ? m.to : place} --partition ${m.partition}`);
}
