// The reason of an upstream's error, whatever the vendor's shape, and what it means for the target.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { judgeErrorObject, judgeErrorResponse } from '../../src/upstream/error-outcome.ts';
import { MODEL_HOSTS } from './vendor-errors/model-hosts.ts';
import { MODEL_VENDORS } from './vendor-errors/model-vendors.ts';
import type { VendorError } from './vendor-errors/vendor-error.ts';

const RECORDED: readonly VendorError[] = [...MODEL_VENDORS, ...MODEL_HOSTS];

const judge = ({ status, headers = {}, body }: VendorError) =>
  status === 200 ? judgeErrorObject(body, headers) : judgeErrorResponse(status, headers, Buffer.from(body));

describe('the reason of a recorded error', () => {
  test.each(RECORDED)('$vendor, $status: $reason', (recorded) => {
    expect(judge(recorded).reason).toBe(recorded.reason);
  });

  test.each(RECORDED.filter(({ status }) => status !== 200))(
    '$vendor, $status, as the first event of a stream: $reason',
    (recorded) => {
      const { headers = {}, status } = recorded;
      expect(judgeErrorObject(recorded.body, headers, status).reason).toBe(recorded.reason);
    },
  );

  test('there is one of each reason for the vendors that have it', () => {
    const vendors = new Set(RECORDED.map(({ vendor }) => vendor));
    expect([...vendors].sort()).toEqual(
      [
        'Amazon Bedrock',
        'Anthropic',
        'Azure OpenAI',
        'DeepSeek',
        'Google',
        'Groq',
        'Mistral',
        'Ollama',
      ].concat(['OpenAI', 'OpenRouter', 'Together', 'llama.cpp', 'vLLM']),
    );
  });
});

describe('a rejection because of the request', () => {
  const about = RECORDED.filter(
    ({ reason }) => reason === 'context_length_exceeded' || reason === 'content_filter',
  );
  test.each(about)(
    'is no evidence about the target and is not repeated there: $vendor, $status',
    (recorded) => {
      expect(judge(recorded)).toMatchObject({ blame: { kind: 'neutral' }, retry: false });
    },
  );

  test('keeps the upstream’s status and text for the client', () => {
    const [recorded] = MODEL_VENDORS;
    const failure = judgeErrorResponse(400, {}, Buffer.from(recorded?.body ?? ''));
    expect([failure.verbatim?.status, failure.verbatim?.body.toString()]).toEqual([400, recorded?.body]);
    expect(failure.tryNextTarget).toBe(false);
  });
});

test('a text within the message, such as a quoted prompt, is no reason', () => {
  const texts = RECORDED.flatMap(({ body, reason }) =>
    reason === undefined
      ? []
      : [
          String(
            JSON.parse(body)[0]?.error?.message ??
              JSON.parse(body).error?.message ??
              JSON.parse(body).message,
          ),
        ],
  ).filter((text) => !text.startsWith('{'));
  expect(texts.length).toBeGreaterThan(20);
  fc.assert(
    fc.property(fc.constantFrom(...texts), fc.constantFrom(400, 404, 422), (text, status) => {
      const body = JSON.stringify({
        error: { message: `Invalid value: '${text}'.`, type: 'invalid_request_error', code: 'invalid_value' },
      });
      expect(judgeErrorResponse(status, {}, Buffer.from(body)).reason).toBeUndefined();
    }),
  );
});

test.each([
  ['a bad credential', 401, '{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}'],
  ['an unknown model', 404, '{"error":{"message":"The model does not exist","code":"model_not_found"}}'],
  ['a failure', 500, '{"error":{"message":"The server had an error","type":"server_error"}}'],
  ['an overload', 529, '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'],
  ['no text', 400, ''],
])('%s has none of these reasons', (_what, status, body) => {
  expect(judgeErrorResponse(status, {}, Buffer.from(body))).not.toHaveProperty('reason');
});
