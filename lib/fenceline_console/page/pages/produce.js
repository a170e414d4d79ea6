// @ts-check
// The question that writes one record.
import { html, useSignal, Question } from "../ui.js";
import * as api from "../api.js";
import { partitionOf } from "../partitioner.js";

/** Lines of "name: value" as headers. @param {string} text @returns {[string, string][]} */
function headersOf(text) {
  return text.split("\n").filter((line) => line.trim() !== "").map((line) => {
    const at = line.indexOf(":");
    if (at < 0) throw new Error(`a header is a line such as "trace: 7fa", and this is none: ${line}`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
}

/** @param {{name: string, partitions: number, only: string|null, close: () => void, written: (partition: number, offset: number) => void}} props */
export function Produce({ name, partitions, only, close, written }) {
  const given = useSignal({ key: "", value: "", isNull: false, headers: "", partition: only !== null && /^\d+$/.test(only) ? only : "" });
  const set = (/** @type {string} */ member) => (/** @type {any} */ e) => (given.value = { ...given.value, [member]: e.target.type === "checkbox" ? e.target.checked : e.target.value });
  const { key, value, isNull, headers, partition } = given.value;
  const byKey = key === "" ? null : partitionOf(new TextEncoder().encode(key), partitions);
  const run = async () => {
    const to = partition !== "" ? Number(partition) : byKey ?? Math.floor(Math.random() * partitions);
    const record = { key: key === "" ? null : key, value: isNull ? null : value, headers: headersOf(headers) };
    const answer = await api.send("POST", `/topics/${api.part(name)}/partitions/${to}/records`, { records: [record] });
    written(to, answer.base_offset);
  };
  return html`<${Question} title="Write a record" action="Write" run=${run} close=${close}>
    <label class="field">Key (empty: none)<input class="input mono" value=${key} onInput=${set("key")} autocomplete="off" spellcheck=${false} /></label>
    <label class="field">Value<textarea class="input mono" rows="6" value=${value} onInput=${set("value")} disabled=${isNull} spellcheck=${false}></textarea></label>
    <label class="check"><input type="checkbox" checked=${isNull} onChange=${set("isNull")} /> null, a tombstone</label>
    <label class="field">Headers, one a line<textarea class="input mono" rows="2" placeholder="trace: 7fa" value=${headers} onInput=${set("headers")} spellcheck=${false}></textarea></label>
    <label class="field">Partition<input class="input" type="number" min="0" max=${partitions - 1} value=${partition} onInput=${set("partition")}
      placeholder=${byKey === null ? "any" : `${byKey}, by the key`} /></label><//>`;
}
