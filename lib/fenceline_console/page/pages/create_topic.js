// @ts-check
// The question that makes a topic.
import { html, useSignal, Question, go } from "../ui.js";
import * as api from "../api.js";

const DAY = 86400000;

/** @param {{close: () => void}} props */
export function CreateTopic({ close }) {
  const given = useSignal({ name: "", partitions: "1", policy: "delete", days: "7" });
  const set = (/** @type {string} */ member) => (/** @type {any} */ e) => (given.value = { ...given.value, [member]: e.target.value });
  const { name, partitions, policy, days } = given.value;
  const run = async () => {
    const config = { "cleanup.policy": policy, ...(policy === "compact" ? {} : { "retention.ms": days.trim() === "" ? -1 : Math.round(Number(days) * DAY) }) };
    await api.send("POST", "/topics", { name: name.trim(), partitions: Number(partitions), config });
    go(`topics/${api.part(name.trim())}`);
  };
  return html`<${Question} title="Create a topic" action="Create topic" run=${run} close=${close}>
    <label class="field">Name<input class="input mono" value=${name} onInput=${set("name")} 
      required maxlength="249" pattern="[A-Za-z0-9._\\-]+" autocomplete="off" spellcheck=${false} /></label>
    <label class="field">Partitions <input class="input" type="number" min="1" max="10000" value=${partitions} onInput=${set("partitions")} required /></label>
    <label class="field">What is kept<select class="input" value=${policy} onChange=${set("policy")}>
      <option value="delete">each record, for a time</option>
      <option value="compact">the newest record of each key</option><option value="compact,delete">the newest of each key, for a time</option></select></label>
    ${policy !== "compact" && html`<label class="field">For how many days (empty: for ever)<input class="input" type="number" min="0" step="any" value=${days} onInput=${set("days")} /></label>`}
    <p>Partitions can be added later, and never taken away.</p><//>`;
}
