// Cohere's official library, and plain requests for what has no library: each call with what it hands to its user.
import { CohereClient, CohereClientV2 } from 'cohere-ai';
import { promptOf } from '../../types.ts';
import { plain, plainError } from './plain.ts';

const { BASE_URL = '', API_KEY = '', MODEL: model = '', CALLS = '' } = process.env;
const options = { token: API_KEY, environment: BASE_URL };
const v1 = new CohereClient(options);
const v2 = new CohereClientV2(options);

const DOCUMENTS = ['Grüße aus Lissabon', 'a cat', '', '🌤️'];

const ranked = (call: string, more: object = {}, maxRetries = 0) =>
  v2.rerank({ model, query: promptOf(call), documents: DOCUMENTS, ...more }, { maxRetries });

/** As the documentation of vLLM asks: it has no library of its own. */
async function posted(path: string, body: object): Promise<unknown> {
  const response = await fetch(BASE_URL + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model, ...body }),
  });
  return { status: response.status, body: await response.text() };
}

const calls: Readonly<Record<string, (call: string) => Promise<unknown>>> = {
  rerank: ranked,
  'rerank.top_n': (call) => ranked(call, { topN: 1, maxTokensPerDoc: 100 }),
  'rerank.response': async (call) => {
    const { data, rawResponse } = await v2
      .rerank({ model, query: promptOf(call), documents: DOCUMENTS })
      .withRawResponse();
    return { data, status: rawResponse.status };
  },
  'rerank.v1': (call) =>
    v1.rerank({
      model,
      query: promptOf(call),
      documents: [{ text: 'a' }, { text: 'b' }],
      returnDocuments: true,
    }),
  'error.bad_request': ranked,
  'error.rate_limit': ranked,
  'error.server': ranked,
  'error.once': (call) => ranked(call, {}, 1),
  'jina.rerank': (call) =>
    posted('/v1/rerank', { query: promptOf(call), documents: [{ text: 'a' }, 'b'], return_documents: false }),
  'vllm.score': () => posted('/score', { text_1: 'a', text_2: ['a', 'b'] }),
  'vllm.score.v1': () => posted('/v1/score', { queries: ['a'], documents: ['a'] }),
  'vllm.classify': () => posted('/classify', { input: ['a', 'b'] }),
  'sglang.classify': () => posted('/v1/classify', { input: 'a' }),
  'vllm.tokenize': () => posted('/tokenize', { prompt: 'Grüße', add_special_tokens: false }),
  'vllm.detokenize': () => posted('/detokenize', { tokens: [1, 2] }),
};

for (const call of CALLS.split(',')) {
  const outcome = await Promise.resolve(calls[call]?.(call)).then(
    (result) => ({ result: plain(result) }),
    (error: unknown) => {
      const { rawResponse: _, ...told } = plainError(error);
      return { error: told };
    },
  );
  console.log(JSON.stringify({ call, ...outcome }));
}
