// A configuration and a report that pages look like something with: for pictures, and for tests of what is drawn.
import type { GatewayOptions } from '../helpers/gateway.ts';

type Config = NonNullable<GatewayOptions['config']>;

const TARGETS = [{ upstream: 'echo', model: 'echo' }];

/** Three tiers, models with names and families of them, and somebody to ask. */
export const SHOP: Config = {
  public_url: 'https://llm.example.com',
  branding: { name: 'Example Models', contact: 'models@example.com' },
  free_keys: { per_ip_per_day: 1000 },
  models: {
    'gpt-4o-mini': { targets: TARGETS },
    'mistral-small': { targets: TARGETS },
    'gpt-4o': { targets: TARGETS, tiers: ['Lite', 'Pro'] },
    'llama-3.3-70b': { targets: TARGETS, tiers: ['Lite', 'Pro'] },
    'vendor/*': { targets: TARGETS, tiers: ['Pro'] },
  },
  tiers: {
    Free: { requests_per_minute: 20, tokens_per_minute: 40_000, requests_per_day: 500, concurrency: 2 },
    Lite: {
      price: { amount: 900, currency: 'usd', interval: 'month' },
      requests_per_minute: 120,
      tokens_per_minute: 400_000,
      tokens_per_month: 20_000_000,
      concurrency: 10,
    },
    Pro: {
      price: { amount: 4900, currency: 'usd', interval: 'month' },
      requests_per_minute: 1000,
      tokens_per_minute: 4_000_000,
      tokens_per_month: 200_000_000,
      concurrency: 100,
    },
  },
};

/** The same, sold with payments that are only played, to buyers whose address a proxy says. */
export const TEST_SHOP: Config = {
  ...SHOP,
  listen: { trusted_proxies: ['127.0.0.1'] },
  public_url: 'http://localhost:8080',
  billing: { provider: 'test', grace: '7d', on_lapse: 'suspend' },
};

export interface Line {
  readonly day: string;
  readonly model: string;
  readonly requests: number;
  readonly failed: number;
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly completion_tokens: number;
  readonly reasoning_tokens: number;
  readonly cost?: number | null;
}

export interface Report {
  readonly prefix: string;
  readonly tier: string;
  readonly standing: string;
  readonly plan?: {
    readonly order: string;
    readonly tier: string;
    readonly standing: string;
    readonly amount: number;
    readonly currency: string;
    readonly interval: string;
    readonly paid_by: string;
    readonly cancelled: boolean;
    readonly paid_until: string | null;
    readonly ends_at: string | null;
    readonly retry_at: string | null;
    readonly resumable: boolean;
    readonly portal: boolean;
  };
  readonly from: string;
  readonly to: string;
  readonly currency?: string;
  readonly totals: Omit<Line, 'day' | 'model'>;
  readonly days: readonly Line[];
  readonly truncated: boolean;
  readonly limits: readonly {
    readonly scope?: 'key' | 'team' | 'model';
    readonly model?: string;
    readonly limit: string;
    readonly max: number;
    readonly used: number;
    readonly remaining: number;
    readonly resets_in_s: number;
  }[];
}

/** The answer of `GET /admin/usage`, of thirty days in which these models were used, the same at every call. */
export function sampleReport(prefix: string, models: readonly string[], isPriced = true): Report {
  const days = Array.from({ length: 30 }, (_, index) => `2026-09-${String(index + 1).padStart(2, '0')}`);
  const lines = days.flatMap((day, index) =>
    models.flatMap((model, at): Line[] => {
      // Weekends are quiet, use grows, and each model has waves of its own.
      const weekend = index % 7 === 4 || index % 7 === 5;
      const wave = 1 + 0.45 * Math.sin(index * 0.9 + at * 2.1);
      const requests = Math.round(((weekend ? 60 : 320) * wave * (1 + index / 25)) / (at + 1) ** 1.2);
      if (index < 3 || (at > 1 && index < 12)) return [];
      return [
        {
          day,
          model,
          requests,
          failed: Math.round(requests * 0.006),
          prompt_tokens: requests * (640 + 90 * at),
          cached_tokens: requests * 150,
          completion_tokens: requests * (210 + 60 * at),
          reasoning_tokens: at === 1 ? requests * 80 : 0,
          ...(isPriced ? { cost: Math.round(requests * (0.21 + at * 0.4)) / 1000 } : {}),
        },
      ];
    }),
  );
  const sum = (read: (line: Line) => number): number => lines.reduce((total, line) => total + read(line), 0);
  return {
    prefix,
    tier: 'Lite',
    standing: 'good',
    from: days[0] ?? '',
    to: days.at(-1) ?? '',
    totals: {
      requests: sum((line) => line.requests),
      failed: sum((line) => line.failed),
      prompt_tokens: sum((line) => line.prompt_tokens),
      cached_tokens: sum((line) => line.cached_tokens),
      completion_tokens: sum((line) => line.completion_tokens),
      reasoning_tokens: sum((line) => line.reasoning_tokens),
      ...(isPriced ? { cost: Math.round(sum((line) => line.cost ?? 0) * 1000) / 1000 } : {}),
    },
    days: lines,
    truncated: false,
    limits: [
      { limit: 'requests_per_minute', max: 120, used: 31, remaining: 89, resets_in_s: 12 },
      { limit: 'tokens_per_minute', max: 400_000, used: 88_412, remaining: 311_588, resets_in_s: 12 },
      {
        limit: 'tokens_per_month',
        max: 20_000_000,
        used: 14_206_118,
        remaining: 5_793_882,
        resets_in_s: 777_600,
      },
      { limit: 'concurrency', max: 10, used: 10, remaining: 0, resets_in_s: 0 },
    ],
  };
}

/** The same of a holder who has ordered Lite, with how that stands. */
export function reportOfBuyer(
  prefix: string,
  standing: string,
  plan: Partial<NonNullable<Report['plan']>>,
): Report {
  return {
    ...sampleReport(prefix, ['gpt-4o-mini', 'gpt-4o', 'mistral-small']),
    standing,
    plan: {
      order: 'ord_00000000-0000-4000-8000-000000000000',
      tier: 'Lite',
      standing: 'active',
      amount: 900,
      currency: 'usd',
      interval: 'month',
      paid_by: 'card',
      cancelled: false,
      paid_until: '2026-10-14T00:00:00.000Z',
      ends_at: null,
      retry_at: null,
      resumable: false,
      portal: true,
      ...plan,
    },
  };
}
