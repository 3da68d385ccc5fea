// `GET /admin/usage`: usage of the holder of a key, over all of its keys. Upstreams are internal and not in it.
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { answerJson } from '../http/exchange/response-writer.ts';
import type { HolderUsage } from './holder-usage.ts';
import { publicSums } from './records/public-sums.ts';

const DEFAULT_DAYS = 30;
const MAX_DAYS = 90;

/** The principal, after authentication. */
interface UsageReader {
  readonly holderId: string;
  readonly prefix: string;
  readonly tier: string;
  /** Whether the holder's keys are served. */
  readonly standing: string;
}

interface UsageEndpointOptions<Reader extends UsageReader> {
  /** Notes the key on the exchange. @throws GatewayError for an invalid key, or one that cannot be checked */
  readonly identify: (exchange: Exchange) => Reader | Promise<Reader>;
  readonly usage: HolderUsage;
  /** Of the costs; undefined where the configuration has none. */
  readonly currency: () => string | undefined;
  /** The state of the limits for the answer. */
  readonly limits: (principal: Reader) => Promise<unknown>;
  /** The deciding order for the answer; undefined when there is none. */
  readonly plan: (principal: Reader) => Promise<unknown>;
}

/** @returns the handler of `GET /admin/usage?days=30` */
export function usageEndpoint<Reader extends UsageReader>(options: UsageEndpointOptions<Reader>) {
  const { identify, usage, currency: currencyNow, limits, plan } = options;
  return async (exchange: Exchange): Promise<void> => {
    const principal = await identify(exchange);
    const days = daysIn(exchange.target);
    exchange.throwIfStopped();
    const [report, state, paid] = await Promise.all([
      usage.reportOf(principal.holderId, days),
      limits(principal),
      plan(principal),
    ]);
    const currency = currencyNow();
    const body = {
      prefix: principal.prefix,
      tier: principal.tier,
      standing: principal.standing,
      ...(paid === undefined ? {} : { plan: paid }),
      from: report.from,
      to: report.to,
      ...(currency === undefined ? {} : { currency }),
      totals: publicSums(report.totals),
      days: report.days.map(({ day, model, sums }) => ({ day, model, ...publicSums(sums) })),
      truncated: report.isTruncated,
      limits: state,
    };
    answerJson(exchange, 200, body, { 'cache-control': 'no-store' });
  };
}

/** @throws GatewayError invalid_value */
function daysIn(target: string): number {
  const at = target.indexOf('?');
  const given = at === -1 ? [] : new URLSearchParams(target.slice(at + 1)).getAll('days');
  const [text = String(DEFAULT_DAYS)] = given;
  const days = /^[1-9]\d?$/.test(text) ? Number(text) : 0;
  if (given.length > 1 || days < 1 || days > MAX_DAYS) {
    throw new GatewayError(
      'invalid_value',
      `\`days\` must be given once, a whole number from 1 to ${MAX_DAYS}.`,
      { param: 'days' },
    );
  }
  return days;
}
