// Revokes keys. It needs neither the secret nor a hash, so it works without them.
import type { Prefix, RevokeResult } from '../store/key-record.ts';
import type { Store } from '../store/store.ts';
import { announce, type ChangeNotifiers } from './holder-change.ts';
import { storableText } from './stored-text.ts';

/**
 * @throws GatewayError `invalid_value` for a reason that cannot be stored, `store_unavailable`
 */
export async function revokeKey(
  parts: ChangeNotifiers & { readonly store: Pick<Store, 'revokeKey'>; readonly today?: () => Date },
  prefix: Prefix,
  reason?: string,
  actor?: string,
): Promise<RevokeResult> {
  const storedReason = reason === undefined ? null : storableText(reason, 'reason');
  const at = (parts.today?.() ?? new Date()).toISOString();
  const outcome = await parts.store.revokeKey(prefix, storedReason, at, actor);
  if (outcome.kind === 'unknown') return outcome;
  // Announce a key that had already ended too: a repeat may follow a failed announcement.
  const { version, state, endedAt } = outcome.record;
  const kind = state === 'revoked' ? 'revoked' : 'rotated';
  await announce(parts, { prefix, kind, version, at: endedAt ?? at });
  return outcome;
}

/** Whether the reason of a revocation also ends running requests: it begins with `compromised`. */
export function isCompromised(reason: string | null): boolean {
  return reason !== null && /^compromised\b/i.test(reason);
}
