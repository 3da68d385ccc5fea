// The lease of a request that Redis has admitted, and the releases that are sent when requests end.
import { SettledOnce } from './limiter.ts';
import type { PendingRelease } from './pending-releases.ts';

export class RedisLease extends SettledOnce {
  readonly holder: string;
  /** As Redis stores it, or its id alone. */
  member: string;
  override tokens: number;

  constructor(holder: string, member: string, tokens: number, onSettled: (tokens: number) => void) {
    super(onSettled);
    this.holder = holder;
    this.member = member;
    this.tokens = tokens;
  }
}

/** @param tokens really used */
export function pendingReleaseOf({ holder, member }: RedisLease, tokens: number): PendingRelease {
  const orElse = member.includes(':') ? 'real' : 'use';
  return { holder, member, tokens, requests: 0, orElse, recent: { since: 0, requests: 0, tokens: 0 } };
}

/** Usage without a lease, or of a lease that Redis may have by this id. @param since monotonic milliseconds */
export function usageReleaseOf(
  holder: string,
  member: string,
  requests: number,
  tokens: number,
  since: number,
): PendingRelease {
  return { holder, member, tokens, requests, orElse: 'use', recent: { since, requests, tokens } };
}

/** The part of a lease by which Redis finds it. */
export function leaseIdOf(member: string): string {
  return member.split(':', 1)[0] ?? member;
}
