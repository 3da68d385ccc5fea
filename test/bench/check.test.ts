// The gateway's CPU time as a multiple of a bare http-proxy-3's, compared with the recorded one, by the same check as
// `npm run bench -- --short`.
// Runs beside one other: it measures what more tests at the same time would change.
import { expect, test } from 'vitest';
import { checkRatios, describeCheck, isWorse, readBaseline, TOLERANCE } from '../../bench/check.ts';
import { INSTALL_MS } from '../helpers/debian-packages.ts';

/** More than an installation of nginx and all repetitions take, on a slow machine. */
const TIMEOUT = INSTALL_MS + 10 * 60_000;

test('a request and a streamed chunk cost no more beside a bare http-proxy-3 than when it was recorded', {
  timeout: TIMEOUT,
}, async () => {
  const check = await checkRatios(readBaseline());
  expect(check.ratios.map(({ kind }) => kind)).toEqual(['request', 'chunk']);
  expect(check.isWorse, describeCheck(check)).toBe(false);
});

test('a ratio is worse when it is more than a quarter above the recorded one', () => {
  expect(TOLERANCE).toBe(0.25);
  expect(isWorse(4, 4)).toBe(false);
  expect(isWorse(5, 4)).toBe(false);
  expect(isWorse(5.01, 4)).toBe(true);
  expect(isWorse(2, 4)).toBe(false);
});
