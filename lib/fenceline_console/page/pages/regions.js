// @ts-check
// All topics that are in several regions: what each region has of the others' records.
import { html, useSignal, useAsked, Link, Pager, Search, Trouble, Nothing, Bone, Bones, address, go } from "../ui.js";
import * as api from "../api.js";
import { grouped, visible, ago } from "../format.js";
import { lasting, verdict } from "../links.js";
import { askAll, lookMs, reached } from "./asked.js";
import { TopicRegions } from "./region-topic.js";

const LIST_MS = 30000;
const PAGE = 50;

/** @param {{steps: string[]}} props */
export const Regions = ({ steps }) => (steps[1] === undefined ? html`<${Matrix} />` : html`<${TopicRegions} key=${steps[1]} name=${steps[1]} />`);

function Matrix() {
  const wanted = address.value.searchParams.get("q") ?? "";
  const first = Math.max(0, Number.parseInt(address.value.searchParams.get("after") ?? "0", 10) || 0);
  const here = useSignal("");
  const list = useAsked(async (s) => {
    const [all, health] = await Promise.all([api.topics(s), api.get("/health", {}, s)]);
    here.value = health.region;
    return all.filter((t) => t.regions.length > 1);
  }, [], LIST_MS);
  const found = (list.value ?? []).filter((t) => t.name.toLowerCase().includes(wanted.toLowerCase()));
  const shown = found.slice(first, first + PAGE);
  const names = [...new Set((list.value ?? []).flatMap((t) => t.regions))].sort((a, b) => Number(b === here.value) - Number(a === here.value) || (a < b ? -1 : 1));
  const page = (/** @type {number} */ after) => ({ q: wanted, after: after || null });
  return html`<div class="head"><h1>Regions</h1><span class="faint number">${list.value ? grouped(list.value.length) : ""}</span><span class="spacer"></span>
      <${Link} to="failover" class="button">Failover<//>
      <${Search} label="Filter topics by name" placeholder="Filter by name" value=${wanted} onInput=${(/** @type {string} */ q) => go("regions", { q }, true)} /></div>
    <${Trouble} error=${list.error} again=${list.again} />
    <div class="sheet">
      ${list.value?.length === 0 ? html`<${None} here=${here.value} />` : html`<div class="scroll" tabindex="0" role="region" aria-label="Topics and regions">
        <table class="matrix" style=${{ minWidth: `${180 + 230 * names.length}px` }}>
        <thead><tr><th scope="col">Topic</th>${(names.length ? names : ["Regions"]).map((name) => html`<th scope="col" class=${name === here.value ? "here" : ""}>${visible(name)}</th>`)}</tr></thead>
        <tbody>${list.value === null ? html`<${Bones} widths=${[150, 120]} isLate=${list.isLate} />`
          : shown.map((t) => html`<${Row} key=${t.topic_id} topic=${t} names=${names} here=${here.value} every=${lookMs(2 * shown.length)} />`)}</tbody></table></div>`}
      ${list.value?.length && found.length === 0 ? html`<${Nothing} title=${`No topic in several regions has “${visible(wanted)}” in its name`}>
        <button class="button" onClick=${() => go("regions", {}, true)}>Show all ${list.value.length}</button><//>` : null}
      ${found.length > PAGE ? html`<${Pager} label="Pages of topics" to="regions" said=${`${grouped(first + 1)} to ${grouped(first + shown.length)} of ${grouped(found.length)}`}
        before=${first > 0 ? page(Math.max(0, first - PAGE)) : null} after=${first + PAGE < found.length ? page(first + PAGE) : null} />` : null}</div>
    ${names.length ? html`<${Meaning} names=${names} here=${here.value} />` : null}`;
}

/** What the lines of a cell say. @param {{names: string[], here: string}} props */
function Meaning({ names, here }) {
  const isBoth = names.some((name) => name !== here && reached().includes(name));
  return html`<p class="said">This console looks from ${visible(here)}: “here” is what it has of the records that the column’s region wrote itself.
    ${isBoth ? html` The lower line is the other way: what that region has of the records of ${visible(here)}.`
      : html` What the others have of ${visible(here)} shows in a console that reaches them, too: <code>fenceline console ${names.map((name) => `--at ${name}=URL`).join(" ")}</code>`}</p>`;
}

const COMMANDS = `fenceline dev --region a --port 8081 --peers b=http://127.0.0.1:8082
fenceline dev --region b --port 8082 --peers a=http://127.0.0.1:8081
fenceline topic create orders --regions a,b --url http://127.0.0.1:8081
fenceline topic create orders --regions a,b --url http://127.0.0.1:8082`;
const None = (/** @type {{here: string}} */ { here }) => html`<${Nothing} title="No topic is in several regions">
  A topic in several regions is written and read in each of them, and its records travel to the others. This is how two regions begin on one machine:
  <pre>${COMMANDS}</pre>${here ? html`<span class="faint">This is region ${visible(here)}.</span>` : null}<//>`;

/** @param {{topic: any, names: string[], here: string, every: number}} props */
function Row({ topic, names, here, every }) {
  const others = topic.regions.filter((/** @type {string} */ name) => name !== here && reached().includes(name));
  const asked = useAsked((s) => askAll(topic.name, [api.region.value ?? here, ...others], {}, s), [topic.name, here, others.join()], every);
  const [own, ...rest] = asked.value ?? [];
  /** @type {[string, string, string][]} */
  const problems = [];
  for (const one of asked.value ?? [])
    for (const link of one.answer?.regions ?? [])
      if (link.problem !== null && (one === own || link.region === here)) problems.push([one.answer?.region ?? one.at, link.region, link.problem]);
  return html`<tr><td><${Link} to=${`regions/${api.part(topic.name)}`} class="name" title=${visible(topic.name)}>${visible(topic.name)}<//></td>
      ${names.map((name) => html`<td>${name === here ? html`<span class="faint">here</span>` : !topic.regions.includes(name) ? html`<span class="faint">not there</span>`
        : !own ? html`<${Bone} w=${90} />` : html`<${Lines} one=${own} of=${name} where="here" />
          ${others.includes(name) ? rest.filter((one) => one.at === name).map((one) => html`<${Lines} one=${one} of=${here} where=${`in ${visible(name)}`} />`)
            : html`<span class="state faint">in ${visible(name)}: not known from here</span>`}`}</td>`)}</tr>
    ${problems.map(([at, of, text]) => html`<tr class="note"><td colspan=${names.length + 1} title=${visible(text)}><b>${visible(at)} from ${visible(of)}:</b> ${visible(text)}</td></tr>`)}`;
}

/** What one region has of another one's records, in a few words. @param {{one: import("./asked.js").Asked, of: string, where: string}} props */
function Lines({ one, of, where }) {
  if (one.answer === null) return html`<span class="state is-bad">${one.error.status ? one.error.code : `${visible(one.at)} is silent`}</span>`;
  const link = one.answer.regions.find((l) => l.region === of);
  if (!link) return html`<span class="state is-bad">does not name ${visible(of)}</span>`;
  const lag = link.lag_records, gaps = one.answer.gaps.filter((g) => g.region === of).length;
  const from = visible(of), theirs = `of ${from}’s records`;
  const text = !link.connected ? (link.last_seen_at === null ? `nothing heard of ${from}` : `${from} is away, heard ${ago(link.last_seen_at, api.serviceNow())}`)
    : lag === null ? `… ${theirs}` : lag === 0 ? `all ${theirs}` : `all but ${grouped(lag)} ${theirs} · ${lasting(link.lag_ms ?? 0)}`;
  const { kind } = verdict(link, "");
  return html`<span class=${`state is-${kind}`}>${where}: ${text}${link.suspended ? " · suspended" : ""}${gaps ? ` · ${gaps} ${gaps === 1 ? "gap" : "gaps"}` : ""}</span>`;
}
