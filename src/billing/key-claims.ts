// Issues the key of a paid order, once, to the browser that ordered. The key is created when it is claimed and not when the
// payment arrives, so that no secret has to be stored. complete-page.ts has the pages.
import { randomUUID } from 'node:crypto';
import type { IssuedKey } from '../auth/key-issuer.ts';
import { GatewayError } from '../errors.ts';
import { singleFlight } from '../single-flight.ts';
import type { ClaimRejection, ClaimResult, Order } from '../store/billing-record.ts';
import type { BillingParts } from './payment-provider.ts';

/** How long a claimed key that was never used can be claimed again. */
export const CLAIM_AGAIN_MS = 30 * 60_000;

const REJECTIONS = {
  unknown: 'claim_forbidden',
  forbidden: 'claim_forbidden',
  unpaid: 'order_not_paid',
  held: 'order_closed',
  closed: 'order_closed',
  claimed: 'order_closed',
} as const satisfies Record<ClaimRejection, string>;

export class Claims {
  readonly #parts: Pick<BillingParts, 'store' | 'issuer' | 'now'>;
  /** By order: a form that is submitted twice is one claim, and both answers have the same key. */
  readonly #claimed = singleFlight((id: string, isAllowed: (order: Order) => boolean) =>
    this.#claim(id, isAllowed),
  );

  constructor(parts: Pick<BillingParts, 'store' | 'issuer' | 'now'>) {
    this.#parts = parts;
  }

  /**
   * Issues the key of a paid order. Within half an hour, a repeated claim replaces a key that was never used.
   *
   * @param isAllowed whether the client has the secret of the order
   * @throws GatewayError `claim_forbidden`, `order_not_paid`, `order_closed`, `store_unavailable`
   */
  async claim(id: string, isAllowed: (order: Order) => boolean): Promise<IssuedKey> {
    const order = await this.#parts.store.findOrder({ id });
    // The transaction checks again; this saves the hash for rejected claims.
    if (order === undefined || !isAllowed(order)) throw new GatewayError('claim_forbidden');
    const rejection = rejectionOf(order, this.#since());
    if (rejection !== undefined) throw new GatewayError(REJECTIONS[rejection]);
    return this.#claimed(id, isAllowed);
  }

  /** The key from the result of a claim. Announces the end of the key that it replaced. */
  async handOut({ key, outcome }: { key: IssuedKey['key']; outcome: ClaimResult }): Promise<IssuedKey> {
    if (outcome.kind === 'refused') throw new GatewayError(REJECTIONS[outcome.why]);
    if (outcome.kind === 'prefix_taken') throw new GatewayError('store_unavailable');
    const { record, replaced } = outcome;
    // The store has revoked it already; this announces it to the fleet.
    if (replaced !== null) await this.#parts.issuer.revoke(replaced);
    const { prefix, holderId, tier, createdAt } = record;
    return { key, prefix, holderId, tier, createdAt };
  }

  /** Whether the key of a claimed order can still be replaced. */
  canClaimAgain(order: Order): boolean {
    return order.state === 'claimed' && rejectionOf(order, this.#since()) === undefined;
  }

  async #claim(id: string, isAllowed: (order: Order) => boolean): Promise<IssuedKey> {
    const holderId = randomUUID();
    const since = this.#since();
    const check = (order: Order) => (isAllowed(order) ? rejectionOf(order, since) : 'forbidden');
    const minted = await this.#parts.issuer.mint((key) =>
      this.#parts.store.claimOrder({ id, rejectionOf: check, key, holderId, at: key.createdAt }),
    );
    return this.handOut(minted);
  }

  #since(): string {
    return new Date(this.#parts.now() - CLAIM_AGAIN_MS).toISOString();
  }
}

/** Why the order yields no key. @param since a key that was claimed before this time cannot be claimed again */
function rejectionOf(order: Order, since: string): ClaimRejection | undefined {
  const { state, standing, keyPrefix, keyUsedAt, claimedAt } = order;
  if (state === 'pending') return 'unpaid';
  if (state === 'void' || state === 'refused') return 'closed';
  if (state === 'paid') {
    if (standing === 'held') return 'held';
    return standing === 'active' || standing === 'past_due' ? undefined : 'closed';
  }
  const isAgain = keyPrefix !== null && keyUsedAt === null && claimedAt !== null && claimedAt >= since;
  return isAgain ? undefined : 'claimed';
}
