// The built-in echo model at the endpoints beside chat: whole or in events as asked, and what it makes of absent members.
import { expect, test } from 'vitest';
import { EchoTransport } from '../../src/upstream/echo/echo.ts';

/** The type and the text of an answer. */
function ask(path: string, body: object): Promise<readonly [string, string]> {
  const { promise, resolve, reject } = Promise.withResolvers<readonly [string, string]>();
  let [type, text] = ['', ''];
  new EchoTransport({ delay: 0 }).send(
    { path, headers: {}, body: Buffer.from(JSON.stringify({ model: 'echo', ...body })) },
    {
      onSent: () => {},
      onHead: (_status, headers) => {
        type = String(headers['content-type']);
      },
      onData: (bytes) => {
        text += bytes.toString('latin1');
      },
      onEnd: () => resolve([type, text]),
      onError: reject,
    },
  );
  return promise;
}

const typesIn = (text: string): string[] =>
  Array.from(text.matchAll(/"type":"((?:response|speech|image)[^"]*)"/g), ([, type = '']) => type);

test.each([
  ['/responses', { input: 'two words' }, { stream: true }, 'response.completed', 'application/json'],
  ['/audio/speech', { input: 'two words' }, { stream_format: 'sse' }, 'speech.audio.done', 'audio/wav'],
  [
    '/images/generations',
    { prompt: 'a' },
    { stream: true },
    'image_generation.completed',
    'application/json',
  ],
])('%s answers whole, and in events when asked', async (path, body, stream, last, type) => {
  const [whole] = await ask(path, body);
  expect(whole).toBe(type);
  const [streamed, text] = await ask(path, { ...body, ...stream });
  expect([streamed, typesIn(text).at(-1)]).toEqual([expect.stringContaining('text/event-stream'), last]);
});

test.each([
  ['/score', { text_1: 'a b', text_2: ['a b', 'c'] }],
  ['/score', { queries: 'a b', documents: ['a b', 'c'] }],
])('%s takes texts by either names: %j', async (path, body) => {
  const [, text] = await ask(path, body);
  expect(JSON.parse(text).data.map(({ score }: { score: number }) => score)).toEqual([1, 0]);
  // A token for each of the three texts.
  expect(JSON.parse(text).usage).toEqual({ prompt_tokens: 3, total_tokens: 3 });
});

test('a completion without a prompt counts none, and echoes nothing', async () => {
  const [[, without], [, empty]] = await Promise.all([
    ask('/completions', {}),
    ask('/completions', { prompt: '' }),
  ]);
  const facts = (text: string) => {
    const { choices, usage } = JSON.parse(text);
    return [choices[0].text, usage];
  };
  expect(facts(without)).toEqual(facts(empty));
});
