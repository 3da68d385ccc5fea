// The row of each pair as of its last run, in the cache folder: pairs can run on their own, and the table has all of them.
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { cacheFolder } from './installs.ts';
import { emptyRow, type Named, type Row } from './table.ts';

const folder = (): string => join(cacheFolder(), 'rows');

/** Keeps a row in place of the earlier one of the same pair. */
export async function keepRow(row: Row): Promise<void> {
  await mkdir(folder(), { recursive: true });
  const { client, server } = row;
  const name = encodeURIComponent([client.name, client.version, server.name, server.version].join(' '));
  await writeFile(join(folder(), `${name}.json`), JSON.stringify(row));
}

/** The row of each pair, by server. A pair that has not run in these versions has a row that says so. */
export async function keptRows(clients: readonly Named[], servers: readonly Named[]): Promise<Row[]> {
  const names = await readdir(folder()).catch(() => []);
  const rows = await Promise.all(
    names.map(async (name): Promise<Row> => JSON.parse(await readFile(join(folder(), name), 'utf8'))),
  );
  const isSame = (kept: Named, { name, version }: Named): boolean =>
    // The version of a toolchain is known when it has run.
    kept.name === name && (version === '' || kept.version === version);
  return servers.flatMap((server) =>
    clients.map(
      (client) =>
        rows.find((row) => isSame(row.client, client) && isSame(row.server, server)) ??
        emptyRow(client, server, 'not run'),
    ),
  );
}
