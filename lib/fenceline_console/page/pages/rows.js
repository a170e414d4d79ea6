// @ts-check
// The rows of a topic's messages. Rule: what a cell shows is text, each character that cannot be seen as a symbol.
import { html, Bone } from "../ui.js";
import { grouped, clock, iso, bytes, visible } from "../format.js";
import { named } from "../json.js";

const LINE = 400; // characters of a cell
/** @typedef {import("./log.js").Shown} Shown @typedef {import("../format.js").Part} Part @typedef {import("./search.js").Gap} Gap */

/** One line of a key or a value: its text, its JSON with its names apart, or its first bytes. @param {Part} part */
export function cell(part) {
  if (part.isNull) return html`<span class="null">null</span>`;
  const text = part.text;
  if (text === null) return html`<span class="faint">${[.../** @type {Uint8Array} */ (part.bytes).subarray(0, 24)].map((b) => b.toString(16).padStart(2, "0")).join(" ")}</span>`;
  if (text === "") return html`<span class="null">empty</span>`;
  const line = visible(text.slice(0, LINE)) + (text.length > LINE || part.isCut ? "…" : "");
  if (!/^\s*[[{]/.test(text)) return line;
  return named(line).map((t) => (t.kind === "k" ? html`<span class="faint">${t.text}</span>` : t.text));
}

const WORDS = { aborted: "aborted", open: "open", committed: "" };

/** A row is made once: the list is drawn anew each second, and a row never changes but for being open. @type {WeakMap<object, {isOpen: boolean, day: number, row: any}>} */
const made = new WeakMap();

/** @param {Shown} r @param {boolean} isOpen @param {number} now */
function row(r, isOpen, now) {
  const day = new Date(now).getDate(), known = made.get(r);
  if (known && known.isOpen === isOpen && known.day === day) return known.row;
  const word = r.batch?.outcome ? WORDS[r.batch.outcome] : "";
  const vnode = html`<tr key=${r.id} data-id=${r.id} class=${`${isOpen ? "chosen" : ""} ${r.isFresh ? "fresh" : ""} ${word}`}>
    <td class="faint number">${r.partition}</td>
    <td class="number"><button class="plain" aria-current=${isOpen ? "true" : undefined}><span class="visually-hidden">Partition ${r.partition}, offset </span>${grouped(r.offset)}</button></td>
    <td class="at" title=${r.timestamp < 0 ? "no time" : `${iso(r.timestamp)} (UTC)`}>${clock(r.timestamp, now)}</td>
    <td class="key">${cell(r.key)}</td><td class="value">${word && html`<b class="outcome">${word}</b> `}${cell(r.value)}</td><td class="number faint size">${bytes(r.value.size)}</td></tr>`;
  made.set(r, { isOpen, day, row: vnode });
  return vnode;
}

/** @param {{rows: (Shown|Gap)[], open: string|null, now: number, isBusy: boolean, choose: (id: string) => void, read: (gap: Gap["skipped"]) => void}} props */
export function Rows({ rows, open, now, isBusy, choose, read }) {
  const chooseAt = (/** @type {any} */ e) => { const id = e.target.closest("tr")?.dataset.id; if (id && !String(getSelection())) choose(id); };
  return html`<table class="records" aria-label="Messages">
    <colgroup><col class="partition" /><col class="offset" /><col class="time" /><col class="keys" /><col /><col class="size" /></colgroup>
    <thead><tr><th scope="col"><abbr title="Partition">P</abbr></th><th scope="col" class="number">Offset</th><th scope="col" class="at">Time</th><th scope="col">Key</th>
      <th scope="col">Value</th><th scope="col" class="number size">Size</th></tr></thead>
    <tbody onClick=${chooseAt}>${rows.map((r) => ("skipped" in r
      ? html`<tr key=${r.id} class="gap"><td colspan="6">… ${grouped(r.skipped.end - r.skipped.from)} offsets of partition ${r.skipped.partition} are skipped, from ${grouped(r.skipped.from)} on.
        <button class="button quiet" onClick=${() => read(r.skipped)}>Read from there</button></td></tr>`
      : row(r, r.id === open, now)))}
    ${!rows.length && isBusy ? [110, 150, 130, 160].map((w) => html`<tr class="loading"><td><${Bone} w=${12} /></td><td class="number"><${Bone} w=${44} /></td>
      <td class="at"><${Bone} w=${84} /></td><td><${Bone} w=${40} /></td><td><${Bone} w=${w} /></td><td class="size"></td></tr>`) : null}</tbody></table>`;
}
