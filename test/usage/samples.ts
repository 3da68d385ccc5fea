// Records and outboxes for the tests of this folder.
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { Writable } from 'node:stream';
import type { CountingStore } from '../../src/store/store.ts';
import type { UsageSums } from '../../src/store/usage-record.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import type { UsageOutboxLimits } from '../../src/usage/outbox/outbox-limits.ts';
import type { UsageRecord } from '../../src/usage/records/request-usage.ts';
import { UsageOutbox } from '../../src/usage/usage-outbox.ts';

export const AT = Date.parse('2030-01-02T03:04:05Z');

export function record(changed: Partial<UsageRecord> = {}): UsageRecord {
  return {
    at: AT,
    holderId: 'holder-1',
    prefix: '0123abcd',
    tier: 'Lite',
    teamId: null,
    endpoint: 'chat',
    model: 'gpt',
    upstream: 'openai',
    target: 'gpt-1',
    attempts: 1,
    outcome: 'ok',
    usage: { prompt: 100, completion: 10, cached: 40, reasoning: 3 },
    isEstimated: false,
    durationMs: 1234.4,
    ttftMs: 56,
    costNanos: 7000,
    ...changed,
  };
}

/** What a outbox told of itself. */
export class Told {
  readonly batches = { written: 0, known: 0, late: 0, failed: 0 };
  readonly dropped: Record<string, number> = {};
  waiting = { segments: 0, bytes: 0, rows: 0 };
  log = '';

  onBatch(outcome: keyof Told['batches']): void {
    this.batches[outcome] += 1;
  }

  onDropped(reason: string, requests: number): void {
    this.dropped[reason] = (this.dropped[reason] ?? 0) + requests;
  }

  onWaiting(state: Told['waiting']): void {
    this.waiting = state;
  }

  get logger() {
    const sink = new Writable({
      write: (chunk, _encoding, done) => {
        this.log += String(chunk);
        done();
      },
    });
    return createLogger(sink, 'info');
  }
}

export async function open(
  store: CountingStore,
  directory: string,
  limits: Partial<UsageOutboxLimits> = {},
  clock?: () => number,
) {
  const told = new Told();
  const outbox = await UsageOutbox.open({
    store,
    directory,
    logger: told.logger,
    events: told,
    limits,
    ...(clock && { clock }),
  });
  return { outbox, told };
}

/** Nothing happens by itself. */
export const BY_HAND: Partial<UsageOutboxLimits> = { writeMs: 1e9, sendMs: 1e9, scanMs: 1e9 };
/** Everything happens soon. */
export const QUICK: Partial<UsageOutboxLimits> = { writeMs: 5, sendMs: 10, scanMs: 30, pauseMs: 20 };

export async function sums(store: CountingStore): Promise<UsageSums | undefined> {
  return (await store.usageReport({ from: '2000', by: [], limit: 1 }))[0]?.sums;
}

/** Outbox files, one for each process. */
export function files(directory: string): string[] {
  return readdirSync(directory).filter((name) => name.endsWith('.outbox'));
}

/** The rows of a file whose process has ended, by batch. It is copied before: what SQLite opens it also recovers. */
export function stored(path: string): readonly { id: string; cells: string }[] {
  const copy = mkdtempSync(join(tmpdir(), 'outbox-'));
  try {
    for (const suffix of ['', '-wal']) {
      if (existsSync(path + suffix)) copyFileSync(path + suffix, join(copy, `copy${suffix}`));
    }
    const database = new DatabaseSync(join(copy, 'copy'));
    const rows = database.prepare('select id, cells from usage_rows join batches on number = batch').all();
    database.close();
    return rows.map(({ id, cells }) => ({ id: String(id), cells: String(cells) }));
  } finally {
    rmSync(copy, { recursive: true });
  }
}

/** Writes a file in the former format. */
export function writeOldFile(directory: string, id: string, text: string, owner = FOREIGN): string {
  mkdirSync(directory, { recursive: true });
  const path = join(directory, `${owner}.${id}.jsonl`);
  writeFileSync(path, text);
  return path;
}

/** The owner in the name of such a file, on another machine. */
export const FOREIGN = 'aaaaaaaaaaaa.123.bbbbbbbbbbbb';

/** Sets the time of a file. */
export function age(path: string, ms: number): void {
  const past = (Date.now() - ms) / 1000;
  utimesSync(path, past, past);
}
