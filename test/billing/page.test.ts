// The frame of the pages: values are escaped, nothing is loaded, and the policy allows exactly the style of the page.
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { copyBox, html, textBox } from '../../src/billing/pages/page-frame.ts';
import { STYLE } from '../../src/billing/pages/page-style.ts';
import { ask } from '../e2e/holder.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { readPage } from './markup.ts';

describe('html', () => {
  test('escapes values in text and in attributes', () => {
    const hostile = `<script>alert("1")</script>&amp;'`;
    expect(html`<p title="${hostile}">${hostile}</p>`.text).toBe(
      '<p title="&#60;script&#62;alert(&#34;1&#34;)&#60;/script&#62;&#38;amp;&#39;">' +
        '&#60;script&#62;alert(&#34;1&#34;)&#60;/script&#62;&#38;amp;&#39;</p>',
    );
  });

  test('keeps nested HTML, lists and numbers', () => {
    const items = ['<', '>'].map((text) => html`<li>${text}</li>`);
    expect(html`<ul>${items}</ul>${html`<b>${7}</b>`}${[]}`.text).toBe(
      '<ul><li>&#60;</li><li>&#62;</li></ul><b>7</b>',
    );
  });

  test('never lets a value escape its position', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (value) => {
        const { text } = html`<p title="${value}">${value}</p>`;
        expect(text.match(/[<>"]/g)?.join('')).toBe('<""><>');
        const resolved = text.replaceAll(/&#(\d+);/g, (_, code) => String.fromCharCode(Number(code)));
        expect(resolved).toBe(`<p title="${value}">${value}</p>`);
      }),
    );
  });

  test('a copy box has a name and can be focused by keyboard', () => {
    for (const { text } of [
      copyBox('key', 'API key', 'a<b', 'key'),
      textBox('key', 'API key', 'a<b', 'key'),
    ]) {
      expect(text).toContain('<h2 id="key">API key</h2>');
      expect(text).toMatch(/<pre [^>]*aria-labelledby="key"[^>]*tabindex="0"[^>]*>a&#60;b<\/pre>/);
    }
  });
});

/** Scripts of each page that has any; the rest is complete without. */
const SCRIPTS = new Map([
  ['account', 2],
  ['key', 2],
]);

describe('the headers of a page', () => {
  let gateway: Gateway;
  let pages: Map<string, RawResponse>;

  beforeAll(async () => {
    gateway = await startGateway({ config: { free_keys: { per_ip_per_day: 1 } } });
    const form = { 'content-type': 'application/x-www-form-urlencoded' };
    const post = (body: string) => ask(gateway.url, { target: '/checkout', headers: form, body });
    pages = new Map([
      ['pricing', await ask(gateway.url, { method: 'GET', target: '/pricing' })],
      ['account', await ask(gateway.url, { method: 'GET', target: '/account' })],
      ['key', await post('tier=Free')],
      ['limit', await post('tier=Free')],
      ['not configured', await post('tier=Pro')],
      ['missing', await post('')],
    ]);
  });
  afterAll(() => gateway?.close());

  const each = (check: (response: RawResponse, name: string) => void): void => {
    for (const [name, response] of pages) check(response, name);
  };

  test('the statuses match the results', () => {
    expect([...pages.values()].map((response) => response.status)).toEqual([200, 200, 201, 429, 501, 400]);
  });

  test('the policy allows exactly the style and the scripts of the page', () => {
    each((response, name) => {
      const style = /<style>(.*?)<\/style>/s.exec(response.text())?.[1] ?? '';
      const hashOf = (text: string): string =>
        `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
      const scripts = [...response.text().matchAll(/<script type="module">(.*?)<\/script>/gs)];
      expect([name, scripts.length]).toEqual([name, SCRIPTS.get(name) ?? 0]);
      const policy = new Map(
        (response.header('content-security-policy') ?? '').split('; ').map((directive) => {
          const [name = '', ...sources] = directive.split(' ');
          return [name, sources.join(' ')];
        }),
      );
      expect(Object.fromEntries(policy)).toEqual({
        'default-src': "'none'",
        'style-src': hashOf(style),
        ...(scripts.length === 0
          ? {}
          : { 'script-src': scripts.map(([, script = '']) => hashOf(script)).join(' ') }),
        ...(name === 'account' ? { 'connect-src': "'self'" } : {}),
        'img-src': 'data:',
        'form-action': name === 'pricing' ? "'self'" : "'none'",
        'base-uri': "'none'",
        'frame-ancestors': "'none'",
        'require-trusted-types-for': "'script'",
        'trusted-types': "'none'",
      });
    });
  });

  test('forbid storing, sniffing and referrers', () => {
    each((response, name) => {
      expect(response.header('content-type')).toBe('text/html; charset=utf-8');
      expect(response.header('cache-control')).toBe('no-store');
      expect(response.header('x-content-type-options')).toBe('nosniff');
      // With `no-referrer` browsers send the pages' own forms as `Origin: null`.
      expect(response.header('referrer-policy')).toBe(name === 'pricing' ? 'same-origin' : 'no-referrer');
      expect(response.header('set-cookie')).toBeUndefined();
    });
  });

  test('every page is complete and labelled', () => {
    each((response, name) => {
      const { faults, elements } = readPage(response.text());
      expect([name, faults]).toEqual([name, []]);
      expect(elements.find(({ tag }) => tag === 'html')?.attributes.get('lang')).toBe('en');
    });
  });
});

describe('the style', () => {
  /** The custom properties of the block that begins at `from`. */
  function palette(from: number): Map<string, string> {
    const block = STYLE.slice(from, STYLE.indexOf('}', from));
    return new Map(
      [...block.matchAll(/--([a-z0-9-]+): (#[0-9a-f]{6})/g)].map(([, name = '', value = '']) => [
        name,
        value,
      ]),
    );
  }

  /** WCAG 2.2, relative luminance. */
  function luminance(colour: string): number {
    const channel = (at: number): number => {
      const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    };
    return 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5);
  }

  function contrast(one: string, other: string): number {
    const [dark = 0, light = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  }

  test.each([
    ['light', STYLE.indexOf(':root')],
    ['dark', STYLE.lastIndexOf(':root')],
  ])('has enough contrast, %s', (_name, from) => {
    const colours = palette(from);
    const ratio = (one: string, other: string): number =>
      contrast(colours.get(one) ?? '#000000', colours.get(other) ?? '#000000');
    for (const series of ['series-1', 'series-2', 'series-3', 'series-4', 'series-rest', 'edge']) {
      expect([series, ratio(series, 'card') > 3]).toEqual([series, true]);
    }
    expect(ratio('card', 'bad')).toBeGreaterThan(4.5);
    for (const ground of ['page', 'card', 'well']) {
      expect(ratio('ink', ground)).toBeGreaterThan(7);
      expect(ratio('soft', ground)).toBeGreaterThan(4.5);
      expect(ratio('accent', ground)).toBeGreaterThan(4.5);
    }
    expect(ratio('on-accent', 'accent')).toBeGreaterThan(4.5);
    expect(ratio('on-accent', 'press')).toBeGreaterThan(4.5);
  });

  test('loads nothing', () => {
    expect(STYLE).not.toMatch(/url\(|@import|@font-face|<\//);
  });
});

describe('the strict HTML parser', () => {
  const page = (body: string): string =>
    `<!doctype html>\n<html lang="en"><head><title>T</title></head><body><main><h1>H</h1>${body}</main></body></html>`;

  test('accepts a valid page', () => {
    expect(readPage(page('<p>&#60;</p>')).faults).toEqual([]);
  });

  test.each([
    ['a tag left open', '<p>'],
    ['tags crossed', '<p><code></p></code>'],
    ['an attribute without quotes', '<p class=x></p>'],
    ['a bare ampersand', '<p>a & b</p>'],
    ['a script from elsewhere', '<script src="/x.js"></script>'],
    ['a style in place', '<p style="x"></p>'],
    ['a handler', '<p onclick="x"></p>'],
    ['an id twice', '<p id="a"></p><p id="a"></p>'],
    ['an id that is empty', '<p id=""></p>'],
    ['a label that leads nowhere', '<p aria-labelledby="a"></p>'],
    ['a level left out', '<h3>x</h3>'],
    ['a button without a name', '<button></button>'],
    ['a form to elsewhere', '<form action="//elsewhere.test/"></form>'],
  ])('finds %s', (_name, body) => {
    expect(readPage(page(body)).faults.length).toBeGreaterThan(0);
  });
});

describe('the account page', () => {
  test('shows commands for use without scripts, which a shell runs unchanged', async () => {
    await using gateway = await startGateway({ config: { public_url: "https://llm.example.com/it's;id" } });
    const page = (await ask(gateway.url, { method: 'GET', target: '/account' })).text();
    const { elements, faults } = readPage(page);
    expect(faults).toEqual([]);
    expect(elements.find(({ tag }) => tag === 'noscript')?.text).toContain(
      `curl -H "Authorization: Bearer $OPENAI_API_KEY" 'https://llm.example.com/it'\\''s;id/admin/usage?days=30'`,
    );
  });

  test('has a key field that no form can submit and no browser stores', async () => {
    await using gateway = await startGateway();
    const { elements } = readPage((await ask(gateway.url, { method: 'GET', target: '/account' })).text());
    const field = elements.find(({ tag }) => tag === 'input')?.attributes;
    expect([field?.has('name'), field?.get('autocomplete'), field?.get('type')]).toEqual([
      false,
      'off',
      'text',
    ]);
    expect(elements.find(({ tag }) => tag === 'form')?.attributes.has('action')).toBe(false);
  });
});

describe('`/` and unknown paths', () => {
  let gateway: Gateway;

  beforeAll(async () => {
    gateway = await startGateway({ config: { branding: { name: 'Example Models' } } });
  });
  afterAll(() => gateway?.close());

  const HTML = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8';
  const get = (target: string, accept: string, other: { method?: string; host?: string } = {}) =>
    ask(gateway.url, { method: 'GET', target, headers: { accept }, ...other });

  test('are pages for browsers, with links that work at any depth', async () => {
    const start = await get('/', HTML);
    expect([start.status, start.header('content-type')]).toEqual([200, 'text/html; charset=utf-8']);
    expect(start.text()).toContain('<h1>Example Models</h1>');
    expect(start.text()).toContain(`${gateway.url}/v1`);
    expect(start.text()).toContain('href="pricing"');
    for (const [target, up] of [
      ['/missing', ''],
      ['/missing/', '../'],
      ['/a/b/c?d=/e/f', '../../'],
      ['/%2e%2e/x', '../'],
      ['/v1', ''],
    ] as const) {
      const page = await get(target, HTML);
      expect([target, page.status, page.header('content-type')]).toEqual([
        target,
        404,
        'text/html; charset=utf-8',
      ]);
      expect(page.text()).toContain(`<a class="button" href="${up}pricing">`);
      expect(page.text()).not.toContain(target);
      expect(page.header('content-security-policy')).toContain("default-src 'none'");
    }
  });

  test.each<[string, string, string, { method?: string; host?: string }]>([
    ['for programs', '/', 'application/json', {}],
    ['for whoever says nothing of what it accepts', '/', '*/*', {}],
    ['below /v1', '/v1/missing', HTML, {}],
    ['below /admin', '/admin/missing', HTML, {}],
    ['for other methods', '/missing', HTML, { method: 'POST' }],
    ['under a foreign host name', '/', HTML, { host: 'evil.example' }],
  ])('are JSON %s', async (_, target, accept, other) => {
    const response = await get(target, accept, other);
    expect([response.status, response.header('content-type')]).toEqual([404, 'application/json']);
    expect(response.json()).toMatchObject({ error: { code: 'unknown_url' } });
  });
});
