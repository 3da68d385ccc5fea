import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Exchange } from '../../src/http/exchange/exchange.ts';
import { Exchanges } from '../../src/http/exchange/exchanges.ts';

function exchange(): Exchange {
  const request = new IncomingMessage(new Socket());
  return new Exchange(request, new ServerResponse(request), '192.0.2.1');
}

test('it contains what a Set would contain, in any order of add and delete', () => {
  const all = Array.from({ length: 12 }, exchange);
  const step = fc.record({ who: fc.nat(all.length - 1), leaves: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const exchanges = new Exchanges();
      const model = new Set<Exchange>();
      for (const { who, leaves } of steps) {
        const each = all[who];
        if (each === undefined) continue;
        if (leaves) {
          exchanges.delete(each);
          model.delete(each);
        } else if (!model.has(each)) {
          exchanges.add(each);
          model.add(each);
        }
        expect(exchanges.size).toBe(model.size);
        expect(new Set(exchanges)).toEqual(model);
      }
      for (const each of model) exchanges.delete(each);
      expect(exchanges.size).toBe(0);
    }),
    { numRuns: 300 },
  );
});

test('an exchange that leaves during an iteration is visited once', () => {
  const exchanges = new Exchanges();
  const all = Array.from({ length: 5 }, exchange);
  for (const each of all) exchanges.add(each);
  const seen: Exchange[] = [];
  for (const each of exchanges) {
    seen.push(each);
    for (const other of all) exchanges.delete(other);
  }
  expect(seen).toEqual(all);
  expect(exchanges.size).toBe(0);
});
