// What a request is taken for before it is sent on, as the holder of a key with a limit of tokens sees it.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FORM_TYPE, field, file, formBytes, noise } from '../helpers/forms.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';

const MIB = 1024 * 1024;
let gateway: Gateway;

beforeAll(async () => {
  const echo = { targets: [{ upstream: 'echo', model: 'echo' }] };
  gateway = await startGateway({
    config: {
      upstreams: { echo: { builtin: 'echo' } },
      models: { m: echo, 'dall-e-2': echo },
      tiers: { Free: { tokens_per_minute: 40_000 } },
    },
  });
});
afterAll(() => gateway?.close());

async function post(path: string, body: string | Buffer, type = 'application/json'): Promise<number> {
  return (await send(path, body, type)).status;
}

async function send(path: string, body: string | Buffer, type = 'application/json'): Promise<Response> {
  const answer = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${await gateway.issueKey('Free')}`, 'content-type': type },
    body: new Uint8Array(Buffer.from(body)),
  });
  await answer.arrayBuffer();
  return answer;
}

const data = 'A'.repeat(800_000);
const prose = 'A word and another one. '.repeat(16_500);
const chat = (content: unknown, more: object = {}) =>
  JSON.stringify({ model: 'm', messages: [{ role: 'user', content }], ...more });
const image = (url: string) => chat([{ type: 'image_url', image_url: { url } }]);

describe('under 40,000 tokens a minute', () => {
  test.each([
    ['an image of 800 KB', 200, image(`data:image/png;base64,${data}`)],
    ['a file of 800 KB', 200, chat([{ type: 'file', file: { file_data: data } }])],
    ['a tool result with an image', 200, chat(JSON.stringify({ image: `data:image/png;base64,${data}` }))],
    ['prose of 400 KB behind ;base64,', 429, chat(`;base64,${prose}`)],
    ['prose in the place of an image', 429, image(`data:image/png;base64,${prose}`)],
    ['31 MiB in the place of an image', 429, image(`data:image/png;base64,${'A'.repeat(31 * MIB)}`)],
    ['ten answers in a string', 429, chat('x', { n: '10', max_tokens: '5000' })],
    ['many tokens with an exponent', 429, chat('x', { max_tokens: 1e9 }).replace('1000000000', '1e9')],
  ])('%s: %i', async (_, status, body) => {
    expect(await post('/v1/chat/completions', body)).toBe(status);
  });

  test.each([
    ['edits of an image of 800 KB', 200, [field('prompt', 'a cat'), file(noise(800_000), 'image')]],
    ['edits with a text of 400 KB', 429, [field('prompt', prose), file(noise(1_000), 'image')]],
    ['edits with 30 MiB', 429, [field('prompt', 'a cat'), file(noise(30 * MIB), 'image')]],
  ])('%s: %i', async (_, status, parts) => {
    expect(await post('/v1/images/edits', formBytes(parts), FORM_TYPE)).toBe(status);
  });

  test('ten pictures are ten, however the number is spelled', async () => {
    const left = async (sending: Promise<Response>) =>
      Number((await sending).headers.get('x-ratelimit-remaining-tokens'));
    const picture = (n: string) =>
      formBytes([field('n', n), field('prompt', 'a cat'), file(noise(9), 'image')]);
    for (const n of ['10', '1e1', '10.0', '"10"']) {
      const body = `{"model":"m","prompt":"a cat","n":${n}}`;
      expect(await left(send('/v1/images/generations', body)), n).toBeLessThan(30_100);
      if (n.startsWith('"')) continue;
      expect(await left(send('/v1/images/edits', picture(n), FORM_TYPE)), n).toBeLessThan(30_100);
    }
  });
});
