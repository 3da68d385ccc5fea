// Cohere's official libraries against a server with Cohere's, Jina's, vLLM's and SGLang's paths, and against the gateway in front of one: what they hand
// to their user and what the server is sent is the same. What is not installed is fetched once, and skipped where that is impossible.
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { differences } from './comparison/compare.ts';
import { npmPackages } from './comparison/installs.ts';
import { runProgram } from './comparison/program.ts';
import { pythonPackages } from './comparison/python-packages.ts';
import { type Answer, type Sent, startScripted } from './comparison/servers/scripted.ts';
import { available, playDirectly, playThroughGateway } from './comparison/session.ts';
import { type CallError, type CallResult, promptOf, type Target } from './comparison/types.ts';

const INSTALL_MS = 600_000;
const MODEL = 'rerank-compared';

const program = (path: string): string =>
  fileURLToPath(new URL(`comparison/clients/${path}`, import.meta.url));

const RANKED = {
  id: '07734bd2-2473-4f07-94e1-0d9f0e6843cf',
  results: [
    { index: 3, relevance_score: 0.999071 },
    { index: 0, relevance_score: 1e-7 },
  ],
  meta: { api_version: { version: '2', is_experimental: false }, billed_units: { search_units: 1 } },
};
const listOf = (object: string, data: object, rest: object = {}): Answer => ({
  json: { id: `${object}-1`, object: 'list', model: MODEL, data: [{ index: 0, object, ...data }], ...rest },
});
const failed = (status: number, message: string, headers: Answer['headers'] = {}): Answer => ({
  status,
  headers,
  json: { id: '07734bd2', message },
});

/** The answers of one server. It fails once where it is asked to. */
function server(): (target: string, body: string) => Answer {
  let failures = 0;
  return (target, body) => {
    const asked = (call: string): boolean => body.includes(`"${promptOf(call)}"`);
    if (target === '/tokenize') return { json: { count: 2, max_model_len: 8192, tokens: [1, 2] } };
    if (target === '/detokenize') return { json: { prompt: 'Grüße' } };
    if (target.endsWith('/score')) return listOf('score', { score: 0.5 });
    // SGLang's class of a text, and what its reward models answer without `/v1`.
    if (target === '/v1/classify') return listOf('classify', { label: 'v1', probs: [1], num_classes: 1 });
    if (target === '/classify') return listOf('classify', { label: 'bare', probs: [1], num_classes: 1 });
    if (asked('error.bad_request')) return failed(400, 'invalid request: top_n must be positive');
    if (asked('error.rate_limit')) return failed(429, 'You are past the rate limit.');
    if (asked('error.server') || (asked('error.once') && failures++ === 0))
      return failed(503, 'Service Unavailable');
    if (asked('rerank.v1'))
      return { json: { ...RANKED, results: [{ ...RANKED.results[0], index: 1, document: { text: 'b' } }] } };
    return { json: RANKED };
  };
}

async function playBoth(run: (target: Target) => Promise<CallResult[]>) {
  const play = { start: () => startScripted(server()), run, models: [MODEL] as const };
  const [direct, through] = await Promise.all([playDirectly(play), playThroughGateway(play)]);
  expect(through.result.map(({ call }) => call)).toEqual(direct.result.map(({ call }) => call));
  expect(through.result.filter(({ error }) => error).map(({ call }) => call)).toEqual(FAILING);
  const found = direct.result.flatMap((each, index) =>
    through.result[index] === undefined ? [] : differences(each, through.result[index]),
  );
  // Errors have OpenAI's shape on every endpoint: Cohere's libraries throw the same class, with the vendor's message.
  expect(found.filter(({ path }) => !/^error\.(?:body\.|message$)/.test(path))).toEqual([]);
  const messages = through.result.flatMap(({ error }) => (error === undefined ? [] : [messageIn(error)]));
  expect(messages).toEqual([
    'invalid request: top_n must be positive',
    'Service Unavailable',
    'You are past the rate limit.',
  ]);
  expect(through.sent.map(comparable)).toEqual(direct.sent.map(comparable));
  return through;
}

const messageIn = ({ body }: CallError): unknown => (Object(body).error ?? Object(body)).message;

const FAILING = ['error.bad_request', 'error.server', 'error.rate_limit'];

/** Where an API has several paths for the same, the base URL of the upstream decides. */
const comparable = ({ target, body }: Sent): Sent => ({
  target: target.replace(/^(?:\/v[12])?\/(rerank|score)$/, '/v1/$1'),
  body,
});

const CALLS = 'rerank rerank.top_n rerank.v1 error.bad_request error.server error.once';

test('Cohere for TypeScript ranks the same, and so do plain requests', { timeout: INSTALL_MS }, async ({
  skip,
}) => {
  const folder = await available(() => npmPackages('cohere'), skip);
  const calls =
    `${CALLS} rerank.response jina.rerank vllm.score vllm.score.v1 vllm.classify sglang.classify vllm.tokenize vllm.detokenize ` +
    'error.rate_limit';
  const { result, sent } = await playBoth((target) =>
    runProgram(
      process.execPath,
      ['--import', program('node/resolve.ts'), program('node/cohere.ts')],
      target,
      calls.split(' '),
      { env: { PACKAGES: folder } },
    ),
  );
  const classes = result.flatMap((each) => /"label\\":\\"(\w+)/.exec(JSON.stringify(each))?.[1] ?? []);
  expect(classes).toEqual(['bare', 'v1']);
  expect(sent).toHaveLength(calls.split(' ').length + 1);
});

test('Cohere for Python ranks the same', { timeout: INSTALL_MS }, async ({ skip }) => {
  const python = await available(() => pythonPackages('vendors'), skip);
  const calls = `${CALLS} error.rate_limit`.split(' ');
  const { sent } = await playBoth((target) =>
    runProgram(python, [program('python/cohere_sdk.py')], target, calls),
  );
  expect(sent).toHaveLength(calls.length + 1);
});
