// Thousands of spoiled requests against a live gateway: each gets typed answers or a closed connection, none hangs it,
// none makes it answer 500, and a good request works after each batch. FUZZ_RUNS and FUZZ_SEED choose other ones.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { chatRequest } from '../helpers/hostile-upstream.ts';
import type { RawClient, RawResponse } from '../helpers/raw-client.ts';
import { until, within } from '../helpers/wait.ts';
import { corpus, seeded, spoil } from './corpus.ts';
import { errorCode } from './served.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 1_000);
const SEED = Number(process.env['FUZZ_SEED'] ?? 1);
const BATCH = 200;
const AT_ONCE = 20;

/** Whatever stands behind it, it gets its answer. */
const GOOD = Buffer.from('GET /health HTTP/1.1\r\nhost: a\r\n\r\n');

let gateway: Gateway;
beforeAll(async () => {
  // So many that no limit of the tier or of failures plays a part.
  gateway = await startGateway({ config: { auth: { failures_per_minute: 1_000_000 } } });
});
afterAll(() => gateway.close());

/** What became of a request: `left` by the client, `closed` without an answer, `accepted`, or the codes of the refusals. */
async function send(spoiled: Buffer, random: () => number): Promise<string[]> {
  using client = await gateway.connect();
  const behind = random() < 0.2;
  const bytes = behind ? Buffer.concat([GOOD, spoiled]) : spoiled;
  const cut = Math.floor(random() * bytes.length);
  // The gateway may close before all of it is written.
  await client.segments([bytes.subarray(0, cut), bytes.subarray(cut)], 0).catch(() => undefined);
  if (random() < 0.1) {
    client.reset();
    return ['left'];
  }
  client.halfClose();
  await within(client.closed, 'the end of the connection', 30_000);
  const outcomes = judge(client, bytes);
  // Node cuts the connection at the preface of HTTP/2.
  if (behind && !bytes.includes('PRI ')) expect(outcomes.shift()).toBe('accepted');
  return outcomes;
}

function judge(client: RawClient, bytes: Buffer): string[] {
  const sent = bytes.toString('latin1');
  // The client does not know which answer is to a HEAD, and so would wait for its body.
  if (!/\bHEAD /.test(sent)) expect(client.fault).toBeUndefined();
  const asked = sent.match(/HTTP\/\d/g)?.length ?? 0;
  expect(client.responses.length).toBeLessThanOrEqual(asked + 1);
  if (client.responses.length === 0) return ['closed'];
  return client.responses.map((response) => outcome(response, sent));
}

function outcome(response: RawResponse, sent: string): string {
  if (response.status < 400) {
    expect(response.complete).toBe(true);
    return 'accepted';
  }
  if (/\bHEAD /.test(sent) && !response.complete) return `${response.status} HEAD`;
  expect(response.status).not.toBe(500);
  // A form is answered with a page.
  if (response.header('content-type') === 'text/html; charset=utf-8' && sent.includes('/checkout')) {
    expect(response.complete).toBe(true);
    return `${response.status} page`;
  }
  const code = errorCode(response);
  return `${response.status} ${code}`;
}

test(`${RUNS} spoiled requests`, { timeout: 120_000 + RUNS * 50 }, async () => {
  const random = seeded(SEED);
  const requests = corpus(await gateway.key());
  const table = new Map<string, number>();
  for (let done = 0; done < RUNS; done += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, RUNS - done) }, () => spoil(requests, random));
    const lanes = Array.from({ length: AT_ONCE }, async (_, lane) => {
      for (let i = lane; i < batch.length; i += AT_ONCE) {
        const bytes = batch[i];
        if (bytes === undefined) continue;
        const outcomes = await send(bytes, random).catch((cause) => {
          const what = `request ${done + i} of seed ${SEED}: ${JSON.stringify(bytes.toString('latin1').slice(0, 2_000))}`;
          throw new Error(what, { cause });
        });
        for (const each of outcomes) table.set(each, (table.get(each) ?? 0) + 1);
      }
    });
    await Promise.all(lanes);
    const healthy = await gateway.chat(chatRequest());
    expect(healthy.status).toBe(200);
  }
  await until(() => gateway.app.inFlight === 0, 'nothing to be in flight');
  await until(
    async () => (await gateway.metric('tollgate_connections')) === 0,
    'all connections to be closed',
  );
  expect(gateway.output).not.toContain('a handler failed');
  expect(gateway.output).not.toContain('could not be');
  const rows = [...table]
    .sort((a, b) => b[1] - a[1])
    .map(([name, count]) => `${String(count).padStart(8)}  ${name}`);
  console.log(`${RUNS} spoiled requests, answers and closed connections:\n${rows.join('\n')}`);
});
