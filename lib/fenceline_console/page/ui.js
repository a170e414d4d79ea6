// @ts-check
// What every page is made of: the renderer, the address, small parts.
import { h, render } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";
import { signal, computed, effect, useSignal } from "./vendor/signals.mjs";
import { useEffect, useRef, useState } from "./vendor/hooks.mjs";
import { visible } from "./format.js";

export const html = htm.bind(h);
export { render, signal, computed, effect, useSignal, useEffect, useRef, useState };

/** The address is the state: whatever a page shows can be sent to another person as a link. */
export const address = signal(new URL(location.href));
addEventListener("popstate", () => (address.value = new URL(location.href)));

/** The address of a place in the console. The region that is looked at stays. @param {string} path below /console @param {Record<string, any>} [query] */
function place(path, query = {}) {
  const url = new URL(path, new URL("/console/", location.origin));
  /** @type {Record<string, any>} */
  const given = { at: address.value.searchParams.get("at"), ...query };
  for (const [k, v] of Object.entries(given))
    if (v !== undefined && v !== null && v !== "" && v !== false) url.searchParams.set(k, String(v));
  return url;
}

/** @param {string} path below /console, its parts already encoded @param {Record<string, any>} [query] @param {boolean} [replace] */
export function go(path, query = {}, replace = false) {
  const url = place(path, query);
  history[replace ? "replaceState" : "pushState"](null, "", url);
  address.value = url;
}

/** A link within the console; with a modifier it is the browser's. One that `stays` does not scroll to the top. @param {any} props */
export function Link({ to, query, children, stays = false, ...rest }) {
  const url = place(to, query);
  const click = (/** @type {MouseEvent} */ e) => {
    if (e.metaKey || e.ctrlKey || e.shiftKey || e.button) return;
    e.preventDefault();
    go(to, query);
    if (!stays) scrollTo(0, 0);
  };
  return html`<a href=${url.pathname + url.search} onClick=${click} ...${rest}>${children}</a>`;
}

const OPENS = "tbody tr:has(> td:first-child:not([colspan]) :is(a, button))"; // as in console.css
/** A row whose first cell has a link or a button does the same wherever it is clicked, unless on another control or where text is selected. */
addEventListener("click", (e) => {
  if (!(e.target instanceof Element) || e.target.closest("a, button, input, select, textarea, label, summary") || String(getSelection())) return;
  const row = e.target.closest(OPENS);
  // A copy keeps Ctrl and Shift: a link opens in a new tab where the browser would do so.
  row?.querySelector("td:first-child :is(a, button)")?.dispatchEvent(new MouseEvent("click", e));
});

/** After how long a server or a service that is silent is asked again. */
export const SILENT_MS = 1000;

/**
 * Call work now and every ms while the page is seen; a hidden page asks nothing, and asks at once when it is seen again.
 * @param {(s: AbortSignal) => Promise<void>} work
 * @param {number} ms 0 calls it once, and again only while the service is silent
 * @param {any[]} on what makes it begin anew
 * @param {(e: any) => void} failed takes what work throws; null after a call that did not
 */
export function useRepeated(work, ms, on, failed) {
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0, isDue = false;
    const turn = async () => {
      if (document.hidden) { isDue = true; return; }
      isDue = false;
      let next = ms;
      try { await work(stop.signal); if (!stop.signal.aborted) failed(null); }
      catch (error) { next ||= /** @type {any} */ (error).status === 0 ? SILENT_MS : 0; if (!stop.signal.aborted) failed(error); }
      if (!stop.signal.aborted && next) timer = setTimeout(turn, next);
    };
    const seen = () => { if (isDue && !document.hidden) turn(); };
    document.addEventListener("visibilitychange", seen);
    turn();
    return () => { stop.abort(); clearTimeout(timer); document.removeEventListener("visibilitychange", seen); };
  }, on);
}

/**
 * What work answers, asked now and every ms; a failure keeps what was shown before.
 * @template T
 * @param {(s: AbortSignal) => Promise<T>} work @param {any[]} on @param {number} [ms]
 * @returns {{value: T|null, error: any, isLate: boolean, again: () => void}}
 */
export function useAsked(work, on, ms = 0) {
  const value = useSignal(/** @type {T|null} */ (null));
  const error = useSignal(/** @type {any} */ (null));
  const isLate = useSignal(false);
  const turn = useSignal(0);
  useEffect(() => { value.value = null; error.value = null; isLate.value = false; const timer = setTimeout(() => (isLate.value = true), 10000); return () => clearTimeout(timer); }, on);
  useRepeated(async (s) => { const found = await work(s); if (!s.aborted) value.value = found; }, ms, [...on, turn.value], (e) => (error.value = e));
  return { value: value.value, error: error.value, isLate: isLate.value && value.value === null && !error.value, again: () => (turn.value += 1) };
}

/** What failed, its code, and what to do. A silent service keeps what was shown. @param {any} props */
export function Trouble({ error, again }) {
  if (!error) return null;
  return html`<div class="problem" role="alert"><div>${error.status === 0
    ? html`<strong>The service does not answer.</strong> What is shown is from before. This page goes on by itself when the service is back.`
    : html`<strong>${error.code ?? error.name}</strong> ${visible(error.message)}`}
    ${error.code && error.status && !error.code.startsWith("HTTP")
    ? html` <a href=${`/docs/errors#${error.code.toLowerCase()}`} target="_blank" rel="noreferrer">What to do</a>` : null}</div><span class="spacer"></span>
    ${again ? html`<button class="button" onClick=${again}>Try again</button>` : null}</div>`;
}

/** What is not there: one sentence on what it would be, and the command that fills it. @param {any} props */
export function Nothing({ title, children }) {
  return html`<div class="nothing"><h2>${title}</h2>${children}</div>`;
}

export const Bone = (/** @type {{w: number}} */ { w }) => html`<span class="bone" style=${{ width: `${w}px` }}></span>`;

/**
 * The columns of a table: name, width ("" takes what is left), and "number", "wide" (hidden on narrow pages) or both.
 * @param {{of: ([string, string, string?]|false)[]}} props
 */
export function Columns({ of }) {
  const all = /** @type {[string, string, string?][]} */ (of.filter(Boolean));
  return html`<colgroup>${all.map(([, width, kind]) => html`<col class=${kind?.includes("wide") ? "wide" : undefined} style=${{ width }} />`)}</colgroup>
    <thead><tr>${all.map(([name, , kind]) => html`<th scope="col" class=${kind}>${name}</th>`)}</tr></thead>`;
}

const NARROW = matchMedia("(max-width: 760px)");
const narrow = signal(NARROW.matches);
NARROW.addEventListener("change", () => (narrow.value = NARROW.matches));
/** Whether the page is so narrow that "wide" columns are hidden: a cell over all columns must know how many there are. */
export const isNarrow = () => narrow.value;

/** Rows of a table that is not there yet. @param {{widths: number[], isLate?: boolean}} props */
export const Bones = ({ widths, isLate }) => html`${[0, 1, 2, 3].map(() => html`<tr class="loading">${widths.map((w) => html`<td><${Bone} w=${w} /></td>`)}</tr>`)}
  ${isLate ? html`<tr><td colspan=${widths.length} class="muted" role="status">The service has not answered for ten seconds. The page goes on waiting.</td></tr>` : null}`;

/** A line without axes, for a table's cell. @param {{values: number[], label: string, kept?: number}} props */
export function Spark({ values, label, kept = 30 }) {
  const most = Math.max(1, ...values);
  const w = 84, x = (/** @type {number} */ i) => w - ((values.length - 1 - i) * w) / (kept - 1), y = (/** @type {number} */ v) => 21 - (v / most) * 18;
  const line = values.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ");
  return html`<svg class=${`spark ${values.some((v) => v > 0) ? "" : "quiet"}`} width=${w} height="24" viewBox=${`0 0 ${w} 24`} role="img" aria-label=${label}>
    <polygon points=${`${x(0)},22 ${line} ${w},22`} fill="currentColor" opacity="0.13" />
    <path d="M0 21.5H84" stroke="currentColor" opacity="0.25" /><polyline points=${line} fill="none" stroke="currentColor" stroke-width="1.4" stroke-linejoin="round" /></svg>`;
}

/**
 * The foot of a list that is cut: what is shown of it, and links to the part before and the part after.
 * @param {{said: any, to: string, before?: Record<string, any>|null, after?: Record<string, any>|null, words?: [string, string], label: string}} props
 */
export const Pager = ({ said, to, before, after, words = ["Previous", "Next"], label }) => html`<nav class="foot" aria-label=${label}><span role="status">${said}</span><span class="spacer"></span>
  ${before && html`<${Link} to=${to} query=${before} stays class="button">${words[0]}<//>`}${after && html`<${Link} to=${to} query=${after} stays class="button">${words[1]}<//>`}</nav>`;

/** @param {any} props */
export function Search({ value, onInput, onEnter, label, placeholder, hint = "/" }) {
  return html`<div class="search"><label class="visually-hidden" for="search">${label}</label>
    <input id="search" class="input" type="search" value=${value} placeholder=${placeholder} autocomplete="off" spellcheck=${false}
      onInput=${(/** @type {any} */ e) => onInput(e.target.value)} onKeyDown=${(/** @type {any} */ e) => e.key === "Enter" && onEnter?.(e.target.value)} />
    <kbd aria-hidden="true">${hint}</kbd></div>`;
}

/** Buttons of which one is pressed. @param {{label: string, options: [string, string][], chosen: string, choose: (k: string) => void}} props */
export const Segments = ({ label, options, chosen, choose }) => html`<div class="segments" role="group" aria-label=${label}>
  ${options.map(([k, name]) => html`<button type="button" aria-pressed=${chosen === k} onClick=${() => choose(k)}>${name}</button>`)}</div>`;

/**
 * A question before something is done. Where data can be lost, the name of the resource is to be typed.
 * @param {{title: string, action: string, name?: string, run: () => Promise<any>, close: () => void, children?: any, isBad?: boolean}} props
 */
export function Question({ title, action, name, run, close, children, isBad = false }) {
  const box = useRef(/** @type {HTMLDialogElement|null} */ (null));
  const typed = useSignal("");
  const error = useSignal(/** @type {any} */ (null));
  const isBusy = useSignal(false);
  useEffect(() => { box.current?.showModal(); }, []);
  const submit = async (/** @type {Event} */ e) => {
    e.preventDefault();
    isBusy.value = true; error.value = null;
    try { await run(); close(); } catch (failed) { error.value = failed; } finally { isBusy.value = false; }
  };
  return html`<dialog class="question" ref=${box} aria-label=${title} onClose=${close}><form onSubmit=${submit}>
    <h2>${title}</h2><div class="text">${children}</div>
    ${name !== undefined && html`<label class="field"><span>Type <b class="mono">${visible(name)}</b> to confirm</span><input class="input" value=${typed.value}
      autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ e) => (typed.value = e.target.value)} /></label>`}
    <${Trouble} error=${error.value} />
    <div class="actions"><button type="button" class="button" onClick=${close}>Cancel</button>
      <button class=${`button ${isBad ? "bad" : "main"}`}
        disabled=${isBusy.value || (name !== undefined && typed.value !== name && typed.value !== visible(name))}>${action}</button></div></form></dialog>`;
}
