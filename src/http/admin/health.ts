// Health of this process: `/health` for the public, `/livez` and `/readyz` for orchestrators. Checks are cheap, and reports contain
// nothing confidential.
import { withDeadline } from '../../deadline.ts';
import type { Exchange } from '../exchange/exchange.ts';
import { answerJson } from '../exchange/response-writer.ts';

/** `failed`: the gateway cannot serve without it. `degraded`: it can. */
export type CheckState = 'ok' | 'degraded' | 'failed';

export interface HealthOptions {
  readonly version: string;
  readonly configHash: () => string;
  readonly draining: () => boolean;
  /** Checks by name; each answers from known state or within a moment. */
  readonly checks: Readonly<Record<string, () => CheckState | Promise<CheckState>>>;
  /** Checks that readiness requires to be `ok`, although requests are served without them. */
  readonly needed?: readonly string[];
}

export interface HealthReport {
  readonly status: 'ok' | 'degraded' | 'draining' | 'failed';
  readonly version: string;
  readonly uptime_s: number;
  readonly config_hash: string;
  readonly checks: Readonly<Record<string, CheckState>>;
  /** Present if requests are served but other work is impossible, such as with a read-only store. */
  readonly ready?: false;
}

/** Whether a process can do all of its work. */
export function isReady({ status, ready }: HealthReport): boolean {
  return ready !== false && (status === 'ok' || status === 'degraded');
}

/** The worst state of the checks. */
export function statusOf(checks: HealthReport['checks'], isDraining: boolean): HealthReport['status'] {
  const states = Object.values(checks);
  if (isDraining) return 'draining';
  return (['failed', 'degraded'] as const).find((state) => states.includes(state)) ?? 'ok';
}

/** Results are cached for this time, which bounds the cost of a flood of health requests. */
const CACHE_MS = 1_000;
/** A check that takes longer is reported as degraded. */
const CHECK_TIMEOUT_MS = 1_000;

export class Health {
  readonly #options: HealthOptions;
  readonly #started = performance.now();
  #checks: Promise<Record<string, CheckState>> | undefined;
  #checkedAt = 0;
  /** Running checks, so that a hanging one is not started again. */
  readonly #running = new Set<string>();

  constructor(options: HealthOptions) {
    this.#options = options;
  }

  /** `GET /health`: 200 while requests can be served, else 503. */
  async answer(exchange: Exchange): Promise<void> {
    const report = await this.report();
    answerJson(exchange, report.status === 'ok' || report.status === 'degraded' ? 200 : 503, report, {
      'cache-control': 'no-store',
    });
  }

  async report(): Promise<HealthReport> {
    const { version, configHash, draining, needed = [] } = this.#options;
    const checks = await this.#check();
    const status = statusOf(checks, draining());
    const uptime = Math.floor((performance.now() - this.#started) / 1000);
    const isLacking = needed.some((name) => checks[name] !== 'ok');
    const report = { status, version, uptime_s: uptime, config_hash: configHash(), checks } as const;
    return isLacking ? { ...report, ready: false } : report;
  }

  #check(): Promise<Record<string, CheckState>> {
    const now = performance.now();
    if (this.#checks !== undefined && now - this.#checkedAt < CACHE_MS) return this.#checks;
    this.#checkedAt = now;
    this.#checks = Promise.all(
      Object.entries(this.#options.checks).map(
        async ([name, check]) => [name, await this.#run(name, check)] as const,
      ),
    ).then((entries) => Object.fromEntries(entries));
    return this.#checks;
  }

  async #run(name: string, check: () => CheckState | Promise<CheckState>): Promise<CheckState> {
    if (this.#running.has(name)) return 'degraded';
    this.#running.add(name);
    const checked = (async () => await check())().finally(() => this.#running.delete(name));
    const late = () => new Error(`${name} did not answer within ${CHECK_TIMEOUT_MS} ms`);
    return withDeadline(checked, CHECK_TIMEOUT_MS, late).catch((): CheckState => 'degraded');
  }
}
