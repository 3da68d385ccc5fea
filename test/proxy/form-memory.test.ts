// What large uploads cost, in a gateway process of its own: whichever end of the form the model stands at, and however slowly
// the upstream reads.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { FORM_TYPE, field, file, formBytes, noise, renamed } from '../helpers/forms.ts';
import { startGateway } from '../helpers/gateway.ts';

const MIB = 1024 * 1024;
const RECORDING = noise(25 * MIB);
const AT_ONCE = 6;

test('recordings of 25 MiB pass in memory of a few MiB each', async () => {
  const digests: string[] = [];
  const server = createServer(async (request, response) => {
    const hash = createHash('sha256');
    let pieces = 0;
    for await (const piece of request) {
      hash.update(piece);
      pieces += 1;
      // Slower than the client.
      if (pieces % 16 === 0) await sleep(1);
    }
    digests.push(hash.digest('hex'));
    response.setHeader('content-type', 'application/json').end('{"text":"heard"}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const at = server.address();
  const port = typeof at === 'object' && at !== null ? at.port : 0;
  try {
    await using gateway = await startGateway({
      process: true,
      upstreams: { up: `http://127.0.0.1:${port}/v1` },
    });
    const headers = { authorization: `Bearer ${await gateway.key()}`, 'content-type': FORM_TYPE };
    const { pid } = gateway.child;
    const resident = () =>
      Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
    const send = async (form: Buffer) => {
      const body = new Uint8Array(form.buffer, form.byteOffset, form.length);
      const answer = await fetch(`${gateway.url}/v1/audio/transcriptions`, { method: 'POST', headers, body });
      expect(await answer.json()).toEqual({ text: 'heard' });
    };
    for (const parts of [
      [field('model', 'test-model'), file(RECORDING)],
      [file(RECORDING), field('model', 'test-model')],
    ]) {
      const form = formBytes(parts);
      // What the process and its allocator take once.
      await send(form);
      const before = resident();
      let most = before;
      let isOver = false;
      const sampling = (async () => {
        while (!isOver) {
          most = Math.max(most, resident());
          await sleep(20);
        }
      })();
      await Promise.all(Array.from({ length: AT_ONCE }, () => send(form)));
      isOver = true;
      await sampling;
      const each = (most - before) / AT_ONCE;
      console.log(`memory of an upload of 25 MiB: ${(each / MIB).toFixed(1)} MiB`);
      // Most of it is what the collector has not come to yet; a copy of each would be 25 and more.
      expect(each).toBeLessThan(14 * MIB);
      const expected = createHash('sha256')
        .update(renamed(form, 'test-model', 'upstream-model'))
        .digest('hex');
      expect(new Set(digests)).toEqual(new Set([expected]));
      digests.length = 0;
    }
  } finally {
    server.close();
  }
});
