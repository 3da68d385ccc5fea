// The lease of a request that Redis has admitted, what it holds, and the releases that are sent when requests end.
import { randomBytes } from 'node:crypto';
import { LIMITS } from '../config/limit-table.ts';
import { utcDateAt } from './calendar.ts';
import { type Amounts, NO_AMOUNTS, SettledOnce } from './limiter.ts';
import type { PendingRelease } from './pending-releases.ts';
import type { ReserveCalls } from './reserve-calls.ts';
import type { Scopes } from './scope.ts';
import type { LimitUsage, ScopeCheck } from './verdict.ts';

/** Maximum calls that are sent together, and leases that are renewed in one call: each must end within the deadline of a call. */
export const MAX_BATCH = 100;

export class RedisLease extends SettledOnce {
  scopes: Scopes;
  /** As Redis stores it, or its id alone. */
  member: string;
  override amounts: Amounts;
  /** Its release may wait for a reservation to go with. */
  mayWait = false;

  constructor(scopes: Scopes, member: string, amounts: Amounts, onSettled: (amounts: Amounts) => void) {
    super(onSettled);
    this.scopes = scopes;
    this.member = member;
    this.amounts = amounts;
  }
}

/** Ids that no other process has. */
export class LeaseIds {
  readonly #process = randomBytes(8).toString('hex');
  #count = 0;

  next(): string {
    this.#count += 1;
    return `${this.#process}.${this.#count}`;
  }
}

/** The leases of this process. */
export class OwnLeases {
  readonly #bySlot = new Map<string, Set<RedisLease>>();
  /** Their number in each scope. */
  readonly #running = new Map<string, number>();

  add(lease: RedisLease): void {
    const { slot } = lease.scopes;
    this.#bySlot.set(slot, (this.#bySlot.get(slot) ?? new Set()).add(lease));
    this.#count(lease, 1);
  }

  /** Changes its scopes. One that was settled is not added again. */
  move(lease: RedisLease, scopes: Scopes): void {
    this.remove(lease);
    lease.scopes = scopes;
    if (!lease.isSettled) this.add(lease);
  }

  /** Does nothing for one that is not here. */
  remove(lease: RedisLease): void {
    const { slot } = lease.scopes;
    const leases = this.#bySlot.get(slot);
    if (leases?.delete(lease) !== true) return;
    if (leases.size === 0) this.#bySlot.delete(slot);
    this.#count(lease, -1);
  }

  /** @param scope its id */
  runningIn(scope: string): number {
    return this.#running.get(scope) ?? 0;
  }

  /**
   * Renews all leases, until Redis is down. A lease may be settled during its renewal: Redis executes both in the order in which they
   * were sent. Never rejects.
   */
  async renewAll(calls: Pick<ReserveCalls, 'call'>, isUp: () => boolean): Promise<void> {
    let sent: Promise<unknown>[] = [];
    for (const [first, ...rest] of this.parts(MAX_BATCH)) {
      if (!isUp()) break;
      sent.push(calls.call(first.scopes, ['renew', first.member, ...rest.map(({ member }) => member)]));
      if (sent.length < MAX_BATCH) continue;
      await Promise.allSettled(sent);
      sent = [];
    }
    await Promise.allSettled(sent);
  }

  /** The leases of each slot, in parts. Read while it goes on: those that were settled meanwhile are left out. */
  *parts(maxSize: number): Generator<readonly [RedisLease, ...RedisLease[]]> {
    for (const leases of [...this.#bySlot.values()]) {
      const all = [...leases];
      for (let start = 0; start < all.length; start += maxSize) {
        const [first, ...rest] = all.slice(start, start + maxSize).filter((lease) => leases.has(lease));
        if (first !== undefined) yield [first, ...rest];
      }
    }
  }

  #count({ scopes }: RedisLease, by: 1 | -1): void {
    for (const { id } of scopes.list) {
      const running = this.runningIn(id) + by;
      if (running === 0) this.#running.delete(id);
      else this.#running.set(id, running);
    }
  }
}

/** @param amounts really used */
export function pendingReleaseOf({ scopes, member }: RedisLease, amounts: Amounts): PendingRelease {
  const orElse = member.includes(':') ? 'real' : 'use';
  return {
    scopes,
    member,
    amounts,
    requests: 0,
    orElse,
    recent: { since: 0, requests: 0, amounts: NO_AMOUNTS },
  };
}

/** Usage without a lease, or of a lease that Redis may have by this id. @param since monotonic milliseconds */
export function usageReleaseOf(
  scopes: Scopes,
  member: string,
  requests: number,
  amounts: Amounts,
  since: number,
): PendingRelease {
  return { scopes, member, amounts, requests, orElse: 'use', recent: { since, requests, amounts } };
}

/** The part of a lease by which Redis finds it. */
export function leaseIdOf(member: string): string {
  return member.split(':', 1)[0] ?? member;
}

/** The start of the minute window that holds its amounts in a scope. @returns undefined where it has nothing in the scope */
function windowIn(member: string, tag: string): number | undefined {
  const tags = member.split(':')[4]?.split(',') ?? [];
  const own = tags.find((each) => each.startsWith(`${tag}=`));
  return own === undefined ? undefined : Number(own.slice(tag.length + 1));
}

/** What decides about a change of a lease. @param lease before it; `isHeld`: Redis still has it */
export function checksOfChange(
  usages: readonly LimitUsage[],
  tags: readonly string[],
  lease: { readonly member: string; readonly amounts: Amounts; readonly isHeld: boolean },
  windowMs: number,
): ScopeCheck[] {
  return usages.map((usage, index) => {
    const tag = tags[index] ?? '';
    const hasSlot = !lease.member.includes(':') || windowIn(lease.member, tag) !== undefined;
    return { usage: hasSlot && lease.isHeld ? usageWithout(usage, lease, tag, windowMs) : usage, hasSlot };
  });
}

/** The usage of a scope without the amounts that a lease has reserved there. @param windowMs length of the minute window */
function usageWithout(
  usage: LimitUsage,
  { member, amounts }: { readonly member: string; readonly amounts: Amounts },
  tag: string,
  windowMs: number,
): LimitUsage {
  const windowStart = windowIn(member, tag);
  if (windowStart === undefined) return usage;
  const reserved = utcDateAt(Number(member.split(':')[1]) / 1000);
  const { wallMs, windowLeftMs, date } = usage;
  const isInWindow = windowLeftMs > 0 && windowStart === wallMs + windowLeftMs - windowMs;
  const counts = usage.counts.slice();
  for (const { index, window, counts: counted } of LIMITS) {
    if (counted !== 'tokens' && counted !== 'cost') continue;
    const isHeld = window === 'minute' ? isInWindow : reserved[window] === date[window];
    if (isHeld) counts[index] = (counts[index] ?? 0) - amounts[counted];
  }
  return { ...usage, counts };
}
