// `fallback_on` and `affinity` of a model: what may be written there, and where it has no effect.
import { describe, expect, it } from 'vitest';
import { load, placesOf } from './sample.ts';

const ONE = '[{ upstream: a, model: x }]';
const TWO = '[{ upstream: a, model: x }, { upstream: b, model: x }]';
const withModel = (lines: string, targets = TWO): string =>
  `upstreams: { a: { builtin: echo }, b: { builtin: echo } }\nmodels:\n  other: { targets: [{ upstream: b, model: x }] }\n  m:\n    targets: ${targets}\n    ${lines}\n`;
const modelOf = (lines: string) => load(withModel(lines)).dynamic.models['m'];
const warningsOf = (lines: string, targets?: string) =>
  load(withModel(lines, targets)).warnings.map(({ message }) => message);

describe('fallback_on', () => {
  it('is a list of reasons, each once', () => {
    expect(modelOf('fallback_on: [rate_limited, content_filter, rate_limited]')?.fallback_on).toEqual([
      'content_filter',
      'rate_limited',
    ]);
    expect(modelOf('')?.fallback_on).toEqual([]);
  });

  it.each(['[timeout]', 'content_filter', '[Content_Filter]'])('%s is refused', (value) => {
    expect(placesOf(withModel(`fallback_on: ${value}`))).toHaveLength(1);
  });

  it('with one target has no effect', () => {
    expect(warningsOf('fallback_on: [rate_limited]', ONE)).toEqual([
      expect.stringContaining('has no effect, because the model has only one target'),
    ]);
    expect(warningsOf('fallback_on: []', ONE)).toEqual([]);
    expect(warningsOf('fallback_on: [rate_limited]')).toEqual([]);
  });
});

describe('affinity', () => {
  it('names a header, in any case', () => {
    expect(modelOf('balance: affinity\n    affinity: { header: X-Thread }')?.affinity).toEqual({
      header: 'x-thread',
    });
    expect(modelOf('balance: affinity\n    affinity: {}')?.affinity).toEqual({ header: 'x-session-id' });
  });

  it.each(['a b', '', 'ä', 'x:y'])('with the header %j is refused', (header) => {
    expect(placesOf(withModel(`balance: affinity\n    affinity: { header: "${header}" }`))).toHaveLength(1);
  });

  it('has no effect with another balance', () => {
    expect(warningsOf('affinity: { header: x }')).toEqual([
      expect.stringContaining('has no effect without `balance: affinity`'),
    ]);
    expect(warningsOf('balance: affinity\n    affinity: { header: x }')).toEqual([]);
  });
});
