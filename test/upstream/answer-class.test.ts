// Whose fault an upstream's error answer is: bodies as vendors send them, and texts that a prompt could bring about.
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ANSWER_CLASSES, type AnswerClassName, classify } from '../../src/upstream/error-class.ts';
import { judgeErrorObject, judgeErrorResponse } from '../../src/upstream/error-outcome.ts';
import { readErrorAnswer } from '../../src/wire/error-answer.ts';
import { fillAnswerClasses } from '../../tools/answer-classes.ts';

const of = (status: number, body: unknown): AnswerClassName =>
  classify(
    status,
    readErrorAnswer(status, Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))),
  );
const error = (message: string, code: unknown = null, type: unknown = null) => ({
  error: { message, code, type },
});

const CREDIT = 'Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.';
const QUOTA = 'You exceeded your current quota, please check your plan and billing details.';

test.each<[AnswerClassName, string, number, unknown]>([
  ['credential', 'OpenAI', 401, error('Incorrect API key provided: sk-a****b', 'invalid_api_key')],
  ['credential', 'any', 401, ''],
  [
    'credential',
    'Anthropic',
    403,
    { type: 'error', error: { type: 'permission_error', message: 'No permission.' } },
  ],
  [
    'credential',
    'OpenAI',
    403,
    error('Country not supported', 'unsupported_country_region_territory', 'request_forbidden'),
  ],
  [
    'credential_text',
    'Google',
    400,
    {
      error: {
        code: 400,
        message: 'API key not valid. Please pass a valid API key.',
        status: 'INVALID_ARGUMENT',
      },
    },
  ],
  ['credential_text', 'Google', 400, error('API key expired. Please renew the API key.')],
  [
    'credential_text',
    'OpenAI',
    403,
    error('Project `proj_x` does not have access to model `gpt-4o`', null, 'x'),
  ],
  ['credential_text', 'Azure', 403, error('Access denied due to Virtual Network/Firewall rules.')],
  ['credential_text', 'any', 403, error('Account 12 may not do this')],
  ['account', 'DeepSeek', 402, error('Insufficient Balance', 'invalid_request_error', 'unknown_error')],
  ['account', 'OpenRouter', 402, { error: { code: 402, message: 'This request requires more credits' } }],
  ['account', 'any', 402, '<h1>Payment Required</h1>'],
  ['account', 'OpenAI', 429, error(QUOTA, 'insufficient_quota', 'insufficient_quota')],
  ['account', 'OpenAI', 429, error('Billing hard limit has been reached', 'billing_hard_limit_reached')],
  ['account', 'OpenAI', 403, error('Your account is not active', 'billing_not_active')],
  [
    'account_text',
    'Anthropic',
    400,
    { type: 'error', error: { type: 'invalid_request_error', message: CREDIT } },
  ],
  ['account', 'Alibaba', 400, error('Access denied, please make sure …', 'Arrearage', 'Arrearage')],
  ['account', 'LiteLLM', 400, error('Budget has been exceeded! Current cost: 1.', '400', 'budget_exceeded')],
  ['account', 'Moonshot', 429, error('Your account is suspended', null, 'exceeded_current_quota_error')],
  ['account', 'Volcano', 403, error('The request failed because …', 'AccountOverdueError', 'Forbidden')],
  ['account_text', 'DeepSeek', 400, error('Insufficient Balance')],
  [
    'account_text',
    'xAI',
    403,
    { error: 'Your team 1-2-3 has either used all available credits or reached its monthly spending limit.' },
  ],
  ['account_text', 'Groq', 400, error('This organization has been restricted. Please reach out to support.')],
  [
    'account_text',
    'Fireworks',
    412,
    error('Account x is suspended, possibly due to reaching the monthly spending limit.'),
  ],
  ['credential_text', 'Google', 400, error('User location is not supported for the API use.')],
  [
    'account_text',
    'OpenAI',
    400,
    error('Your organization must be verified to stream this model.', 'unsupported_value'),
  ],
  [
    'prompt',
    'OpenRouter',
    403,
    {
      error: {
        code: 403,
        message: 'The model requires moderation on OpenInference. Your input was flagged for "violence".',
        metadata: { reasons: ['violence'], flagged_input: 'my api key is' },
      },
    },
  ],
  ['prompt', 'OpenRouter', 403, error('blocked', 'content_policy_violation')],
  ['prompt', 'any', 403, error('This request violates our usage policies.')],
  ['forbidden', 'a firewall', 403, '<html>Sorry, you have been blocked</html>'],
  ['forbidden', 'a firewall', 403, ''],
  ['forbidden', 'any', 403, error('Forbidden')],
  [
    'request',
    'Azure',
    400,
    error(
      "The response was filtered due to the prompt triggering Azure OpenAI's content management policy",
      'content_filter',
    ),
  ],
  [
    'request',
    'OpenAI',
    400,
    error('This model has a maximum context length of 8192 tokens', 'context_length_exceeded'),
  ],
  ['request', 'OpenAI', 404, error('The model `x` does not exist', 'model_not_found')],
  ['request', 'any', 422, { detail: [{ loc: ['body'] }] }],
  ['limit', 'OpenAI', 429, error('Rate limit reached', 'rate_limit_exceeded', 'tokens')],
  ['limit', 'Google, of a minute', 429, error(QUOTA, 429)],
  [
    'limit',
    'Groq, of a tier without capacity',
    498,
    error('Flex tier capacity exceeded', 'capacity_exceeded'),
  ],
  ['gateway', 'Amazon', 424, error('The model failed', 'ModelErrorException')],
  ['gateway', 'this gateway', 406, error('No', 'upstream_auth_error', 'server_error')],
  ['gateway', 'this gateway', 406, error('No', 'upstream_tls', 'server_error')],
  ['gateway', 'this gateway', 406, error('No', 'upstream_proxy_denied', 'server_error')],
  [
    'request',
    'this gateway, of an answer that it was billed',
    406,
    error('No', 'upstream_unusable_response'),
  ],
  ['failure', 'any', 500, error(CREDIT)],
  [
    'failure',
    'Anthropic',
    529,
    { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } },
  ],
  ['failure', 'any', 408, ''],
  ['unusable', 'any', 204, ''],
  ['unusable', 'any', 302, ''],
  ['unusable', 'any', 600, ''],
])('%s: %s, %i %j', (expected, _vendor, status, body) => {
  expect(of(status, body)).toBe(expected);
});

describe('a text that quotes the prompt', () => {
  const PROMPTS = [
    CREDIT,
    QUOTA,
    'API key not valid',
    'Insufficient Balance',
    'permission denied',
    'billing',
  ];
  const frames = [
    (text: string) => error(`Invalid value: '${text}'. Supported values are: 'a'.`, 'invalid_value'),
    (text: string) => error('no', 'invalid_value', { quoted: text }),
    (text: string) => ({ error: { message: 'flagged by moderation', metadata: { flagged_input: text } } }),
    (text: string) => ({ detail: [{ input: text }] }),
    (text: string) => `<html><pre>${text}</pre></html>`,
  ];
  test('never counts against the target, and 400 is told as the caller’s', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...PROMPTS),
        fc.constantFrom(...frames),
        fc.constantFrom(400, 403, 404, 422),
        (prompt, frame, status) => {
          const found = ANSWER_CLASSES[of(status, frame(prompt))];
          expect(found.vote).toBe('none');
          if (status !== 403) expect(found.fault).toBe('caller');
        },
      ),
    );
  });

  test('at the beginning of a 4xx asks the next target, and still counts against none', () => {
    for (const prompt of PROMPTS)
      for (const status of [400, 403, 404, 422])
        expect(ANSWER_CLASSES[of(status, error(prompt))].vote).toBe('none');
  });
});

describe('what the client reads', () => {
  test('of the operator’s bill and credential is the gateway’s text, and nothing of the upstream’s', () => {
    for (const [status, body] of [
      [402, error('Insufficient Balance')],
      [400, error(CREDIT)],
      [403, error('Your account is not active', 'billing_not_active')],
      [429, error(QUOTA, 'insufficient_quota')],
    ] as const) {
      const failure = judgeErrorResponse(status, { 'retry-after': '7' }, Buffer.from(JSON.stringify(body)));
      expect(failure).toMatchObject({ tryNextTarget: true, retry: false, headers: {} });
      expect([failure.error.code, failure.error.status]).toEqual(['upstream_account_error', 406]);
      expect(failure).not.toHaveProperty('verbatim');
      expect(failure.error.message).not.toMatch(/Insufficient|credit balance|exceeded/);
    }
  });

  test.each([
    ['whole', '{"error":{"code":402,"message":"Insufficient credits"}}'],
    ['flat', '{"object":"error","code":402,"message":"Insufficient credits"}'],
    ['in an array', '[{"error":{"code":402,"message":"Insufficient credits"}}]'],
    ['twice wrapped', '{"error":{"error":{"code":402,"message":"Insufficient credits"}}}'],
  ])('an error object in a 200, %s, has the status that it names', (_how, text) => {
    expect(judgeErrorObject(text, {}).error.code).toBe('upstream_account_error');
  });

  test.each([
    [
      'an event',
      'data: {"error":{"message":"too long","code":"x"}}\n\n',
      '{"error":{"message":"too long","code":"x"}}',
    ],
    [
      'an event with a name',
      'event: error\r\ndata: {"error":{"message":"m"}}\r\n\r\n',
      '{"error":{"message":"m"}}',
    ],
    [
      'behind a comment',
      ': hello\n\ndata:{"error":{"message":"m"}}\n\ndata: [DONE]\n\n',
      '{"error":{"message":"m"}}',
    ],
    ['over several lines', 'data: {"error":\ndata: {"message":"m"}}\n\n', '{"error":\n {"message":"m"}}'],
    ['without an end', 'data: {"error":{"message":"m"}}', '{"error":{"message":"m"}}'],
  ])('a refusal that is labelled as a stream keeps its message: %s', (_how, text, expected) => {
    expect(judgeErrorResponse(400, {}, Buffer.from(text)).verbatim?.body.toString()).toBe(expected);
  });

  test('a flat error in an event is put into OpenAI’s shape', () => {
    const { verbatim } = judgeErrorResponse(
      422,
      {},
      Buffer.from('data: {"object":"error","message":"m","code":422}\n\n'),
    );
    expect(JSON.parse(verbatim?.body.toString() ?? '')).toEqual({
      error: { message: 'm', type: 'invalid_request_error', param: null, code: null },
    });
  });
});

test.each([
  '{"error":{"message":"Rate limit reached","type":"requests","param":null,"code":"rate_limit_exceeded"}}',
  '{"errors":{"errors":{"errors":{}}}}',
  'busy',
])('an error is read in about the time that its text needs: %s', (text) => {
  const body = Buffer.from(text);
  const timeOf = (run: () => void): number => {
    const before = process.hrtime.bigint();
    for (let i = 0; i < 50; i += 1) run();
    return Number(process.hrtime.bigint() - before);
  };
  // The same text many times, because one is read too quickly to be measured.
  const plain = () => {
    for (let i = 0; i < 50; i += 1) JSON.stringify(text.split('').reverse());
  };
  const rounds = Array.from(
    { length: 5 },
    () => timeOf(() => judgeErrorResponse(429, {}, body)) / timeOf(plain),
  );
  expect(Math.min(...rounds)).toBeLessThan(10);
});

test('docs/relay.md has the table (node tools/answer-classes.ts docs/relay.md)', () => {
  const page = readFileSync(new URL('../../docs/relay.md', import.meta.url), 'utf8');
  expect(fillAnswerClasses(page)).toBe(page);
});
