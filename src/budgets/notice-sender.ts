// Sends budget notices to the webhook of the operator. They wait in the store, so that a replica that ends loses none and a receiver that
// is away gets them later: each is sent at least once, by one replica at a time.
import { createHmac } from 'node:crypto';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import { withDeadline } from '../deadline.ts';
import type { BudgetStore, DueNotice } from '../store/budget-record.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { loadHttpClient, type Outbound } from '../upstream/outbound/outbound.ts';

const INTERVAL_MS = 15_000;
const JITTER = 0.2;
const BATCH = 20;
/** For one request, from the connection to the status. */
const SEND_MS = 5000;
/** Longer than a batch takes; afterwards another replica may send its notices. */
const LEASE_MS = (BATCH + 4) * SEND_MS;
const FIRST_RETRY_MS = 5000;
const LAST_RETRY_MS = 3_600_000;
/** Over a day and a half. */
const MAX_ATTEMPTS = 45;
/** A notice that no replica with a webhook was there to send is given up after this time, as is one that failed. */
const MAX_WAIT_MS = 36 * 3_600_000;
/** Longer than the month that a notice is about. */
const KEPT_MS = 100 * 86_400_000;
const FORGET_EVERY_MS = 3_600_000;
const FORGET_BATCH = 500;

type BudgetWebhook = NonNullable<DynamicConfig['budgets']['webhook']>;

interface NoticeSenderOptions {
  readonly store: Pick<BudgetStore, 'takeNotices' | 'settleNotice' | 'countDueNotices' | 'forgetNotices'>;
  /** Of the configuration in force; undefined without one. */
  readonly webhook: () => BudgetWebhook | undefined;
  readonly outbound: Pick<Outbound, 'dispatcherFor'>;
  readonly logger: Pick<Logger, 'warn' | 'error'>;
  readonly metrics: Pick<Metrics, 'budgets'>;
  /** Milliseconds since 1970. */
  readonly now?: () => number;
  readonly random?: () => number;
}

export class NoticeSender {
  readonly #options: Required<NoticeSenderOptions>;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #isWanted = false;
  #isStopped = false;
  #forgetAt = 0;
  /** Until the next attempt of a notice that failed here. */
  #retryMs = INTERVAL_MS;

  constructor(options: NoticeSenderOptions) {
    this.#options = { now: Date.now, random: Math.random, ...options };
  }

  start(): void {
    this.#schedule();
  }

  /** Resolves when the running request has ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#running;
  }

  /** Sends now what is due. Never rejects. */
  wake(): void {
    this.#isWanted = true;
    if (this.#running !== undefined || this.#isStopped) return;
    this.#running = this.#run().finally(() => {
      this.#running = undefined;
      if (this.#isWanted) this.wake();
      else this.#schedule();
    });
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    if (this.#isStopped) return;
    const pause = this.#retryMs * (1 + JITTER * this.#options.random());
    this.#retryMs = INTERVAL_MS;
    this.#timer = setTimeout(() => this.wake(), pause).unref();
  }

  async #run(): Promise<void> {
    const { store, webhook, metrics, logger, now } = this.#options;
    try {
      this.#isWanted = false;
      while ((await this.#sendBatch()) && !this.#isStopped);
      const isSender = webhook() !== undefined;
      metrics.budgets.waiting.set(isSender ? await store.countDueNotices(oldest(now())) : 0);
      if (now() < this.#forgetAt) return;
      this.#forgetAt = now() + FORGET_EVERY_MS;
      await store.forgetNotices(new Date(now() - KEPT_MS).toISOString(), FORGET_BATCH);
    } catch (error) {
      logger.warn({ err: error }, 'failed to read or write budget notices in the store; trying again');
    }
  }

  /** @returns whether more may be due */
  async #sendBatch(): Promise<boolean> {
    const { store, webhook, now } = this.#options;
    const target = webhook();
    if (target === undefined) return false;
    const at = now();
    const [from, until] = [new Date(at).toISOString(), new Date(at + LEASE_MS).toISOString()];
    const notices = await store.takeNotices(oldest(at), from, until, BATCH);
    for (const notice of notices) {
      // The end of the process waits for one request alone, and others may send the rest at once.
      if (this.#isStopped) await store.settleNotice(notice.id, from);
      else await this.#send(notice, target);
    }
    return notices.length === BATCH;
  }

  async #send({ id, body, attempts }: DueNotice, target: BudgetWebhook): Promise<void> {
    const { store, metrics, logger, now } = this.#options;
    let failure: unknown;
    try {
      await this.#post(body, target);
      metrics.budgets.webhooks.inc({ outcome: 'sent' });
      return await store.settleNotice(id, null);
    } catch (error) {
      failure = error;
    }
    const isLast = attempts >= MAX_ATTEMPTS;
    metrics.budgets.webhooks.inc({ outcome: isLast ? 'given_up' : 'failed' });
    const about = { err: failure, attempts };
    if (isLast) logger.error(about, 'gave up sending a budget notice to the webhook');
    else logger.warn(about, 'failed to send a budget notice to the webhook; trying again later');
    const pause = Math.min(FIRST_RETRY_MS * 2 ** Math.min(attempts - 1, 20), LAST_RETRY_MS);
    this.#retryMs = Math.min(this.#retryMs, pause);
    await store.settleNotice(id, isLast ? null : new Date(now() + pause).toISOString());
  }

  /** @throws Error for any answer but 2xx. Its text is not read: it may be anything */
  async #post(body: string, { url, secret }: BudgetWebhook): Promise<void> {
    const { fetch } = await loadHttpClient();
    const dispatcher = await this.#options.outbound.dispatcherFor(new URL(url));
    const abort = new AbortController();
    try {
      const request = fetch(url, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...signature(body, secret, this.#options.now()) },
        body,
        redirect: 'error',
        signal: abort.signal,
        ...(dispatcher === undefined ? {} : { dispatcher }),
      });
      const late = () => new Error(`no answer within ${SEND_MS} ms`);
      const { ok, status } = await withDeadline(request, SEND_MS, late);
      if (!ok) throw new Error(`the receiver answered ${status}`);
    } finally {
      // The rest of an answer is not read.
      abort.abort();
      await dispatcher?.destroy();
    }
  }
}

/** Since when a notice may be due. @param at milliseconds since 1970 */
function oldest(at: number): string {
  return new Date(at - MAX_WAIT_MS).toISOString();
}

/**
 * `t=SECONDS,v1=HEX`: the HMAC-SHA-256 of `SECONDS.BODY`. The time lets a receiver reject an old message that somebody sends again.
 * @param at milliseconds since 1970
 */
export function signature(body: string, secret: string, at: number): { 'x-tollgate-signature': string } {
  const seconds = Math.floor(at / 1000);
  const digest = createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex');
  return { 'x-tollgate-signature': `t=${seconds},v1=${digest}` };
}
