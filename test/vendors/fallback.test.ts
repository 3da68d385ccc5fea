// Each recipe with a second target behind its model: after which errors of the vendor the second one is asked, so that the client reads
// no error.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { completion, HostileUpstream, json } from '../helpers/hostile-upstream.ts';
import { recipeFor } from './recipe.ts';
import type { VendorError } from './vendor-fixture.ts';
import { errorsOf, VENDORS } from './vendors.ts';

/** What the caller has to mend, wherever the request goes. */
const OF_THE_CALLER: readonly VendorError['kind'][] = ['model', 'parameter'];

describe.each(VENDORS)('$recipe', (vendor) => {
  let first: HostileUpstream;
  let second: HostileUpstream;
  let gateway: Gateway;
  let now = Date.now();

  beforeAll(async () => {
    [first, second] = [await HostileUpstream.start(), await HostileUpstream.start()];
    second.always(json(200, completion({ content: 'of the second' })));
    const recipe = parse(recipeFor(vendor.recipe, first.url));
    recipe.upstreams.second = { base_url: second.baseUrl };
    const name = Object.keys(recipe.models).find((each) => matches(each, vendor.model)) ?? '';
    recipe.models[name].targets.push({ upstream: 'second', model: 'stand-in', priority: 2 });
    recipe.models[name].fallback_on = [
      'context_length_exceeded',
      'content_filter',
      'rate_limited',
      'insufficient_quota',
    ];
    // Many failures at once are what the test is about.
    recipe.retry = { budget: 1 };
    gateway = await startGateway({ yaml: stringify(recipe), now: () => now });
  });
  afterAll(async () => {
    await gateway?.close();
    await Promise.all([first?.close(), second?.close()]);
  });
  beforeEach(() => {
    now += 3_600_000;
  });

  test.each(errorsOf(vendor))(
    '$status, $kind: $source',
    async ({ kind, status, headers, contentType, body }) => {
      const type = contentType === undefined ? {} : { 'content-type': contentType };
      first.always(json(status, body, { ...type, ...headers }));
      const at = second.requests.length;
      const messages = [{ role: 'user', content: 'Say hello' }];
      for (const stream of [false, true]) {
        const answer = await gateway.chat({ model: vendor.model, messages, stream });
        if (OF_THE_CALLER.includes(kind)) expect(answer.status).toBe(status);
        else expect([answer.status, answer.text().includes('of the second')]).toEqual([200, true]);
        now += 3_600_000;
      }
      expect(second.requests.length - at).toBe(OF_THE_CALLER.includes(kind) ? 0 : 2);
    },
  );
});

/** Whether a name of the recipe, which may be a pattern, is the one of the model. */
function matches(name: string, model: string): boolean {
  return name.endsWith('*') ? model.startsWith(name.slice(0, -1)) : name === model;
}
