// `node bench/large-bodies.ts`: what small requests wait while bodies of 20 MiB pass through the same gateway process. The
// large bodies and their upstream are on a thread of their own; rounds alone and beside take turns, so that drift hits both.
import { createServer } from 'node:http';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import { startGateway } from '../test/helpers/gateway.ts';

const ROUNDS = 5;
const SMALL = 300;
const PAUSE_MS = 4;
const MIB = 1024 * 1024;
const ANSWER = JSON.stringify({
  model: 'upstream-model',
  choices: [{ index: 0, message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }],
});

type Order = { readonly url: string; readonly headers: Record<string, string> } | 'stop';

/** The thread: an upstream that swallows bodies, and one large request after the other between an order and `stop`. */
function serveLarge(port: NonNullable<typeof parentPort>): void {
  const upstream = createServer((request, response) => {
    request.resume().once('end', () => response.setHeader('content-type', 'application/json').end(ANSWER));
  });
  const content = 'A'.repeat(20 * MIB);
  const body = Buffer.from(JSON.stringify({ model: 'test-model', messages: [{ role: 'user', content }] }));
  let running = false;
  port.on('message', async (order: Order) => {
    running = order !== 'stop';
    if (order === 'stop') return;
    let sent = 0;
    for (; running; sent += 1) {
      const response = await fetch(`${order.url}/v1/chat/completions`, {
        method: 'POST',
        headers: order.headers,
        body,
      });
      if (!response.ok) throw new Error(`a large body was answered ${response.status}`);
      await response.arrayBuffer();
    }
    port.postMessage(sent);
  });
  upstream.listen(0, '127.0.0.1', () => {
    const address = upstream.address();
    if (address !== null && typeof address === 'object') port.postMessage(address.port);
  });
}

async function measure(): Promise<void> {
  const worker = new Worker(new URL(import.meta.url));
  const told = () => new Promise<number>((resolve) => worker.once('message', resolve));
  const gateway = await startGateway({
    process: true,
    upstreams: { up: `http://127.0.0.1:${await told()}/v1` },
  });
  const headers = { authorization: `Bearer ${await gateway.key()}`, 'content-type': 'application/json' };
  const small = async () => {
    const took: number[] = [];
    for (let i = 0; i < SMALL; i += 1) {
      const start = performance.now();
      await (await fetch(`${gateway.url}/v1/models`, { headers })).arrayBuffer();
      took.push(performance.now() - start);
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    return took;
  };
  await small();
  const alone: number[] = [];
  const beside: number[] = [];
  let bodies = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    alone.push(...(await small()));
    const done = told();
    worker.postMessage({ url: gateway.url, headers } satisfies Order);
    beside.push(...(await small()));
    worker.postMessage('stop' satisfies Order);
    bodies += await done;
  }
  for (const q of [0.5, 0.9, 0.99]) {
    const [a, b] = [quantile(alone, q), quantile(beside, q)];
    console.log(
      `p${q * 100}: alone ${a.toFixed(2)} ms, beside ${b.toFixed(2)} ms, ratio ${(b / a).toFixed(1)}`,
    );
  }
  console.log(`${bodies} bodies of 20 MiB passed beside ${beside.length} small requests`);
  await gateway.close();
  await worker.terminate();
}

function quantile(values: readonly number[], q: number): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length * q)] ?? 0;
}

if (isMainThread) await measure();
else if (parentPort !== null) serveLarge(parentPort);
