// @ts-check
// The parts of what one region knows of a topic's other regions: links, gaps, snapshots, and what may be done about them.
import { html } from "../ui.js";
import * as api from "../api.js";
import { grouped, visible, ago, clock } from "../format.js";
import { lasting, newest, records, refusedBatch, stateOf } from "../links.js";
import { Box } from "./asked.js";

const SHOWN = 50;

/** @typedef {{name: string, at: string, answer: import("../links.js").Replication, ask: (question: any) => void}} Given */

/** @param {Given} props */
export function Links({ name, at, answer, ask }) {
  const here = visible(answer.region), now = api.serviceNow();
  const change = (/** @type {string} */ region, /** @type {string} */ what) => api.send("POST", `/topics/${api.part(name)}/replication/regions/${api.part(region)}/${what}`, {}, at);
  const suspend = (/** @type {string} */ region) => ask({ title: `Suspend ${visible(region)} in ${here}?`, action: `Suspend ${visible(region)}`, run: () => change(region, "suspend"),
    text: html`Snapshots in ${here} no longer wait for ${visible(region)}, so subscriptions move on without it. Its records still come if it answers. What is missing
      is taken from the other region that has most of it. Suspend a lost region in each region that remains.` });
  const resume = (/** @type {string} */ region) => ask({ title: `Resume ${visible(region)} in ${here}?`, action: `Resume ${visible(region)}`, run: () => change(region, "resume"),
    text: html`From the next snapshot on, ${visible(region)} must answer again. Resume it in each region.` });
  const heads = ["Records of", "State", "#Not here yet", "#Oldest of them", "Last heard", "Last answer for a snapshot", ...(api.canWrite() ? [""] : [])];
  return html`<${Box} label=${`Links of ${here}`} heads=${heads} rows="links">${answer.regions.map((link) => html`<tr>
      <td class="name" title=${visible(link.region)}>${visible(link.region)}</td><td><span class=${`tag ${link.suspended ? "" : link.connected ? "good" : "lost"}`}>${stateOf(link)}</span></td>
      <td class="number">${link.lag_records === null ? "…" : grouped(link.lag_records)}</td><td class="number">${link.lag_ms === null ? "…" : link.lag_records ? lasting(link.lag_ms) : "–"}</td>
      <td>${link.last_seen_at === null ? "never" : ago(link.last_seen_at, now)}</td><td>${link.answered_at === null ? "never" : ago(link.answered_at, now)}</td>
      ${api.canWrite() ? html`<td class="number">${link.suspended ? html`<button class="button" onClick=${() => resume(link.region)}>Resume</button>`
        : html`<button class="button" onClick=${() => suspend(link.region)}>Suspend</button>`}</td>` : null}</tr>
    ${link.problem === null ? null : html`<tr class="note long"><td colspan=${heads.length}>${visible(link.problem)}</td></tr>`}`)}<//>`;
}

/** What was never taken and is gone at its origin, and the batches at which links stopped. @param {Given} props */
export function Gaps({ name, at, answer, ask }) {
  const here = visible(answer.region);
  const refused = answer.regions.flatMap((link) => {
    const batch = refusedBatch(link);
    return batch ? [{ region: link.region, partition: batch.partition, from_offset: batch.from, to_offset: batch.to, records: null }] : [];
  });
  const all = [...answer.gaps, ...refused];
  if (all.length === 0) return null;
  const what = (/** @type {typeof all[0]} */ gap) => (gap.records === null ? "the batch" : records(gap.records));
  const skip = (/** @type {typeof all[0]} */ gap) => ask({ title: `Give up ${what(gap)} of ${visible(gap.region)}?`, action: `Give up ${what(gap)}`, name, isBad: true,
    run: () => api.send("POST", `/topics/${api.part(name)}/partitions/${gap.partition}/replication/skip`, { region: gap.region, to_offset: gap.to_offset }, at),
    text: html`${here} then never has the records of ${visible(gap.region)} in partition ${gap.partition} from ${grouped(gap.from_offset)} up to ${grouped(gap.to_offset)}, even if a third
      region still keeps them. To take them from there, suspend ${visible(gap.region)} instead. This cannot be undone.` });
  const heads = ["#Partition", "Lost records of", "#From", "#Up to", "#Records", ...(api.canWrite() ? [""] : [])];
  return html`<${Box} label=${`Gaps in ${here}`} heads=${heads}>${all.slice(0, SHOWN).map((gap) => html`<tr>
      <td class="number">${gap.partition}</td><td>${visible(gap.region)}</td><td class="number">${grouped(gap.from_offset)}</td><td class="number">${grouped(gap.to_offset)}</td>
      <td class="number">${gap.records === null ? "a refused batch" : grouped(gap.records)}</td>
      ${api.canWrite() ? html`<td class="number"><button class="button" onClick=${() => skip(gap)}>Give up…</button></td>` : null}</tr>`)}<//>
    ${api.canWrite() ? null : html`<p class="said within">Nothing more is taken there until they are given up:
      <code>fenceline replication skip ${visible(name)} -p ${all[0].partition} --from ${visible(all[0].region)} --to ${all[0].to_offset}</code></p>`}`;
}

/** @param {{answer: import("../links.js").Replication, isOpen: boolean}} props */
export function Snapshots({ answer, isOpen }) {
  const now = api.serviceNow();
  const complete = isOpen ? newest(answer.snapshots) : [];
  const waits = (/** @type {string[]} */ regions) => (regions.length ? html`waits for <b>${visible(regions.join(", "))}</b>` : "about to be complete");
  return html`<${Box} label=${`Snapshots in ${visible(answer.region)}`} heads=${["#Partition", "Snapshot", "#Offset here", "The same elsewhere", "State"]}>
    ${answer.pending.slice(0, SHOWN).map((one) => html`<tr><td class="number">${one.partition}</td><td class="mono">${one.snapshot_id.slice(0, 8)}</td><td class="number">…</td><td>…</td>
      <td>${waits(one.waiting_for)} <span class="muted">began ${ago(one.started_at, now)}</span></td></tr>`)}
    ${complete.map((one) => html`<tr><td class="number">${one.partition}</td><td class="mono">${one.snapshot_id.slice(0, 8)}</td><td class="number">${grouped(one.local_offset)}</td>
      <td>${Object.entries(one.offsets).map(([region, offset]) => `${visible(region)} ${grouped(offset)}`).join(" · ")}</td>
      <td>complete <span class="muted">${clock(one.completed_at, now)}</span></td></tr>`)}
    ${isOpen && complete.length + answer.pending.length === 0 ? html`<tr><td colspan="5" class="muted">None yet. They begin by themselves where a replicated subscription is in use.</td></tr>`
      : null}<//>`;
}
