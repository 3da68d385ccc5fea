// `npm run demo`: starts the gateway with the shipped configuration on free ports and a store of its own, takes a Free key
// from the checkout as a program would, and talks to the model through the official SDK.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import OpenAI from 'openai';
import { parse, stringify } from 'yaml';

const root = join(import.meta.dirname, '..');
/** For the configuration and the store; nothing of the demo is left behind. */
const folder = mkdtempSync(join(tmpdir(), 'tollgate-demo-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

/** The shipped configuration, moved to where it disturbs nobody. */
function writeConfig(): string {
  const shipped: Record<string, unknown> = parse(readFileSync(join(root, 'config.yaml'), 'utf8'));
  const file = join(folder, 'config.yaml');
  const moved = {
    ...shipped,
    listen: { host: '127.0.0.1', port: 0 },
    admin: { host: '127.0.0.1', port: 0 },
    store: `sqlite:${join(folder, 'demo.db')}`,
  };
  writeFileSync(file, stringify(moved));
  return file;
}

function startGateway(): ChildProcess {
  const { PORT: _port, ...env } = process.env;
  const words = [join(root, 'src/main.ts'), 'serve', '--config', writeConfig()];
  return spawn(process.execPath, words, { env, stdio: ['ignore', 'ignore', 'pipe'] });
}

/** The address that `tollgate serve` prints. */
function addressOf(gateway: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    const lines: string[] = [];
    if (gateway.stderr === null) throw new Error('the gateway has no stderr');
    createInterface({ input: gateway.stderr }).on('line', (line) => {
      lines.push(line);
      const url = /listening on (http:\S+)/.exec(line)?.[1];
      if (url !== undefined) resolve(url);
    });
    gateway.once('error', reject);
    gateway.once('close', () => reject(new Error(`the gateway did not start:\n${lines.join('\n')}`)));
  });
}

async function freeKey(url: string): Promise<string> {
  const response = await fetch(`${url}/checkout`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ tier: 'Free' }),
  });
  const answer: unknown = await response.json();
  if (typeof answer === 'object' && answer !== null && 'key' in answer && typeof answer.key === 'string') {
    return answer.key;
  }
  throw new Error(`no key: ${response.status} ${JSON.stringify(answer)}`);
}

async function talk(url: string): Promise<void> {
  console.log(`The gateway listens on ${url}`);
  const key = await freeKey(url);
  console.log(`A Free key was issued: ${key}\n`);

  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key });
  const { data: models } = await client.models.list();
  const model = models[0]?.id ?? 'echo';
  const messages = [{ role: 'user' as const, content: 'Hello from an unchanged OpenAI SDK!' }];

  process.stdout.write(`streamed (${model}): `);
  for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
    process.stdout.write(chunk.choices[0]?.delta.content ?? '');
  }
  const completion = await client.chat.completions.create({ model, messages });
  console.log(`\nwhole    (${model}): ${completion.choices[0]?.message.content}`);

  const body = { model, messages: [{ role: 'user', content: 'Hello from curl!' }], stream: true };
  console.log(`\nThe same with curl:

curl -N ${url}/v1/chat/completions \\
  -H 'Authorization: Bearer ${key}' \\
  -H 'Content-Type: application/json' \\
  -d '${JSON.stringify(body)}'

Keys for a browser: ${url}/pricing
`);
}

const gateway = startGateway();
const gone = once(gateway, 'exit');
// A terminal sends Ctrl-C to the gateway too; either way it ends first, and then this does.
const interrupted = new Promise<void>((resolve) => {
  process.once('SIGINT', resolve).once('SIGTERM', resolve);
});
try {
  await talk(await addressOf(gateway));
  if (process.stdout.isTTY) {
    console.log('The gateway keeps running so that you can paste it. Ctrl-C ends it.');
    await Promise.race([interrupted, gone]);
  }
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
} finally {
  gateway.kill('SIGTERM');
  await gone;
}
