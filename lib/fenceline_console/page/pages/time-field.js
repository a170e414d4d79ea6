// @ts-check
// A field for a time in the reader's own zone, to the second, with its UTC and with times that are often wanted.
import { html } from "../ui.js";

const LEAST_MS = -6.2e13, MOST_MS = 2.5e14; // what the browser's field takes

/** A time as the browser's own field takes it. @param {number} ms */
export const local = (ms) => (ms >= LEAST_MS && ms <= MOST_MS ? new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19) : "");
/** @param {number} ms */
export const utc = (ms) => (ms >= LEAST_MS && ms <= MOST_MS ? `${new Date(ms).toISOString().replace("T", " ").replace(/(\.000)?Z$/, "")} UTC` : "no time");

/** What the field begins with. @param {number} now */
export const anHourAgo = (now) => secondOf(now - 3600000);
const secondOf = (/** @type {number} */ ms) => Math.floor(ms / 1000) * 1000;

/** @param {number} now */
function yesterdayAtNoon(now) {
  const t = new Date(now);
  return new Date(t.getFullYear(), t.getMonth(), t.getDate() - 1, 12).getTime();
}

/** @param {{ms: number, now: () => number, choose: (ms: number) => void}} props NaN is no time yet */
export function TimeField({ ms, now, choose }) {
  /** @type {[string, () => number][]} */
  const often = [["1 min ago", () => secondOf(now() - 60000)], ["1 h ago", () => anHourAgo(now())], ["yesterday 12:00", () => yesterdayAtNoon(now())]];
  return html`<div class="time-field"><label class="field">Your time (${Intl.DateTimeFormat().resolvedOptions().timeZone})
      <input class="input" type="datetime-local" step="1" required value=${local(ms)} onInput=${(/** @type {any} */ e) => choose(Date.parse(e.target.value))} /></label>
    <span class="often">${often.map(([name, at]) => html`<button type="button" class="button" onClick=${() => choose(at())}>${name}</button>`)}</span>
    <span class="muted number" role="status">${Number.isNaN(ms) ? "…" : utc(ms)}</span></div>`;
}
