// The branding of the pages: no color makes a page unreadable, and no name, contact or text escapes its position.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { hashSource } from '../../src/billing/pages/page-scripts.ts';
import { GROUNDS, STYLE } from '../../src/billing/pages/page-style.ts';
import { contactHref, contrastOf, themeOf } from '../../src/billing/pages/theme.ts';
import { errorOf, load, MINIMAL } from '../config/sample.ts';
import { ask, orderByForm } from '../e2e/holder.ts';
import { startGateway } from '../helpers/gateway.ts';
import { readPage } from './markup.ts';

const get = (url: string, target: string) => ask(url, { method: 'GET', target });

describe('a colour', () => {
  const COLOR = fc
    .integer({ min: 0, max: 0xffffff })
    .map((value) => `#${value.toString(16).padStart(6, '0')}`);

  /** The variables that the look lays over the style, for both themes. */
  function tones(color: string): readonly ReadonlyMap<string, string>[] {
    const added = themeOf(color).style.slice(STYLE.length);
    return added
      .split('@media')
      .map(
        (part) =>
          new Map(
            [...part.matchAll(/--([a-z-]+): (#[0-9a-f]{6})/g)].map(([, name = '', value = '']) => [
              name,
              value,
            ]),
          ),
      );
  }

  test('any color is readable in both themes', () => {
    fc.assert(
      fc.property(COLOR, (color) => {
        const themes = tones(color);
        expect(themes.length).toBe(2);
        for (const [index, grounds] of [GROUNDS.light, GROUNDS.dark].entries()) {
          const tone = (name: string): string => themes[index]?.get(name) ?? '';
          for (const ground of grounds)
            expect(contrastOf(tone('accent'), ground)).toBeGreaterThanOrEqual(4.5);
          expect(contrastOf(tone('on-accent'), tone('accent'))).toBeGreaterThanOrEqual(4.5);
          expect(contrastOf(tone('on-accent'), tone('press'))).toBeGreaterThanOrEqual(4.5);
        }
      }),
    );
  });

  test('stays unchanged when it is readable', () => {
    const [light, dark] = tones('#1A4FA0');
    expect([light?.get('accent'), light?.get('on-accent')]).toEqual(['#1a4fa0', '#ffffff']);
    expect(dark?.get('accent')).not.toBe('#1a4fa0');
    expect(tones('#ffd54a')[1]?.get('accent')).toBe('#ffd54a');
  });

  test('is in the style that the policy allows', () => {
    const { style, hash } = themeOf('#1a4fa0');
    expect(hash).toBe(hashSource(style));
    expect(themeOf('#1a4fa0').style).toBe(style);
    expect(themeOf(undefined)).toEqual({ style: STYLE, hash: hashSource(STYLE) });
    expect(themeOf('#a01a4f').style).not.toBe(style);
  });

  test('contrast is computed as in WCAG', () => {
    expect(contrastOf('#ffffff', '#000000')).toBeCloseTo(21);
    expect(contrastOf('#777777', '#ffffff')).toBeCloseTo(4.478, 2);
    expect(contrastOf('#123456', '#123456')).toBe(1);
  });
});

describe('the configuration', () => {
  const branding = (text: string) => load(`branding: ${text}\n${MINIMAL}`).dynamic.branding;

  test.each([
    ['{ contact: keys@example.com }', { name: 'Tollgate', contact: 'keys@example.com' }],
    [
      '{ name: Gate, contact: "https://example.com/ask?for=key" }',
      { name: 'Gate', contact: 'https://example.com/ask?for=key' },
    ],
    ['{ name: "Ünï & <b> 😀" }', { name: 'Ünï & <b> 😀' }],
    [
      '{ terms: "https://example.com/t", privacy: "http://example.com/p", imprint: "https://example.com/i?a=1#b" }',
      {
        name: 'Tollgate',
        terms: 'https://example.com/t',
        privacy: 'http://example.com/p',
        imprint: 'https://example.com/i?a=1#b',
      },
    ],
    ['{ tax: "Prices include VAT <20 %>." }', { name: 'Tollgate', tax: 'Prices include VAT <20 %>.' }],
    ['{ color: "#1A7f5a" }', { name: 'Tollgate', color: '#1A7f5a' }],
  ])('accepts %s', (text, expected) => expect(branding(text)).toEqual(expected));

  test.each([
    '{ contact: "javascript:alert(1)" }',
    '{ contact: "data:text/html,x" }',
    '{ contact: "//example.com/x" }',
    '{ contact: "https://u:p@example.com/" }',
    '{ contact: "https://exa mple.com/" }',
    '{ contact: "https://" }',
    '{ contact: "a@b@c" }',
    '{ contact: "a@b.c?bcc=d@e.f" }',
    '{ contact: somebody }',
    '{ name: "  " }',
    `{ name: ${'n'.repeat(61)} }`,
    '{ name: "a\\u202eb" }',
    '{ terms: "javascript:alert(1)" }',
    '{ privacy: mail@example.com }',
    '{ imprint: "//example.com/x" }',
    '{ imprint: "https://u:p@example.com/" }',
    '{ tax: " " }',
    `{ tax: ${'x'.repeat(201)} }`,
    '{ color: "#fff" }',
    '{ color: "red;}" }',
  ])('rejects %s', (text) => {
    expect(errorOf(() => branding(text)).faults.length).toBe(1);
  });

  test('causes no warnings', () => {
    const price = 'tiers: { Pro: { price: { amount: 900, currency: usd, interval: month } } }';
    expect(load(`branding: { name: A, color: "#102030" }\n${price}\n${MINIMAL}`).warnings).toEqual([]);
  });
});

describe('a contact', () => {
  test('becomes a mail link with a subject, or a web link', () => {
    expect(contactHref('a+b@example.com', 'A Pro key & more')).toBe(
      'mailto:a%2Bb@example.com?subject=A%20Pro%20key%20%26%20more',
    );
    expect(contactHref('https://example.com/ask?x=1', 'A Pro key')).toBe('https://example.com/ask?x=1');
  });

  test('is offered for tiers that cannot be ordered, and is on every page', async () => {
    await using gateway = await startGateway({ config: { branding: { contact: 'keys@example.com' } } });
    const pricing = readPage((await get(gateway.url, '/pricing')).text());
    expect(pricing.faults).toEqual([]);
    const links = pricing.elements.filter(({ attributes }) => attributes.get('href')?.startsWith('mailto:'));
    expect(links.map(({ text }) => text)).toEqual([
      'Ask for a Lite key',
      'Ask for a Pro key',
      'keys@example.com',
    ]);
    expect(links[1]?.attributes.get('href')).toBe('mailto:keys@example.com?subject=A%20Pro%20key');
    for (const target of ['/account', '/pricing']) {
      expect((await get(gateway.url, target)).text()).toContain('keys@example.com');
    }
    expect((await orderByForm(gateway.url, { tier: 'Pro' })).text()).toContain('keys@example.com');
  });
});

describe('a name', () => {
  test('with hostile text is escaped', async () => {
    const name = `</title><script>x</script>"'&amp;{}`;
    await using gateway = await startGateway({
      config: { branding: { name, color: '#ffee00', contact: 'https://example.com/?a=1&b=2' } },
    });
    for (const response of [
      await get(gateway.url, '/pricing'),
      await get(gateway.url, '/account'),
      await orderByForm(gateway.url, { tier: 'Free' }),
      await orderByForm(gateway.url, { tier: 'Pro' }),
    ]) {
      const { elements, faults } = readPage(response.text());
      expect(faults).toEqual([]);
      expect(elements.find(({ attributes }) => attributes.get('class') === 'brand')?.text).toBe(name);
      expect(elements.find(({ tag }) => tag === 'title')?.text).toContain(` · ${name}`);
      expect(response.text()).not.toContain('<script>');
    }
  });
});

test('terms, privacy and imprint are on every page, and the line about tax beside prices', async () => {
  const branding = {
    terms: 'https://example.com/terms?a=1&b=2',
    privacy: 'https://example.com/privacy',
    imprint: 'https://example.com/imprint',
    tax: `Prices <b>do not</b> include "VAT" & duties.`,
  };
  await using gateway = await startGateway({
    config: {
      branding,
      tiers: { Free: {}, Pro: { price: { amount: 900, currency: 'eur', interval: 'month' } } },
      billing: { provider: 'test' },
    },
  });
  for (const target of [
    '/pricing',
    '/account',
    '/checkout/cancelled',
    '/checkout/complete?session_id=none',
  ]) {
    const { elements, faults } = readPage((await get(gateway.url, target)).text());
    // The parser knows links of pages at the root only.
    expect(faults.filter((fault) => !fault.includes('elsewhere: ../'))).toEqual([]);
    const links = elements.filter(({ attributes }) =>
      attributes.get('href')?.startsWith('https://example.com'),
    );
    expect(links.map(({ text, attributes }) => [text, attributes.get('href')])).toEqual([
      ['Terms', branding.terms],
      ['Privacy', branding.privacy],
      ['Imprint', branding.imprint],
    ]);
    const hasPrices = target === '/pricing' || target === '/account';
    expect([target, elements.some(({ text }) => text === branding.tax)]).toEqual([target, hasPrices]);
  }
});
