// Times every search of keys, holders and teams, alone and in pairs, among a million holders, in SQLite and PostgreSQL. `node
// bench/searches.ts`; `--help` says the rest.
import { existsSync, statSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { parseArgs } from 'node:util';
import type { CompiledQuery } from 'kysely';
import { Client } from 'pg';
import type { StoreAddress } from '../src/config/schema/addresses.ts';
import type { SearchPage, SearchPosition } from '../src/store/key-record.ts';
import { openStore } from '../src/store/open.ts';
import { PostgresLease } from '../src/store/postgres/postgres-lease.ts';
import { SqliteQueue } from '../src/store/sqlite/sqlite-queue.ts';
import type { Store } from '../src/store/store.ts';
import { startPostgres } from '../test/helpers/postgres.ts';
import { tempDir } from '../test/helpers/wait.ts';
import { childrenOf, cpuMicroseconds } from './cpu.ts';
import { figureOf } from './figures.ts';
import { circumstances } from './machine.ts';
import { publishText } from './publish.ts';
import { markdownTable } from './section.ts';
import { fillStatements, MAX_HOLDERS, type Search, searches } from './subjects/many-holders.ts';

const USAGE = `node bench/searches.ts [--holders N] [--store sqlite|postgres] [--rounds N] [--page N] [--slow MS] [--only TEXT] [--file PATH] [--plans] [--write]

  --holders N   holders, each with a key (default 1000000)
  --store NAME  only this store
  --rounds N    how often each search runs (default 5)
  --page N      rows of a page (default 51; the API and commands read up to 501)
  --slow MS     what is listed (default 50)
  --only TEXT   only searches with this in their names
  --file PATH   the SQLite store: filled where it is missing, and kept
  --plans       also print the plans of what is listed
  --write       also write the figures into docs/performance.md
`;
/** Rows before the later page. */
const DEEP = 5000;
const LISTED = 12;
/** A search that took longer once is not repeated, in milliseconds. */
const HOPELESS_MS = 3000;

interface Timed {
  readonly name: string;
  /** CPU time of this process and the database, which other programs on the machine do not add to; the median. */
  readonly cpuMs: number;
  readonly ms: number;
  readonly run: () => Promise<unknown>;
}

interface Options {
  readonly holders: number;
  readonly rounds: number;
  readonly page: number;
  readonly slow: number;
  readonly plans: boolean;
  /** Part of the names of the searches. */
  readonly only: string;
}

const tell = (line: string) => process.stderr.write(`${line}\n`);

async function fill(address: StoreAddress, holders: number): Promise<void> {
  await (await openStore(address, { isPatient: true })).close();
  const began = performance.now();
  const statements = fillStatements(address.kind, holders);
  if (address.kind === 'sqlite') {
    const database = new DatabaseSync(address.path);
    database.exec('pragma synchronous = off; pragma cache_size = -1000000');
    for (const statement of statements) database.exec(statement);
    database.exec('pragma wal_checkpoint(truncate)');
    database.close();
  } else {
    const client = new Client({ connectionString: address.url });
    await client.connect();
    for (const statement of statements) await client.query(statement);
    // As autovacuum leaves a store.
    await client.query('vacuum analyze');
    await client.end();
  }
  tell(`${address.kind}: ${holders} holders written in ${((performance.now() - began) / 1000).toFixed(0)} s`);
}

async function timed(name: string, rounds: number, run: () => Promise<unknown>): Promise<Timed> {
  const [cpu, wall]: [number[], number[]] = [[], []];
  while (wall.length < rounds && (cpu[0] ?? 0) < HOPELESS_MS) {
    const [began, used] = [performance.now(), usedCpuMs()];
    await run().catch((cause: unknown) => {
      throw new Error(`${name} failed`, { cause });
    });
    wall.push(performance.now() - began);
    cpu.push(usedCpuMs() - used);
  }
  return { name, ms: figureOf(wall).median, cpuMs: figureOf(cpu).median, run };
}

/** Of this process and the processes of PostgreSQL, if it runs one. */
function usedCpuMs(): number {
  const servers = childrenOf(process.pid).flatMap((pid) => [pid, ...childrenOf(pid)]);
  return [process.pid, ...servers].reduce((sum, pid) => sum + cpuMicroseconds(pid) / 1000, 0);
}

/**
 * The first page of a search, and one that begins `DEEP` rows later where there are as many.
 * @param walks gets searches whose first page is not full: all pages until as many rows are found
 */
async function timeSearch(
  store: Store,
  { of, name, filter }: Search,
  { rounds, page }: Options,
  walks: Timed[],
): Promise<Timed[]> {
  const list = (limit: number, after: SearchPosition | undefined) => pageOf(store, of, filter, limit, after);
  const title = `${of}: ${name}`;
  const result = [await timed(title, rounds, () => list(page, undefined))];
  const first = await list(page, undefined);
  if (first.next === undefined) return result;
  if (first.items.length < page) {
    let pages = 0;
    const walk = await timed(title, 1, async () => {
      let [found, after]: [number, SearchPosition | undefined] = [0, undefined];
      for (pages = 0; pages === 0 || (after !== undefined && found < page); pages += 1) {
        const { items, next }: SearchPage<object> = await list(page - found, after);
        found += items.length;
        after = next;
      }
    });
    walks.push({ ...walk, name: `${title}: ${pages} pages` });
  }
  let after: SearchPosition | undefined = first.next;
  for (let rows = 0; rows < DEEP; rows += 1000) after = (await list(1000, after)).next ?? after;
  result.push(await timed(`${title}, later page`, rounds, () => list(page, after)));
  return result;
}

async function pageOf(
  store: Store,
  of: Search['of'],
  filter: Search['filter'],
  limit: number,
  after: SearchPosition | undefined,
): Promise<SearchPage<object>> {
  if (of === 'keys') return store.listKeys({ ...filter, limit, after });
  if (of === 'holders') return store.organisation.searchHolders(filter, limit, after);
  const { name, labels } = filter;
  const last = after === undefined ? undefined : String(after[0]);
  const items = await store.organisation.listTeams({ name, labels, limit, after: last });
  const end = items.length < limit ? undefined : items.at(-1)?.name;
  return { items, next: end === undefined ? undefined : [end] };
}

/** The statements of a search with their plans. */
async function plansOf(address: StoreAddress, run: () => Promise<unknown>): Promise<string> {
  const statements: CompiledQuery[] = [];
  const prototype = address.kind === 'sqlite' ? SqliteQueue.prototype : PostgresLease.prototype;
  const original = prototype.executeQuery;
  prototype.executeQuery = function execute<R>(this: typeof prototype, query: CompiledQuery) {
    statements.push(query);
    return original.call(this, query) as ReturnType<typeof original<R>>;
  };
  await run();
  prototype.executeQuery = original;
  const texts: string[] = [];
  for (const { sql, parameters } of statements) {
    texts.push(sql, JSON.stringify(parameters));
    if (address.kind === 'sqlite') {
      const database = new DatabaseSync(address.path);
      const given = parameters.map((each) => (typeof each === 'number' ? each : String(each)));
      const rows = database.prepare(`explain query plan ${sql}`).all(...given);
      texts.push(...rows.map(({ detail }) => `  ${String(detail)}`));
      database.close();
    } else {
      const client = new Client({ connectionString: address.url });
      await client.connect();
      const { rows } = await client.query(`explain analyze ${sql}`, [...parameters]);
      texts.push(...rows.map((row) => `  ${String(row['QUERY PLAN'])}`));
      await client.end();
    }
  }
  return texts.join('\n');
}

async function measure(address: StoreAddress, options: Options): Promise<string> {
  const { holders, page, slow, plans, only } = options;
  const store = await openStore(address, { isPatient: true });
  const [times, walks]: [Timed[], Timed[]] = [[], []];
  for (const search of searches())
    if (`${search.of}: ${search.name}`.includes(only))
      times.push(...(await timeSearch(store, search, options, walks)));
  const worst = times.toSorted((a, b) => b.cpuMs - a.cpuMs);
  if (plans)
    for (const { name, cpuMs, run } of worst.filter((each) => each.cpuMs >= slow))
      tell(`\n${name}: ${cpuMs.toFixed(1)} ms of CPU time\n${await plansOf(address, run)}`);
  await store.close();
  const size = address.kind === 'sqlite' ? `, ${(statSync(address.path).size / 2 ** 20).toFixed(0)} MiB` : '';
  const within = (max: number) => `${times.filter(({ cpuMs }) => cpuMs <= max).length} within ${max} ms`;
  const head = `${address.kind === 'sqlite' ? 'SQLite' : 'PostgreSQL'}, ${holders} holders${size}, pages of ${page}: ${times.length} searches, ${within(10)}, ${within(100)}; the slowest`;
  const table = (title: string, list: readonly Timed[]) =>
    markdownTable(
      [title, 'CPU ms', 'ms'],
      list
        .toSorted((a, b) => b.cpuMs - a.cpuMs)
        .slice(0, LISTED)
        .map(({ name, cpuMs, ms }) => [name, cpuMs.toFixed(1), ms.toFixed(1)]),
    );
  const continued = `${walks.length} of them whose first page has less than ${page} rows and a next one: all pages until it would be full`;
  return `${table(head, times)}\n${table(continued, walks)}`;
}

async function main(argv: string[]): Promise<void> {
  const { values } = parseArgs({
    args: argv,
    options: {
      holders: { type: 'string', default: String(MAX_HOLDERS) },
      store: { type: 'string' },
      rounds: { type: 'string', default: '5' },
      page: { type: 'string', default: '51' },
      slow: { type: 'string', default: '50' },
      only: { type: 'string', default: '' },
      file: { type: 'string' },
      plans: { type: 'boolean', default: false },
      write: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return;
  }
  const [holders, rounds, slow] = [Number(values.holders), Number(values.rounds), Number(values.slow)];
  const options = {
    holders,
    rounds,
    slow,
    page: Number(values.page),
    plans: values.plans,
    only: values.only,
  };
  const tables: string[] = [];
  if (values.store !== 'postgres') {
    await using folder = await tempDir();
    const path = values.file ?? folder.file('tollgate.db');
    const address = { kind: 'sqlite', path } as const;
    if (!existsSync(path)) await fill(address, holders);
    tables.push(await measure(address, options));
  }
  if (values.store !== 'sqlite') {
    // As much memory as a server gives it.
    await using server = await startPostgres({ shared_buffers: '2GB' });
    const address = { kind: 'postgres', url: await server.createDatabase() } as const;
    await fill(address, holders);
    tables.push(await measure(address, options));
  }
  process.stdout.write(`\n${tables.join('\n')}`);
  const command = ['node bench/searches.ts', ...argv].join(' ');
  if (values.write) publishText('searches', tables.join('\n'), command, circumstances(undefined));
}

await main(process.argv.slice(2)).catch((error) => {
  tell(
    `bench: ${error instanceof Error ? `${error.stack}\n${String(error.cause instanceof Error ? error.cause.cause : '')}` : String(error)}`,
  );
  process.exitCode = 1;
});
