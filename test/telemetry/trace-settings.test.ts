// The OTEL_* variables: the settings that they give, and warnings about invalid ones, without their values.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { formatTraceParent, parseTraceParent } from '../../src/telemetry/traces/trace-parent.ts';
import { readTraceSettings } from '../../src/telemetry/traces/trace-settings.ts';

const ON = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' };

describe('the endpoint', () => {
  test.each([
    [{}, undefined],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: ' ' }, undefined],
    [ON, 'http://collector:4318/v1/traces'],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'https://h/root/' }, 'https://h/root/v1/traces'],
    [{ ...ON, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://own/x' }, 'http://own/x'],
    [{ ...ON, OTEL_SDK_DISABLED: 'TRUE' }, undefined],
    [{ ...ON, OTEL_SDK_DISABLED: 'no' }, 'http://collector:4318/v1/traces'],
    [{ ...ON, OTEL_TRACES_EXPORTER: 'none' }, undefined],
  ])('%j', (env, url) => {
    const { settings, warnings } = readTraceSettings(env);
    expect(settings?.url).toBe(url);
    expect(warnings).toEqual([]);
  });
});

describe('the sampler', () => {
  test.each([
    [undefined, undefined, { root: 'always_on', ratio: 1, isParentBased: true }],
    ['always_off', undefined, { root: 'always_off', ratio: 1, isParentBased: false }],
    ['traceidratio', '0.25', { root: 'traceidratio', ratio: 0.25, isParentBased: false }],
    ['parentbased_traceidratio', '0', { root: 'traceidratio', ratio: 0, isParentBased: true }],
  ])('%s %s', (name, argument, sampler) => {
    const env = { ...ON, OTEL_TRACES_SAMPLER: name, OTEL_TRACES_SAMPLER_ARG: argument };
    expect(readTraceSettings(env)).toMatchObject({ settings: { sampler }, warnings: [] });
  });
});

test.each([
  ['OTEL_EXPORTER_OTLP_ENDPOINT', 'collector:4318'],
  ['OTEL_EXPORTER_OTLP_ENDPOINT', 'secret'],
  ['OTEL_TRACES_EXPORTER', 'secret'],
  ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc'],
  ['OTEL_TRACES_SAMPLER', 'secret'],
  ['OTEL_EXPORTER_OTLP_TIMEOUT', '0'],
  ['OTEL_EXPORTER_OTLP_TIMEOUT', '1e99'],
  ['OTEL_BSP_MAX_QUEUE_SIZE', '-1'],
  ['OTEL_EXPORTER_OTLP_HEADERS', 'secret'],
  ['OTEL_EXPORTER_OTLP_HEADERS', 'a=%zz,secret=1'],
  ['OTEL_RESOURCE_ATTRIBUTES', '=secret'],
])('%s with the value %s causes one warning, with its name and without its value', (name, value) => {
  const { warnings } = readTraceSettings({ ...ON, [name]: value });
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toContain(name);
  expect(warnings[0]).not.toContain('secret');
});

test('an invalid ratio causes a warning', () => {
  for (const share of ['2', '-1', 'half']) {
    const env = { ...ON, OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: share };
    const { settings, warnings } = readTraceSettings(env);
    expect([settings?.sampler.ratio, warnings.length]).toEqual([1, 1]);
  }
});

describe('traceparent', () => {
  const hex = (length: number) =>
    fc.string({ unit: fc.constantFrom(...'0123456789abcdef'), minLength: length, maxLength: length });
  const parent = fc
    .record({ traceId: hex(32), spanId: hex(16), isSampled: fc.boolean() })
    .filter(({ traceId, spanId }) => !/^0+$/.test(traceId) && !/^0+$/.test(spanId));

  test('is parsed as formatted, also in a later version with further fields', () => {
    fc.assert(
      fc.property(parent, (each) => {
        const text = formatTraceParent(each);
        expect(parseTraceParent(text)).toEqual(each);
        expect(parseTraceParent(`01${text.slice(2)}-more`)).toEqual(each);
      }),
    );
  });

  test('is invalid with a missing, additional or non-hexadecimal character', () => {
    fc.assert(
      fc.property(parent, fc.nat(54), fc.constantFrom('g', 'A', ' ', 'é', '\u0000'), (each, at, wrong) => {
        const text = formatTraceParent(each);
        const changed = text.slice(0, at) + wrong + text.slice(at + 1);
        for (const broken of [changed, text.slice(0, -1), `${text}0`, ` ${text}`, `${text},${text}`])
          expect(parseTraceParent(broken), broken).toBeUndefined();
      }),
    );
  });
});
