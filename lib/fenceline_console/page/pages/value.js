// @ts-check
// Views of a value: JSON, text, hex, Avro. Each is cut, so that no value freezes the page, and says what is left out.
import { html, useSignal, useEffect, Segments } from "../ui.js";
import { bytes, grouped, hex, visible } from "../format.js";
import { isJson, pretty } from "../json.js";
import { decode, parsed, registryId } from "../avro.js";

const JSON_FIRST = 16384, JSON_MOST = 262144, TEXT_PART = 16384, HEX_PART = 4096, SHORT = 300;
const NAMES = { json: "JSON", text: "Text", hex: "Hex", avro: "Avro" };
/** @typedef {import("../format.js").Part} Part @typedef {keyof typeof NAMES} View */

/** @type {WeakMap<Part, View[]>} */
const known = new WeakMap();

/** The views of a part that is whole, the best one first. @param {Part} part @returns {View[]} */
function viewsOf(part) {
  const found = known.get(part) ?? [];
  if (!found.length && !part.isNull) {
    const text = part.text;
    if (text !== null && /^\s*[[{]/.test(text) && isJson(text)) found.push("json");
    if (text !== null) found.push("text");
    found.push("hex");
    if (registryId(part.bytes) !== null) found.push("avro");
    known.set(part, found);
  }
  return found;
}

/** @param {{part: Part, name: string, copy: (() => void)|null}} props */
export function Value({ part, name, copy }) {
  const wanted = useSignal(/** @type {View|null} */ (null));
  const views = viewsOf(part);
  const id = views.includes("avro") ? registryId(part.bytes) : null;
  const best = id === null ? views[0] : kept(name, id) ? "avro" : "hex";
  const as = wanted.value && views.includes(wanted.value) ? wanted.value : best;
  const textOf = (/** @type {number} */ a, /** @type {number} */ b) => textPart(part.text ?? "", a, b);
  const hexOf = (/** @type {number} */ a, /** @type {number} */ b) => hex(/** @type {Uint8Array} */ (part.bytes), Math.min(b, part.size), a);
  return html`<div class="bar"><h3>Value <span class="faint" title=${`${grouped(part.size)} bytes`}>${part.isNull ? "" : bytes(part.size)}</span></h3>
      ${copy && html`<button class="button quiet" onClick=${copy}>Copy value</button>`}
      ${views.length > 1 && html`<${Segments} label="Show the value as" options=${views.map((v) => [v, NAMES[v]])} chosen=${as} choose=${(/** @type {View} */ v) => (wanted.value = v)} />`}</div>
    ${id !== null && as !== "avro" && html`<p class="note muted">Looks like a schema registry's Avro, schema id ${id}: Avro decodes it by a schema that you paste.</p>`}
    ${part.isNull ? html`<p class="note muted">null: a tombstone</p>` : part.size === 0 ? html`<p class="note muted">empty</p>`
      : as === "json" ? html`<${Json} text=${part.text} />` : as === "avro" ? html`<${Avro} octets=${part.bytes} name=${name} />`
      : as === "text" ? html`<${Parts} key="text" size=${part.text?.length} step=${TEXT_PART} of=${textOf} />` : html`<${Parts} key="hex" size=${part.size} step=${HEX_PART} of=${hexOf} />`}`;
}

/** A cut never lies within a character. @param {string} text @param {number} start @param {number} end */
function textPart(text, start, end) {
  const within = (/** @type {number} */ at) => at > 0 && at < text.length && (text.charCodeAt(at) & 0xfc00) === 0xdc00;
  return visible(text.slice(within(start) ? start + 1 : start, within(end) ? end + 1 : end), true);
}

/** A long value by parts of a size. @param {{size: number, step: number, of: (start: number, end: number) => string}} props */
function Parts({ size, step, of }) {
  const at = useSignal(0);
  const parts = Math.ceil(size / step), i = Math.min(at.value, parts - 1);
  return html`<pre tabindex="0" aria-label="Value">${of(i * step, (i + 1) * step)}</pre>
    ${parts > 1 && html`<div class="bar more"><span class="muted" role="status">Part ${grouped(i + 1)} of ${grouped(parts)}</span>
      <button class="button" disabled=${i === 0} onClick=${() => (at.value = i - 1)}>Previous part</button>
      <button class="button" disabled=${i === parts - 1} onClick=${() => (at.value = i + 1)}>Next part</button></div>`}`;
}

/** @param {{text: string}} props */
function Json({ text }) {
  const most = useSignal(JSON_FIRST);
  useEffect(() => { most.value = JSON_FIRST; }, [text]);
  const { pieces, isCut } = pretty(text, most.value);
  return html`<pre tabindex="0" aria-label="Value">${pieces.map((p) => (p.kind ? html`<span class=${p.kind}>${visible(p.text)}</span>` : p.text))}</pre>
    ${isCut && html`<div class="bar more"><span class="muted">… the rest is left out</span>
      ${most.value < JSON_MOST ? html`<button class="button" onClick=${() => (most.value *= 4)}>Show more</button>` : html`<span class="muted">Text and Hex show all of it.</span>`}</div>`}`;
}

const placeOf = (/** @type {string} */ name, /** @type {number} */ id) => `avro ${name} ${id}`;
const kept = (/** @type {string} */ name, /** @type {number} */ id) => { try { return localStorage.getItem(placeOf(name, id)) ?? ""; } catch { return ""; } };

/** A schema is kept in this browser, for a topic and the registry's id. @param {{octets: Uint8Array, name: string}} props */
function Avro({ octets, name }) {
  const id = /** @type {number} */ (registryId(octets)), place = placeOf(name, id);
  const schema = useSignal(""), typed = useSignal("");
  useEffect(() => { typed.value = schema.value = kept(name, id); }, [place]);
  const keep = (/** @type {string} */ text) => {
    schema.value = text;
    try { if (text) localStorage.setItem(place, text); else localStorage.removeItem(place); } catch { /* none kept */ }
  };
  let text = null, problem = "";
  if (schema.value) try { text = decode(parsed(schema.value), octets.subarray(5)); } catch (error) { problem = /** @type {Error} */ (error).message; }
  return html`<p class="note muted">Looks like a schema registry's Avro, schema id ${id}. No registry is asked${text === null ? ": paste the schema, and this browser keeps it for this topic." : "."}
      ${schema.value && html` <button class="button quiet" onClick=${() => keep("")}>Forget the schema</button>`}</p>
    ${problem && html`<p class="note bad" role="alert">It does not fit: ${visible(problem)}</p>`}
    ${text !== null ? html`<${Json} text=${text} />` : html`<form class="note avro" onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); keep(typed.value.trim()); }}>
      <label class="field">Schema ${id} as JSON<textarea class="input mono" rows="6" spellcheck=${false} value=${typed.value}
        onInput=${(/** @type {any} */ e) => (typed.value = e.target.value)}></textarea></label>
      <button class="button">Decode</button></form>`}`;
}

/** A key or a header in a line or a few; a long one is cut until it is asked for. @param {{part: Part}} props */
export function Short({ part }) {
  const isWhole = useSignal(false);
  if (part.isNull) return html`<span class="null">null</span>`;
  if (part.size === 0) return html`<span class="null">empty</span>`;
  const most = isWhole.value ? TEXT_PART : SHORT, text = part.text;
  const shown = text === null ? hex(/** @type {Uint8Array} */ (part.bytes), isWhole.value ? HEX_PART : 64) : visible(text.slice(0, most));
  const isCut = text === null ? part.size > (isWhole.value ? HEX_PART : 64) : text.length > most;
  return html`<span class=${text === null ? "octets" : ""}>${shown}${isCut ? "…" : ""}</span>
    ${isCut && (isWhole.value ? html` <span class="muted">${bytes(part.size)} in all</span>`
      : html` <button class="button quiet" onClick=${() => (isWhole.value = true)}>Show more of ${bytes(part.size)}</button>`)}`;
}
