// @ts-check
// What the page of messages tells in words: why nothing is listed, how the filter was read, its language, and the keys.
import { html, useEffect, Nothing } from "../ui.js";
import { grouped, visible } from "../format.js";
import { hints } from "../filter.js";
import { chosen } from "./log.js";

const KEYS = [["/", "filter"], ["l", "live"], ["j", "next message"], ["k", "previous message"], ["Esc", "close the message"], ["?", "this list"]];
const LANGUAGE = [
  ["refused", "the key, the value or a header holds it, in either case"], ['"two words"', "the same, with its space"], ["key:ann", "the key is it"], ["key:ann*", "the key begins with it"],
  ["header.trace:7f*", "a header"], [".status=paid", "a member of a JSON value; also != and, in depth, .a.b"], [".total>100", "a number; also < >= <="], ["-word", "not: before any of these"],
];

/** How the terms are read that are likely to mean something else. @param {{text: string}} props */
export function Hints({ text }) {
  return html`${hints(text).slice(0, 3).map(({ read, why, write }) => html`<p class="hint muted" role="note"><code>${visible(read)}</code> ${visible(why)} ${write.map((w, i) =>
    html`${i ? " or " : ""}<code>${visible(w)}</code>`)}</p>`)}`;
}

/** What is written, and not committed because a transaction before it has not ended. @param {import("./search.js").State} state @param {import("./log.js").Wanted} wanted */
function heldBack(state, wanted) {
  if (wanted.isAll) return null;
  const from = /^\d+$/.test(wanted.from) ? Number(wanted.from) : 0;
  const held = chosen(state.parts ?? [], wanted.only).map((p) => ({ start: Math.max(from, p.last_stable_offset), end: p.next_offset })).filter((p) => p.end > p.start);
  const count = held.reduce((n, p) => n + p.end - p.start, 0);
  if (!count) return null;
  return `${grouped(count)} ${count === 1 ? "offset" : "offsets"} ${held.length === 1 ? `from ${grouped(held[0].start)} on` : `of ${grouped(held.length)} partitions`} ${
    count === 1 ? "is" : "are"} in or behind a transaction that has not ended`;
}

/** @param {{name: string, state: import("./search.js").State, wanted: import("./log.js").Wanted, isLive: boolean, showAll: () => void, clear: () => void}} props */
export function Empty({ name, state, wanted, isLive, showAll, clear }) {
  const held = heldBack(state, wanted);
  const all = held && html`<button class="button" onClick=${showAll}>Show all</button>`;
  if (wanted.text) return html`<${Nothing} title=${state.isStopped ? "No message matched yet" : "No message matches"}>
    ${grouped(state.looked)} messages were looked at${state.isStopped ? "" : ", to the end of the log"}.${held && html`<span>${held}.</span>${all}`}
    <button class="button" onClick=${clear}>Clear the filter</button><//>`;
  if (held) return html`<${Nothing} title="Nothing is committed here">${held}.${all}<//>`;
  return html`<${Nothing} title="No messages">${isLive ? "Waiting for the first one." : "Send one, and it appears here while Live is on:"}
    <pre tabindex="0">echo 'ann:1 book' | fenceline produce ${visible(name)} --key-separator :</pre><//>`;
}

/** @param {{close: () => void}} props */
export function Keys({ close }) {
  useEffect(() => { /** @type {HTMLDialogElement|null} */ (document.querySelector("dialog.keys"))?.showModal(); }, []);
  const list = (/** @type {string[][]} */ of) => html`<dl>${of.map(([k, what]) => html`<dt><kbd>${k}</kbd></dt><dd>${what}</dd>`)}</dl>`;
  return html`<dialog class="question keys" aria-label="Keys and the filter" onClose=${close}><form method="dialog"><h2>Keys</h2>${list(KEYS)}
    <h2>The filter</h2>${list(LANGUAGE)}<p class="muted">Several terms all hold. A term has no spaces, but in quotes.</p>
    <div class="actions"><button class="button">Close</button></div></form></dialog>`;
}
