// What the commands of the support desk have in common: where they write, how they end, how a key is named, how the store is
// opened. What each of them does is its own matter.
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { SecretError } from '../auth/hashing/hashing-secret.ts';
import { Key } from '../auth/key/key.ts';
import { ConfigError } from '../config/schema/config-fault.ts';
import type { StaticConfig } from '../config/schema/config-schema.ts';
import { GatewayError } from '../errors.ts';
import { earlierStoreWarning } from '../store/earlier-store.ts';
import { isPrefix, type Prefix } from '../store/key-record.ts';
import { openStore, StoreOpenError } from '../store/open.ts';
import type { Store } from '../store/store.ts';
import { maskKeys } from '../telemetry/log/key-mask.ts';
import { outboxDirectory } from '../usage/outbox/default-directory.ts';
import { UsageError } from './arguments.ts';

export interface CommandIo {
  readonly stdout: Writable;
  readonly stderr: Writable;
  readonly env: NodeJS.ProcessEnv;
}

/** A command, as its user knows it. */
export interface CommandText {
  /** Behind `tollgate`. */
  readonly name: string;
  readonly usage: string;
}

/**
 * Runs a command to its exit code: what it returns, 1 when it failed, 2 when it was used wrongly. What went wrong is told.
 */
export async function runCommand(
  { name, usage }: CommandText,
  io: CommandIo,
  work: () => Promise<number>,
): Promise<number> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof UsageError) {
      await write(io.stderr, `tollgate ${name}: ${maskKeys(error.message)}\n\n${usage}`);
      return 2;
    }
    await write(io.stderr, `tollgate ${name}: ${maskKeys(reasonOf(error))}\n`);
    return 1;
  }
}

/** Resolves when the text is out, so that a process that exits next has lost nothing. */
export function write(stream: Writable, text: string): Promise<void> {
  return new Promise((done, failed) => {
    // A stream that breaks says so twice, here and by an event that would end the process.
    stream.once('error', failed);
    stream.write(text, (error) => {
      if (error) return failed(error);
      stream.off('error', failed);
      done();
    });
  });
}

/**
 * @param missing what to do when there is no SQLite file: from another working directory a relative path is another store
 * @throws StoreOpenError
 */
export async function openStoreOf(
  config: StaticConfig,
  io: CommandIo,
  missing: 'create' | 'must exist',
): Promise<Store> {
  const { store } = config;
  if (store.kind === 'sqlite' && missing === 'must exist' && !existsSync(resolve(store.path))) {
    const why = earlierStoreWarning(store, { spool: outboxDirectory(config) });
    throw new StoreOpenError(why ?? `there is no store at ${resolve(store.path)}`);
  }
  // One person waits, perhaps far from the database, and a key that leaked has to be ended.
  const opened = await openStore(store, { isPatient: true, spool: outboxDirectory(config) });
  if (opened.isNew && store.kind === 'sqlite') {
    await write(io.stderr, `Creating a new store at ${resolve(store.path)}\n`);
  }
  return opened;
}

/** @throws UsageError. The text is not quoted in any message: it may be most of a key. */
export async function readPrefix(text: string, io: CommandIo): Promise<Prefix> {
  const lower = text.toLowerCase();
  if (isPrefix(lower)) return lower;
  const key = Key.parse(lower);
  if (key === undefined) throw new UsageError('a key is named by its first 8 characters, 0-9 and a-f');
  await write(
    io.stderr,
    `Warning: a whole key was given. It now stands in the history of the shell and was in the list of processes; ` +
      `regard it as leaked. ${key.prefix} is enough.\n`,
  );
  return key.prefix;
}

/** @returns the exit code */
export async function noSuchKey({ name }: Pick<CommandText, 'name'>, io: CommandIo): Promise<number> {
  await write(io.stderr, `tollgate ${name}: there is no key with this prefix\n`);
  return 1;
}

/** What an operator can act on: the message, and what lies under it. */
function reasonOf(error: unknown): string {
  if (error instanceof ConfigError || error instanceof StoreOpenError || error instanceof SecretError) {
    return error.message;
  }
  if (error instanceof GatewayError && error.code === 'invalid_value') return error.message;
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message} (${error.cause.message})` : error.message;
}
