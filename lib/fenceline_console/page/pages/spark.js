// @ts-check
// The versions of `once`: what each application, such as a stream of Spark, has committed last.
import { html, useAsked, useSignal, address, Link, Trouble, Nothing, Bones, Columns, Pager, Question } from "../ui.js";
import * as api from "../api.js";
import { ago, clock, grouped, iso, visible } from "../format.js";

const SHOWN = 50;
const EVERY_MS = 5000;
const WIDTHS = [160, 50, 200, 90];
/** @type {[string, string, string?][]} */
const COLUMNS = [["Application", "34%"], ["Version", "210px", "number"], ["Note of the run", "", "wide"], ["Committed", "180px"]];

export function Spark() {
  const after = address.value.searchParams.get("after") ?? "";
  const found = useAsked((s) => api.getExact("/once", { start_after: after, limit: SHOWN }, s), [after], EVERY_MS);
  const forgotten = useSignal(/** @type {any} */ (null));
  const rows = /** @type {any[]|null} */ (found.value?.versions ?? null);
  const now = api.serviceNow();
  const next = found.value?.go_on_after ?? rows?.at(-1)?.app_id;
  return html`<div class="head"><h1>Spark</h1></div>
    <p class="muted flush">An application that commits by <code>once</code> raises its version with each commit, so a version that is run again commits nothing.
      A stream of Spark has the number of its micro-batch there.</p>
    <${Trouble} error=${found.error} again=${found.again} />
    ${(rows || !found.error) && html`<section class="sheet" aria-label="Versions"><table class="versions">
      <${Columns} of=${[...COLUMNS, api.canWrite() && ["Change", "92px"]]} />
      <tbody>${rows === null ? html`<${Bones} widths=${WIDTHS} isLate=${found.isLate} />` : rows.map((r) => html`<tr key=${r.app_id}>
        <td class="mono wrapped">${visible(r.app_id)}</td><td class="number wrapped"><b>${grouped(r.version)}</b></td>
        <td class="wide mono muted" title=${r.note === null ? "" : visible(r.note)}>${r.note === null ? html`<span class="null">none</span>` : visible(r.note)}</td>
        <td class="muted wrapped" title=${iso(r.committed_at)}>${clock(r.committed_at, now).replace(/\.\d+$/, "")} <span class="faint">${ago(r.committed_at, now)}</span></td>
        ${api.canWrite() && html`<td><button class="button quiet" aria-label=${`Forget ${visible(r.app_id)}`}
          onClick=${() => (forgotten.value = r)}>Forget</button></td>`}</tr>`)}</tbody></table>
      ${rows?.length === 0 && (after ? html`<${Nothing} title="No application comes after this one"><${Link} to="spark" class="button">Show the first ones<//><//>`
        : html`<${Nothing} title="No application has committed by once yet">A stream of Spark does with each micro-batch, and so does an end that names <code>once</code>:
          <pre>totals.writeStream.format("fenceline").option("topic", "totals").option("checkpointLocation", "checkpoints/totals").start()</pre><//>`)}
      ${rows !== null && (rows.length > 0 || found.value.has_more) && html`<${Pager} label="Pages of applications" to="spark" words=${["First", "Next"]}
        said=${`${rows.length} ${rows.length === 1 ? "application" : "applications"}, by name`}
        before=${after ? {} : null} after=${found.value.has_more && next !== undefined ? { after: next } : null} />`}</section>`}
    ${forgotten.value && html`<${Question} title="Forget a version?" action="Forget the version" name=${forgotten.value.app_id} isBad close=${() => (forgotten.value = null)}
      run=${async () => { await api.send("DELETE", `/once/${api.part(forgotten.value.app_id)}`); found.again(); }}>
      <p>Version ${grouped(forgotten.value.version)} of <b class="mono">${visible(forgotten.value.app_id)}</b> is forgotten. Any version may be committed again from then on.</p>
      <p class="loss">If the application repeats a version that it had committed, what that version writes is in the log twice.</p><//>`}`;
}
