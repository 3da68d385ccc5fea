// From a paid order to its key, once, for the browser that ordered. The key is made here and not when the payment is heard of,
// so that nothing secret waits anywhere. The pages around it are complete-page.ts.
import { randomUUID } from 'node:crypto';
import type { IssuedKey, KeyIssuer } from '../auth/key-issuer.ts';
import { GatewayError } from '../errors.ts';
import type { BillingStore, ClaimRejection, ClaimResult, Order } from '../store/billing-record.ts';

/** How long after the first answer another one may be asked for, if the key was never used. */
export const CLAIM_AGAIN_MS = 30 * 60_000;

const REFUSALS = {
  unknown: 'claim_forbidden',
  forbidden: 'claim_forbidden',
  unpaid: 'order_not_paid',
  held: 'order_closed',
  closed: 'order_closed',
  claimed: 'order_closed',
} as const satisfies Record<ClaimRejection, string>;

interface ClaimsOptions {
  readonly store: BillingStore;
  readonly issuer: Pick<KeyIssuer, 'mint' | 'revoke'>;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
}

export class Claims {
  readonly #parts: ClaimsOptions;
  readonly #now: () => number;
  /** A button that is pressed twice is one claim: the browser shows the second answer, and both have the same key. */
  readonly #running = new Map<string, Promise<IssuedKey>>();

  constructor(parts: ClaimsOptions) {
    this.#parts = parts;
    this.#now = parts.now ?? Date.now;
  }

  /**
   * The key of a paid order; again, within half an hour, another one in the place of a key that was never used.
   *
   * @param isAllowed whether who asks has the secret of the order
   * @throws GatewayError `claim_forbidden`, `order_not_paid`, `order_closed`, `store_unavailable`
   */
  async claim(id: string, isAllowed: (order: Order) => boolean): Promise<IssuedKey> {
    const order = await this.#parts.store.findOrder({ id });
    // The transaction looks again; this spares the hash for those who have no right to it.
    if (order === undefined || !isAllowed(order)) throw new GatewayError('claim_forbidden');
    const refusal = refusalOf(order, this.#since());
    if (refusal !== undefined) throw new GatewayError(REFUSALS[refusal]);
    const running = this.#running.get(id);
    if (running !== undefined) return running;
    const claim = this.#claim(id, isAllowed).finally(() => this.#running.delete(id));
    this.#running.set(id, claim);
    return claim;
  }

  /** What the transaction of a claim came to, as a key. Whoever claimed before holds a key that has ended. */
  async handOut({ key, outcome }: { key: IssuedKey['key']; outcome: ClaimResult }): Promise<IssuedKey> {
    if (outcome.kind === 'refused') throw new GatewayError(REFUSALS[outcome.why]);
    if (outcome.kind === 'prefix_taken') throw new GatewayError('store_unavailable');
    const { record, replaced } = outcome;
    // It has ended already: this only tells the fleet.
    if (replaced !== null) await this.#parts.issuer.revoke(replaced);
    const { prefix, holderId, tier, createdAt } = record;
    return { key, prefix, holderId, tier, createdAt };
  }

  /** Whether another key may be made in the place of the one that was handed out. */
  canClaimAgain(order: Order): boolean {
    return order.state === 'claimed' && refusalOf(order, this.#since()) === undefined;
  }

  async #claim(id: string, isAllowed: (order: Order) => boolean): Promise<IssuedKey> {
    const holderId = randomUUID();
    const since = this.#since();
    const minted = await this.#parts.issuer.mint((key) =>
      this.#parts.store.claimOrder({ id, isAllowed, key, holderId, at: key.createdAt, since }),
    );
    return this.handOut(minted);
  }

  #since(): string {
    return new Date(this.#now() - CLAIM_AGAIN_MS).toISOString();
  }
}

function refusalOf(order: Order, since: string): ClaimRejection | undefined {
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
