// `npm run demo`: starts the gateway with the shipped configuration on free ports and a store of its own, gets a Free key
// from the pricing page's form as a program would, and talks to the model through the official SDK.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import OpenAI from 'openai';

const root = join(import.meta.dirname, '..');
const folder = mkdtempSync(join(tmpdir(), 'tollgate-demo-'));

/** Resolves with the base URL that `tollgate serve` prints. */
async function startGateway(): Promise<{ url: string; stop: () => Promise<void> }> {
  const child = spawn(
    process.execPath,
    [join(root, 'src/main.ts'), 'serve', '--config', join(root, 'config.yaml')],
    {
      env: {
        ...process.env,
        PORT: '0',
        ADMIN_PORT: '0',
        TOLLGATE_STORE: `sqlite:${join(folder, 'demo.db')}`,
      },
      stdio: ['ignore', 'ignore', 'pipe'],
    },
  );
  const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stderr })) {
    lines.push(line);
    const url = /listening on (http:\S+)/.exec(line)?.[1];
    if (url === undefined) continue;
    child.stderr.resume();
    const stop = async () => {
      child.kill('SIGTERM');
      await gone;
      rmSync(folder, { recursive: true, force: true });
    };
    return { url, stop };
  }
  throw new Error(`the gateway did not start:\n${lines.join('\n')}`);
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

const gateway = await startGateway();
try {
  console.log(`The gateway listens on ${gateway.url}`);
  const key = await freeKey(gateway.url);
  console.log(`A Free key was issued: ${key}\n`);

  const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: key });
  const { data: models } = await client.models.list();
  const model = models[0]?.id ?? 'echo';
  const messages = [{ role: 'user' as const, content: 'Hello from an unchanged OpenAI SDK!' }];

  process.stdout.write(`streamed (${model}): `);
  for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
    process.stdout.write(chunk.choices[0]?.delta.content ?? '');
  }
  const completion = await client.chat.completions.create({ model, messages });
  console.log(`\nwhole    (${model}): ${completion.choices[0]?.message.content}`);

  console.log(`\nThe same with curl:\n
curl -N ${gateway.url}/v1/chat/completions \\
  -H 'Authorization: Bearer ${key}' \\
  -H 'Content-Type: application/json' \\
  -d '${JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello from curl!' }], stream: true })}'\n`);

  if (process.stdout.isTTY) {
    console.log('The gateway keeps running so that you can paste it. Ctrl-C ends it.');
    await new Promise<void>((resolve) => process.once('SIGINT', () => resolve()));
  }
} finally {
  await gateway.stop();
}
