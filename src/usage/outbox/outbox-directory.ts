// The directory of the spool: names, whose file is whose, and taking over what a process left behind. What is in the files is
// outbox-line.ts, when they are written and read is the ledger's.
//
// A file is named HOST.PID.TOKEN.SEGMENT.jsonl; the first three are its owner. An owner touches HOST.PID.TOKEN.alive as long
// as it lives. Taking over is renaming: of two that try, one succeeds. Should a process be taken for gone that is not, both
// send the same segment under the same id, and the store counts it once.
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rename, stat, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { UsageRow } from '../../store/usage-record.ts';
import { withinMs } from './in-time.ts';
import { readLine, writeLine } from './outbox-line.ts';
import { enter, isGone, leave, type Owner } from './process-presence.ts';
import { OutboxFile, type OutboxSegment, syncFile } from './usage-segment.ts';

/** By the clock of the file system, which its users share. */
const SILENT_MS = 60_000;
/** Less than the time for which the store knows a batch, by a day. */
const STALE_MS = 6 * 86_400_000;
const DISK_MS = 5000;
const SEGMENT = /^([0-9a-f]{12})\.(\d{1,10})\.([0-9a-f]{12})\.([0-9a-f]{16})\.jsonl$/;
const ALIVE = /^([0-9a-f]{12})\.(\d{1,10})\.([0-9a-f]{12})\.alive$/;

export interface FoundSegment {
  /** Segments that this process has taken over now. */
  readonly taken: readonly OutboxSegment[];
  /** Size of all files that are not this process's own segments. */
  readonly otherBytes: number;
}

export class OutboxDirectory {
  readonly directory: string;
  readonly #owner: Owner = enter();

  constructor(directory: string) {
    this.directory = directory;
  }

  newId(): string {
    return randomBytes(8).toString('hex');
  }

  /**
   * Creates the directory where it is missing, and says that this process lives.
   * @throws the system's error
   */
  async beat(): Promise<void> {
    await withinMs(mkdir(this.directory, { recursive: true, mode: 0o700 }), DISK_MS, 'creating a directory');
    // Written rather than touched, so that the time is the file system's own.
    await withinMs(writeFile(this.#alive(this.#owner), '\n', { mode: 0o600 }), DISK_MS, 'writing a file');
  }

  /** @throws the system's error */
  create(id: string): Promise<OutboxFile> {
    return OutboxFile.create(this.#path(id));
  }

  /**
   * Looks through the directory, and takes over the segments of owners who have gone.
   * @throws the system's error
   */
  async claim(): Promise<FoundSegment> {
    const names = await withinMs(readdir(this.directory), DISK_MS, 'reading a directory');
    const now = (await stat(this.#alive(this.#owner))).mtimeMs;
    const gone = new Map<string, boolean>();
    const hasGone = async (owner: Owner): Promise<boolean> => {
      const known = gone.get(owner.token) ?? (isGone(owner) || (await this.#isSilent(owner, now)));
      gone.set(owner.token, known);
      return known;
    };
    const taken: OutboxSegment[] = [];
    let otherBytes = 0;
    for (const name of names) {
      const [, host = '', pid, token = '', id] = SEGMENT.exec(name) ?? ALIVE.exec(name) ?? [];
      if (token === this.#owner.token) continue;
      const size = await sizeOf(join(this.directory, name));
      if (pid === undefined || !(await hasGone({ host, pid: Number(pid), token }))) {
        otherBytes += size;
      } else if (id !== undefined) {
        const segment = await this.#take(name, id, now);
        if (segment !== undefined) taken.push(segment);
      }
    }
    // Only now: while it was there, others could see for themselves that the owner has gone.
    for (const name of names) {
      const token = ALIVE.exec(name)?.[3];
      if (token !== undefined && gone.get(token) === true) await remove(join(this.directory, name));
    }
    return { taken, otherBytes };
  }

  /**
   * Reads a segment back. A last line without its end is one that was being written when its process ended, and is left out.
   * @returns undefined when the file is gone: another process has taken it over
   * @throws the system's error
   */
  async load(segment: OutboxSegment): Promise<readonly UsageRow[] | undefined> {
    if (segment.path === undefined) return undefined;
    let content: string;
    try {
      content = await withinMs(readFile(segment.path, 'utf8'), DISK_MS, 'reading a file');
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
      throw error;
    }
    const read = content.split('\n').slice(0, -1).map(readLine);
    segment.hasWrongLines = read.includes(undefined);
    return read.flatMap((rows) => rows ?? []);
  }

  /**
   * Writes a segment that is in memory alone.
   * @throws the system's error
   */
  async save(segment: OutboxSegment): Promise<void> {
    if (segment.totals === undefined || segment.isDurable) return;
    // What a failed write has left has the name already.
    if (segment.path !== undefined) await remove(segment.path);
    const file = await this.create(segment.id);
    try {
      await file.append(writeLine(segment.totals.rows()));
    } finally {
      await file.close(true);
    }
    segment.path = file.path;
    segment.bytes = file.bytes;
    segment.isDurable = true;
  }

  /** Makes the file of a segment survive a loss of power, if that can be done. Never rejects. */
  async sync({ path }: OutboxSegment): Promise<void> {
    if (path !== undefined) await syncFile(path).catch(() => {});
  }

  /** Removes the file of a segment that was counted, or keeps it aside when a line of it was wrong. */
  async discard(segment: OutboxSegment): Promise<void> {
    if (segment.path === undefined) return;
    if (segment.hasWrongLines) await this.setAside(segment);
    else await remove(segment.path);
  }

  /** Keeps a file under a name by which nobody takes it over, for somebody to look at. */
  async setAside(segment: OutboxSegment): Promise<void> {
    if (segment.path === undefined) return;
    await rename(segment.path, join(this.directory, `${segment.id}.aside`)).catch(() => {});
  }

  /** Lets others take over at once what is left. */
  async leave(): Promise<void> {
    this.abandon();
    await remove(this.#alive(this.#owner));
  }

  /** Leaves everything as a process does that is killed. */
  abandon(): void {
    leave(this.#owner);
  }

  async #take(name: string, id: string, now: number): Promise<OutboxSegment | undefined> {
    const path = this.#path(id);
    try {
      await rename(join(this.directory, name), path);
      const { size, mtimeMs } = await stat(path);
      const isStale = now - mtimeMs > STALE_MS;
      return { ...EMPTY, id, path, bytes: size, isDurable: true, isInherited: true, isStale };
    } catch {
      // Somebody else was first.
      return undefined;
    }
  }

  async #isSilent(owner: Owner, now: number): Promise<boolean> {
    try {
      return now - (await stat(this.#alive(owner))).mtimeMs > SILENT_MS;
    } catch (error) {
      // It is written before the first segment, and removed by an owner who leaves.
      return error instanceof Error && 'code' in error && error.code === 'ENOENT';
    }
  }

  #path(id: string): string {
    const { host, pid, token } = this.#owner;
    return join(this.directory, `${host}.${pid}.${token}.${id}.jsonl`);
  }

  #alive({ host, pid, token }: Owner): string {
    return join(this.directory, `${host}.${pid}.${token}.alive`);
  }
}

/** A segment of which nothing is known yet. */
export const EMPTY = {
  path: undefined,
  totals: undefined,
  holders: undefined,
  bytes: 0,
  isDurable: false,
  isInherited: false,
  isStale: false,
  hasWrongLines: false,
  failures: 0,
  writtenBefore: 0,
} as const;

async function sizeOf(path: string): Promise<number> {
  return stat(path).then(
    ({ size }) => size,
    () => 0,
  );
}

async function remove(path: string): Promise<void> {
  // What cannot be removed is sent again after the next start, and not counted again.
  await withinMs(unlink(path), DISK_MS, 'removing a file').catch(() => {});
}
