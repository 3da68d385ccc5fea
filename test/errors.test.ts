// The table of errors: that docs/errors.md says the same, and that every error has the body and the sense it promises.
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import {
  ERRORS,
  type ErrorCode,
  errorBody,
  GatewayError,
  UPSTREAM_ERRORS,
  wrapError,
} from '../src/errors.ts';

interface Row {
  readonly status: number;
  readonly type: string;
  readonly retry: string;
  readonly meaning: string;
}

function documented(markdown: string): Map<string, Row> {
  const table = markdown.slice(markdown.indexOf('\n## Table\n'));
  const rows = new Map<string, Row>();
  for (const match of table.matchAll(/^\| `([^`]+)` +\| (\d+) +\| `([^`]+)` +\| (\w+) +\| (.+?) +\|$/gm)) {
    const [, code = '', status, type = '', retry = '', meaning = ''] = match;
    if (rows.has(code)) throw new Error(`${code} stands twice in docs/errors.md`);
    rows.set(code, { status: Number(status), type, retry, meaning });
  }
  return rows;
}

const CODES = Object.keys(ERRORS).filter((code): code is ErrorCode => code in ERRORS);
const markdown = readFileSync(new URL('../docs/errors.md', import.meta.url), 'utf8');

describe('docs/errors.md', () => {
  const rows = documented(markdown);

  test('has every code and no other', () => {
    expect([...rows.keys()].sort()).toEqual([...CODES].sort());
  });

  test('has as many rows as were understood', () => {
    const table = markdown.slice(markdown.indexOf('\n## Table\n')).split('\n## ')[1] ?? '';
    expect(table.split('\n').filter((line) => line.startsWith('|')).length - 2).toBe(rows.size);
  });

  test.each(CODES)('%s: status, type and retry are those of the code', (code) => {
    const { status, type, retry } = ERRORS[code];
    expect(rows.get(code)).toEqual({ status, type, retry, meaning: expect.stringMatching(/^[A-Z`].*\.$/) });
  });
});

describe('the table', () => {
  test.each(CODES)('%s makes sense', (code) => {
    const rule = ERRORS[code];
    expect(code).toMatch(/^[a-z]+(_[a-z]+)*$/);
    expect(rule.status).toBeGreaterThanOrEqual(400);
    expect(rule.status).toBeLessThanOrEqual(599);
    expect(rule.message).toMatch(/^[A-Z].*\.$/);
    // Waiting is advice for trouble that passes; a request that is wrong stays wrong.
    if (rule.retry === 'wait') expect([429, 503]).toContain(rule.status);
  });

  test('406 is of failures behind the gateway that no client may repeat, and no other error of an upstream has that advice', () => {
    const { unrepeated = [] } = Object.groupBy(CODES, (code) =>
      ERRORS[code].status === 406 ? 'unrepeated' : 'others',
    );
    expect(unrepeated).toEqual(
      CODES.filter((code) => code in UPSTREAM_ERRORS && ERRORS[code].retry === 'no'),
    );
    for (const code of unrepeated) expect(ERRORS[code].type).toBe('server_error');
  });

  test('401 is said of keys, and of operators on the admin listener', () => {
    expect(CODES.filter((code) => ERRORS[code].status === 401)).toEqual([
      'missing_api_key',
      'invalid_api_key',
      'api_key_expired',
      'operator_required',
      'invalid_operator',
    ]);
  });
});

describe('an error', () => {
  test.each(CODES)('%s: its body has exactly the four keys of OpenAI', (code) => {
    const body: unknown = JSON.parse(errorBody(new GatewayError(code)));
    expect(body).toEqual({
      error: { message: ERRORS[code].message, type: ERRORS[code].type, param: null, code },
    });
  });

  test('a text, a param and a wait of its own', () => {
    const error = new GatewayError('missing_required_parameter', "Say 'model'.", {
      param: 'model',
      retryAfterMs: 5,
    });
    expect(JSON.parse(errorBody(error))).toEqual({
      error: {
        message: "Say 'model'.",
        type: 'invalid_request_error',
        param: 'model',
        code: 'missing_required_parameter',
      },
    });
    expect([error.status, error.retryAfterMs]).toEqual([400, 5]);
  });

  test('the cause is kept and never sent', () => {
    const cause = new Error('connect ECONNREFUSED 10.1.2.3:443');
    const error = wrapError(cause, 'upstream_unreachable');
    expect(error.cause).toBe(cause);
    expect(errorBody(error)).not.toContain('10.1.2.3');
    expect(wrapError(error, 'internal_error')).toBe(error);
  });

  test('an upstream error takes the status of the upstream', () => {
    expect(new GatewayError('upstream_error', undefined, { status: 529 }).status).toBe(529);
  });
});
