// Holders and their labels, within any transaction: new ones, and changes of what their keys are allowed. auth/holder-change.ts
// announces changes to the fleet.
import type { Kysely, Selectable, Transaction } from 'kysely';
import { changedTerms, readTerms, type Terms, termsChanges, writeTerms } from '../../config/terms.ts';
import { GatewayError } from '../../errors.ts';
import type {
  ActiveKeyChange,
  Authorship,
  ChangeResult,
  Holder,
  HolderChange,
  KeyChangeResult,
  LabelChange,
  OwnerLabels,
  Prefix,
} from '../key-record.ts';
import type { Tables } from '../schema/tables.ts';
import { defer } from './deferred-statements.ts';
import type { LockChangeFeed } from './sql-database.ts';
import { activeRecordsOf, insertEvent, recordOf } from './sql-keys.ts';

/** Of one owner. */
const MAX_LABELS = 20;

interface HolderChangeRequest extends Authorship {
  readonly holderId: string;
  readonly change: HolderChange;
}

const HOLDER = ['id', 'tier', 'standing', 'label', 'team_id', 'terms'] as const;
type HolderRow = Pick<Selectable<Tables['holders']>, (typeof HOLDER)[number]>;

export function holderFrom(row: HolderRow): Omit<Holder, 'createdAt'> {
  const { id, tier, standing, label: name, team_id: teamId, terms } = row;
  return { id, tier, standing, name, teamId, terms: readTerms(terms) };
}

export async function readHolder(db: Kysely<Tables>, id: string): Promise<Holder | undefined> {
  const row = await db
    .selectFrom('holders')
    .select([...HOLDER, 'created_at'])
    .where('id', '=', id)
    .executeTakeFirst();
  return row && { ...holderFrom(row), createdAt: row.created_at };
}

/** @param created_at RFC 3339, UTC */
export async function insertHolder(
  trx: Transaction<Tables>,
  holder: Omit<Holder, 'createdAt'>,
  created_at: string,
  labels: OwnerLabels = {},
): Promise<void> {
  const { id, tier, name: label, teamId: team_id, terms } = holder;
  const row = { id, tier, label, team_id, terms: writeTerms(terms), created_at };
  // First, so that its marks are written once.
  await writeLabels(trx, id, labels);
  await defer(trx, trx.insertInto('holders').values(row));
}

/**
 * Sets and removes labels of a holder or a team.
 * @param before those that it has
 * @throws GatewayError invalid_value where it would have too many
 */
export async function writeLabels(
  trx: Transaction<Tables>,
  owner_id: string,
  labels: LabelChange,
  before: OwnerLabels = {},
): Promise<void> {
  const values = Object.values({ ...before, ...labels }).filter((value) => value !== null);
  if (values.length > MAX_LABELS)
    throw new GatewayError('invalid_value', `A holder or a team has at most ${MAX_LABELS} labels.`, {
      param: 'label',
    });
  for (const [name, value] of Object.entries(labels)) {
    if (value === null) {
      await defer(trx, trx.deleteFrom('labels').where('owner_id', '=', owner_id).where('name', '=', name));
      continue;
    }
    const insertion = trx
      .insertInto('labels')
      .values({ owner_id, name, value })
      .onConflict((conflict) => conflict.columns(['owner_id', 'name']).doUpdateSet({ value }));
    await defer(trx, insertion);
  }
}

export async function readLabels(db: Kysely<Tables>, ownerId: string): Promise<OwnerLabels> {
  const query = db.selectFrom('labels').select(['name', 'value']).where('owner_id', '=', ownerId);
  const rows = await query.orderBy('name').execute();
  return Object.fromEntries(rows.map(({ name, value }) => [name, value]));
}

/**
 * The statement that locks and returns a holder. Transactions that change a holder or write a key of an existing one run it
 * first, so that a new key cannot miss a concurrent change of its holder.
 *
 * Lock order, to prevent deadlocks: team, holder, key, change feed.
 */
export function lockHolder(
  trx: Transaction<Tables>,
  whose: { readonly id: string } | { readonly prefix: Prefix },
) {
  // An update without effect: the only row lock that both databases support.
  const query = trx
    .updateTable('holders')
    .set((eb) => ({ tier: eb.ref('tier') }))
    .returning(HOLDER);
  if ('id' in whose) return query.where('id', '=', whose.id);
  return query.where('id', '=', (eb) =>
    eb.selectFrom('keys').select('holder_id').where('prefix', '=', whose.prefix),
  );
}

/**
 * Locks and returns a team. Whoever joins it locks it, too: the lock of a foreign key alone would let a change of the team wait for
 * it behind the change feed.
 */
export function lockTeam(trx: Transaction<Tables>, id: string): Promise<Tables['teams'] | undefined> {
  // As in `lockHolder`.
  const query = trx.updateTable('teams').set((eb) => ({ name: eb.ref('name') }));
  return query.where('id', '=', id).returningAll().executeTakeFirst();
}

/** Locks the team that a holder joins. @throws GatewayError invalid_value where it was removed */
export async function joinTeam(trx: Transaction<Tables>, id: string): Promise<void> {
  if ((await lockTeam(trx, id)) !== undefined) return;
  throw new GatewayError('invalid_value', 'The team was removed just now.', { param: 'team' });
}

/**
 * Changes a holder, raises the version of each of its active keys, and writes an event for each, or for the last one where none is active, within the caller's
 * transaction. After the commit the caller announces the change: `announceChanged` of the issuer.
 *
 * The caller has to take its own row locks before this call, because it takes the change feed's lock, which is the last.
 */
export async function changeHolderIn(
  trx: Transaction<Tables>,
  lockChangeFeed: LockChangeFeed,
  { holderId, change, ...by }: HolderChangeRequest,
): Promise<ChangeResult> {
  if (change.teamId) await joinTeam(trx, change.teamId);
  const row = await lockHolder(trx, { id: holderId }).executeTakeFirst();
  if (row === undefined) return { kind: 'unknown' };
  const before = holderFrom(row);
  const { labels, ...changed } = change;
  const after = { ...before, ...changed, terms: changedTerms(before.terms, change.terms) };
  const labelsBefore = labels === undefined ? {} : await readLabels(trx, holderId);
  const labelled = changedLabels(labelsBefore, labels ?? {});
  const teams = before.teamId === after.teamId ? [] : await teamsOf(trx, [before.teamId, after.teamId]);
  const what = [...changesOf(before, after, teams), ...labelTexts(labelled)].join(', ');
  if (what === '') return { kind: 'same', records: await activeRecordsOf(trx, holderId) };
  const { tier, standing, name: label, teamId: team_id, terms } = after;
  const columns = { tier, standing, label, team_id, terms: writeTerms(terms) };
  await defer(trx, trx.updateTable('holders').set(columns).where('id', '=', holderId));
  await writeLabels(trx, holderId, labelled, labelsBefore);
  const raising = trx
    .updateTable('keys')
    .set((eb) => ({ version: eb('version', '+', 1) }))
    .where('holder_id', '=', holderId)
    .where('state', '=', 'active');
  await defer(trx, raising);
  // The holder is locked, so the set of its keys cannot change.
  const records = await activeRecordsOf(trx, holderId);
  // Without an active key, the event is in the history of the last one.
  const told = records.length > 0 ? records : await lastKeyOf(trx, holderId);
  if (told.length > 0) await lockChangeFeed(trx);
  for (const { prefix, version } of told) {
    await insertEvent(trx, prefix, 'changed', version, described(by, what));
  }
  return { kind: 'changed', records };
}

function lastKeyOf(trx: Transaction<Tables>, holderId: string) {
  const query = trx.selectFrom('keys').select(['prefix', 'version']).where('holder_id', '=', holderId);
  return query.orderBy('id', 'desc').limit(1).execute();
}

/** As `changeHolderIn`, for an active key. */
export async function changeKeyIn(
  trx: Transaction<Tables>,
  lockChangeFeed: LockChangeFeed,
  prefix: Prefix,
  change: ActiveKeyChange,
  by: Authorship,
): Promise<KeyChangeResult> {
  await defer(trx, lockHolder(trx, { prefix }));
  const before = await recordOf(trx, prefix);
  if (before === undefined) return { kind: 'unknown' };
  if (before.state !== 'active') return { kind: 'ended', record: before };
  const after = { ...before, ...change, terms: changedTerms(before.terms, change.terms) };
  const what = changesOf(before, after).join(', ');
  if (what === '') return { kind: 'same', record: before };
  const record = { ...after, version: before.version + 1 };
  const { name, expiresAt: expires_at, terms, version } = record;
  const row = { name, expires_at, terms: writeTerms(terms), version };
  await defer(trx, trx.updateTable('keys').set(row).where('prefix', '=', prefix));
  await lockChangeFeed(trx);
  await insertEvent(trx, prefix, 'changed', version, described(by, what));
  return { kind: 'changed', record };
}

/** Writes an event for each of the keys that changed without one. Another process may have done so meanwhile. */
export async function announceIn(
  trx: Transaction<Tables>,
  lockChangeFeed: LockChangeFeed,
  keys: readonly { readonly prefix: Prefix }[],
  at: string,
): Promise<void> {
  const by = { at, reason: 'changed in the database', actor: null };
  const locked: { readonly prefix: Prefix; readonly state: string; readonly version: number }[] = [];
  for (const { prefix } of keys) {
    await defer(trx, lockHolder(trx, { prefix }));
    const raised = await trx
      .updateTable('keys')
      .set((eb) => ({ version: eb('version', '+', 1) }))
      .where('prefix', '=', prefix)
      .where('state', '=', 'active')
      .returning(['prefix', 'state', 'version'])
      .executeTakeFirst();
    const ended = trx.selectFrom('keys').select(['prefix', 'state', 'version']).where('prefix', '=', prefix);
    const key = raised ?? (await ended.executeTakeFirst());
    if (key !== undefined) locked.push(key);
  }
  await lockChangeFeed(trx);
  for (const { prefix, state, version } of locked)
    await insertEvent(trx, prefix, state === 'active' ? 'changed' : 'revoked', version, by);
}

/** The reason of an event is the description of the change, followed by what support says. */
function described({ reason, ...by }: Authorship, what: string): Authorship {
  return { ...by, reason: reason === null ? what : `${what}: ${reason}` };
}

/** Those that differ from what the owner has. */
export function changedLabels(before: OwnerLabels, change: LabelChange): LabelChange {
  return Object.fromEntries(
    Object.entries(change).filter(
      ([name, value]) => (Object.hasOwn(before, name) ? before[name] : null) !== value,
    ),
  );
}

const WORDS = {
  tier: 'tier',
  standing: 'standing',
  name: 'name',
  teamId: 'team',
  expiresAt: 'expiry',
} as const;

interface Described {
  readonly tier: string;
  readonly standing: string;
  readonly name: string | null;
  readonly teamId: string | null;
  readonly expiresAt?: string | null;
  readonly terms: Terms;
}

/** Changes of labels in words: `label env=prod`, `label env removed`. */
export function labelTexts(labels: LabelChange): readonly string[] {
  return Object.entries(labels).map(
    ([name, value]) => `label ${name}${value === null ? ' removed' : `=${value}`}`,
  );
}

function teamsOf(trx: Transaction<Tables>, ids: readonly (string | null)[]) {
  const known = ids.filter((id) => id !== null);
  return trx.selectFrom('teams').select(['id', 'name']).where('id', 'in', known).execute();
}

/** The differences in words: `tier Free to Pro`. @param teams those of a change of team: a name may change, and an id says nothing to people */
function changesOf(
  before: Described,
  after: Described,
  teams: readonly { readonly id: string; readonly name: string }[] = [],
): readonly string[] {
  const fields = Object.keys(WORDS) as (keyof typeof WORDS)[];
  const textOf = (value: string | null | undefined) => {
    const team = teams.find(({ id }) => id === value);
    return team === undefined ? (value ?? 'none') : `${team.name} (${team.id})`;
  };
  const texts = fields.flatMap((field) =>
    after[field] === before[field]
      ? []
      : [`${WORDS[field]} ${textOf(before[field])} to ${textOf(after[field])}`],
  );
  return [...texts, ...termsChanges(before.terms, after.terms)];
}
