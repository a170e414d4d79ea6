// @ts-check
// What each topic stores, most first, and what that costs in a month.
import { html, useSignal, useRepeated, Link, Trouble, Bone, Bones } from "../ui.js";
import * as api from "../api.js";
import { bytes, grouped, visible } from "../format.js";
import { dollars, perMonth } from "../money.js";
import { Box } from "./asked.js";

const SHOWN = 50;
const MOST = 1000; // topics that are counted by themselves: each costs some reads

/** @param {{gibMonth: number|null, prices: {date: string, region: string}|null}} props */
export function Stored({ gibMonth, prices }) {
  const found = useSignal(/** @type {any[]} */ ([])), isDone = useSignal(false), isCut = useSignal(false), most = useSignal(MOST), turn = useSignal(0);
  const error = useSignal(/** @type {any} */ (null));
  useRepeated(async (s) => {
    const topics = [];
    for (let after = ""; ; after = topics.at(-1).name) {
      const page = await api.get("/topics", { totals: true, limit: SHOWN, start_after: after }, s);
      topics.push(...page.topics);
      isCut.value = page.has_more && topics.length >= most.value;
      found.value = [...topics];
      if (!page.has_more || page.topics.length === 0 || isCut.value) break;
    }
    isDone.value = true;
  }, 0, [most.value, turn.value], (e) => (error.value = e));
  const counted = /** @type {any[]} */ (found.value).filter((t) => t.totals).sort((a, b) => b.totals.bytes - a.totals.bytes);
  const left = found.value.length - counted.length, sum = counted.reduce((n, t) => n + t.totals.bytes, 0);
  const price = prices ? `, kept for a month at the list price of ${visible(prices.region)}, as of ${visible(prices.date)}` : "";
  const money = (/** @type {number} */ n) => (gibMonth === null ? "…" : dollars(perMonth(n, gibMonth), 0.01));
  const isBare = found.value.length === 0 && !isDone.value;
  return html`<section class="sheet" aria-label="Stored"><header class="copy"><div><h2>Stored</h2>
      <p class="muted">${!isBare ? `${bytes(sum)} in ${grouped(counted.length)} ${counted.length === 1 ? "topic" : "topics"}${isDone.value ? price : " so far"}`
        : error.value ? null : html`<${Bone} w=${200} />`}
        ${left ? html` · ${grouped(left)} of more than 1,000 partitions ${left === 1 ? "is" : "are"} not counted` : null}</p></div>
      <span class="spacer"></span>${isBare ? null : html`<b class="figure">${money(sum)} <span class="muted">a month</span></b>`}</header>
    ${error.value ? html`<div class="within"><${Trouble} error=${error.value} again=${() => (turn.value += 1)} /></div>` : null}
    <${Box} label="Stored bytes by topic" rows="stored" heads=${["Topic", "#Records", "#Stored", "#Dollars a month"]}>
      ${isBare ? (error.value ? null : html`<${Bones} widths=${[150, 60, 60, 60]} />`) : counted.slice(0, SHOWN).map((t) => html`<tr key=${t.topic_id}>
        <td><${Link} to=${`topics/${api.part(t.name)}/partitions`} title=${visible(t.name)}>${visible(t.name)}<//></td><td class="number">${grouped(t.totals.records)}</td>
        <td class="number" title=${`${grouped(t.totals.bytes)} bytes`}>${bytes(t.totals.bytes)}</td><td class="number">${money(t.totals.bytes)}</td></tr>`)}
      ${isDone.value && counted.length === 0 ? html`<tr><td colspan="4" class="muted">Nothing is stored yet.</td></tr>` : null}<//>
    ${counted.length > SHOWN || isCut.value ? html`<div class="foot">The ${Math.min(SHOWN, counted.length)} topics that store most, of ${isCut.value ? "the first " : ""}${grouped(found.value.length)}
      <span class="spacer"></span>${isCut.value ? html`<button class="button" onClick=${() => (most.value = Infinity)}>Count all</button>` : null}</div>` : null}</section>`;
}
