// Which limits a request uses up: made once for a key and a model, and anew when something of it changed.
import { describe, expect, test } from 'vitest';
import type { DynamicConfig } from '../../src/config/schema/config-schema.ts';
import type { Terms } from '../../src/config/terms.ts';
import type { LimitedOwner } from '../../src/proxy/reservation/limit-report.ts';
import { ScopeResolver } from '../../src/proxy/reservation/scopes-of.ts';
import { load } from '../config/sample.ts';

const CONFIG = load(`
upstreams: { demo: { builtin: echo } }
models:
  constructor: { targets: [{ upstream: demo, model: e }] }
  plain: { targets: [{ upstream: demo, model: e }] }
  dear: { targets: [{ upstream: demo, model: e }], limits: { Lite: { requests_per_day: 3, concurrency: 2 } } }
tiers: { Lite: { requests_per_minute: 20 }, Pro: {} }
`).dynamic;

const owner = (more: Partial<LimitedOwner> = {}): LimitedOwner => ({
  tier: 'Lite',
  holderId: 'holder-1',
  holderTerms: {},
  teamId: null,
  terms: {},
  lineage: '0123abcd',
  ...more,
});

/** Scopes as `kind id limits`, and the slot. */
async function shown(
  resolver: ScopeResolver,
  whose: LimitedOwner,
  entry?: string,
  config: DynamicConfig = CONFIG,
): Promise<unknown> {
  const { slot, list } = await resolver.of(whose, config, entry);
  return [slot, ...list.map(({ kind, id, limits }) => [kind, id, limits])];
}

const HOLDER = ['holder', 'holder-1', { requests_per_minute: 20 }] as const;

const alone = () => new ScopeResolver({ find: () => undefined });

describe('a request', () => {
  test('of a plain holder has one scope with the very limits of its tier, made once', async () => {
    const resolver = alone();
    const whose = owner();
    const scopes = await resolver.of(whose, CONFIG);
    expect(await shown(resolver, whose)).toEqual([
      'holder-1',
      ['holder', 'holder-1', { requests_per_minute: 20 }],
    ]);
    expect(scopes.list[0].limits).toBe(CONFIG.tiers.Lite);
    expect(resolver.of(whose, CONFIG, 'plain')).toBe(scopes);
    // Names of members of all objects are no limits.
    expect(resolver.of(whose, CONFIG, 'constructor')).toBe(scopes);
    expect(resolver.of(owner({ holderTerms: { model_limits: {} } }), CONFIG, 'constructor')).toMatchObject({
      list: [{ kind: 'holder' }],
    });
    expect(resolver.of(whose, { ...CONFIG })).not.toBe(scopes);
  });

  test('has scopes of its key, team and model where they have limits', async () => {
    const team = { id: 'team-1', version: 1, terms: { budget: { per_day: 5 } } };
    const resolver = new ScopeResolver({ find: () => team });
    const whose = owner({ teamId: 'team-1', terms: { limits: { concurrency: 1 } } });
    const base = [
      'team-1',
      ['holder', 'holder-1', { requests_per_minute: 20 }],
      ['key', 'key:0123abcd', { concurrency: 1 }],
      ['team', 'team-1', { cost_per_day: 5 }],
    ];
    expect(await shown(resolver, whose, 'plain')).toEqual(base);
    expect(await shown(resolver, whose, 'dear')).toEqual([
      ...base,
      ['model', 'model:holder-1:dear', { requests_per_day: 3, concurrency: 2 }],
    ]);
    expect(resolver.of(whose, CONFIG, 'dear')).toBe(resolver.of(whose, CONFIG, 'dear'));
    expect((await resolver.all(whose, CONFIG)).list.map(({ kind }) => kind)).toEqual([
      'holder',
      'key',
      'team',
      'model',
    ]);
  });

  test('of a team without limits, or of one that is not known, keeps the slot of the team', async () => {
    const bare = { id: 'team-1', version: 1, terms: {} };
    const expected = ['team-1', ['holder', 'holder-1', { requests_per_minute: 20 }]];
    expect(await shown(new ScopeResolver({ find: () => bare }), owner({ teamId: 'team-1' }))).toEqual(
      expected,
    );
    const unknown = new ScopeResolver({ find: async () => undefined });
    expect(await shown(unknown, owner({ teamId: 'team-1' }))).toEqual(expected);
  });

  test('has new scopes when its team changed, and the same while it did not', async () => {
    let team: { id: string; version: number; terms: Terms } = { id: 't', version: 1, terms: {} };
    const resolver = new ScopeResolver({ find: () => team });
    const whose = owner({ teamId: 't' });
    const before = resolver.of(whose, CONFIG);
    expect(resolver.of(whose, CONFIG)).toBe(before);
    team = { id: 't', version: 2, terms: { limits: { requests_per_day: 9 } } };
    expect(await shown(resolver, whose)).toMatchObject([
      't',
      [...HOLDER],
      ['team', 't', { requests_per_day: 9 }],
    ]);
  });

  test('of a holder with limits of its own for a model has these instead of those of its tier', async () => {
    const holderTerms = {
      model_limits: {
        dear: { limits: { requests_per_day: null, tokens_per_day: 8 } },
        plain: { budget: { per_month: 4 } },
      },
    };
    const resolver = alone();
    expect(await shown(resolver, owner({ holderTerms }), 'dear')).toMatchObject([
      'holder-1',
      [...HOLDER],
      ['model', 'model:holder-1:dear', { concurrency: 2, tokens_per_day: 8 }],
    ]);
    expect(await shown(resolver, owner({ holderTerms, tier: 'Pro' }), 'plain')).toMatchObject([
      'holder-1',
      ['holder', 'holder-1', {}],
      ['model', 'model:holder-1:plain', { cost_per_month: 4 }],
    ]);
    const none = { model_limits: { dear: { limits: { requests_per_day: null, concurrency: null } } } };
    expect(await shown(resolver, owner({ holderTerms: none }), 'dear')).toMatchObject([
      'holder-1',
      [...HOLDER],
    ]);
  });
});
