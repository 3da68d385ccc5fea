// Shared by the support commands: output, exit codes, key prefixes, and opening the store.
import { createReadStream, existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { SecretError } from '../auth/hashing/hashing-secret.ts';
import { Key } from '../auth/key/key.ts';
import { ConfigError, faultReport } from '../config/config-fault.ts';
import type { StaticConfig } from '../config/schema/config-schema.ts';
import { formatSize } from '../config/schema/units.ts';
import { GatewayError } from '../errors.ts';
import { earlierStoreWarning } from '../store/earlier-store.ts';
import { isPrefix, type Prefix } from '../store/key-record.ts';
import { openStore, StoreOpenError } from '../store/open.ts';
import type { Store } from '../store/store.ts';
import { maskKeys } from '../telemetry/log/key-mask.ts';
import { outboxDirectory } from '../usage/outbox/default-directory.ts';
import { didYouMean, UsageError } from './arguments.ts';
import { type CommandIo, write } from './terminal.ts';

/** A command's name and usage text. */
export interface CommandText {
  /** The word after `tollgate`. */
  readonly name: string;
  readonly usage: string;
}

/** The status that a shell shows for a program that ends at a closed pipe: 128 and the number of SIGPIPE. */
const ENDED_BY_SIGPIPE = 141;

/**
 * Runs a command and prints its error; `help`, `--help` and `-h` print its usage instead.
 * @returns the exit code: that of `work`, 1 when it failed, 2 for wrong usage, 141 when the reader of its output has gone
 */
export async function runCommand(
  { name, usage }: CommandText,
  argv: readonly string[],
  io: CommandIo,
  work: () => Promise<number>,
): Promise<number> {
  try {
    if (argv[0] === 'help' || argv.includes('--help') || argv.includes('-h')) {
      await write(io.stdout, usage);
      return 0;
    }
    return await work();
  } catch (error) {
    if (error instanceof UsageError) {
      await write(io.stderr, `tollgate ${name}: ${maskKeys(error.message)}; see tollgate ${name} --help\n`);
      return 2;
    }
    // Whoever runs it in the gateway needs the code.
    if (io.desk?.throwsCodes === true && error instanceof GatewayError) throw error;
    // The reader, such as `head`, has read enough.
    if (error instanceof Error && Reflect.get(error, 'code') === 'EPIPE') return ENDED_BY_SIGPIPE;
    const text = error instanceof ConfigError ? faultReport(error) : `tollgate ${name}: ${reasonOf(error)}`;
    await write(io.stderr, `${maskKeys(text)}\n`);
    return 1;
  }
}

/** Runs the command that the first argument names. @returns as `runCommand` */
export function runSubcommand(
  text: CommandText,
  commands: Readonly<Record<string, (argv: readonly string[], io: CommandIo) => Promise<number>>>,
  argv: readonly string[],
  io: CommandIo,
): Promise<number> {
  return runCommand(text, argv, io, async () => {
    const [name, ...rest] = argv;
    if (name === undefined) throw new UsageError('a command is missing');
    const command = Object.entries(commands).find(([known]) => known === name)?.[1];
    if (command === undefined)
      throw new UsageError(`unknown command${didYouMean(name, Object.keys(commands))}`);
    return await command(rest, io);
  });
}

const PAGE = 500;

/**
 * Writes all items of a list, as a JSON array of `fields` or as lines of text.
 * @param page reads the items after the last one of the previous page
 */
export async function writeList<Item>(
  { stdout }: CommandIo,
  isJson: boolean,
  page: (limit: number, after: Item | undefined) => Promise<readonly Item[]>,
  fields: (item: Item) => object,
  line: (item: Item) => string,
): Promise<void> {
  if (isJson) await write(stdout, '[');
  let separator = '';
  let last: Item | undefined;
  for (;;) {
    const items = await page(PAGE, last);
    for (const item of items) {
      await write(stdout, isJson ? `${separator}\n${JSON.stringify(fields(item))}` : `${line(item)}\n`);
      separator = ',';
    }
    last = items.at(-1);
    if (items.length < PAGE) break;
  }
  if (isJson) await write(stdout, '\n]\n');
}

/** A line of a list in columns of fixed widths; the last cell has any width. */
export function columns(widths: readonly number[], cells: readonly string[]): string {
  const padded = cells.map((cell, index) => cell.padEnd(widths[index] ?? 0));
  return padded.join('  ').trimEnd();
}

/** Lines of text in columns. @param left number of columns that are texts */
export function aligned(rows: readonly (readonly string[])[], left: number): string {
  const widths = rows[0]?.map((_, at) => Math.max(...rows.map((row) => row[at]?.length ?? 0))) ?? [];
  const pad = (cell: string, at: number) =>
    at < left ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0);
  return rows.map((row) => `${row.map(pad).join('  ').trimEnd()}\n`).join('');
}

/**
 * @param missing what to do without a SQLite file; a relative path in another working directory names another store
 * @throws StoreOpenError
 */
export async function openStoreOf(
  config: StaticConfig,
  io: CommandIo,
  missing: 'create' | 'must exist',
): Promise<Store> {
  const { store } = config;
  if ('path' in store && missing === 'must exist' && !existsSync(resolve(store.path))) {
    const why = earlierStoreWarning(store, { spool: outboxDirectory(config) });
    throw new StoreOpenError(why ?? `there is no store at ${resolve(store.path)}`);
  }
  // Patient: an operator waits, perhaps on a slow link, and must be able to revoke a leaked key.
  const opened = await openStore(store, { isPatient: true, spool: outboxDirectory(config) });
  if (opened.isNew && 'path' in store) {
    await write(io.stderr, `Creating a new store at ${resolve(store.path)}\n`);
  }
  return opened;
}

/** @throws UsageError, which does not quote the text: it may be most of a key */
export async function readPrefix(text: string, io: CommandIo): Promise<Prefix> {
  const lower = text.toLowerCase();
  if (isPrefix(lower)) return lower;
  const key = Key.parse(lower);
  if (key === undefined) throw new UsageError('PREFIX is the first 8 characters of a key, 0-9 and a-f');
  await write(
    io.stderr,
    `Warning: a whole key was given. It is now in the shell history and was visible in the process list: ` +
      `treat it as leaked. ${key.prefix} is enough.\n`,
  );
  return key.prefix;
}

/** The error of a command for a key that does not exist. */
export const noSuchKey = () => new Error('no key with this prefix');

/** The error message for the operator, with its cause. */
function reasonOf(error: unknown): string {
  if (error instanceof StoreOpenError || error instanceof SecretError) return error.message;
  if (error instanceof GatewayError && error.code === 'invalid_value') return error.message;
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message} (${error.cause.message})` : error.message;
}

/**
 * @param file `-` for the standard input
 * @throws UsageError when it cannot be read or has more than `limit` bytes
 */
export async function readInput(
  file: string,
  { stdin = process.stdin }: CommandIo,
  limit: number,
): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let size = 0;
  try {
    for await (const piece of file === '-' ? stdin : createReadStream(file)) {
      pieces.push(Buffer.from(piece));
      size += pieces.at(-1)?.length ?? 0;
      if (size > limit) break;
    }
  } catch (error) {
    throw new UsageError('the file cannot be read', { cause: error });
  }
  if (size > limit) throw new UsageError(`the file has more than ${formatSize(limit)}`);
  return Buffer.concat(pieces);
}
