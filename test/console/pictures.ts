// Makes the pictures of the console in docs/pictures: a minute with three vendors, of which one is away. `node test/console/pictures.ts`
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { launchBrowser } from '../helpers/browser.ts';
import { Visit } from '../pages/visit.ts';
import { asWebp } from '../pages/webp.ts';
import { startConsole } from './setting.ts';

const DOCS = fileURLToPath(new URL('../../docs/pictures/', import.meta.url));
const FIRST_MS = 180;
const WATCHED_MS = 12_000;

/** A vendor that answers as OpenAI does, or not at all. */
async function vendor(isAway: boolean) {
  const answer = {
    id: 'chatcmpl-1',
    object: 'chat.completion',
    created: 1,
    model: 'm',
    choices: [{ index: 0, message: { role: 'assistant', content: 'Hello.' }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 420, completion_tokens: 130, total_tokens: 550 },
  };
  const server = createServer(async (request, response) => {
    for await (const _ of request);
    await setTimeout(FIRST_MS);
    response.writeHead(isAway ? 503 : 200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(isAway ? { error: { message: 'away' } } : answer));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return { url: `http://127.0.0.1:${address.port}/v1`, close: () => server.close() };
}

const vendors = [await vendor(false), await vendor(true), await vendor(false)];
const [first, second, third] = vendors.map(({ url }) => url);
await using setting = await startConsole({
  config: {
    currency: 'USD',
    upstreams: Object.fromEntries(
      Object.entries({ openai: first, mistral: second, 'on-premises': third }).map(([name, base_url]) => [
        name,
        { base_url: base_url ?? '', api_key: 'sk-x' },
      ]),
    ),
    models: {
      'gpt-4o-mini': {
        targets: [{ upstream: 'openai', model: 'gpt-4o-mini', price: { input: 0.15, output: 0.6 } }],
      },
      'mistral-small': {
        targets: [
          { upstream: 'mistral', model: 'mistral-small', price: { input: 0.1, output: 0.3 } },
          { upstream: 'on-premises', model: 'mistral-small', price: { input: 0, output: 0 } },
        ],
      },
    },
  },
});
const { tollgate } = setting.commands;
for (const team of ['search', 'maps', 'support']) await tollgate('teams', 'add', team, '--label', 'env=prod');
const keys: string[] = [];
for (const team of ['search', 'maps', 'support'])
  keys.push(
    (
      await tollgate('keys', 'issue', '--tier', 'Pro', '--holder', `${team} service`, '--team', team)
    ).out.trim(),
  );

const token = await setting.operator('ann', 'admin');
const browser = await launchBrowser();
try {
  await using visit = await Visit.begin(browser, setting.gateway.adminUrl);
  const { page } = visit;
  await page.goto('/console');
  await page.getByLabel('Token of an operator').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  const until = Date.now() + WATCHED_MS;
  for (let turn = 0; Date.now() < until; turn += 1) {
    const body = {
      model: turn % 3 === 0 ? 'mistral-small' : 'gpt-4o-mini',
      messages: [{ role: 'user', content: 'Hello' }],
    };
    void fetch(`${setting.gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${keys[turn % 3]}`, 'content-type': 'application/json' },
      body: JSON.stringify(turn % 23 === 0 ? { ...body, model: 'gpt-5-mini' } : body),
    }).then((answer) => answer.text());
    await setTimeout(60);
  }
  const encoder = await browser.newPage();
  const look = async (name: string) => {
    await page.setViewportSize({ width: 1280, height: 700 });
    await writeFile(
      `${DOCS}${name}.webp`,
      await asWebp(encoder, await page.screenshot({ fullPage: true, animations: 'disabled' })),
    );
  };
  await look('console-now');
  await page.goto('/console/upstreams/mistral');
  await look('console-upstream');
  await page.goto('/console/keys');
  await look('console-keys');
} finally {
  await browser.close();
  for (const { close } of vendors) close();
}
