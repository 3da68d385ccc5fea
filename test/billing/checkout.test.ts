// From a tier to a key through a gateway, by form and by JSON: the keys, the rejections and their form.
import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { ask, codeOf, field, keyOnPage, order, orderByForm, statusOf, textField } from '../e2e/holder.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { readPage } from './markup.ts';

const FORM = 'application/x-www-form-urlencoded';
const HTML = 'text/html; charset=utf-8';

describe('the checkout', () => {
  let gateway: Gateway;

  beforeAll(async () => {
    gateway = await startGateway({
      config: {
        free_keys: { per_ip_per_day: 1000 },
        tiers: { Free: {}, Pro: {} },
        models: { echo: { targets: [{ upstream: 'echo', model: 'echo' }] } },
      },
    });
  });
  afterAll(() => gateway?.close());

  const post = (body: string, headers: Record<string, string>): Promise<RawResponse> =>
    ask(gateway.url, { target: '/checkout', headers, body });

  describe('issues a Free key at once', () => {
    test('to a program: four JSON fields', async () => {
      const response = await order(gateway.url, 'Free');
      expect([response.status, response.header('content-type'), response.header('cache-control')]).toEqual([
        201,
        'application/json',
        'no-store',
      ]);
      const body = response.json();
      const key = textField(body, 'key');
      expect(key).toMatch(/^[0-9a-f]{32}$/);
      expect(body).toEqual({ key, prefix: key.slice(0, 8), tier: 'Free', created_at: expect.any(String) });
      const age = Date.now() - Date.parse(textField(body, 'created_at'));
      expect(Math.abs(age)).toBeLessThan(120_000);
      expect(await statusOf(gateway.url, key)).toBe(200);
    });

    test('to a form: on a page that says that it is shown once', async () => {
      const response = await orderByForm(gateway.url, { tier: 'Free' });
      expect([response.status, response.header('content-type')]).toEqual([201, HTML]);
      const { faults, elements } = readPage(response.text());
      expect(faults).toEqual([]);
      const key = keyOnPage(response.text());
      const box = elements.find(({ attributes }) => attributes.get('aria-labelledby') === 'key');
      expect([box?.tag, box?.text]).toEqual(['pre', key]);
      expect(elements.find(({ attributes }) => attributes.get('id') === 'key')?.text).toBe('API key');
      const main = elements.find(({ tag }) => tag === 'main')?.text ?? '';
      expect(main).toMatch(/shown only this once/);
      expect(main).toMatch(/[Rr]eloading/);
      expect(main).toContain(`${gateway.url}/v1`);
      expect(await statusOf(gateway.url, key)).toBe(200);
    });

    test('a reloaded page shows another key; the first one stays valid', async () => {
      const first = keyOnPage((await orderByForm(gateway.url, { tier: 'Free' })).text());
      const second = keyOnPage((await orderByForm(gateway.url, { tier: 'Free' })).text());
      expect(second).not.toBe(first);
      expect([await statusOf(gateway.url, first), await statusOf(gateway.url, second)]).toEqual([200, 200]);
    });

    test.each([
      ['form', FORM, 'tier=Free'],
      ['form with a charset', `${FORM};charset=UTF-8`, 'tier=Free'],
      ['form in capitals', FORM.toUpperCase(), 'tier=Free'],
      ['JSON with a charset', 'application/json; charset=utf-8', '{"tier":"Free"}'],
      ['JSON with more in it', 'application/json', ' {"x":1,"tier":"Free"} '],
    ])('as %s', async (_name, type, body) => {
      const response = await post(body, { 'content-type': type });
      expect(response.status).toBe(201);
      expect(response.header('content-type')).toBe(body.includes('{') ? 'application/json' : HTML);
    });

    test('and the access log has its prefix', async () => {
      const response = await order(gateway.url, 'Free');
      const key = textField(response.json(), 'key');
      expect(await gateway.accessLine(response)).toMatchObject({
        route: '/checkout',
        status: 201,
        tier: 'Free',
        key_prefix: key.slice(0, 8),
        outcome: 'ok',
      });
      expect(gateway.output).not.toContain(key);
    });
  });

  describe('rejects', () => {
    const cases: readonly (readonly [string, Record<string, string>, number, string, string | null])[] = [
      ['no tier', {}, 400, 'missing_required_parameter', 'tier'],
      ['an unknown tier', { tier: 'Gold' }, 400, 'invalid_value', 'tier'],
      ['a tier in other letters', { tier: 'free' }, 400, 'invalid_value', 'tier'],
      ['an empty tier', { tier: '' }, 400, 'invalid_value', 'tier'],
      ['a name of Object', { tier: 'constructor' }, 400, 'invalid_value', 'tier'],
      ['Pro, without a provider', { tier: 'Pro' }, 501, 'checkout_not_configured', null],
      ['Lite, not on offer', { tier: 'Lite' }, 501, 'checkout_not_configured', null],
    ];

    test.each(cases)('%s: in JSON to a program', async (_name, fields, status, code, param) => {
      const response = await ask(gateway.url, { target: '/checkout', body: fields });
      expect([response.status, codeOf(response), response.header('content-type')]).toEqual([
        status,
        code,
        'application/json',
      ]);
      expect(field(response.json(), 'error', 'param')).toBe(param);
      expect(field(response.json(), 'error', 'message')).toMatch(/^[A-Z].+\.$/);
      expect(response.header('x-should-retry')).toBe(status >= 500 ? 'false' : undefined);
    });

    test.each(cases)('%s: as a page to a form', async (_name, fields, status, code) => {
      const response = await orderByForm(gateway.url, fields);
      expect([response.status, response.header('content-type')]).toEqual([status, HTML]);
      const { faults, elements } = readPage(response.text());
      expect(faults).toEqual([]);
      expect(elements.find(({ tag }) => tag === 'main')?.text).toContain(code);
      expect(elements.some(({ attributes }) => attributes.get('href') === 'pricing')).toBe(true);
      expect(response.header('x-should-retry')).toBe(status >= 500 ? 'false' : undefined);
      expect(await gateway.accessLine(response)).toMatchObject({ status, outcome: code });
    });

    test('a number, a list or null as the tier: it is missing', async () => {
      for (const tier of [7, ['Free'], null, { Free: 1 }]) {
        const response = await ask(gateway.url, { target: '/checkout', body: { tier } });
        expect([response.status, codeOf(response)]).toEqual([400, 'missing_required_parameter']);
      }
    });

    test('a free key without the tier Free', async () => {
      await using other = await startGateway({ config: { tiers: { Pro: {} } } });
      const response = await order(other.url, 'Free');
      expect([response.status, codeOf(response)]).toEqual([501, 'checkout_not_configured']);
    });

    test.each([
      ['text/plain', '{"tier":"Free"}'],
      [
        'multipart/form-data; boundary=x',
        '--x\r\ncontent-disposition: form-data; name="tier"\r\n\r\nFree\r\n--x--\r\n',
      ],
      ['application/jsonx', '{"tier":"Free"}'],
      ['application/x-www-form-urlencodedx', 'tier=Free'],
      ['', 'tier=Free'],
    ])('another content type: %j', async (type, body) => {
      const response = await post(body, { 'content-type': type });
      expect([response.status, codeOf(response)]).toEqual([400, 'unsupported_content_type']);
    });

    test('a form of megabytes', async () => {
      const response = await post(`tier=Free&x=${'y'.repeat(100_000)}`, { 'content-type': FORM });
      expect([response.status, response.header('content-type')]).toEqual([413, HTML]);
    });

    test('GET: following a link creates nothing', async () => {
      const response = await ask(gateway.url, { method: 'GET', target: '/checkout?tier=Free' });
      expect([response.status, response.header('allow')]).toEqual([405, 'POST']);
    });

    test('and does not repeat form values on the page', async () => {
      const response = await orderByForm(gateway.url, { tier: '<b>"Free"</b>' });
      expect(response.status).toBe(400);
      expect(response.text()).not.toMatch(/<b>|&#60;b/);
    });
  });

  describe('a form from another origin', () => {
    const own = (): string => new URL(gateway.url).origin;

    test.each([
      ['another site', { origin: 'https://elsewhere.test', 'sec-fetch-site': 'cross-site' }],
      ['another site, by an old browser', { origin: 'https://elsewhere.test' }],
      ['a neighbour', { origin: 'https://a.example.com', 'sec-fetch-site': 'same-site' }],
      ['a sandbox', { origin: 'null', 'sec-fetch-site': 'cross-site' }],
      ['nobody, by an old browser', { origin: 'null' }],
      ['the same host on another port', { origin: 'http://127.0.0.1:1' }],
      ['a host that begins alike', { origin: 'OWN.elsewhere.test' }],
    ])('%s: 403 without a key, as a page to a form and as JSON otherwise', async (_name, headers) => {
      const sent = { ...headers, origin: headers.origin.replace('OWN', own()) };
      const form = await post('tier=Free', { 'content-type': FORM, ...sent });
      expect([form.status, form.header('content-type')]).toEqual([403, HTML]);
      expect(readPage(form.text()).faults).toEqual([]);
      const program = await post('{"tier":"Free"}', { 'content-type': 'application/json', ...sent });
      expect([program.status, codeOf(program)]).toEqual([403, 'cross_origin_form']);
      expect((form.text() + program.text()).replaceAll(/req_[0-9a-f]{32}/g, '')).not.toMatch(/[0-9a-f]{32}/);
    });

    test('own pages are accepted under the public name and the local one', async () => {
      await using named = await startGateway({
        config: { public_url: 'https://llm.example.com', free_keys: { per_ip_per_day: 1000 } },
      });
      const send = (host: string, origin: string): Promise<RawResponse> =>
        ask(named.url, {
          target: '/checkout',
          host,
          headers: { 'content-type': FORM, origin, 'sec-fetch-site': 'same-origin' },
          body: 'tier=Free',
        });
      expect((await send('llm.example.com', 'https://llm.example.com')).status).toBe(201);
      expect((await send('10.0.0.7:8080', 'https://llm.example.com')).status).toBe(201);
      expect((await send('localhost:8080', 'http://localhost:8080')).status).toBe(201);
      expect((await send('localhost:8080', 'http://localhost:8081')).status).toBe(403);
    });
  });

  test('an internal error is logged with its cause and answered 500 without it', async () => {
    const spy = vi
      .spyOn(gateway.app.issuer, 'issueFree')
      .mockRejectedValue(new TypeError('a fault in the code'));
    try {
      const response = await orderByForm(gateway.url, { tier: 'Free' });
      expect(response.status).toBe(500);
      expect(response.text()).not.toContain('a fault in the code');
      const id = response.header('x-request-id');
      const line = await gateway.logLine((each) => each['request_id'] === id && each['level'] === 'error');
      expect(JSON.stringify(line)).toContain('a fault in the code');
      expect(JSON.stringify(line)).toContain('stack');
    } finally {
      spy.mockRestore();
    }
  });
});

describe('the example on the page', () => {
  /** The arguments that a shell makes of it, `curl` being something that prints them. */
  const argumentsOf = (page: string): string[] => {
    const line = readPage(page).elements.find(
      ({ attributes }) => attributes.get('aria-labelledby') === 'example',
    )?.text;
    expect(line).toMatch(/^curl /);
    const out = execFileSync('sh', ['-c', `curl() { printf '%s\\0' "$@"; }\n${line}`], { encoding: 'utf8' });
    return out.split('\0').slice(0, -1);
  };

  test.each(['echo', 'it\'s $(id) `id` "quoted" \\ \\n $HOME', '<b>&amp;</b>', 'ünï/cödé:1'])(
    'survives a shell with any model name: %s',
    async (name) => {
      await using gateway = await startGateway({
        config: {
          public_url: "https://llm.example.com/it's;id",
          models: { [name]: { targets: [{ upstream: 'echo', model: 'echo' }] } },
        },
      });
      const page = (
        await ask(gateway.url, { target: '/checkout', headers: { 'content-type': FORM }, body: 'tier=Free' })
      ).text();
      const words = argumentsOf(page);
      expect(words[0]).toBe("https://llm.example.com/it's;id/v1/chat/completions");
      expect(words).toContain(`Authorization: Bearer ${keyOnPage(page)}`);
      const body: unknown = JSON.parse(words.at(-1) ?? '');
      expect(body).toEqual({ model: name, messages: [{ role: 'user', content: 'Hello' }] });
      const answer = await ask(gateway.url, {
        headers: { authorization: `Bearer ${keyOnPage(page)}` },
        body: words.at(-1) ?? '',
      });
      expect(answer.status).toBe(200);
    },
  );

  test('uses a model that the key may use, and no pattern', async () => {
    const target = [{ upstream: 'echo', model: 'echo' }];
    await using gateway = await startGateway({
      config: {
        models: {
          large: { targets: target, tiers: ['Pro'] },
          'vendor/*': { targets: target },
          small: { targets: target },
        },
      },
    });
    const page = (await orderByForm(gateway.url, { tier: 'Free' })).text();
    expect(JSON.parse(argumentsOf(page).at(-1) ?? '')).toMatchObject({ model: 'small' });
  });
});
