// Shared by the support commands: key prefixes, input files, and opening the store.
import { createReadStream, existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { Key } from '../auth/key/key.ts';
import type { StaticConfig } from '../config/schema/config-schema.ts';
import { formatSize } from '../config/schema/units.ts';
import { earlierStoreWarning } from '../store/earlier-store.ts';
import { isPrefix, type Prefix } from '../store/key-record.ts';
import { openStore, StoreOpenError } from '../store/open.ts';
import type { Store } from '../store/store.ts';
import { outboxDirectory } from '../usage/outbox/default-directory.ts';
import { UsageError } from './program/arguments.ts';
import { type CommandIo, write } from './program/terminal.ts';

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

/** @param file `-` for the standard input @throws UsageError when it cannot be read or has more than `limit` bytes */
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
    // Such as: ENOENT: no such file or directory, open 'x'
    const [reason = ''] = (error instanceof Error ? error.message : String(error)).split(',');
    throw new UsageError(`the file ${file} cannot be read: ${reason}`, { cause: error });
  }
  if (size > limit) throw new UsageError(`the file has more than ${formatSize(limit)}`);
  return Buffer.concat(pieces);
}
