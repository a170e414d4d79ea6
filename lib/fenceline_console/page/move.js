// @ts-check
// The plan of a move of a subscription to another region: what repeats, and what to be warned of. It is that of
// `fenceline failover`, in its words and numbers. Pure: no document, no fetch, no clock.
import { iso } from "./format.js";

/**
 * @typedef {import("./links.js").Link} Link
 * @typedef {{partition: number, mark_delete_offset: number, backlog: number}} Cursor
 * @typedef {{name: string, replicate_subscription_state: boolean, active_region?: string|null, partitions: Cursor[]}} Subscription
 * @typedef {{partition: number, fromMark: number|null, fromBacklog: number|null, toMark: number|null, toBacklog: number|null}} Marks
 * @typedef {object} Plan a move, as it looks before it is made
 * @property {Marks[]} partitions
 * @property {string|null} silence why the region that is left does not answer; null if it does
 * @property {Subscription|null} left the subscription there; null if it is not there, or not known
 * @property {"topic"|"subscription"|null} lacked what the region that is left lacks
 * @property {Subscription|null} right the subscription in the other region; null if the move creates it
 * @property {Link|null} link the link to the region that is left, as the other one sees it
 * @property {Link|null} reverse the link to the other one, as the region that is left sees it
 */

/** About how many records come again: those that only the region that is left knows as acknowledged. @param {Marks} one */
export const repeatsOf = (one) => Math.max(0, (one.toBacklog ?? 0) - (one.fromBacklog ?? 0));

/** @param {Plan} plan */
export const repeats = (plan) => plan.partitions.reduce((sum, one) => sum + repeatsOf(one), 0);

/** By how many records the backlog to which it moves is smaller, which no lag explains. @param {Plan} plan */
export function lacking(plan) {
  const less = plan.partitions.reduce((sum, one) => sum + (one.toBacklog === null ? 0 : Math.max(0, (one.fromBacklog ?? 0) - one.toBacklog)), 0);
  return Math.max(0, less - (plan.link?.lag_records ?? 0));
}

/** At most so many repeat where the region that is left has not said what is acknowledged there. @param {Plan} plan */
export const isBound = (plan) => plan.left === null;

/** @param {Plan} plan */
export function howMany(plan) {
  const n = repeats(plan);
  return `${isBound(plan) ? "at most" : "about"} ${n === 1 ? "1 record repeats" : `${n} records repeat`}${plan.right === null ? ", from the log start on" : ""}`;
}

/**
 * The marks of both regions, by partition.
 * @param {Subscription|null} left @param {Cursor[]} there those of the other region @returns {Marks[]}
 */
export function marksOf(left, there) {
  const from = new Map((left?.partitions ?? []).map((one) => [one.partition, one])), to = new Map(there.map((one) => [one.partition, one]));
  return [...new Set([...from.keys(), ...to.keys()])].sort((a, b) => a - b).map((partition) => ({
    partition, fromMark: from.get(partition)?.mark_delete_offset ?? null, fromBacklog: from.get(partition)?.backlog ?? null,
    toMark: to.get(partition)?.mark_delete_offset ?? null, toBacklog: to.get(partition)?.backlog ?? null,
  }));
}

/** @param {Link} link @param {string} here */
function trouble(link, here) {
  if (link.suspended) return `${here} has suspended ${link.region}`;
  if (!link.connected) return `${here} does not hear from ${link.region}`;
  return link.problem === null ? null : `${here} takes no records from ${link.region}`;
}
const reason = (/** @type {Link} */ link) => (link.problem === null ? "" : `: ${link.problem}`);

/** @param {Link} link @param {string} here */
function recordsThatLack(link, here) {
  const found = trouble(link, here);
  if (link.lag_records) {
    const until = found === null ? "before they have arrived" : `until the link works${reason(link)}`;
    return [`${here} lacks ${link.lag_records} of the records that ${link.region} has written; consumers in ${here} do not see them ${until}`];
  }
  return found === null ? [] : [`${found}; consumers in ${here} do not see what has not arrived until the link works${reason(link)}`];
}

/** What to know before a move. @param {Plan} plan @param {string} left @param {string} right the regions' names @returns {string[]} */
export function warnings(plan, left, right) {
  const found = plan.partitions.filter((one) => one.toBacklog === null).map((one) => `${right} has no partition ${one.partition}; its records wait until it has`);
  const seen = plan.link?.last_seen_at ?? null;
  if (plan.silence !== null) found.push(`${left} does not answer, so consumers there may go on${seen === null ? "" : `; ${right} last saw it at ${iso(seen)}`}: ${plan.silence}`);
  if (plan.left !== null && !plan.left.replicate_subscription_state) found.push(`${plan.left.name} is not replicated in ${left}, so its marks do not follow, and it cannot move back`);
  if (plan.link !== null) found.push(...recordsThatLack(plan.link, right));
  if (lacking(plan)) found.push(`the backlog in ${right} is smaller by ${lacking(plan)}: ${right} lacks records, or more are acknowledged there`);
  const back = plan.reverse && trouble(plan.reverse, left);
  if (plan.reverse && back) found.push(`${back}; marks may not follow, and ${right} may lack records${reason(plan.reverse)}`);
  return found;
}

/** The name of the variable that holds a region's URL in a command. @param {string} region */
export const variable = (region) => `$URL_${region.toUpperCase().replaceAll(/[^A-Z0-9]/g, "_")}`;

/** @param {string} topic @param {string} name @param {string} from @param {string} to */
export const command = (topic, name, from, to) => `fenceline failover ${topic} ${name} --from ${from}=${variable(from)} --to ${to}=${variable(to)}`;

/**
 * Whether a snapshot is complete, and each mark that it lets move has moved.
 * @param {import("./links.js").Replication} found in the region that is left @param {string} id @param {Subscription} left @param {Subscription} right @param {string} to
 */
export function hasMoved(found, id, left, right, to) {
  if (found.pending.some((one) => one.snapshot_id === id)) return false;
  const complete = new Map(found.snapshots.filter((one) => one.snapshot_id === id).map((one) => [one.partition, one]));
  if (complete.size === 0) return false;
  const marks = new Map(right.partitions.map((one) => [one.partition, one.mark_delete_offset]));
  return left.partitions.every((cursor) => {
    const one = complete.get(cursor.partition), mark = marks.get(cursor.partition);
    if (one === undefined || mark === undefined) return true;
    return !(cursor.backlog === 0 || cursor.mark_delete_offset >= one.local_offset) || mark >= (one.offsets[to] ?? 0);
  });
}
