// @ts-check
// A subscription's consumers go on in another region: what repeats, what to know before, and the move itself.
import { html, useSignal, useAsked, useEffect, useRef, Link, Pager, Trouble, Bone, Bones, Nothing, Question, address, go } from "../ui.js";
import * as api from "../api.js";
import { grouped, visible } from "../format.js";
import { command, howMany, isBound, repeats, repeatsOf, variable, warnings } from "../move.js";
import { Box, lookMs, reached, replicated } from "./asked.js";
import { make, planOf } from "./failover-asked.js";
import { MovableTable } from "./region-topic.js";

const SHOWN = 50;

/** @param {{steps: string[]}} props */
export const Failover = ({ steps: [, topic, name] }) => (name === undefined ? html`<${Choice} topic=${topic} />`
  : html`<${Chosen} key=${`${topic} ${name}`} topic=${topic} name=${name} />`);

/** @param {{topic?: string}} props */
function Choice({ topic }) {
  const found = useAsked((s) => replicated({ topic }, s), [topic], lookMs());
  return html`<div class="head"><h1><${Link} to="regions" class="crumb">Regions /<//> Failover</h1></div>
    <p class="said">A replicated subscription can go on in another region. Choose the one to move. Nothing is moved before you are asked.</p>
    <${Trouble} error=${found.error} again=${found.again} /><div class="sheet"><${MovableTable} found=${found} hasTopic=${topic === undefined} /></div>`;
}

/** The active region of a subscription; null where none is named, or there is no such subscription here. @param {string} path @param {AbortSignal} signal */
async function activeRegion(path, signal) {
  try { return (await api.get(path, { limit: 1 }, signal)).active_region ?? null; }
  catch (error) { if (/** @type {any} */ (error).code === "UNKNOWN_SUBSCRIPTION") return null; throw error; }
}

/** @param {{topic: string, name: string}} props */
function Chosen({ topic, name }) {
  const path = `/topics/${api.part(topic)}`;
  const described = useAsked(async (s) => {
    const [one, active] = await Promise.all([api.get(path, {}, s), activeRegion(`${path}/subscriptions/${api.part(name)}`, s)]);
    return { regions: /** @type {string[]} */ (one.regions), active };
  }, [topic, name]);
  const query = address.value.searchParams;
  const regions = /** @type {string[]} */ (described.value?.regions ?? reached()); // the region that is looked at may be the one that is lost
  const here = api.region.value ?? "";
  const from = query.get("from") ?? described.value?.active ?? (regions.includes(here) ? here : regions[0]) ?? "";
  const others = regions.filter((one) => one !== from);
  const to = query.get("to") ?? others.find((one) => reached().includes(one)) ?? others[0] ?? "";
  const choose = (/** @type {Record<string, string>} */ chosen) => go(`failover/${api.part(topic)}/${api.part(name)}`, { from, to, ...chosen }, true);
  return html`<div class="head"><h1 title=${`${visible(name)} of ${visible(topic)}`}><${Link} to=${`regions/${api.part(topic)}`} class="crumb">${visible(topic)} /<//> Failover of ${visible(name)}</h1>
      <span class="spacer"></span>
      <${Pick} label="From" all=${regions} value=${from} set=${(/** @type {string} */ one) => choose(one === to ? { from: one, to: from } : { from: one })} />
      <${Pick} label="to" all=${regions} value=${to} set=${(/** @type {string} */ one) => choose(one === from ? { from: to, to: one } : { to: one })} /></div>
    ${described.error?.status ? html`<${Trouble} error=${described.error} again=${described.again} />` : null}
    ${!described.value && !described.error ? html`<div class="sheet within"><${Bone} w=${240} /></div>`
      : [from, to].every((one) => reached().includes(one)) ? html`<${Plan} key=${`${from} ${to}`} topic=${topic} name=${name} from=${from} to=${to} />`
      : html`<${Unreached} topic=${topic} name=${name} from=${from || "a"} to=${to || "b"} regions=${regions} />`}`;
}

/** @param {{label: string, all: string[], value: string, set: (one: string) => void}} props */
const Pick = ({ label, all, value, set }) => html`<label class="pick">${label} <select class="input" value=${value} onChange=${(/** @type {any} */ e) => set(e.target.value)}>
  ${[...new Set([...all, value])].filter(Boolean).map((one) => html`<option value=${one}>${visible(one)}</option>`)}</select></label>`;

/** A console that does not reach both regions says how one begins that does. @param {{topic: string, name: string, from: string, to: string, regions: string[]}} props */
function Unreached({ topic, name, from, to, regions }) {
  const all = regions.length > 1 ? regions : [from, to];
  const missing = [from, to].filter((one) => !reached().includes(one)).map((one) => visible(one));
  return html`<div class="sheet"><${Nothing} title="A failover needs both regions">This console does not reach ${missing.join(" and ")}.
      Start one that reaches both, with the URL of each region’s service:<pre>${`fenceline console ${all.map((one) => `--at ${visible(one)}=URL`).join(" ")}`}</pre>
      Or use the command line, which asks before it moves:<pre>${visible(command(topic, name, from, to))}</pre><//></div>`;
}

/** @param {import("./failover-asked.js").Move} move */
function Plan(move) {
  const { topic, name, from, to } = move;
  const moved = useSignal(/** @type {any} */ (null)), step = useSignal(""), failed = useSignal(/** @type {any} */ (null)), isAsking = useSignal(false);
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const asked = useAsked((s) => planOf(move, s), [from, to], lookMs());
  const plan = asked.value;
  const begin = () => {
    if (!plan) return;
    moved.value = null; failed.value = null;
    const done = make(move, plan, stop.current.signal, (words) => (step.value = words));
    done.then((found) => (moved.value = found), (error) => (failed.value = error)).finally(() => { step.value = ""; asked.again(); });
  };
  return html`<${Trouble} error=${asked.error} again=${asked.again} />
    ${plan === null && asked.error?.status === 0 ? html`<p class="said">A subscription moves only to a region that answers: ${visible(asked.error.message)}</p>` : null}
    ${failed.value ? html`<${Trouble} error=${failed.value} />` : null}
    ${plan === null ? (asked.error?.status ? null : html`<div class="sheet"><table><tbody><${Bones} widths=${[60, 60, 60, 60, 60]} isLate=${asked.isLate} /></tbody></table></div>`) : html`
    <section class="sheet" aria-label="The move"><header class="copy"><div>
        <p class="headline" role="status">${moved.value ? `Moved to ${visible(to)}: ` : ""}${said(howMany(moved.value?.plan ?? plan), !moved.value)}.</p>
        <p class="muted">${meaning(plan, from, to)}</p>
        ${plan.right?.active_region ? html`<p class="muted">Active region now: <b>${visible(plan.right.active_region)}</b></p>` : null}
        ${step.value ? html`<p class="muted" role="status">Moving: ${visible(step.value)} …</p>` : null}</div><span class="spacer"></span>
        ${api.canWrite() ? html`<button class="button main" disabled=${step.value !== ""} onClick=${() => (isAsking.value = true)}>Move to ${visible(to)}…</button>` : null}</header>
      ${moved.value ? html`<${After} done=${moved.value} from=${from} to=${to} name=${name} topic=${topic} />` : null}
      <${Warnings} all=${warnings(plan, from, to)} />
      <${Marks} plan=${plan} from=${from} to=${to} />
      <div class="within"><p class="said">The same on the command line, which asks before it moves. ${visible(variable(from))} and ${visible(variable(to))} are the URLs of the regions’ services.</p>
        <pre class="command" tabindex="0" aria-label="Command">${visible(command(topic, name, from, to))}</pre></div></section>
    ${isAsking.value ? html`<${Question} title=${`Move ${visible(name)} of ${visible(topic)} from ${visible(from)} to ${visible(to)}?`} action=${`Move to ${visible(to)}`}
        run=${async () => begin()} close=${() => (isAsking.value = false)}>
      ${said(howMany(plan), true)}. Consumers that know several regions move by themselves; others must be started with the URL of ${visible(to)}.
      No record that has arrived in ${visible(to)} is lost. To move back, exchange the two regions.<//>` : null}`}`;
}

/** @param {string} words @param {boolean} isFirst */
const said = (words, isFirst) => words.replace(/\d+/g, (n) => grouped(Number(n))).replace(/^./, (c) => (isFirst ? c.toUpperCase() : c));

/** @param {import("../move.js").Plan} plan @param {string} from @param {string} to */
function meaning(plan, from, to) {
  if (plan.silence !== null) return `${visible(from)} is silent. What was acknowledged there and has not arrived is not known, so fewer may repeat, and not more.`;
  if (isBound(plan)) return `${visible(from)} has no such ${plan.lacked}, so all that ${visible(to)} has not acknowledged repeats.`;
  return `${visible(from)} has acknowledged them, and ${visible(to)} does not know that yet. The move takes a snapshot first, so that fewer repeat.`;
}

const Warnings = (/** @type {{all: string[]}} */ { all }) => (all.length === 0 ? null
  : html`<ul class="warnings" aria-label="Before the move">${all.slice(0, SHOWN).map((one) => html`<li>${visible(one)}.</li>`)}</ul>`);

/** @param {{done: {plan: import("../move.js").Plan, untold: string|null}, topic: string, name: string, from: string, to: string}} props */
function After({ done, topic, name, from, to }) {
  const active = done.plan.right?.active_region ?? null;
  return html`<ul class="warnings done" aria-label="After the move">
    ${active === to ? html`<li class="good">${visible(name)} of ${visible(topic)} is active in ${visible(to)}. Consumers that do not move by themselves go on with its URL.</li>`
      : html`<li>${visible(name)} of ${visible(topic)} is active in ${visible(active ?? "no region")} by now, not in ${visible(to)}: another command moved it meanwhile.</li>`}
    ${done.untold === null ? null : html`<li>${visible(from)} was not told, so consumers there may go on: ${visible(done.untold)}.</li>`}</ul>`;
}

/** @param {{plan: import("../move.js").Plan, from: string, to: string}} props */
function Marks({ plan, from, to }) {
  const first = Math.max(0, Number.parseInt(address.value.searchParams.get("p") ?? "0", 10) || 0);
  const count = plan.partitions.length, shown = plan.partitions.slice(first, first + SHOWN);
  const known = (/** @type {number|null} */ n) => (n === null ? html`<span class="faint" title="not known">…</span>` : grouped(n));
  const heads = ["#Partition", `#Mark in ${visible(from)}`, `#Backlog in ${visible(from)}`, `#Mark in ${visible(to)}`, `#Backlog in ${visible(to)}`, "#Repeats"];
  return html`<${Box} label="Marks and backlogs by partition" rows="marks" heads=${heads}>${shown.map((one) => html`<tr>
      <td class="number">${one.partition}</td><td class="number">${known(one.fromMark)}</td><td class="number">${known(one.fromBacklog)}</td>
      <td class="number">${known(one.toMark)}</td><td class="number">${known(one.toBacklog)}</td><td class="number">${grouped(repeatsOf(one))}</td></tr>`)}
    ${count > 1 ? html`<tr><td class="number muted" colspan="5">all partitions, ${isBound(plan) ? "at most" : "about"}</td><td class="number"><b>${grouped(repeats(plan))}</b></td></tr>` : null}<//>
    ${count > SHOWN ? html`<${Pager} label="Pages of partitions" to=${address.value.pathname.slice("/console/".length)}
      said=${`Partitions ${grouped(first)} to ${grouped(first + shown.length - 1)} of ${grouped(count)}`}
      before=${first > 0 ? { from, to, p: Math.max(0, first - SHOWN) || null } : null} after=${first + SHOWN < count ? { from, to, p: first + SHOWN } : null} />` : null}`;
}
