// @ts-check
// A topic's settings: each that holds, whether it was set or is the default, and what it does.
import { html, useAsked, useSignal, go, Trouble, Bone, Bones, Columns, Question } from "../ui.js";
import * as api from "../api.js";
import { ago, iso, grouped, visible } from "../format.js";
import { setting } from "../units.js";
import { Change } from "./change.js";

const WIDTHS = [150, 60, 40, 260];
/** @type {[string, string, string?][]} */
const COLUMNS = [["Setting", "250px"], ["Holds", "170px"], ["From", "100px", "wide"], ["What it does", "", "wide"]];

/** What the contract says of each setting, asked once. @type {Map<string, Promise<any>>} */
const contracts = new Map();

/** @param {AbortSignal} [signal] */
function contract(signal) {
  const at = api.region.value ?? "";
  const asked = contracts.get(at) ?? api.getExact("/openapi.json", {}, signal).then((d) => d.components?.schemas?.Config?.properties ?? {});
  contracts.set(at, asked);
  asked.catch(() => contracts.delete(at));
  return asked;
}

/** @param {{name: string}} props */
export function Settings({ name }) {
  const topic = useAsked((s) => api.getExact(`/topics/${api.part(name)}`, {}, s), [name]);
  const known = useAsked(() => contract(), [name]);
  const changed = useSignal(/** @type {{row: any, isReset: boolean}|null} */ (null));
  const isDeleting = useSignal(false);
  const t = topic.value, about = known.value ?? {};
  const rows = t === null ? [] : [...new Set([...Object.keys(about), ...Object.keys(t.config)])].sort().map((key) => row(key, t.config, about));
  return html`<${Trouble} error=${topic.error} again=${topic.again} />
    <section class="sheet topic-facts" aria-label="Topic"><dl>
      <div><dt>Topic id</dt><dd class="mono">${t ? t.topic_id : html`<${Bone} w=${180} />`}</dd></div>
      <div><dt>Created</dt><dd>${t ? html`
        ${iso(t.created_at).slice(0, 16).replace("T", " ")} UTC <span class="faint">${ago(t.created_at, api.serviceNow())}</span>` : html`<${Bone} w=${120} />`}</dd></div>
      <div><dt>Partitions</dt><dd>${t ? grouped(t.partitions) : html`<${Bone} w=${20} />`}</dd></div>
      <div><dt>Regions</dt><dd>${t ? t.regions.map((/** @type {string} */ r) => html`<span class="tag">${visible(r)}</span> `) : html`<${Bone} w=${60} />`}</dd></div></dl></section>
    ${known.error && html`<${Trouble} error=${known.error} again=${known.again} /><p class="muted flush">Defaults and descriptions are not known. What was set is shown as it is.</p>`}
    <section class="sheet" aria-label="Settings"><table class="settings">
      <${Columns} of=${[...COLUMNS, api.canWrite() && ["Change", "142px"]]} />
      <tbody>${t === null || (known.value === null && !known.error) ? html`<${Bones} widths=${WIDTHS} isLate=${topic.isLate || known.isLate} />` : rows.map((r) => html`<tr key=${r.name}>
        <td class="mono wrapped">${visible(r.name)}</td>
        <td class="wrapped" title=${r.isKnown ? visible(`${r.name}=${r.raw}`) : ""}><span class=${r.isSet ? "set" : "muted"}>${visible(r.shown)}</span></td>
        <td class="wide">${r.isSet ? html`<span class="tag good">set</span>` : html`<span class="faint">default</span>`}</td>
        <td class="wide what">${r.what ? visible(r.what) : html`<span class="faint">The service's contract does not describe it.</span>`}
          ${r.isSet && r.otherwise !== undefined ? html`${" "}<span class="faint">Default: ${visible(setting(r.name, r.otherwise))}.</span>` : null}</td>
        ${api.canWrite() && html`<td>${r.schema && html`<button class="button quiet" aria-label=${`Edit ${r.name}`} onClick=${() => (changed.value = { row: r, isReset: false })}>Edit</button>
          ${r.isSet && html`<button class="button quiet" aria-label=${`Reset ${r.name}`} 
            onClick=${() => (changed.value = { row: r, isReset: true })}>Reset</button>`}`}</td>`}</tr>`)}</tbody></table></section>
    ${api.canWrite() && t && html`<div class="head"><span class="muted">Deleting a topic deletes its records and its subscriptions in this region.</span><span class="spacer"></span>
      <button class="button" onClick=${() => (isDeleting.value = true)}>Delete the topic…</button></div>`}
    ${changed.value && html`<${Change} topic=${name} row=${changed.value.row} isReset=${changed.value.isReset} done=${topic.again} close=${() => (changed.value = null)} />`}
    ${isDeleting.value && html`<${Question} title=${`Delete ${visible(name)}?`} action="Delete the topic" name=${name} isBad close=${() => (isDeleting.value = false)}
      run=${async () => { await api.send("DELETE", `/topics/${api.part(name)}`); go("topics"); }}>
      <p>All records of its ${t.partitions === 1 ? "partition" : `${grouped(t.partitions)} partitions`} and all its subscriptions are deleted, for good.
        Producers and readers get an error from then on.</p>
      ${t.regions.length > 1 && html`<p>Only the topic of this region is deleted. Those of the other regions stay.</p>`}<//>`}`;
}

/** @param {string} name @param {Record<string, any>} config @param {Record<string, any>} about */
function row(name, config, about) {
  const schema = Object.hasOwn(about, name) ? about[name] : null;
  const isSet = Object.hasOwn(config, name);
  const otherwise = schema?.default;
  const raw = isSet ? config[name] : otherwise;
  const isKnown = raw !== undefined;
  return { name, schema, isSet, otherwise, raw, isKnown, what: schema?.description ?? "", shown: isKnown ? setting(name, raw) : "…" };
}
