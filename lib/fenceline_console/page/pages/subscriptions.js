// @ts-check
// Subscriptions, the most behind first: of all topics, and of one.
import { html, useRef, useAsked, Link, Search, Segments, Spark, Pager, Trouble, Nothing, Bones, address, go } from "../ui.js";
import * as api from "../api.js";
import { grouped, listed, ago, visible } from "../format.js";
import { Rest, called, useWalk } from "./parts.js";
import { Group } from "./group.js";
import { Subscription } from "./subscription.js";
import { Seek } from "./seek.js";

const PAGE = 50; // also the most that one request answers
const KEPT = 30; // points of a line

/** @typedef {{name: string, topic: string, replicate_subscription_state: boolean, active_region?: string|null, backlog?: number|null, oldest_unread_at?: number|null, owner?: any}} Lag */

/** The place: all subscriptions, or the group that the address names. @param {{steps: string[]}} props */
export function Subscriptions({ steps }) {
  if (steps[1] !== undefined) return html`<${Group} key=${steps[1]} group=${steps[1]} />`;
  const wanted = address.value.searchParams.get("q") ?? "";
  return html`<div class="head"><h1>Subscriptions</h1><span class="spacer"></span>
      <${Search} label="Filter by subscription or topic" placeholder="Filter by name or topic" value=${wanted}
         onInput=${(/** @type {string} */ q) => go("subscriptions", { by: address.value.searchParams.get("by"), q }, true)} /></div>
    <${Lags} to="subscriptions" wanted=${wanted} />`;
}

/** A topic's tab: its subscriptions, one of them, or where to move it. @param {{name: string, steps: string[]}} props */
export function TopicSubscriptions({ name, steps }) {
  const [, , , one, act] = steps;
  if (one === undefined) return html`<${Lags} to=${`topics/${api.part(name)}/subscriptions`} topic=${name} wanted="" />`;
  return act === "seek" ? html`<${Seek} key=${one} topic=${name} name=${one} />` : html`<${Subscription} key=${one} topic=${name} name=${one} />`;
}

/** @param {{to: string, topic?: string, wanted: string}} props */
function Lags({ to, topic, wanted }) {
  const at = address.value.searchParams;
  const by = at.get("by") === "time" ? "time" : "records", start = Math.max(0, Number(at.get("from")) || 0);
  const every = api.about.value?.refresh_ms ?? 1000;
  const lines = useRef(/** @type {Map<string, number[]>} */ (new Map()));
  const walk = useWalk("/subscriptions", "subscriptions", { topic, limit: PAGE }, 2 * every, (/** @type {Lag[]} */ all) => {
    lines.current = new Map(all.map((one) => [idOf(one), [...(lines.current.get(idOf(one)) ?? []), one.backlog ?? 0].slice(-KEPT)]));
  });
  const groups = useAsked(groupsByName, [], 10 * every);
  const text = wanted.toLowerCase();
  const found = walk.list?.filter((one) => `${one.topic}/${one.name}`.toLowerCase().includes(text)).sort(by === "time" ? byTime : byRecords) ?? null;
  const shown = found?.slice(start, start + PAGE) ?? [];
  const query = { q: wanted || undefined, by: by === "time" ? by : undefined };
  return html`<${Trouble} error=${walk.error} again=${walk.again} /><${Trouble} error=${groups.error} again=${groups.again} />
    <div class="head"><span class="muted">Most behind first, by</span>
      <${Segments} label="Most behind first, by" options=${[["records", "Records"], ["time", "Time"]]} chosen=${by}
         choose=${(/** @type {string} */ k) => go(to, { ...query, by: k === "time" ? k : undefined }, true)} /></div>
    <section class="sheet" aria-label="Subscriptions" tabindex="0"><table class="lags">
      <colgroup><col />${topic === undefined ? html`<col style=${{ width: "18%" }} />` : null}<col style=${{ width: "92px" }} /><col style=${{ width: "112px" }} />
        <col class="wide" style=${{ width: "120px" }} /><col style=${{ width: "18%" }} class="wide" /><col class="wide" style=${{ width: "110px" }} />
        <col class="wide" style=${{ width: "110px" }} /></colgroup>
      <thead><tr><th scope="col">Subscription</th>${topic === undefined ? html`<th scope="col">Topic</th>` : null}<th scope="col" class="number">Behind</th><th scope="col">Oldest unread</th>
        <th scope="col" class="wide">Since opened</th><th scope="col" class="wide">Owner or members</th><th scope="col" class="wide">Replicated</th><th scope="col" class="wide">Active region</th></tr>
        </thead>
      <tbody>${found === null ? html`<${Bones} widths=${[150, 90, 50, 60, 84, 90, 30, 60]} />` : shown.map((one) => html`<${LagRow} key=${idOf(one)} one=${one}
         hasTopic=${topic === undefined} line=${lines.current.get(idOf(one)) ?? []} group=${groups.value?.get(one.name)} />`)}</tbody></table>
      ${found?.length === 0 && (wanted ? html`<${Nothing} title=${`No subscription has “${visible(wanted)}” in its name or topic`} />`
        : html`<${Nothing} title="No subscriptions yet">
          A subscription keeps the place of its readers in a topic. Make one:<pre>fenceline subscription create ${visible(topic ?? "orders")} billing --from earliest</pre><//>`)}
      ${found && found.length > PAGE && html`<${Pager} label="Pages of subscriptions" to=${to}
         said=${`${grouped(start + 1)} to ${grouped(start + shown.length)} of ${grouped(found.length)} subscriptions`}
        before=${start > 0 ? { ...query, from: start > PAGE ? start - PAGE : undefined } : null} after=${start + PAGE < found.length ? { ...query, from: start + PAGE } : null} />`}</section>
    <${Rest} walk=${walk} what="subscriptions" />`;
}

/** @param {AbortSignal} signal */
async function groupsByName(signal) {
  const all = await api.all("/groups", "groups", (g) => ({ start_after: g.group }), { query: { limit: 1000 }, signal });
  return new Map(all.map((g) => [g.group, g]));
}

const idOf = (/** @type {Lag} */ one) => `${one.topic}/${one.name}`;
const byRecords = (/** @type {Lag} */ a, /** @type {Lag} */ b) => (b.backlog ?? -1) - (a.backlog ?? -1);
const byTime = (/** @type {Lag} */ a, /** @type {Lag} */ b) => (a.oldest_unread_at ?? Infinity) - (b.oldest_unread_at ?? Infinity) || byRecords(a, b);

/** @param {{one: Lag, hasTopic: boolean, line: number[], group: any}} props */
function LagRow({ one, hasTopic, line, group }) {
  const now = api.serviceNow(), { owner } = one;
  const isCounted = one.backlog !== undefined && one.backlog !== null;
  return html`<tr><td><${Link} to=${`topics/${api.part(one.topic)}/subscriptions/${api.part(one.name)}`} title=${visible(one.name)}>${visible(one.name)}<//></td>
    ${hasTopic ? html`<td title=${visible(one.topic)}>${visible(one.topic)}</td>` : null}
    <td class="number">${!isCounted ? html`<abbr title="A topic of more than 1,000 partitions is not counted here: open the subscription.">…</abbr>` : one.backlog === 0 ? html`<span
       class="faint">0</span>` : html`<b title=${grouped(one.backlog ?? 0)}>${listed(one.backlog ?? 0)}</b>`}</td>
    <td class="muted">${one.oldest_unread_at ? ago(one.oldest_unread_at, now) : isCounted ? "caught up" : "…"}</td>
    <td class="wide">${isCounted && html`<${Spark} values=${line.length > 1 ? line : [...line, ...line]}
       label=${`backlog since this page was opened: ${grouped(line[0] ?? 0)} to ${grouped(line.at(-1) ?? 0)} records`} />`}</td>
    <td class="wide">${group?.member_count ? html`<${Link} to=${`subscriptions/${api.part(one.name)}`} class="under">
      ${grouped(group.member_count)} ${group.member_count === 1 ? "member" : "members"}<//>`
      : owner ? html`<span title=${called(owner)}>${called(owner)}</span> <span class="faint">${grouped(owner.partitions)} p.</span>` : html`<span class="faint">none</span>`}</td>
    <td class="wide muted">${one.replicate_subscription_state ? "yes" : "no"}</td>
    <td class="wide muted">${one.active_region ? visible(one.active_region) : one.replicate_subscription_state ? "none named" : ""}</td></tr>`;
}
