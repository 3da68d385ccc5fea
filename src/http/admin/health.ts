// Whether this process can serve: `/health` for everyone, `/livez` and `/readyz` for orchestrators. It asks nothing that
// costs, and names nothing that an outsider should not know.
import { withDeadline } from '../../deadline.ts';
import type { Exchange } from '../exchange/exchange.ts';
import { answerJson } from '../exchange/response-writer.ts';

/** `failed` is for what the gateway cannot serve without, `degraded` for what it can. */
export type CheckState = 'ok' | 'degraded' | 'failed';

export interface HealthOptions {
  readonly version: string;
  readonly configHash: () => string;
  readonly draining: () => boolean;
  /** Parts by name; each answers from what it knows, or within a moment. */
  readonly checks: Readonly<Record<string, () => CheckState | Promise<CheckState>>>;
  /** Checks that have to be `ok` before the process is ready, though it serves requests without them. */
  readonly needed?: readonly string[];
}

export interface HealthReport {
  readonly status: 'ok' | 'degraded' | 'draining' | 'failed';
  readonly version: string;
  readonly uptime_s: number;
  readonly config_hash: string;
  readonly checks: Readonly<Record<string, CheckState>>;
  /** Said where requests are served and other work cannot be done: a store that cannot be written, say. */
  readonly ready?: false;
}

/** Whether a process can do all that it is there for. */
export function isReady({ status, ready }: HealthReport): boolean {
  return ready !== false && (status === 'ok' || status === 'degraded');
}

/** A flood of health requests costs one check a second. */
const REMEMBER_MS = 1_000;
/** A part that has not answered by then is called degraded; a report never waits longer. */
const PATIENCE_MS = 1_000;

export class Health {
  readonly #options: HealthOptions;
  readonly #started = performance.now();
  #checks: Promise<Record<string, CheckState>> | undefined;
  #checkedAt = 0;
  /** Checks that still run, so that one that hangs is not begun again and again. */
  readonly #running = new Set<string>();

  constructor(options: HealthOptions) {
    this.#options = options;
  }

  /** `GET /health`: 200 while requests can be served, 503 if not. */
  async answer(exchange: Exchange): Promise<void> {
    const report = await this.report();
    answerJson(exchange, report.status === 'ok' || report.status === 'degraded' ? 200 : 503, report, {
      'cache-control': 'no-store',
    });
  }

  async report(): Promise<HealthReport> {
    const { version, configHash, draining, needed = [] } = this.#options;
    const checks = await this.#check();
    const states = Object.values(checks);
    const status = draining()
      ? 'draining'
      : states.includes('failed')
        ? 'failed'
        : states.includes('degraded')
          ? 'degraded'
          : 'ok';
    const uptime = Math.floor((performance.now() - this.#started) / 1000);
    const isLacking = needed.some((name) => checks[name] !== 'ok');
    const report = { status, version, uptime_s: uptime, config_hash: configHash(), checks } as const;
    return isLacking ? { ...report, ready: false } : report;
  }

  #check(): Promise<Record<string, CheckState>> {
    const now = performance.now();
    if (this.#checks !== undefined && now - this.#checkedAt < REMEMBER_MS) return this.#checks;
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
    const late = () => new Error(`${name} did not answer within ${PATIENCE_MS} ms`);
    return withDeadline(checked, PATIENCE_MS, late).catch((): CheckState => 'degraded');
  }
}
