// What the API says of a wrong query or body: where, what is expected, and the nearest name. Every member of every route.
import { expect, test } from 'vitest';
import { API_ROUTES } from '../../src/console/api/api-routes.ts';
import { ProblemError, parsed } from '../../src/console/api/api-server.ts';

function schemaOf(name: string, part: 'query' | 'body') {
  const schema = API_ROUTES.find((route) => route.name === name)?.[part];
  if (schema === undefined) throw new Error(`${name} has no ${part}`);
  return schema;
}

function problemOf(schema: ReturnType<typeof schemaOf>, given: unknown): ProblemError | undefined {
  try {
    parsed(schema, given);
    return undefined;
  } catch (error) {
    if (error instanceof ProblemError) return error;
    throw error;
  }
}

test.each<[name: string, part: 'query' | 'body', given: unknown, message: string]>([
  ['keys.list', 'query', { tier: 'pro' }, 'tier: must be one of `Free`, `Lite`, `Pro`; did you mean `Pro`?'],
  ['keys.list', 'query', { teir: 'Pro' }, 'unknown name `teir`; did you mean `tier`?'],
  ['keys.list', 'query', { limit: '1.5' }, 'limit: must be a whole number.'],
  ['keys.list', 'query', { limit: '501' }, 'limit: must be at most 500.'],
  ['keys.list', 'query', { team: ['a', 'b'] }, 'team: must be a single text.'],
  [
    'keys.list',
    'query',
    { unused_since: 'x' },
    'unused_since: must be a day such as 2030-01-31 or a time such as 2030-01-31T12:00:00Z.',
  ],
  ['tiers.list', 'query', { a: 'x' }, 'unknown name `a`; no name is known here.'],
  ['explain', 'query', {}, 'model: is missing; it is a single text.'],
  ['keys.set', 'body', { limits: { concurrency: 'x' } }, 'limits.concurrency: must be a number or `none`.'],
  [
    'keys.set',
    'body',
    { limits: { concurrency: 'nnoe' } },
    'limits.concurrency: must be a number or `none`; did you mean `none`?',
  ],
  [
    'keys.set',
    'body',
    { limits: { concurency: 1 } },
    'limits: unknown name `concurency`; did you mean `concurrency`?',
  ],
  [
    'keys.set',
    'body',
    { budget: { hourly: 1 } },
    'budget: unknown name `hourly`; known here: `per_day`, `per_month`.',
  ],
  ['keys.set', 'body', { soft: ['x'] }, 'soft.0: must be a number.'],
  ['keys.set', 'body', { soft: true }, 'soft: must be a list or `none`.'],
  ['holders.set', 'body', { soft: '' }, 'soft: must be a list, `none` or `tier`.'],
  ['keys.set', 'body', { models: [] }, 'models: must be a list that is not empty.'],
  ['keys.set', 'body', [], 'body: must be a JSON object.'],
  ['keys.issue', 'body', { for: 'x' }, 'for: must be the id of a holder, or the prefix of one of its keys.'],
  [
    'holders.set',
    'body',
    { model_limits: { m: { limits: { requests_per_day: {} } } } },
    'model_limits.m.limits.requests_per_day: must be a number, `none` or `tier`.',
  ],
  [
    'operators.add',
    'body',
    { name: 'x', role: 'admn' },
    'role: must be one of `viewer`, `support`, `admin`; did you mean `admin`?',
  ],
])('%s with the %s %j', (name, part, given, message) => {
  const problem = problemOf(schemaOf(name, part), given);
  expect(problem?.message).toBe(message);
  expect(problem?.more).toMatchObject({ faults: [{ what: expect.stringMatching(/\w/) }] });
});

test('no member of any route is answered in the words of the validator', () => {
  const values = [
    null,
    true,
    1.5,
    -1,
    Number.NaN,
    '',
    'x',
    'x'.repeat(20_000),
    [],
    [1],
    [[]],
    {},
    { x: 1 },
    { x: {} },
  ];
  const foreign = new Set<string>();
  for (const route of API_ROUTES) {
    for (const schema of [route.query, ...(route.body === undefined ? [] : [route.body])]) {
      const given = [
        ...values,
        ...Object.keys(schema.shape).flatMap((name) => values.map((value) => ({ [name]: value }))),
      ];
      for (const each of given) {
        const message = problemOf(schema, each)?.message ?? '';
        if (/Invalid|Unrecognized|expected|Too (?:big|small)|received/.test(message)) foreign.add(message);
      }
    }
  }
  expect([...foreign]).toEqual([]);
});

test('names that the client made up are short, few and no keys', () => {
  const key = `sk-${'a1'.repeat(20)}`;
  const schema = schemaOf('keys.set', 'body');
  const many = Object.fromEntries(Array.from({ length: 50 }, (_, at) => [`${'n'.repeat(5000)}${at}`, 1]));
  expect(problemOf(schema, many)?.message.length).toBeLessThan(1000);
  const long = problemOf(schema, { [`${key}${'0123456789abcdef'.repeat(2)}`]: 1, labels: { a: 1 } });
  expect(JSON.stringify([long?.message, long?.more])).not.toContain('0123456789abcdef');
});
