// The table of a comparison: one row for each client, version and server, as Markdown.
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { EXPLANATIONS } from './explained.ts';
import type { ComparedPair } from './pair.ts';

const DOCUMENT = fileURLToPath(new URL('../../../docs/clients.md', import.meta.url));
const BEGIN = '<!-- comparison -->';
const END = '<!-- /comparison -->';

export interface Named {
  readonly name: string;
  readonly version: string;
}

/** What the table says of a pair. It can be kept as JSON. */
export interface Row {
  readonly client: Named;
  readonly server: Named;
  readonly calls: readonly {
    readonly call: string;
    readonly isUnexplained: boolean;
    /** Names of explanations. */
    readonly explained: readonly string[];
  }[];
  readonly skipped: ComparedPair['skipped'];
  /** Why no call was made. */
  readonly why?: string;
}

export function rowOf(client: Named, server: Named, { calls, skipped }: ComparedPair): Row {
  return {
    client: named(client),
    server: named(server),
    calls: calls.map(({ call, unexplained, explained }) => ({
      call,
      isUnexplained: unexplained.length > 0,
      explained: [...new Set(explained.map(({ by }) => by.name))],
    })),
    skipped,
  };
}

/** A row for a pair that this machine cannot have, or whose client failed. */
export function emptyRow(client: Named, server: Named, why: string): Row {
  return { client: named(client), server: named(server), calls: [], skipped: [], why };
}

const named = ({ name, version }: Named): Named => ({ name, version });

/** The table, and below it the names of the explanations that it counts and of the calls that were skipped. */
export function tableOf(rows: readonly Row[]): string {
  const lines = rows.map((row) => {
    const { client, server, why } = row;
    const names = [client.name, client.version, `${server.name} ${server.version}`];
    return `| ${[...names, ...(why === undefined ? counts(row) : ['–', '–', '–', '–', `all: ${firstLine(why)}`])].join(' | ')} |`;
  });
  return [
    '| client | version | server | calls | equal | explained | unexplained | skipped |',
    '|---|---|---|---|---|---|---|---|',
    ...lines,
    ...explanations(rows),
    ...skips(rows),
  ].join('\n');
}

/** Puts the table between the markers of `docs/clients.md`. */
export async function writeTable(table: string): Promise<void> {
  const text = await readFile(DOCUMENT, 'utf8');
  const begin = text.indexOf(BEGIN);
  const end = text.indexOf(END);
  if (begin < 0 || end < begin) throw new Error(`docs/clients.md has no ${BEGIN} before ${END}`);
  await writeFile(DOCUMENT, `${text.slice(0, begin + BEGIN.length)}\n${table}\n${text.slice(end)}`);
}

function counts({ calls, skipped }: Row): string[] {
  const unexplained = calls.filter((call) => call.isUnexplained).length;
  const explained = calls.filter((call) => !call.isUnexplained && call.explained.length > 0).length;
  return [calls.length, calls.length - explained - unexplained, explained, unexplained, skipped.length].map(
    String,
  );
}

function explanations(rows: readonly Row[]): string[] {
  const calls = rows.flatMap((row) => row.calls);
  const items = EXPLANATIONS.flatMap(({ name, why }) => {
    const names = new Set(calls.filter(({ explained }) => explained.includes(name)).map(({ call }) => call));
    return names.size === 0 ? [] : [`- **${name}**: ${why} (${listed(names)})`];
  });
  return items.length === 0 ? [] : ['', 'Explained differences:', '', ...items];
}

function skips(rows: readonly Row[]): string[] {
  const found = new Map<string, Set<string>>();
  for (const { server, skipped } of rows)
    for (const { call, why } of skipped) {
      const reason = `${server.name}: ${why}`;
      found.set(reason, (found.get(reason) ?? new Set()).add(call));
    }
  if (found.size === 0) return [];
  // Messages of errors may hold what Markdown takes for a tag.
  const items = [...found].map(([why, calls]) => `- ${why.replaceAll('<', '&lt;')} (${listed(calls)})`);
  return ['', 'Skipped calls:', '', ...items];
}

/** The first names, and how many there are beyond them. */
function listed(calls: ReadonlySet<string>): string {
  const names = [...calls].map((call) => `\`${call}\``);
  const rest = names.length - 6;
  return rest > 1 ? `${names.slice(0, 6).join(', ')} and ${rest} more` : names.join(', ');
}

function firstLine(text = ''): string {
  return (text.split('\n')[0] ?? text).replaceAll('|', '\\|');
}
