// The table of a comparison: one row for each client, version and server, as Markdown.
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { ComparedPair } from './pair.ts';

const DOCUMENT = fileURLToPath(new URL('../../../docs/clients.md', import.meta.url));
const BEGIN = '<!-- comparison -->';
const END = '<!-- /comparison -->';

interface Named {
  readonly name: string;
  readonly version: string;
}

/** What a row says of a pair. */
export interface Row {
  readonly client: Named;
  readonly server: Named;
  readonly pair: ComparedPair | undefined;
  /** Why there is no pair. */
  readonly why: string | undefined;
}

export function rowOf(client: Named, server: Named, pair: ComparedPair): Row {
  return { client, server, pair, why: undefined };
}

export function unavailableRow(client: Named, server: Named, why: string): Row {
  return { client, server, pair: undefined, why };
}

/** The table, and below it the names of the explanations that it counts and of the calls that were skipped. */
export function tableOf(rows: readonly Row[]): string {
  const lines = rows.map(({ client, server, pair, why }) => {
    const names = [client.name, client.version, `${server.name} ${server.version}`];
    return `| ${[...names, ...(pair === undefined ? ['–', '–', '–', '–', `all: ${firstLine(why)}`] : counts(pair))].join(' | ')} |`;
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

function counts({ calls, skipped }: ComparedPair): string[] {
  const unexplained = calls.filter((call) => call.unexplained.length > 0).length;
  const explained = calls.filter((call) => call.unexplained.length === 0 && call.explained.length > 0).length;
  return [calls.length, calls.length - explained - unexplained, explained, unexplained, skipped.length].map(
    String,
  );
}

function explanations(rows: readonly Row[]): string[] {
  const found = new Map<string, { why: string; calls: Set<string> }>();
  for (const { pair } of rows)
    for (const { call, explained } of pair?.calls ?? [])
      for (const { by } of explained) {
        const known = found.get(by.name) ?? { why: by.why, calls: new Set() };
        found.set(by.name, known);
        known.calls.add(call);
      }
  if (found.size === 0) return [];
  const items = [...found].map(([name, { why, calls }]) => `- **${name}**: ${why} (${listed(calls)})`);
  return ['', 'Explained differences:', '', ...items];
}

function skips(rows: readonly Row[]): string[] {
  const found = new Map<string, Set<string>>();
  for (const { server, pair } of rows)
    for (const { call, why } of pair?.skipped ?? []) {
      const reason = `${server.name}: ${why}`;
      found.set(reason, (found.get(reason) ?? new Set()).add(call));
    }
  if (found.size === 0) return [];
  const items = [...found].map(([why, calls]) => `- ${why} (${listed(calls)})`);
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
