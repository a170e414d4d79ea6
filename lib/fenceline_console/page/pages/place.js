// @ts-check
// Where the list begins: the newest, the oldest, an offset, or a time in the reader's own zone with its UTC beside it.
import { html, useSignal, Question } from "../ui.js";
import { TimeField, anHourAgo, local, utc } from "./time-field.js";

/** @param {{from: string, begin: (from: string|undefined) => void, now: () => number}} props */
export function Place({ from, begin, now }) {
  const asks = useSignal(/** @type {"offset"|"time"|null} */ (null));
  const time = from.startsWith("@") ? Date.parse(from.slice(1)) : NaN;
  const close = () => (asks.value = null);
  const isOffset = /^\d+$/.test(from);
  return html`<div class="segments" role="group" aria-label="Where to start">
    <button type="button" aria-pressed=${from === "newest"} onClick=${() => begin(undefined)}>Newest</button>
    <button type="button" aria-pressed=${from === "oldest"} onClick=${() => begin("oldest")}>Oldest</button>
    <button type="button" aria-pressed=${isOffset} onClick=${() => (asks.value = "offset")}>${isOffset ? `Offset ${Number(from).toLocaleString("en-US")}…` : "Offset…"}</button>
    <button type="button" aria-pressed=${from.startsWith("@")} onClick=${() => (asks.value = "time")} title=${Number.isNaN(time) ? undefined : utc(time)}>
      ${Number.isNaN(time) ? "Time…" : `Time ${local(time).replace("T", " ")}…`}</button></div>
    ${asks.value === "offset" && html`<${Offset} start=${isOffset ? from : ""} begin=${begin} close=${close} />`}
    ${asks.value === "time" && html`<${Time} start=${Number.isNaN(time) ? anHourAgo(now()) : time} now=${now} begin=${begin} close=${close} />`}`;
}

/** @param {{start: string, begin: (from: string) => void, close: () => void}} props */
function Offset({ start, begin, close }) {
  const typed = useSignal(start);
  return html`<${Question} title="Begin at an offset" action="Show" close=${close} run=${async () => begin(String(Number(typed.value)))}>
    <label class="field">Offset<input class="input" type="number" min="0" max=${Number.MAX_SAFE_INTEGER} step="1" required value=${typed.value}
      onInput=${(/** @type {any} */ e) => (typed.value = e.target.value)} /></label>
    <p>Each partition begins there, or at its log start where that is above it.</p><//>`;
}

/** @param {{start: number, now: () => number, begin: (from: string) => void, close: () => void}} props */
function Time({ start, now, begin, close }) {
  const ms = useSignal(start);
  return html`<${Question} title="Begin at a time" action="Show" close=${close} run=${async () => begin(`@${new Date(ms.value).toISOString()}`)}>
    <${TimeField} ms=${ms.value} now=${now} choose=${(/** @type {number} */ at) => (ms.value = at)} />
    <p>Each partition begins at its first record of that time or later.</p><//>`;
}
