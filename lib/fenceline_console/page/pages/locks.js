// @ts-check
// Locks, and the sessions of processes with what each of them holds.
import { html, useAsked, useRef, Pager, Trouble, address, go } from "../ui.js";
import * as api from "../api.js";
import { grouped, visible } from "../format.js";
import { called, left, second } from "./parts.js";

const PAGE = 50;
const EVERY = 5; // a list of sessions reads all that the service remembers
const HELD_MAX = 500; // shown of one session
const TOPICS_MAX = 50; // of one session that are looked up at a look

/** What is owned and is no partition. @param {{every: number}} props */
export function Locks({ every }) {
  const after = address.value.searchParams.get("locks") ?? undefined;
  const asked = useAsked((s) => api.get("/locks", { start_after: after, limit: PAGE }, s), [after], EVERY * every);
  const now = api.serviceNow(), locks = asked.value?.locks;
  return html`<div class="part"><h2>Locks</h2><${Trouble} error=${asked.error} again=${asked.again} />
    ${locks && html`<div class="sheet" tabindex="0" role="region" aria-label="Locks">
      ${locks.length === 0 ? html`<p class="pad muted">No lock is held. <code>fenceline lock nightly -- ./job.sh</code> runs a command while it holds one.</p>` : html`<table class="writers">
      <colgroup><col style=${{ width: "30%" }} /><col /><col style=${{ width: "96px" }} /><col class="wide" style=${{ width: "96px" }} /><col class="wide" style=${{ width: "180px" }} /></colgroup>
      <thead><tr><th scope="col">Lock</th><th scope="col">Holder</th><th scope="col" class="number">Lease</th><th scope="col" class="number wide">Token</th>
        <th scope="col" class="wide">Since</th></tr></thead>
      <tbody>${locks.map((/** @type {any} */ l) => html`<tr key=${`${l.group}/${l.resource}`}><td title=${visible(l.resource)}>
        ${visible(l.resource)}${l.group ? html` <span class="faint">for ${visible(l.group)}</span>` : null}</td><td><b title=${called(l)}>${called(l)}</b></td>
        <td class="number">${left(l.until, now)}</td><td class="number wide">${grouped(l.fencing_token)}</td><td class="wide muted">${l.since ? second(l.since, now) : ""}</td></tr>`)}</tbody>
          </table>`}
      ${(after !== undefined || asked.value.has_more) && html`<${Pager} label="Pages of locks" to="writers" said="" before=${after === undefined ? null : {}} words=${["First", "Next"]}
         after=${asked.value.has_more ? { locks: asked.value.go_on_after ?? locks.at(-1)?.resource } : null} />`}</div>`}</div>`;
}

/** Live sessions, and what one of them holds. @param {{every: number}} props */
export function Sessions({ every }) {
  const at = address.value.searchParams, after = at.get("sessions") ?? undefined, open = at.get("session");
  const asked = useAsked((s) => api.get("/sessions", { start_after: after, limit: PAGE }, s), [after], EVERY * every);
  const now = api.serviceNow(), sessions = asked.value?.sessions;
  return html`<div class="part"><h2>Sessions</h2><${Trouble} error=${asked.error} again=${asked.again} />
    ${sessions && html`<div class="sheet" tabindex="0" role="region" aria-label="Sessions">
      ${sessions.length === 0 ? html`<p class="pad muted">No session is live. A producer that claims, and a process that owns or locks, has one.</p>` : html`<table class="writers">
      <colgroup><col /><col class="wide" style=${{ width: "110px" }} /><col style=${{ width: "96px" }} /><col style=${{ width: "104px" }} /><col class="wide" style=${{ width: "180px" }} />
        </colgroup>
      <thead><tr><th scope="col">Process</th><th scope="col" class="wide">Session</th><th scope="col" class="number">Lease</th><th scope="col" class="number">Holds</th>
        <th scope="col" class="wide">Since</th></tr></thead>
      <tbody>${sessions.map((/** @type {any} */ one) => html`<tr key=${one.session_id}><td><b title=${called(one)}>${called(one)}</b></td><td class="mono wide">
        ${visible(one.session_id).slice(0, 8)}</td>
        <td class="number">${left(one.expires_at, now)}</td>
        <td class="number"><button type="button" class="button" aria-expanded=${open === one.session_id} aria-label=${`Holds ${one.holds}: ${called(one)}`}
           onClick=${() => go("writers", { ...Object.fromEntries(at), session: open === one.session_id ? undefined : one.session_id }, true)}>Holds ${grouped(one.holds)}</button></td>
        <td class="wide muted">${one.since ? second(one.since, now) : ""}</td></tr>${open === one.session_id ? html`<tr key="holds"><td colspan="5" class="holds">
          <${Holds} id=${one.session_id} every=${every} /></td></tr>` : null}`)}</tbody></table>`}
      ${(after !== undefined || asked.value.has_more) && html`<${Pager} label="Pages of sessions" to="writers" said="" before=${after === undefined ? null : {}} words=${["First", "Next"]}
         after=${asked.value.has_more ? { sessions: asked.value.go_on_after ?? sessions.at(-1)?.session_id } : null} />`}</div>`}</div>`;
}

/** The topic of a resource that is named like a partition. @param {{resource: string}} hold */
const topicOf = ({ resource }) => /^([^/]+)\/\d{1,9}$/.exec(resource)?.[1] ?? null;

/** @param {{id: string, every: number}} props */
function Holds({ id, every }) {
  const topics = useRef(/** @type {Map<string, boolean>} */ (new Map())).current;
  const asked = useAsked(async (s) => {
    const found = await api.get(`/sessions/${api.part(id)}`, {}, s);
    // A lock may be named like a partition: only where there is such a topic is it one.
    const names = new Set(found.holds.map((/** @type {any} */ h) => topicOf(h)).filter((/** @type {string|null} */ t) => t !== null && !topics.has(t)));
    for (const name of [...names].slice(0, TOPICS_MAX)) topics.set(name, (await api.get("/topics", { prefix: name, limit: 1 }, s)).topics[0]?.name === name);
    return found;
  }, [id], every);
  const kind = (/** @type {any} */ h) => {
    const topic = topicOf(h);
    return topic === null || topics.get(topic) === false ? "lock " : topics.get(topic) === undefined ? "" : h.group ? "reader of " : "exclusive writer of ";
  };
  const holds = asked.value?.holds;
  return html`<${Trouble} error=${asked.error} again=${asked.again} />${holds?.length === 0 ? html`<span class="muted">It holds nothing.</span>` : null}
    ${holds && html`<ul>${holds.slice(0, HELD_MAX).map((/** @type {any} */ h) => html`<li>${kind(h)}<span class="mono">${visible(h.resource)}</span>
      ${h.group ? html` <span class="faint">for ${visible(h.group)}</span>` : null}</li>`)}</ul>`}
    ${holds?.length > HELD_MAX ? html`<p class="muted facts">The first ${HELD_MAX} of ${grouped(holds.length)}.</p>` : null}`;
}
