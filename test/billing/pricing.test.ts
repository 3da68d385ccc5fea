// The pricing page of a gateway under different configurations.
import { describe, expect, test } from 'vitest';
import { ask } from '../e2e/holder.ts';
import { type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import { type Element, readPage } from './markup.ts';

type Config = NonNullable<GatewayOptions['config']>;

interface Offer {
  readonly tier: string;
  readonly price: string;
  readonly text: string;
  readonly button: string | undefined;
}

interface Pricing {
  readonly text: string;
  readonly page: string;
  readonly offers: readonly Offer[];
  readonly elements: readonly Element[];
}

/** The page under this configuration. Fails when it is not a good page. */
async function pricing(
  config: Config,
  headers: Record<string, string> = {},
  host?: string,
): Promise<Pricing> {
  await using gateway = await startGateway({ config });
  const target = { method: 'GET', target: '/pricing', headers, ...(host === undefined ? {} : { host }) };
  const response = await ask(gateway.url, target);
  expect(response.status).toBe(200);
  const page = response.text();
  const { elements, faults } = readPage(page);
  expect(faults).toEqual([]);
  const offers = page
    .split('<li class="tier">')
    .slice(1)
    .map((part) => {
      const of = (pattern: RegExp): string | undefined => pattern.exec(part)?.[1];
      const text = (html: string): string =>
        html
          .replaceAll(/<[^>]*>/g, ' ')
          .replaceAll(/&#(\d+);/g, (_, code) => String.fromCharCode(Number(code)))
          .replaceAll(/\s+/g, ' ')
          .trim();
      return {
        tier: of(/<h2>(.*?)<\/h2>/) ?? '',
        price: text(of(/<p class="price">(.*?)<\/p>/) ?? ''),
        text: text(part),
        button: of(/<button[^>]*>(.*?)<\/button>/),
      };
    });
  const main = elements.find(({ tag }) => tag === 'main');
  return { text: main?.text ?? '', page, offers, elements };
}

const ECHO = { upstream: 'echo', model: 'echo' };
const model = (...tiers: string[]): { targets: (typeof ECHO)[]; tiers?: string[] } => ({
  targets: [ECHO],
  ...(tiers.length === 0 ? {} : { tiers }),
});

describe('the tiers', () => {
  test('of the configuration are shown, in order, and no others', async () => {
    const all = await pricing({});
    expect(all.offers.map(({ tier }) => tier)).toEqual(['Free', 'Lite', 'Pro']);
    const two = await pricing({ tiers: { Pro: {}, Free: {} } });
    expect(two.offers.map(({ tier }) => tier)).toEqual(['Free', 'Pro']);
    expect(two.page).not.toContain('Lite');
  });

  test('have the configured price and currency', async () => {
    const { offers } = await pricing({
      tiers: {
        Free: {},
        Lite: { price: { amount: 900, currency: 'usd', interval: 'month' } },
        Pro: { price: { amount: 123450, currency: 'eur', interval: 'year' } },
      },
    });
    expect(offers.map(({ price }) => price)).toEqual(['At no cost', '$9 USD a month', '€1,234.50 a year']);
  });

  test('have whole prices in currencies without minor units, and 0 is free of cost', async () => {
    const { offers } = await pricing({
      tiers: {
        Free: { price: { amount: 0, currency: 'usd', interval: 'month' } },
        Lite: { price: { amount: 900, currency: 'jpy', interval: 'once' } },
        Pro: {},
      },
    });
    expect(offers.map(({ price }) => price)).toEqual(['At no cost', '¥900 JPY once', 'By arrangement']);
  });

  test('list their limits, or that there are none', async () => {
    const { offers } = await pricing({
      tiers: {
        Free: { requests_per_minute: 20, tokens_per_minute: 40_000, requests_per_day: 500, concurrency: 1 },
        Lite: { tokens_per_month: 20_000_000, concurrency: 8 },
        Pro: {},
      },
    });
    const [free, lite, pro] = offers.map(({ text }) => text);
    for (const line of [
      '20 requests a minute',
      '40,000 tokens a minute',
      '500 requests a day',
      '1 request at a time',
    ]) {
      expect(free).toContain(line);
    }
    expect(lite).toContain('20,000,000 tokens a month');
    expect(lite).toContain('8 requests at a time');
    expect(lite).not.toContain('a minute');
    expect(pro).toContain('No limits');
  });
});

test('a budget is listed among the limits of its tier', async () => {
  const { offers } = await pricing({
    currency: 'EUR',
    models: { m: { targets: [ECHO], price: { input: 1, output: 2 } } },
    tiers: { Free: { budget: { per_month: 1234.5, per_day: 50, soft: 0.8 } } },
  });
  expect(offers[0]?.text).toContain('50 EUR budget a day 1,234.5 EUR budget a month');
  expect(offers[0]?.text).not.toContain('No limits');
});

describe('the order button', () => {
  test('is there for Free; tiers that cannot be ordered show the contact instead', async () => {
    const { offers, elements } = await pricing({});
    expect(offers.map(({ button }) => button)).toEqual(['Get a Free key', undefined, undefined]);
    expect(offers[2]?.text).toContain('Ask the operator of this gateway for a key.');
    const form = elements.find(({ tag }) => tag === 'form');
    expect(Object.fromEntries(form?.attributes ?? [])).toEqual({ method: 'post', action: 'checkout' });
    const input = elements.find(({ tag }) => tag === 'input');
    expect(Object.fromEntries(input?.attributes ?? [])).toEqual({
      type: 'hidden',
      name: 'tier',
      value: 'Free',
    });
  });

  test('is missing for Free when free keys are disabled', async () => {
    const { offers } = await pricing({ free_keys: { per_ip_per_day: 0 } });
    expect(offers.map(({ button }) => button)).toEqual([undefined, undefined, undefined]);
  });

  test('the base URL is the public one', async () => {
    const { text } = await pricing({ public_url: 'https://llm.example.com/gate/' });
    expect(text).toContain('https://llm.example.com/gate/v1');
  });

  test('a listener on all addresses has the host of the request', async () => {
    const { text } = await pricing({ public_url: 'http://0.0.0.0:8080' }, {}, '192.0.2.7:81');
    expect(text).toContain('http://192.0.2.7:81/v1');
    expect(text).not.toContain('0.0.0.0');
  });

  test('the base URL ignores the Host header when there is a public URL', async () => {
    const { page } = await pricing(
      { public_url: 'https://llm.example.com' },
      { 'x-forwarded-host': 'evil.example', forwarded: 'host=evil.example' },
      '192.0.2.7',
    );
    expect(page).not.toMatch(/evil|192\.0\.2\.7/);
  });
});

describe('the models', () => {
  test('are those of the tier, with patterns in words', async () => {
    const { offers } = await pricing({
      models: { small: model(), large: model('Lite', 'Pro'), 'vendor/*': model('Pro') },
    });
    expect(offers.map(({ text }) => text.replace(/^.*Models | (Get|Ask).*$/g, ''))).toEqual([
      'small',
      'small large',
      'small large any name that begins with vendor/',
    ]);
  });

  test('are reported as none for a tier without models', async () => {
    const { offers } = await pricing({ models: { large: model('Pro') } });
    expect(offers[0]?.text).toContain('Models None yet');
  });

  test('fold away beyond a few, and none is lost', async () => {
    const names = Array.from({ length: 30 }, (_, index) => `model-${index}`);
    const { offers, elements } = await pricing({
      models: Object.fromEntries(names.map((name) => [name, model()])),
    });
    expect(elements.filter(({ tag }) => tag === 'details').length).toBe(3);
    for (const { text } of offers) {
      expect(text).toContain('22 more');
      for (const name of names) expect(text.split(' ')).toContain(name);
    }
  });

  test('beyond a hundred are only counted', async () => {
    const names = Array.from({ length: 1000 }, (_, index) => `model-${index}`);
    const { offers, page } = await pricing({
      models: Object.fromEntries(names.map((name) => [name, model()])),
    });
    expect(offers[0]?.text).toContain('992 more');
    expect(offers[0]?.text).toContain('and 900 more, which GET /v1/models lists');
    expect(offers[0]?.text).toContain('model-99 ');
    expect(offers[0]?.text).not.toContain('model-100');
    expect(page.length).toBeLessThan(64 * 1024);
  });

  test('that are patterns are shown in words, and many are counted', async () => {
    const patterns = ['vendor/*', '*-chat', 'a/*-chat', '*'];
    const { offers } = await pricing({
      models: Object.fromEntries([...patterns, 'exact'].map((name) => [name, model()])),
    });
    expect(offers[0]?.text).toMatch(
      /Models exact any name that begins with vendor\/ any name that ends with -chat any name that begins with a\/ and ends with -chat any other name Get/,
    );
    const many = Array.from({ length: 20 }, (_, index) => [`v${index}/*`, model()]);
    expect((await pricing({ models: Object.fromEntries(many) })).offers[0]?.text).toContain(
      'and 12 more families of names',
    );
  });

  test('with hostile names are escaped', async () => {
    const names = [
      '<script>alert(1)</script>',
      '"><img src=x onerror=alert(1)>',
      "it's & <b>bold</b>",
      '&lt;script&gt;',
      '{{7*7}}<!--',
      '</style></li></ul><h1>x',
      "model'\\u003c",
    ];
    const { page, elements } = await pricing({
      models: Object.fromEntries(names.map((name) => [name, model('Free')])),
    });
    const shown = elements.flatMap(({ tag, text }) => (tag === 'code' ? [text] : []));
    expect(shown.slice(0, 7)).toEqual([...names.filter((name) => !name.includes('*')), '{{7']);
    expect(page).not.toMatch(/<script|<img|<b>|<!--/);
    expect(elements.filter(({ tag }) => tag === 'h1').length).toBe(1);
  });
});
