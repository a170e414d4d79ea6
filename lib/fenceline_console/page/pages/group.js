// @ts-check
// A consumer group: its state, and its members with their partitions, epochs and leases.
import { html, useAsked, Link, Pager, Trouble, Nothing, Bones, address } from "../ui.js";
import * as api from "../api.js";
import { grouped, ago, visible } from "../format.js";

const PAGE = 50;

/** @typedef {{topic: string, partitions: {partition: number, since: number}[]}} Held */
/**
 * @typedef {{member_id: string, instance_id: string|null, client_name: string|null, client_host: string|null,
 *   member_epoch: number, expires_at: number, session_timeout_ms: number, is_away: boolean, partitions: Held[], asked: any[]}} Member
 */

const NONE = { members: [], state: null, topics: [], has_more: false };

/** The consumer group of a name, without its members; null where there is none. @param {string} name @param {AbortSignal} [signal] */
export async function named(name, signal) {
  // The name itself is the first of the names that begin with it. To ask for it alone would be an error where there is none.
  const [first] = (await api.get("/groups", { prefix: name, limit: 1 }, signal)).groups;
  return first?.group === name ? first : null;
}

/** The place of one group, on all topics. @param {{group: string}} props */
export function Group({ group }) {
  return html`<div class="head"><h1 title=${visible(group)}><${Link} to="subscriptions" class="crumb">Subscriptions /<//> ${visible(group)}</h1></div><${Members} group=${group} />`;
}

/** The members of a group; with a topic, only their partitions there. @param {{group: string, topic?: string}} props */
export function Members({ group, topic }) {
  const at = address.value, after = at.searchParams.get("members") ?? undefined;
  const asked = useAsked(async (s) => ((await named(group, s)) ? api.get(`/groups/${api.part(group)}`, { start_after: after, limit: PAGE }, s) : NONE),
    [group, after], 2 * (api.about.value?.refresh_ms ?? 1000));
  const found = asked.value, here = at.pathname.slice("/console/".length);
  return html`<${Trouble} error=${asked.error} again=${asked.again} />
    ${found?.state && html`<${Facts} group=${found} isWhole=${topic === undefined} />`}
    ${found && !found.state ? html`<p class="muted facts">${topic === undefined ? html`No consumer group has this name. Its subscriptions are <${Link} to="subscriptions"
       query=${{ q: group }} class="under">in the list<//>.` : "No consumer group has this name: consumers read the subscription by themselves."}</p>` : null}
    ${(!found && !asked.error) || found?.state ? html`<div class="sheet" tabindex="0" role="region" aria-label="Members"><table class="members">
      <colgroup><col /><col style=${{ width: "34%" }} /><col class="wide" style=${{ width: "80px" }} /><col style=${{ width: "118px" }} /><col class="wide" style=${{ width: "150px" }} /></colgroup>
      <thead><tr><th scope="col">Member</th><th scope="col">Partitions</th><th scope="col" class="number wide">Epoch</th><th scope="col">Lease renewed</th>
        <th scope="col" class="wide">State</th></tr></thead>
      <tbody>${!found ? html`<${Bones} widths=${[160, 120, 20, 60, 60]} isLate=${asked.isLate} />` : found.members.map((/** @type {Member} */ m) => html`<${MemberRow} key=${m.member_id}
         member=${m} topic=${topic} />`)}</tbody></table>
      ${found?.members.length === 0 && html`<${Nothing} title="The group has no members now">Its offsets stay. A seek may move them.<//>`}
      ${(after !== undefined || found?.has_more) && html`<${Pager} label="Pages of members" to=${here} said="" words=${["First", "Next"]} before=${after === undefined ? null : {}}
         after=${found?.has_more ? { members: found.members.at(-1)?.member_id } : null} />`}</div>` : null}`;
}

/** @param {{group: any, isWhole: boolean}} props */
function Facts({ group, isWhole }) {
  const links = group.topics.slice(0, PAGE).map((/** @type {string} */ t, /** @type {number} */ i) =>
    html`${i ? ", " : " · "}<${Link} to=${`topics/${api.part(t)}/subscriptions/${api.part(group.group)}`} class="under">${visible(t)}<//>`);
  return html`<p class="facts"><span class="tag">${visible(group.state)}</span> ${group.type === "classic" ? "classic" : "native"} group, epoch ${grouped(group.epoch)},
    ${" "}${visible(group.assignor ?? "no")} assignor, ${grouped(group.member_count)} ${group.member_count === 1 ? "member" : "members"}${isWhole ? links : null}</p>`;
}

/** @param {{member: Member, topic?: string}} props */
function MemberRow({ member, topic }) {
  const now = api.serviceNow(), beat = member.expires_at - member.session_timeout_ms;
  const held = member.partitions.filter((h) => topic === undefined || h.topic === topic);
  const what = held.map((h) => `${topic === undefined ? `${visible(h.topic)}: ` : ""}${h.partitions.map((p) => p.partition).join(", ")}`).join("; ") || "none";
  const label = visible(member.client_name ?? member.instance_id ?? member.member_id);
  return html`<tr><td title=${`${visible(member.member_id)}${member.client_host ? ` from ${visible(member.client_host)}` : ""}`}><b>${label}</b> <span class="faint mono">
    ${visible(member.member_id).slice(0, 12)}</span></td>
    <td title=${what}>${what}</td><td class="number wide">${grouped(member.member_epoch)}</td><td class="muted">${ago(beat, now)}</td>
    <td class="wide muted">${member.is_away ? "away" : member.expires_at <= now ? "lease is over" : member.asked.length ? "gives partitions up" : "works"}</td></tr>`;
}
