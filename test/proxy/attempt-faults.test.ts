// What a broken call and a missed deadline mean for an attempt.
import { expect, test } from 'vitest';
import { type ErrorCode, GatewayError } from '../../src/errors.ts';
import { type AttemptFault, faultOfCall, faultOfDeadline } from '../../src/proxy/attempts/attempt-faults.ts';
import type { Delivery } from '../../src/upstream/transport.ts';

/** One line of a table. */
function summary(fault: AttemptFault): string {
  if (fault.kind === 'broken') return `broken ${fault.error.code}${fault.tryNextTarget ? ' next' : ''}`;
  const { failure } = fault;
  const marks = [
    failure.tryNextTarget && 'next',
    failure.retry && 'retry',
    failure.skipsRetryBudget && 'free',
    failure.mayHaveExecuted && 'maybe executed',
    failure.staleConnection && 'stale',
  ];
  return [`failed ${failure.error.code}`, failure.blame.kind, ...marks.filter(Boolean)].join(', ');
}

const CALLS: readonly [Delivery, ErrorCode, boolean, string][] = [
  [
    'no_response',
    'upstream_unreachable',
    false,
    'failed upstream_unreachable, neutral, next, retry, free, stale',
  ],
  ['body_lost', 'request_timeout', false, 'broken request_timeout'],
  ['not_sent', 'upstream_unreachable', false, 'failed upstream_unreachable, failure, next, retry, free'],
  ['not_sent', 'upstream_proxy_error', false, 'failed upstream_proxy_error, failure, next, retry, free'],
  ['not_sent', 'upstream_timeout', false, 'failed upstream_timeout, failure, next, free'],
  ['maybe_sent', 'upstream_invalid_response', false, 'broken upstream_invalid_response next'],
  ['maybe_sent', 'upstream_unreachable', false, 'failed upstream_unreachable, failure, maybe executed'],
  ['maybe_sent', 'upstream_unreachable', true, 'broken stream_incomplete next'],
  ['maybe_sent', 'upstream_invalid_response', true, 'broken upstream_invalid_response next'],
];

test.each(CALLS)(
  'a call that ended with %s and %s (head: %s) is: %s',
  (delivery, code, hasHead, expected) => {
    const fault = faultOfCall(new GatewayError(code), delivery, { hasHead, retryAfterSend: false });
    expect(summary(fault)).toBe(expected);
  },
);

test('the cause of an answer that broke is kept', () => {
  const cause = new Error('reset');
  const error = new GatewayError('upstream_unreachable', undefined, { cause });
  const fault = faultOfCall(error, 'maybe_sent', { hasHead: true, retryAfterSend: false });
  expect(fault).toMatchObject({ error: { code: 'stream_incomplete', cause } });
});

const DEADLINES = [
  ['connect', false, 'failed upstream_timeout, failure, next, free'],
  ['upload', false, 'failed upstream_timeout, failure, maybe executed'],
  ['headers', false, 'failed upstream_timeout, neutral, maybe executed'],
  ['first_token', false, 'failed upstream_timeout, neutral, maybe executed'],
  ['first_token', true, 'broken upstream_timeout next'],
  ['idle', true, 'broken upstream_timeout next'],
  ['total', true, 'broken upstream_timeout'],
  ['search', true, 'broken upstream_timeout'],
] as const;

test.each(DEADLINES)('the deadline %s (head: %s) is: %s', (which, hasHead, expected) => {
  expect(summary(faultOfDeadline(which, false, { hasHead, retryAfterSend: false }))).toBe(expected);
});

test('an upload that waited for the client is the fault of the client', () => {
  const fault = faultOfDeadline('upload', true, { hasHead: false, retryAfterSend: false });
  expect(summary(fault)).toContain('failed request_timeout');
});

test('`retry.after_send` allows another target after the request was sent', () => {
  const stage = { hasHead: false, retryAfterSend: true };
  expect(summary(faultOfDeadline('headers', false, stage))).toContain('next');
  expect(summary(faultOfCall(new GatewayError('upstream_unreachable'), 'maybe_sent', stage))).toContain(
    'next',
  );
});
