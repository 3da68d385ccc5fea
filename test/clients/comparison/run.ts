// `npm run test:clients`: all clients with all servers, directly and through the gateway, and a table of what differs.
import { parseArgs } from 'node:util';
import { CLIENTS } from './clients/index.ts';
import type { Difference } from './compare.ts';
import { keepRow, keptRows } from './kept-rows.ts';
import { type ComparedPair, comparePair } from './pair.ts';
import { SERVERS } from './servers/index.ts';
import { emptyRow, type Row, rowOf, tableOf, writeTable } from './table.ts';
import { type ComparedClient, type ComparedServer, type RunningServer, Unavailable } from './types.ts';

const HELP = `npm run test:clients -- [options]
  --client TEXT   only clients whose name and version contain TEXT (repeatable)
  --server TEXT   only servers whose name and version contain TEXT (repeatable)
  --call NAME     only this call (repeatable)
  --explained     print the explained differences too
  --write         write the table of all pairs into docs/clients.md: the others are as in their last run
Exits with 1 if a difference has no explanation, or a client fails.`;

const { values: options } = parseArgs({
  options: {
    client: { type: 'string', multiple: true, default: [] },
    server: { type: 'string', multiple: true, default: [] },
    call: { type: 'string', multiple: true },
    explained: { type: 'boolean', default: false },
    write: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

if (options.help) console.log(HELP);
else process.exitCode = await main();

async function main(): Promise<number> {
  const clients = chosen(CLIENTS, options.client);
  const servers = chosen(SERVERS, options.server);
  if (clients.length === 0 || servers.length === 0) {
    console.error('no client or no server has such a name');
    return 2;
  }
  // The servers run beside each other, and the clients of a server one after the other.
  const runs = await Promise.all(servers.map((server) => runClients(clients, server)));
  console.log(`\n${tableOf(runs.flatMap((run) => run.rows))}`);
  if (options.write) await writeTable(tableOf(await keptRows(CLIENTS, SERVERS)));
  return runs.some(({ isFailed }) => isFailed) ? 1 : 0;
}

/** A row for each client, in their order, and whether one of them failed or has a difference without an explanation. */
async function runClients(
  clients: readonly ComparedClient[],
  server: ComparedServer,
): Promise<{ readonly rows: readonly Row[]; readonly isFailed: boolean }> {
  const rows: Row[] = [];
  let isFailed = false;
  for (const client of clients) {
    try {
      const pair = await runPair(client, server);
      report(client, server, pair);
      rows.push(rowOf(client, server, pair));
      isFailed ||= pair.calls.some(({ unexplained }) => unexplained.length > 0);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      const state = error instanceof Unavailable ? 'not available' : 'FAILED';
      console.log(`\n${title(client)}, ${title(server)}: ${state}: ${why}`);
      rows.push(emptyRow(client, server, why));
      isFailed ||= !(error instanceof Unavailable);
    }
    const last = rows.at(-1);
    if (last !== undefined && options.call === undefined) await keepRow(last);
  }
  return { rows, isFailed };
}

/** Each pair has a server of its own: what one client did to it is nothing to the next. */
async function runPair(client: ComparedClient, server: ComparedServer): Promise<ComparedPair> {
  await client.prepare();
  const running: RunningServer = await server.start();
  try {
    return await comparePair(client, running, title(server), options.call);
  } finally {
    await running.close();
  }
}

function report(client: ComparedClient, server: ComparedServer, pair: ComparedPair): void {
  console.log(`\n${title(client)}, ${title(server)}: ${pair.calls.length} calls`);
  for (const { call, why } of pair.skipped) console.log(`  skipped ${call}: ${why}`);
  for (const { unexplained, explained } of pair.calls) {
    for (const each of unexplained) console.log(`  UNEXPLAINED ${describe(each)}`);
    if (options.explained)
      for (const { by, difference } of explained) console.log(`  ${by.name}: ${describe(difference)}`);
  }
}

function describe({ call, path, direct, through }: Difference): string {
  return `${call} ${path}: directly ${short(direct)}, through the gateway ${short(through)}`;
}

function short(value: unknown): string {
  const text = value === undefined ? 'nothing' : JSON.stringify(value);
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}

function title({ name, version }: { readonly name: string; readonly version: string }): string {
  return `${name} ${version}`;
}

function chosen<T extends { readonly name: string; readonly version: string }>(
  all: readonly T[],
  texts: readonly string[],
): readonly T[] {
  return texts.length === 0 ? all : all.filter((each) => texts.some((text) => title(each).includes(text)));
}
