// The warnings of a certificate that ends while the gateway runs.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { CertificateExpiry } from '../../src/http/accept/certificate-expiry.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { makeCertificate } from '../helpers/certificate.ts';

const DAY = 86_400_000;

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test('are given once a day from a week before its end, and end with a new certificate', () => {
  const { expiry: gauge } = createMetrics().tls;
  const warnings: string[] = [];
  const expiry = new CertificateExpiry(gauge, { warn: (text: string) => warnings.push(text) });
  expiry.follow(makeCertificate({ notAfter: new Date(Date.now() + 9.5 * DAY) }));
  vi.advanceTimersByTime(2.5 * DAY);
  expect(warnings).toEqual([]);
  vi.advanceTimersByTime(3 * DAY);
  expect(warnings).toHaveLength(3);
  expect(warnings[0]).toMatch(/^listen\.tls has a certificate that expires at \d{4}-/);
  vi.advanceTimersByTime(5 * DAY);
  expect(warnings.at(-1)).toMatch(/expired at/);
  const before = warnings.length;
  expiry.follow(makeCertificate({ notAfter: new Date(Date.now() + 90 * DAY) }));
  vi.advanceTimersByTime(30 * DAY);
  expect(warnings).toHaveLength(before);
  expiry.stop();
  expect(vi.getTimerCount()).toBe(0);
});
