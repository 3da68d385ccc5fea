// The account page in a real browser: what it draws of a report, how it replaces a key, what it says when something is
// wrong, and that the key is nowhere but in the tab.
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rotate, statusOf, textField } from '../e2e/holder.ts';
import type { Browser, Page } from '../helpers/browser.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { BROWSER_TIMEOUT, sharedBrowser } from '../helpers/shared-servers.ts';
import { until } from '../helpers/wait.ts';
import { type Line, type Report, SHOP, sampleReport } from './sample.ts';
import { Visit } from './visit.ts';

const MODELS = ['gpt-4o-mini', 'gpt-4o', 'mistral-small'];

let browser: Browser;
let gateway: Gateway;

beforeAll(async () => {
  gateway = await startGateway({ config: { ...SHOP, public_url: null } });
  browser = await sharedBrowser();
}, BROWSER_TIMEOUT);

afterAll(async () => {
  await browser?.close();
  await gateway?.close();
});

const texts = (page: Page, selector: string): Promise<string[]> => page.locator(selector).allTextContents();

describe('the report', () => {
  test('is drawn as figures, bars and a table that agree', async () => {
    await using visit = await Visit.begin(browser, gateway.url);
    const { page } = visit;
    await visit.report((prefix) => sampleReport(prefix, MODELS));
    const key = await gateway.issueKey('Lite');
    await visit.enter(key);
    const { totals, days } = sampleReport('', MODELS);
    const number = new Intl.NumberFormat('en');
    expect(await texts(page, '#totals dd')).toEqual([
      number.format(totals.requests),
      number.format(totals.failed),
      number.format(totals.prompt_tokens),
      number.format(totals.completion_tokens),
      String(totals.cost),
    ]);
    expect(await page.locator('#prefix').textContent()).toBe(key.slice(0, 8));
    expect(await page.locator('#tier').textContent()).toBe('Lite');
    for (const chart of ['#requests-chart', '#tokens-chart']) {
      expect(await page.locator(`${chart} svg g`).count()).toBe(30);
      expect(await page.locator(`${chart} svg rect:not(.hit)`).count()).toBe(days.length);
      expect(await texts(page, `${chart} .legend li`)).toEqual(MODELS);
      expect(await texts(page, `${chart} .days span`)).toEqual(['Sep 1', 'Sep 16', 'Sep 30']);
    }
    const last = days.filter(({ day }) => day === '2026-09-30');
    const sum = last.reduce((total, line) => total + line.requests, 0);
    expect((await texts(page, '#requests-chart title')).at(-1)?.split('\n')).toEqual([
      `Sep 30: ${number.format(sum)} requests`,
      ...last.map(({ model, requests }) => `${model}: ${number.format(requests)}`),
    ]);
    await page.getByText('Show the table').click();
    expect(await page.locator('tbody tr').count()).toBe(days.length);
    expect(await texts(page, 'tbody tr:first-child > *')).toEqual([
      '2026-09-30',
      ...(last[0] === undefined ? [] : cells(last[0])),
    ]);
    expect(await page.getByRole('img', { name: /requests in 30 days/ }).count()).toBe(1);
    expect(visit.faults).toEqual([]);
  });

  test('shows the currency, and a dash where nothing had a price', async () => {
    await using visit = await Visit.begin(browser, gateway.url);
    const { page } = visit;
    await visit.report((prefix) => {
      const report = sampleReport(prefix, ['priced', 'free']);
      const unpriced = (line: Line): Line => (line.model === 'free' ? { ...line, cost: null } : line);
      return { ...report, currency: 'EUR', days: report.days.map(unpriced) };
    });
    await visit.enter(await gateway.issueKey());
    expect((await texts(page, '#totals dt')).at(-1)).toBe('Cost (EUR)');
    await page.getByText('Show the table').click();
    const costs = await texts(page, 'tbody td:last-child');
    expect([costs[0] === '–', costs[1]]).toEqual([false, '–']);
  });

  /** A line of the table, without its day. */
  function cells(line: Line): string[] {
    const counts = [
      line.requests,
      line.failed,
      line.prompt_tokens,
      line.cached_tokens,
      line.completion_tokens,
      line.reasoning_tokens,
    ];
    return [
      line.model,
      ...counts.map((count) => new Intl.NumberFormat('en').format(count)),
      String(line.cost),
    ];
  }

  test('bars stand in proportion, on a scale that holds them', async () => {
    await using visit = await Visit.begin(browser, gateway.url);
    const { page } = visit;
    const line = (day: string, requests: number): Line => ({
      day,
      model: 'm',
      requests,
      failed: 0,
      prompt_tokens: requests,
      cached_tokens: 0,
      completion_tokens: 0,
      reasoning_tokens: 0,
    });
    await visit.report((prefix) => ({
      ...sampleReport(prefix, []),
      days: [line('2026-09-01', 30), line('2026-09-02', 15), line('2026-09-30', 0)],
    }));
    await visit.enter(await gateway.issueKey());
    expect(await texts(page, '#requests-chart .scale span')).toEqual(['30', '15', '0']);
    const heights: unknown = await page.evaluate(
      `[...document.querySelectorAll('#requests-chart rect:not(.hit)')].map((bar) => Number(bar.getAttribute('height')))`,
    );
    expect(heights).toEqual([100, 50]);
  });

  test('says the state of each limit in words', async () => {
    await using visit = await Visit.begin(browser, gateway.url);
    await visit.report((prefix) => sampleReport(prefix, MODELS));
    await visit.enter(await gateway.issueKey());
    const limits = await visit.page.evaluate(
      `[...document.querySelectorAll('#limits > li')].map((limit) => limit.innerText.split(/\\n+/).join('; '))`,
    );
    expect(limits).toEqual([
      'Requests a minute; 89 left; 31 of 120 used; resets in 12 seconds',
      'Tokens a minute; 311,588 left; 88,412 of 400,000 used; resets in 12 seconds',
      'Tokens a month; 5,793,882 left; 14,206,118 of 20,000,000 used; resets in 9 days',
      'Requests at a time; all in use; 10 of 10 used',
    ]);
  });

  test('shows budgets as money, and whose they are', async () => {
    await using visit = await Visit.begin(browser, gateway.url);
    const state = { used: 401.25, remaining: 98.75, resets_in_s: 777_600 };
    const limits = [
      { scope: 'team', limit: 'cost_per_month', max: 500, ...state },
      {
        scope: 'model',
        model: '<b>',
        limit: 'tokens_per_day',
        max: 1000,
        used: 1,
        remaining: 999,
        resets_in_s: 60,
      },
      { scope: 'key', limit: 'cost_per_day', max: 5, used: 5, remaining: 0, resets_in_s: 60 },
    ] as const;
    await visit.report((prefix) => ({ ...sampleReport(prefix, MODELS), limits }));
    await visit.enter(await gateway.issueKey());
    expect(
      await visit.page.evaluate(
        `[...document.querySelectorAll('#limits > li')].map((limit) => limit.innerText.split(/\\n+/).join('; '))`,
      ),
    ).toEqual([
      'Budget a month of the team; 98.75 left; 401.25 of 500 used; resets in 9 days',
      'Tokens a day with <b>; 999 left; 1 of 1,000 used; resets in 1 minute',
      'Budget a day of the key; used up; 5 of 5 used; resets in 1 minute',
    ]);
    expect(visit.faults).toEqual([]);
  });

  test('holds many models in one colour, and shows hostile names as they are', async () => {
    await using visit = await Visit.begin(browser, gateway.url);
    const { page } = visit;
    const names = [
      '<img src=x onerror=alert(1)>',
      '</script><script>alert(1)</script>',
      '__proto__',
      'a&amp;b',
      '5',
      '6',
      '7',
    ];
    await visit.report((prefix) => ({ ...sampleReport(prefix, names), tier: '<b>Lite</b>' }));
    await visit.enter(await gateway.issueKey());
    expect(await texts(page, '#requests-chart .legend li')).toEqual([...names.slice(0, 4), 'other models']);
    expect(await page.locator('#tier').textContent()).toBe('<b>Lite</b>');
    expect(await page.locator('main img, main b').count()).toBe(0);
    expect(visit.faults).toEqual([]);
  });

  test('that is cut says so', async () => {
    await using visit = await Visit.begin(browser, gateway.url);
    await visit.report((prefix) => ({ ...sampleReport(prefix, MODELS), truncated: true }));
    await visit.enter(await gateway.issueKey());
    expect(await visit.page.locator('#table-note').textContent()).toContain('Some lines are not shown');
  });
});

test('what was just used is in the report of the gateway itself, with its limits', async () => {
  await using visit = await Visit.begin(browser, gateway.url);
  const { page } = visit;
  const key = await gateway.issueKey('Lite');
  const body = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'Hello' }] };
  expect((await gateway.chat(body, { key })).status).toBe(200);
  await visit.enter(key);
  await until(async () => {
    await page.getByRole('button', { name: 'Refresh' }).click();
    return (await texts(page, '#totals dd'))[0] === '1' || undefined;
  }, 'the request to be in the report');
  expect(await texts(page, '#requests-chart .legend li')).toEqual(['gpt-4o-mini']);
  const limits = await texts(page, '#limits p:first-child span:first-child');
  expect(limits).toEqual(['Requests a minute', 'Tokens a minute', 'Tokens a month', 'Requests at a time']);
  expect(await texts(page, '#limits p:first-child strong')).toContain('119 left');
  expect(visit.faults).toEqual([]);
});

test('a key is replaced: confirmed, shown once, copied, and the page goes on with it', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { mayCopy: true });
  const { page } = visit;
  const asked: string[] = [];
  await visit.report((prefix): Report => {
    asked.push(prefix);
    return sampleReport(prefix, MODELS);
  });
  const old = await gateway.issueKey('Lite');
  await visit.enter(old);
  // Not yet: the safe answer has the focus, and Escape is one too.
  for (const way of ['Enter', 'Escape']) {
    await page.getByRole('button', { name: 'Replace this key…' }).click();
    expect(await page.evaluate('document.activeElement.id')).toBe('keep');
    await page.keyboard.press(way);
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
  }
  expect(await statusOf(gateway.url, old)).toBe(200);
  await page.getByRole('button', { name: 'Replace this key…' }).click();
  expect(await page.getByRole('dialog').textContent()).toContain(old.slice(0, 8));
  await page.getByRole('button', { name: 'Replace it now' }).click();
  await page.locator('#fresh').waitFor();
  const fresh = (await page.locator('#fresh-key-text').textContent()) ?? '';
  expect(fresh).toMatch(/^[0-9a-f]{32}$/);
  expect(await page.locator('#replaced').textContent()).toContain(old.slice(0, 8));
  expect([await statusOf(gateway.url, old), await statusOf(gateway.url, fresh)]).toEqual([401, 200]);
  // Leaving now would lose it.
  const asksBeforeLeaving = page.waitForEvent('dialog');
  await page.evaluate('void setTimeout(() => location.reload())');
  const question = await asksBeforeLeaving;
  expect(question.type()).toBe('beforeunload');
  await question.dismiss();
  await page.getByRole('button', { name: 'Copy new key' }).click();
  await page.getByRole('button', { name: 'Copied new key' }).waitFor();
  expect(await page.evaluate('navigator.clipboard.readText()')).toBe(fresh);
  await page.getByRole('button', { name: 'I have stored it' }).click();
  expect(await page.locator('#fresh').isVisible()).toBe(false);
  expect(await page.content()).not.toContain(fresh);
  expect(await page.locator('#prefix').textContent()).toBe(fresh.slice(0, 8));
  asked.length = 0;
  await page.getByRole('button', { name: 'Refresh' }).click();
  expect(await until(() => asked[0], 'the request for the usage')).toBe(fresh.slice(0, 8));
  expect(visit.faults).toEqual([]);
});

test('by keyboard alone: the key, the report, the new key', async () => {
  await using visit = await Visit.begin(browser, gateway.url);
  const { page } = visit;
  await visit.report((prefix) => sampleReport(prefix, MODELS));
  const old = await gateway.issueKey();
  await page.goto('/account');
  const focused = (id: string): Promise<true> =>
    until(
      async () => (await page.evaluate('document.activeElement.id')) === id || undefined,
      `the focus to be on ${id}`,
    );
  const tabTo = async (id: string): Promise<void> => {
    for (let press = 0; press < 20; press += 1) {
      if ((await page.evaluate('document.activeElement.id')) === id) return;
      await page.keyboard.press('Tab');
    }
    throw new Error(`the focus does not come to ${id}`);
  };
  await tabTo('key-field');
  await page.keyboard.insertText(old);
  await page.keyboard.press('Enter');
  await page.locator('#report').waitFor();
  // The focus goes on where the reading does.
  await focused('whose');
  await tabTo('rotate');
  await page.keyboard.press('Enter');
  await tabTo('replace');
  await page.keyboard.press('Enter');
  await focused('fresh-key');
  await tabTo('stored');
  await page.keyboard.press('Enter');
  await focused('whose');
  expect(await statusOf(gateway.url, old)).toBe(401);
});

test('the period is chosen, and the report is of it', async () => {
  await using visit = await Visit.begin(browser, gateway.url);
  const { page } = visit;
  const asked: (string | null)[] = [];
  await page.route('**/admin/usage*', async (route) => {
    asked.push(new URL(route.request().url()).searchParams.get('days'));
    if (asked.length === 3) await route.fulfill({ status: 503, json: {} });
    else await route.fulfill({ json: sampleReport('', MODELS) });
  });
  await visit.enter(await gateway.issueKey('Lite'));
  await page.getByLabel('Period').selectOption('Last 7 days');
  await until(() => asked.length === 2 || undefined, 'the second report');
  await page.getByLabel('Period').selectOption('Last 90 days');
  await page.locator('#problem .notice').waitFor();
  // What is shown is still of the period before.
  expect(await page.getByLabel('Period').inputValue()).toBe('7');
  expect(asked).toEqual(['30', '7', '90']);
});

test('costs have a chart with their currency, also small ones, and none where nothing has a price', async () => {
  await using visit = await Visit.begin(browser, gateway.url);
  const { page } = visit;
  let report: Report = { ...sampleReport('', ['gpt-4o']), currency: 'EUR' };
  await visit.report(() => report);
  await visit.enter(await gateway.issueKey('Lite'));
  expect(await texts(page, '#cost-title')).toEqual(['Cost (EUR) a day']);
  expect((await texts(page, '#cost-chart title')).at(-1)).toMatch(/^Sep 30: [\d.]+ EUR$/);
  const days = report.days.slice(-2).map((line) => ({ ...line, cost: 0.0013 }));
  report = { ...report, days };
  await page.getByRole('button', { name: 'Refresh' }).click();
  await until(
    async () => (await texts(page, '#cost-chart .scale span'))[0] === '0.0016' || undefined,
    'the small scale',
  );
  expect(await texts(page, '#cost-chart .scale span')).toEqual(['0.0016', '0.0008', '0']);
  report = sampleReport('', ['gpt-4o'], false);
  await page.getByRole('button', { name: 'Refresh' }).click();
  await page.locator('#cost').waitFor({ state: 'hidden' });
  expect(visit.faults).toEqual([]);
});

test('the days are downloaded as CSV that a spreadsheet takes for texts and numbers', async () => {
  await using visit = await Visit.begin(browser, gateway.url);
  const { page } = visit;
  const names = ['=cmd|x', 'a,"b"'];
  await visit.report((prefix) => {
    const report = sampleReport(prefix, names);
    return { ...report, currency: 'EUR', days: report.days.slice(-2) };
  });
  const key = await gateway.issueKey('Lite');
  await visit.enter(key);
  const [saved] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Download as CSV' }).click(),
  ]);
  expect(saved.suggestedFilename()).toBe(`usage-${key.slice(0, 8)}-2026-09-01-2026-09-30.csv`);
  const [first, second] = sampleReport('', names).days.slice(-2);
  if (first === undefined || second === undefined) throw new Error('no lines');
  const cells = ({ day: _day, model: _model, cost, ...counts }: Line): string =>
    [...Object.values(counts), cost, 'EUR'].join(',');
  expect(await text(await saved.createReadStream())).toBe(
    [
      'day,model,requests,failed,prompt_tokens,cached_tokens,completion_tokens,reasoning_tokens,cost,currency',
      `2026-09-30,'=cmd|x,${cells(first)}`,
      `2026-09-30,"a,""b""",${cells(second)}`,
      '',
    ].join('\r\n'),
  );
  expect(visit.faults).toEqual([]);
});

test('the name of the key, its expiry and its last use stand below it', async () => {
  await using visit = await Visit.begin(browser, gateway.url, { locale: 'en-GB' });
  const { page } = visit;
  await visit.report((prefix) => sampleReport(prefix, []));
  let facts: object | undefined;
  await page.route('**/admin/keys/current', (route) =>
    facts === undefined ? route.continue() : route.fulfill({ json: facts }),
  );
  await visit.enter(await gateway.issueKey('Lite'));
  const line = page.locator('#key-facts');
  await page.getByText(/^Issued on \d+ \w+ \d{4}, not used yet, does not expire\.$/).waitFor();
  facts = {
    name: '<b>Build</b> server',
    created_at: '2026-01-03T10:00:00.000Z',
    expires_at: '2027-03-01T00:00:00.000Z',
    last_used: '2026-09-29',
  };
  await page.getByRole('button', { name: 'Refresh' }).click();
  await page.getByText('Build').waitFor();
  expect(await line.textContent()).toBe(
    '<b>Build</b> server: issued on 3 January 2026, last used on 29 September 2026, expires on 1 March 2027.',
  );
  await page.getByRole('button', { name: 'Use another key' }).click();
  expect(await line.textContent()).toBe('');
});

test('a key in its last week says when it expires', async () => {
  await using visit = await Visit.begin(browser, gateway.url);
  const { page } = visit;
  const key = await gateway.issueKey('Lite');
  let headers: Record<string, string> = { 'x-tollgate-key-expires': '2026-10-03T12:00:00.000Z' };
  await page.route('**/admin/usage*', (route) => route.fulfill({ headers, json: sampleReport('', []) }));
  await visit.enter(key);
  expect(await page.locator('#expiry').textContent()).toContain('This key expires on October 3, 2026.');
  headers = {};
  await page.getByRole('button', { name: 'Refresh' }).click();
  await page.locator('#expiry').waitFor({ state: 'hidden' });
});

test('the key is in the memory of the tab and nowhere else', async () => {
  await using visit = await Visit.begin(browser, gateway.url);
  const { page } = visit;
  await visit.report((prefix) => sampleReport(prefix, MODELS));
  const key = await gateway.issueKey();
  await visit.enter(key);
  await until(async () => (await page.getByLabel('API key').inputValue()) === '', 'the field to be empty');
  const kept = await page.evaluate(
    'JSON.stringify([{ ...localStorage }, { ...sessionStorage }, history.state, document.cookie, location.href, window.name])',
  );
  expect(kept).toBe(`[{},{},null,"","${gateway.url}/account",""]`);
  expect(await page.evaluate('indexedDB.databases().then((all) => all.length)')).toBe(0);
  expect(await page.evaluate('caches.keys().then((all) => all.length)')).toBe(0);
  expect(await page.context().cookies()).toEqual([]);
  expect(await page.content()).not.toContain(key);
  expect(visit.urls.join('\n')).not.toContain(key);
  expect(gateway.output).not.toContain(key);
  // Gone with the page: neither back nor a reload knows it.
  await page.goto('/pricing');
  await page.goBack();
  await page.getByLabel('API key').waitFor();
  expect([await page.locator('#report').isVisible(), await page.getByLabel('API key').inputValue()]).toEqual([
    false,
    '',
  ]);
  await visit.enter(key);
  await page.getByRole('button', { name: 'Use another key' }).click();
  expect([await page.locator('#report').isVisible(), await page.locator('#totals').textContent()]).toEqual([
    false,
    '',
  ]);
  expect(await page.evaluate('document.activeElement.id')).toBe('key-field');
});

describe('what is wrong is told in words', () => {
  const submit = async (page: Page, text: string): Promise<void> => {
    await page.getByLabel('API key').fill(text);
    await page.getByRole('button', { name: 'Show usage' }).click();
  };
  const complaint = async (page: Page): Promise<string> => {
    await page.locator('#problem .notice').waitFor();
    return (await page.getByRole('alert').textContent()) ?? '';
  };

  test('something that is no key is not sent', async () => {
    await using visit = await Visit.begin(browser, gateway.url);
    await visit.page.goto('/account');
    await submit(visit.page, 'sk-something');
    expect(await complaint(visit.page)).toContain('That is not a key');
    expect(visit.urls.length).toBe(1);
  });

  test.each([
    ['a key that was replaced', 401, {}, 'This key is not valid: it was mistyped, replaced or revoked.'],
    ['too many bad keys', 429, { 'retry-after': '42' }, 'came from your address. Try again in 42 seconds.'],
    [
      'a store that is away',
      503,
      { 'retry-after': '2' },
      'says nothing about the key. Try again in 2 seconds.',
    ],
    ['no such page', 404, {}, 'This gateway does not report usage.'],
    ['another fault', 500, {}, 'That did not work: The reason.'],
  ])('%s', async (_name, status, headers, words) => {
    await using visit = await Visit.begin(browser, gateway.url);
    const { page } = visit;
    await page.route('**/admin/usage*', (route) =>
      route.fulfill({ status, headers, json: { error: { message: 'The reason.' } } }),
    );
    await page.goto('/account');
    await submit(page, await gateway.issueKey());
    expect(await complaint(page)).toContain(words);
    expect(await page.locator('#report').isVisible()).toBe(false);
  });

  test.each([
    ['no answer', 'The gateway did not answer. Try again in a moment.'],
    ['an answer of another kind', 'something that this page cannot read'],
    ['an answer cut short', 'was cut short. Try again in a moment.'],
  ])('%s', async (name, words) => {
    await using visit = await Visit.begin(browser, gateway.url);
    const { page } = visit;
    await page.route('**/admin/usage*', (route) => {
      if (name === 'no answer') return route.abort();
      return route.fulfill({
        contentType: 'application/json',
        body: name.endsWith('kind') ? '[]' : '{"prefix":',
      });
    });
    await page.goto('/account');
    await submit(page, await gateway.issueKey());
    expect(await complaint(page)).toContain(words);
  });

  test('a key that ended meanwhile, at the gateway itself', async () => {
    await using visit = await Visit.begin(browser, gateway.url);
    const { page } = visit;
    await visit.report((prefix) => sampleReport(prefix, MODELS));
    const key = await gateway.issueKey();
    await visit.enter(key);
    const successor = textField((await rotate(gateway.url, key)).json(), 'key');
    await page.getByRole('button', { name: 'Replace this key…' }).click();
    await page.getByRole('button', { name: 'Replace it now' }).click();
    expect(await complaint(page)).toContain('This key is not valid');
    expect(await page.locator('#fresh').isVisible()).toBe(false);
    expect(await statusOf(gateway.url, successor)).toBe(200);
  });

  test('an answer to a rotation that got lost: it may have happened', async () => {
    await using visit = await Visit.begin(browser, gateway.url);
    const { page } = visit;
    await visit.report((prefix) => sampleReport(prefix, MODELS));
    await page.route('**/admin/keys/rotate', (route) => route.abort());
    await visit.enter(await gateway.issueKey());
    await page.getByRole('button', { name: 'Replace this key…' }).click();
    await page.getByRole('button', { name: 'Replace it now' }).click();
    expect(await complaint(page)).toContain('The key may have been replaced nevertheless.');
  });
});
