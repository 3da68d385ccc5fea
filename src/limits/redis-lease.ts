// The lease of a request that Redis has admitted, and the releases that are sent when requests end.
import { type Amounts, NO_AMOUNTS, SettledOnce } from './limiter.ts';
import type { PendingRelease } from './pending-releases.ts';
import type { Scopes } from './scope.ts';

export class RedisLease extends SettledOnce {
  scopes: Scopes;
  /** As Redis stores it, or its id alone. */
  member: string;
  override amounts: Amounts;

  constructor(scopes: Scopes, member: string, amounts: Amounts, onSettled: (amounts: Amounts) => void) {
    super(onSettled);
    this.scopes = scopes;
    this.member = member;
    this.amounts = amounts;
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
