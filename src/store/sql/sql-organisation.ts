// Teams, labels and the last use of keys, as queries.
import { type Kysely, sql, type Transaction } from 'kysely';
import type { Tier } from '../../config/schema/config-schema.ts';
import { changedTerms, readTerms, termsChanges, writeTerms } from '../../config/terms.ts';
import type { OrganisationStore, Team, TeamResult } from '../organisation-record.ts';
import type { Tables } from '../schema/tables.ts';
import { defer } from './deferred-statements.ts';
import { labelsOf, searchHolders } from './search/holder-search.ts';
import { hasLabel, nameBeginsWith } from './search/search-conditions.ts';
import { type SqlDatabase, transact } from './sql-database.ts';
import { changedLabels, labelTexts, lockTeam, readLabels, writeLabels } from './sql-holders.ts';

export function sqlOrganisation(database: SqlDatabase): OrganisationStore {
  const { reader, writer, lockChangeFeed, elementsOf } = database;

  /** Writes under the lock of the change feed, so that versions become visible in their order. */
  async function write(
    trx: Transaction<Tables>,
    team: Omit<Team, 'version'>,
    isNew: boolean,
  ): Promise<TeamResult> {
    await lockChangeFeed(trx);
    // Not the highest version of a team, which sinks when that team is removed: events stay, and each change has one.
    const last = await trx
      .selectFrom('team_events')
      .select((eb) => eb.fn.max('id').as('id'))
      .executeTakeFirst();
    const taken = await named(trx, team.name);
    if (taken !== undefined && taken.id !== team.id) return { kind: 'name_taken' };
    const version = Number(last?.id ?? 0) + 1;
    const { id, name, createdAt: created_at } = team;
    const row = { name, terms: writeTerms(team.terms), version };
    if (isNew)
      await trx
        .insertInto('teams')
        .values({ id, created_at, ...row })
        .execute();
    else await trx.updateTable('teams').set(row).where('id', '=', id).execute();
    return { kind: 'done', team: { ...team, version } };
  }

  return {
    addTeam({ id, name, terms }, { at, ...by }, labels) {
      return transact(database, async (trx) => {
        const result = await write(trx, { id, name, terms, createdAt: at }, true);
        if (result.kind !== 'done') return result;
        await writeLabels(trx, id, labels);
        await defer(trx, trx.insertInto('team_events').values({ team_id: id, what: 'created', at, ...by }));
        return result;
      });
    },

    changeTeam(id, change, { at, ...by }) {
      return transact(database, async (trx) => {
        const row = await lockTeam(trx, id);
        if (row === undefined) return { kind: 'unknown' };
        const before = teamFrom(row);
        const { name = before.name } = change;
        const terms = changedTerms(before.terms, change.terms);
        const labelsBefore = change.labels === undefined ? {} : await readLabels(trx, id);
        const labels = changedLabels(labelsBefore, change.labels ?? {});
        const what = [
          ...(name === before.name ? [] : [`name ${before.name} to ${name}`]),
          ...termsChanges(before.terms, terms),
          ...labelTexts(labels),
        ].join(', ');
        if (what === '') return { kind: 'same', team: before };
        const result = await write(trx, { ...before, name, terms }, false);
        if (result.kind !== 'done') return result;
        await writeLabels(trx, id, labels, labelsBefore);
        await defer(trx, trx.insertInto('team_events').values({ team_id: id, what, at, ...by }));
        return result;
      });
    },

    removeTeam(id, { at, ...by }) {
      return transact(database, async (trx) => {
        const team = await lockTeam(trx, id);
        if (team === undefined) return 'unknown';
        const holder = await trx
          .selectFrom('holders')
          .select('id')
          .where('team_id', '=', id)
          .limit(1)
          .executeTakeFirst();
        if (holder !== undefined) return 'has_holders';
        await defer(trx, trx.deleteFrom('labels').where('owner_id', '=', id));
        await defer(trx, trx.deleteFrom('teams').where('id', '=', id));
        // Reports of its usage need its name.
        const what = `removed ${team.name}`;
        await defer(trx, trx.insertInto('team_events').values({ team_id: id, what, at, ...by }));
        return 'removed';
      });
    },

    async findTeam(whose) {
      const row =
        'id' in whose
          ? await reader.selectFrom('teams').selectAll().where('id', '=', whose.id).executeTakeFirst()
          : await named(reader, whose.name);
      return row && teamFrom(row);
    },

    async listTeams({ name, labels = {}, after, limit }) {
      let query = reader
        .selectFrom('teams')
        .selectAll()
        .select((eb) =>
          eb
            .selectFrom('holders')
            .whereRef('holders.team_id', '=', 'teams.id')
            .select(eb.fn.countAll<number>().as('n'))
            .as('holders'),
        );
      // By the key of labels: where many holders have the label, its index is long.
      for (const label of Object.entries(labels)) query = query.where(hasLabel(sql`teams.id`, label));
      const folded = sql`lower(teams.name)${database.byBytes}`;
      if (name !== undefined) query = query.where(nameBeginsWith(folded, name));
      if (after !== undefined) query = query.where(sql<boolean>`${folded} > lower(${after})`);
      const rows = await query.orderBy(folded).limit(limit).execute();
      const labelsById = await labelsOf(
        database,
        rows.map(({ id }) => id),
      );
      return rows.map((row) => ({
        ...teamFrom(row),
        labels: labelsById.get(row.id) ?? {},
        holders: Number(row.holders),
      }));
    },

    async removedTeams(nameOrId) {
      const isNamed = sql<boolean>`lower(substr(what, 9)) in (lower(${nameOrId}), lower(${nameOrId.normalize('NFC')}))`;
      const query = reader.selectFrom('team_events').select('team_id').where('what', 'like', 'removed %');
      const rows = await query.where((eb) => eb.or([isNamed, eb('team_id', '=', nameOrId)])).execute();
      return rows.map(({ team_id }) => team_id);
    },

    async teamHistory(id) {
      const query = reader.selectFrom('team_events').selectAll().where('team_id', '=', id).orderBy('id');
      const rows = await query.execute();
      return rows.map(({ team_id: teamId, ...event }) => ({ ...event, teamId }));
    },

    async teamsAfter(version, limit) {
      const query = reader.selectFrom('teams').selectAll().where('version', '>', version).orderBy('version');
      return (await query.limit(limit).execute()).map(teamFrom);
    },

    searchHolders: (filter, limit, after) => searchHolders(database, filter, limit, after),

    async countExpiring(from, to) {
      const row = await reader
        .selectFrom('keys')
        .select((eb) => eb.fn.countAll<number>().as('n'))
        .where('state', '=', 'active')
        .where('expires_at', '>=', from)
        .where('expires_at', '<', to)
        .executeTakeFirst();
      return Number(row?.n ?? 0);
    },

    countHolders: (tiers) => countHolders(reader, tiers),

    labelsOf: (ownerId) => readLabels(reader, ownerId),

    async labelNames() {
      // Each step reads one row of the index.
      const { rows } = await sql<{ name: string }>`with recursive names (name) as (
          select min(name) from labels where marks is not null
          union all
          select (select min(labels.name) from labels where labels.name > names.name and labels.marks is not null) from names
          where names.name is not null
        ) select name from names where name is not null`.execute(reader);
      return rows.map(({ name }) => name);
    },

    async recordUses(uses) {
      if (uses.size === 0) return;
      // A fixed order prevents a deadlock of two writers.
      const rows = [...uses]
        .map(([prefix, day]) => ({ prefix, day }))
        .sort((a, b) => (a.prefix < b.prefix ? -1 : 1));
      await sql`insert into key_uses (prefix, day)
        select cast(e.value ->> 'prefix' as text), cast(e.value ->> 'day' as text)
        from ${elementsOf(JSON.stringify(rows))} where true
        on conflict (prefix) do update set day = excluded.day where key_uses.day < excluded.day`.execute(
        writer,
      );
    },
  };

  function named(db: SqlDatabase['reader'], name: string) {
    return db
      .selectFrom('teams')
      .selectAll()
      .where(
        sql<boolean>`lower(name)${database.byBytes} in (lower(${name}), lower(${name.normalize('NFC')}))`,
      )
      .executeTakeFirst();
  }
}

function teamFrom(row: Tables['teams']): Team {
  const { id, name, terms, version, created_at: createdAt } = row;
  return { id, name, terms: readTerms(terms), version, createdAt };
}

/** As `OrganisationStore.countHolders`. */
export async function countHolders(
  db: Kysely<Tables>,
  tiers: readonly Tier[],
): Promise<ReadonlyMap<string, number>> {
  if (tiers.length === 0) return new Map();
  const query = db
    .selectFrom('holders')
    .select(['tier', (eb) => eb.fn.countAll<number>().as('n')])
    .where('tier', 'in', tiers)
    .where((eb) => {
      const key = eb.selectFrom('keys').select('keys.id').whereRef('keys.holder_id', '=', 'holders.id');
      return eb.exists(key.where('keys.state', '=', 'active'));
    })
    .groupBy('tier');
  return new Map((await query.execute()).map(({ tier, n }) => [tier, Number(n)]));
}
