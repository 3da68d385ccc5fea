// A store with many holders, written by SQL, and the searches in it: each condition with a value that many, few and no holders have, alone
// and in pairs. Conditions of many exclude each other in places: a holder with an even number has no revoked key.
import type { HolderFilter, KeyFilter } from '../../src/store/key-record.ts';

export interface Search {
  readonly of: 'keys' | 'holders' | 'teams';
  readonly name: string;
  readonly filter: Omit<KeyFilter, 'limit' | 'prefix' | 'after'>;
}

type Filter = Search['filter'];

/** By condition, and then by how many have the value. */
const HOLDER_CONDITIONS: Readonly<Record<string, Readonly<Record<string, HolderFilter>>>> = {
  name: { many: { name: 'even' }, few: { name: 'odd 1234' }, none: { name: 'zebra' } },
  label: {
    many: { labels: { env: 'prod' } },
    few: { labels: { env: 'canary' } },
    none: { labels: { env: 'none' } },
  },
  'beginning of a label': {
    many: { labels: { cost_center: 'c*' } },
    few: { labels: { cost_center: 'c1234*' } },
    none: { labels: { cost_center: 'x*' } },
  },
  'another label': {
    many: { labels: { stage: 'trial' } },
    few: { labels: { stage: 'beta' } },
    none: { labels: { stage: 'none' } },
  },
  // None of these has the name or the label that many have.
  'another beginning': { many: { labels: { stage: 't*' } } },
  // None of these has the other beginning.
  'a third beginning': { many: { labels: { env: 'p*' } } },
  team: { many: { teamId: 't0' }, few: { teamId: 't17' }, none: { teamId: 'empty' } },
  tier: { many: { tier: 'Free' }, few: { tier: 'Pro' } },
  standing: { many: { standing: 'suspended' } },
};
const KEY_CONDITIONS: Readonly<Record<string, Readonly<Record<string, Filter>>>> = {
  ...HOLDER_CONDITIONS,
  state: { most: { state: 'active' }, many: { state: 'revoked' }, few: { state: 'invalidated' } },
  use: { many: { unusedSince: '2030-07-01' }, few: { unusedSince: '2020-01-01' } },
  expiry: {
    many: { expiresBefore: '2031-07-01T00:00:00Z' },
    few: { expiresBefore: '2031-01-02T00:00:00Z' },
    none: { expiresBefore: '2030-01-01T00:00:00Z' },
  },
};

const TEAM_CONDITIONS: Readonly<Record<string, Readonly<Record<string, Filter>>>> = {
  name: { many: { name: 'team' }, few: { name: 'team 123' }, none: { name: 'zebra' } },
  // Of all holders, and of each tenth team.
  label: { many: { labels: { env: 'prod' } }, few: { labels: { cost_center: 'c1234' } } },
  'beginning of a label': { many: { labels: { stage: 't*' } }, none: { labels: { region: 'x*' } } },
};

/** Each condition alone, and each pair of them. */
export function searches(): readonly Search[] {
  return [
    ...searchesOf('holders', HOLDER_CONDITIONS),
    ...searchesOf('keys', KEY_CONDITIONS),
    ...searchesOf('teams', TEAM_CONDITIONS),
  ];
}

function searchesOf(
  of: Search['of'],
  conditions: Readonly<Record<string, Readonly<Record<string, Filter>>>>,
): readonly Search[] {
  const alone = Object.entries(conditions).map(([condition, values]) =>
    Object.entries(values).map(
      ([count, filter]): Search => ({ of, name: `${condition} (${count})`, filter }),
    ),
  );
  const pairs = alone.flatMap((first, index) =>
    alone.slice(index + 1).flatMap((second) =>
      first.flatMap((a) =>
        second.flatMap((b): readonly Search[] => {
          const [own, other] = [a.filter.labels ?? {}, b.filter.labels ?? {}];
          // Of one label there is one value.
          if (Object.keys(own).some((label) => label in other)) return [];
          const labels = { ...own, ...other };
          return [{ of, name: `${a.name}, ${b.name}`, filter: { ...a.filter, ...b.filter, labels } }];
        }),
      ),
    ),
  );
  return [{ of, name: 'all', filter: {} }, ...alone.flat(), ...pairs];
}

/** Most holders whose ids are distinct. */
export const MAX_HOLDERS = 1_000_000;
const TEAMS = 10_000;

/** @param holders up to `MAX_HOLDERS` */
export function fillStatements(kind: 'sqlite' | 'postgres', holders: number): readonly string[] {
  const isSqlite = kind === 'sqlite';
  const numbers = (count: number) =>
    isSqlite
      ? `(with recursive c (n) as (select 0 union all select n + 1 from c where n + 1 < ${count}) select n from c) as x`
      : `generate_series(0, ${count - 1}) as x (n)`;
  const padded = (value: string) =>
    isSqlite ? `printf('%08d', ${value})` : `lpad((${value})::text, 8, '0')`;
  const day = (from: string, days: string) =>
    isSqlite
      ? `date('${from}', '+' || (${days}) || ' days')`
      : `to_char(date '${from}' + (${days})::int, 'YYYY-MM-DD')`;
  // Not in the order of issue, as ids and prefixes are not: the factor has no divisor with the prime in common.
  const scattered = padded(isSqlite ? '(n * 48271) % 1000003' : '(n::bigint * 48271) % 1000003');
  const id = `${scattered} || '-0000-4000-8000-000000000000'`;
  const zeros = isSqlite ? 'zeroblob(32)' : "decode(repeat('00', 32), 'hex')";
  const at = '2030-01-01T00:00:00.000Z';
  const hash = `$argon2id$v=19$m=19456,t=2,p=1$${'c'.repeat(22)}$${'h'.repeat(43)}`;
  const all = numbers(holders);
  const team = `case when n % 10 = 0 then 't0' else 't' || (1 + n % ${TEAMS - 1}) end`;
  return [
    `insert into teams (id, name, terms, version, created_at) values ('empty', 'Empty', '{}', 0, '${at}')`,
    `insert into teams (id, name, terms, version, created_at)
       select 't' || n, 'Team ' || n, '{}', n + 1, '${at}' from ${numbers(TEAMS)}`,
    `insert into labels (owner_id, name, value) select ${id}, 'cost_center', 'c' || n from ${all}`,
    `insert into labels (owner_id, name, value)
       select ${id}, 'env', case when n % 10000 = 7 then 'canary' when n % 2 = 0 then 'prod' else 'dev' end from ${all}`,
    `insert into labels (owner_id, name, value)
       select ${id}, 'stage', case when n % 10000 = 8 then 'beta' when n % 2 = 1 then 'trial' else 'live' end from ${all}`,
    `insert into labels (owner_id, name, value) select 't' || n, 'env', 'prod' from ${numbers(TEAMS)} where n % 10 = 0`,
    // After the labels, so that its marks are written once.
    `insert into holders (id, tier, label, created_at, team_id, standing)
       select ${id}, case when n % 2 = 0 then 'Free' when n % 10000 = 1 then 'Pro' else 'Lite' end,
         case when n % 2 = 0 then 'Even ' else 'Odd ' end || n, '${at}', ${team},
         case when n % 4 = 3 then 'suspended' else 'good' end from ${all}`,
    `insert into keys (prefix, holder_id, argon2, hmac, state, version, created_at, expires_at)
       select ${scattered}, ${id}, '${hash}', ${zeros}, 'active', 1, '${at}',
         case when n % 10 in (1, 2, 3) then ${day('2031-01-01', 'n % 300')} || 'T00:00:00.000Z' end
       from ${all} order by n`,
    `insert into key_events (prefix, kind, version, at) select prefix, 'issued', 1, '${at}' from keys`,
    `update keys set version = 2, ended_at = '${at}', state = case when id % 4 = 2 then 'revoked' else 'invalidated' end
       where id % 4 = 2 or id % 10000 = 9`,
    `insert into key_uses (prefix, day)
       select ${scattered}, case when n % 4 = 1 then ${day('2029-06-01', 'n % 150')} else ${day('2030-08-01', 'n % 150')} end
       from ${all} where n % 1000 <> 0`,
  ];
}
