// What a store with many keys costs, of which a part is in use, beside a store with a few: how long a start
// takes, what a request costs that is the first of its key, what it costs when the key is known, and how much memory all that
// takes. `node bench/many-keys.ts`; `--help` says the rest.
import { createHmac, randomBytes } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { parseArgs } from 'node:util';
import { argon2id, hash } from 'argon2';
import { Pool } from 'undici';
import { type Bench, MANY_FILES, tell, withBench } from './bench.ts';
import { cpuMicroseconds, residentBytes } from './cpu.ts';
import { quantile, type Row, rowsOf, type Sample } from './figures.ts';
import { requestBody } from './load/traffic.ts';
import { circumstances, loadBefore } from './machine.ts';
import { wholeNumber } from './options.ts';
import { isWholeRun, publishSection } from './publish.ts';
import { type Section, tableOf } from './section.ts';
import {
  type GatewaySubject,
  issueKey,
  startGateway,
  usageWritten,
  writeConfig,
} from './subjects/gateway.ts';

const USAGE = `node bench/many-keys.ts [--keys N] [--active N] [--rounds N] [--write]

  --keys N    keys in the store (default 100000)
  --active N  how many of them are used (default 20000)
  --rounds N  how often each key and the hot ones are used again, in turns (default 5)
  --write     also write the figures into docs/performance.md
`;

/** The lengths of a run that counts. */
const WHOLE = { keys: 100_000, active: 20_000, rounds: 5 };
/** Of a store with few keys, all of them in use. */
const FEW = 100;
/** Requests under way at once. */
const CONCURRENCY = 32;
/** Hashes of keys that are used ask for so little that the bench is not one of Argon2, which cold-keys measures. */
const CHEAP = { type: argon2id, memoryCost: 8, timeCost: 1, parallelism: 1, hashLength: 32 } as const;
const UNUSED = '$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g';
/** Rows of one transaction. */
const BATCH = 50_000;

interface Filled {
  readonly configFile: string;
  readonly active: readonly string[];
  readonly store_mib: number;
}

/** A store that the gateway made, with so many keys more, written straight into its tables. */
async function fill(bench: Bench, folder: string, keys: number, active: number): Promise<Filled> {
  const ports = { upstream: bench.upstream.port, largeUpstream: bench.largeUpstream.port };
  const configFile = writeConfig({ folder, ...ports });
  await issueKey(bench.processes, configFile);
  const file = join(folder, 'tollgate.db');
  const secret = readFileSync(`${file}.secret`, 'utf8').trim();
  const used: string[] = [];
  const prefixes = new Set<string>();
  const database = new DatabaseSync(file);
  const holder = database.prepare('insert into holders (id, tier, label, created_at) values (?, ?, null, ?)');
  const key = database.prepare(
    `insert into keys (prefix, holder_id, argon2, hmac, state, version, created_at) values (?, ?, ?, ?, 'active', 1, ?)`,
  );
  const event = database.prepare(
    `insert into key_events (prefix, kind, version, at, reason) values (?, 'issued', 1, ?, null)`,
  );
  const at = new Date().toISOString();
  while (prefixes.size < keys) {
    const batch: [text: string, argon2: string][] = [];
    while (batch.length < BATCH && prefixes.size < keys) {
      const text = randomBytes(16).toString('hex');
      const prefix = text.slice(0, 8);
      if (prefixes.has(prefix)) continue;
      prefixes.add(prefix);
      const isUsed = used.length < active;
      if (isUsed) used.push(text);
      batch.push([text, isUsed ? await hash(text, CHEAP) : UNUSED]);
    }
    database.exec('begin');
    for (const [text, argon2] of batch) {
      const prefix = text.slice(0, 8);
      holder.run(`holder-${prefix}`, 'Pro', at);
      key.run(prefix, `holder-${prefix}`, argon2, createHmac('sha256', secret).update(text).digest(), at);
      event.run(prefix, at);
    }
    database.exec('commit');
    tell(`${prefixes.size} of ${keys} keys written`);
  }
  database.exec('pragma wal_checkpoint(truncate)');
  database.close();
  const store_mib = statSync(file).size / 2 ** 20;
  return { configFile, active: used, store_mib };
}

interface Options {
  readonly keys: number;
  readonly active: number;
  readonly rounds: number;
}

async function measure(bench: Bench, name: string, { keys, active, rounds }: Options): Promise<Row[]> {
  const folder = join(bench.folder, `keys-${keys}`);
  const filled = await fill(bench, folder, keys, active);
  const began = performance.now();
  const gateway = await startGateway(bench.processes, {
    folder,
    upstream: bench.upstream.port,
    largeUpstream: bench.largeUpstream.port,
    key: filled.active[0] ?? '',
    files: MANY_FILES,
    inside: true,
  });
  const start_ms = performance.now() - began;
  const mib = async () => {
    await gateway.settle?.();
    return residentBytes(gateway.pids[0] ?? 0) / 2 ** 20;
  };
  // As many as it takes to compile, all with one key.
  await askAll(
    gateway,
    Array.from({ length: 5_000 }, () => filled.active[0] ?? ''),
  );
  const before_mib = await mib();
  tell(`${name}: the first request of each key`);
  const first = await askAll(gateway, filled.active);
  // Few of the keys, over and over, as a store with few would have it. The first time is not measured: with it all is compiled, and
  // nothing that collects garbage comes between the second time and what it is compared with.
  const hot = Array.from({ length: 20_000 }, (_, index) => filled.active[index % FEW] ?? '');
  await askAll(gateway, hot);
  const samples: Sample[] = [];
  for (let number = 1; number <= rounds; number += 1) {
    const second = await askAll(gateway, filled.active);
    const again = await askAll(gateway, hot);
    const second_of_hot = second.cpu_us / again.cpu_us;
    tell(
      `${name} ${number}/${rounds}: each key again takes ${second_of_hot.toFixed(2)} times as long as hot ones`,
    );
    samples.push({
      second_p50_ms: second.p50_ms,
      second_p99_ms: second.p99_ms,
      second_cpu_us: second.cpu_us,
      hot_cpu_us: again.cpu_us,
      second_of_hot,
    });
  }
  const after_mib = await mib();
  await gateway.stop();
  const once = {
    keys,
    active,
    store_mib: filled.store_mib,
    start_ms,
    first_p50_ms: first.p50_ms,
    first_p99_ms: first.p99_ms,
    first_cpu_us: first.cpu_us,
    before_mib,
    after_mib,
    bytes_per_key: ((after_mib - before_mib) * 2 ** 20) / active,
  };
  return rowsOf(new Map([[name, [once, ...samples]]]));
}

/** A request with each key. A key that finds no place for its hash is asked for again, as a client would. */
async function askAll(
  gateway: GatewaySubject,
  keys: readonly string[],
): Promise<{ readonly p50_ms: number; readonly p99_ms: number; readonly cpu_us: number }> {
  const { url, alias, pids } = gateway;
  const { origin, pathname } = new URL(url);
  const pool = new Pool(origin, { connections: CONCURRENCY, pipelining: 1 });
  const body = requestBody({ model: alias });
  const took: number[] = [];
  let next = 0;
  const used = () => pids.reduce((sum, pid) => sum + cpuMicroseconds(pid), 0);
  await usageWritten(gateway);
  const before = used();
  const lane = async () => {
    for (let key = keys[next++]; key !== undefined; key = keys[next++]) {
      const began = performance.now();
      for (;;) {
        const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
        const answer = await pool.request({ method: 'POST', path: pathname, headers, body });
        await answer.body.dump();
        if (answer.statusCode === 200) break;
        if (answer.statusCode !== 503) throw new Error(`a key was answered ${answer.statusCode}`);
      }
      took.push(performance.now() - began);
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, lane));
  await usageWritten(gateway);
  const cpu_us = (used() - before) / keys.length;
  await pool.close();
  return { p50_ms: quantile(took, 0.5), p99_ms: quantile(took, 0.99), cpu_us };
}

async function main(argv: string[]): Promise<void> {
  const { values } = parseArgs({
    args: argv,
    options: {
      keys: { type: 'string', default: `${WHOLE.keys}` },
      active: { type: 'string', default: `${WHOLE.active}` },
      rounds: { type: 'string', default: `${WHOLE.rounds}` },
      write: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return;
  }
  const number = (name: keyof Options) => wholeNumber(name, values[name], 10_000_000);
  const options = { keys: number('keys'), active: number('active'), rounds: number('rounds') };
  const { keys, active, rounds } = options;
  if (active < FEW || active > keys)
    throw new Error(`--active is a whole number from ${FEW}, and --keys one that is not below it`);
  const load = loadBefore();
  const rows = await withBench({ rounds, seconds: 1, peer: false, warmUpRequests: 64 }, async (bench) => [
    ...(await measure(bench, 'few keys', { keys: FEW, active: FEW, rounds })),
    ...(await measure(bench, 'many keys', options)),
  ]);
  const section: Section = {
    id: 'keys',
    title: 'SQLite',
    note: '',
    columns: [
      { field: 'keys', heading: 'keys', digits: 0 },
      { field: 'active', heading: 'used', digits: 0 },
      { field: 'store_mib', heading: 'store MiB', digits: 0 },
      { field: 'start_ms', heading: 'start ms', digits: 0 },
      { field: 'first_cpu_us', heading: 'first CPU µs', digits: 0 },
      { field: 'first_p50_ms', heading: 'first p50 ms', digits: 2 },
      { field: 'first_p99_ms', heading: 'first p99 ms', digits: 2 },
      { field: 'second_cpu_us', heading: 'second CPU µs', digits: 0 },
      { field: 'second_p50_ms', heading: 'second p50 ms', digits: 2 },
      { field: 'second_p99_ms', heading: 'second p99 ms', digits: 2 },
      { field: 'hot_cpu_us', heading: `${FEW} hot ones CPU µs`, digits: 0 },
      { field: 'second_of_hot', heading: 'second of hot', digits: 2, unit: 'x' },
      { field: 'before_mib', heading: 'MiB before', digits: 0 },
      { field: 'after_mib', heading: 'MiB after', digits: 0 },
      { field: 'bytes_per_key', heading: 'bytes/used key', digits: 0 },
    ],
    rows,
  };
  process.stdout.write(`\n${tableOf(section)}`);
  const command = ['node bench/many-keys.ts', ...argv].join(' ');
  if (values.write)
    publishSection(section, { command, load }, circumstances(undefined), isWholeRun(options, WHOLE));
}

await main(process.argv.slice(2)).catch((error) => {
  tell(`bench: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
});
