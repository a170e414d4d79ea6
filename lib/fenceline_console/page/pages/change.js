// @ts-check
// One setting of a topic, changed or set back to its default, after a question that says what it can cost.
import { html, useSignal, Question } from "../ui.js";
import * as api from "../api.js";
import { visible } from "../format.js";
import { editable, setting, typed, unitOf } from "../units.js";

/** Settings by which records are deleted. */
const LOSES = new Set(["cleanup.policy", "retention.ms", "retention.bytes", "delete.retention.ms"]);

/** What may be given, in a sentence. @param {any} row */
function form(row) {
  const unit = unitOf(row.name);
  if (unit === null) return "A whole number.";
  const least = Number(row.schema.minimum) < 0 ? (unit === "ms" ? " −1 is for ever." : " −1 is no limit.") : "";
  return `${unit === "ms" ? "A number with its unit: 7 d, 12 h, 30 min, 10 s or 500 ms." : "A number with its unit: 1 MiB, 10 GiB or 1048576."}${least}`;
}

/** @param {{topic: string, row: any, isReset: boolean, done: () => void, close: () => void}} props */
export function Change({ topic, row, isReset, done, close }) {
  const text = useSignal(row.isKnown ? editable(row.name, row.raw) : "");
  const choices = row.schema.enum ?? (row.schema.type === "boolean" ? ["true", "false"] : null);
  const unit = unitOf(row.name);
  const means = choices ? null : typed(row.name, text.value);
  const change = (/** @type {any} */ e) => (text.value = e.target.value);
  const run = async () => {
    if (!isReset && !choices && means === null) throw new api.Problem(400, { detail: `“${text.value}” is no value of it. ${form(row)}` });
    const value = isReset ? "null" : !choices ? String(means) : row.schema.type === "boolean" ? text.value : JSON.stringify(text.value);
    await api.send("PATCH", `/topics/${api.part(topic)}`, `{"config": {${JSON.stringify(row.name)}: ${value}}}`);
    done();
  };
  return html`<${Question} title=${`${isReset ? "Reset" : "Change"} ${visible(row.name)}`} action=${isReset ? "Use the default" : "Change the setting"}
    name=${LOSES.has(row.name) ? topic : undefined} run=${run} close=${close}>
    <p>${visible(row.what)}</p>
    ${LOSES.has(row.name) && html`<p class="loss">Records that the new value does not keep are deleted, for good.</p>`}
    ${isReset ? html`<p>From ${visible(row.shown)} back to ${row.otherwise === undefined ? "the default" : visible(setting(row.name, row.otherwise))}.</p>`
      : html`<label class="field">Value${choices
        ? html`<select class="input" value=${text.value} onChange=${change}>${choices.map((/** @type {string} */ c) => html`<option value=${c}>${c}</option>`)}</select>`
        : html`<input class="input" value=${text.value} autocomplete="off" spellcheck=${false} onInput=${change} />`}</label>
      ${!choices && html`<p class="faint" role="status">${means === null ? form(row) : `${visible(setting(row.name, safe(means)))}${unit ? ` = ${means} ${unit}` : ""}`}</p>`}`}<//>`;
}

/** @param {bigint} n */
const safe = (n) => (Number.isSafeInteger(Number(n)) ? Number(n) : n);
