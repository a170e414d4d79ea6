// @ts-check
// Whether a partition's segments are what was stored: checked by the service, range by range, for as long as is wanted.
import { html, useSignal, useEffect, useRef, Link, Trouble } from "../ui.js";
import * as api from "../api.js";
import { grouped, visible } from "../format.js";

const SHOWN = 50;
const MARKED = 500;

/** @typedef {{key: string, offset: number, what: string}} Finding */
/** @typedef {{from: number, to: number, segments: number, records: number, findings: Finding[]}} Range */

/** @param {{name: string, partition: number}} props */
export function Verify({ name, partition }) {
  const state = useSignal(/** @type {"idle"|"running"|"stopped"|"done"} */ ("idle"));
  const ranges = useSignal(/** @type {Range[]} */ ([]));
  const bounds = useSignal({ from: 0, to: 0 });
  const error = useSignal(/** @type {any} */ (null));
  const stop = useRef(/** @type {AbortController|null} */ (null));
  useEffect(() => () => stop.current?.abort(), []);

  const check = async () => {
    const { signal } = (stop.current = new AbortController());
    state.value = "running"; ranges.value = []; error.value = null; bounds.value = { from: 0, to: 0 };
    const path = `/topics/${api.part(name)}/partitions/${partition}`;
    try {
      const { log_start_offset: from, next_offset: to } = await api.get(`${path}/offsets`, {}, signal);
      bounds.value = { from, to };
      for (let at = from, more = at < to; more; ) {
        const page = await api.get(`${path}/verify`, { offset: at }, signal);
        ranges.value = [...ranges.value, { from: at, to: page.position, segments: page.segments, records: page.records, findings: page.findings }];
        more = page.has_more && page.position < to;
        if (more && page.position <= at) throw new api.Problem(409, { code: "HTTP 409", detail: `the check did not go on at offset ${at}; verify again` });
        at = page.position;
      }
      state.value = "done";
    } catch (failed) {
      if (!signal.aborted) { error.value = failed; state.value = "stopped"; }
    }
  };
  const halt = () => { stop.current?.abort(); state.value = "stopped"; };

  const checked = /** @type {Range[]} */ (ranges.value);
  const found = checked.flatMap((r) => r.findings);
  const reached = checked.at(-1)?.to ?? bounds.value.from;
  const whole = Math.max(1, Math.max(bounds.value.to, reached) - bounds.value.from);
  const share = state.value === "done" ? 100 : Math.floor((100 * (reached - bounds.value.from)) / whole);
  return html`<div class=${`verify ${state.value}`}><div class="head">
      <button class="button" onClick=${state.value === "running" ? halt : check}>${state.value === "running" ? "Stop" : state.value === "idle" ? "Verify" : "Verify again"}</button>
      <span role="status" class=${found.length ? "damage" : "muted"}>${said(state.value, checked, found.length, bounds.value)}</span></div>
    ${state.value !== "idle" && html`<div class="chain" role="progressbar" aria-label="Checked" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${share}>
      ${checked.map((r) => html`<i key=${r.from} style=${{ width: `${(100 * (r.to - r.from)) / whole}%` }}></i>`)}
      ${found.slice(0, MARKED).map((f) => html`<b style=${{ left: `${Math.min(99.5, Math.max(0, (100 * (f.offset - bounds.value.from)) / whole))}%` }}></b>`)}</div>`}
    <${Trouble} error=${error.value} />
    ${found.length > 0 && html`<ul class="findings" tabindex="0" aria-label="Findings">${found.slice(0, SHOWN).map((f) => html`<li>
      <${Link} to=${`topics/${api.part(name)}`} query=${{ p: partition, from: f.offset }} class="number">${grouped(f.offset)}<//>
      <span>${visible(f.what)} ${f.what.includes(f.key) ? null : html`<span class="mono">${visible(f.key)}</span>`}</span></li>`)}
      ${found.length > SHOWN && html`<li><span></span><span>and ${grouped(found.length - SHOWN)} others, of which <code>fenceline verify</code> tells</span></li>`}</ul>`}</div>`;
}

/** @param {string} state @param {Range[]} ranges @param {number} findings @param {{from: number, to: number}} bounds */
function said(state, ranges, findings, bounds) {
  if (state === "idle") return "Reads every segment, and checks its bytes and that each follows the one before it.";
  const segments = ranges.reduce((n, r) => n + r.segments, 0), records = ranges.reduce((n, r) => n + r.records, 0);
  const count = (/** @type {number} */ n, /** @type {string} */ one) => `${grouped(n)} ${one}${n === 1 ? "" : "s"}`;
  const looked = `${count(segments, "segment")} with ${count(records, "record")}`;
  if (state === "done" && !ranges.length) return "The partition keeps nothing to check.";
  const upTo = ` to offset ${grouped(ranges.at(-1)?.to ?? bounds.from)}`;
  if (findings) return `${count(findings, "finding")}. ${looked} checked${upTo}${state === "running" ? " …" : "."}`;
  if (state === "done") return `Whole: ${looked} checked${upTo}. Each checksum holds, and the chain is unbroken.`;
  return `${looked} checked${upTo}, without a finding so far${state === "running" ? " …" : "; stopped."}`;
}
