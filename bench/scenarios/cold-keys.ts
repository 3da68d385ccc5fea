// What the first request of a key costs, which is when its Argon2 hash is computed; and, as keys.ts measures it, how long a
// fleet takes to know its keys again.
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { tell } from '../bench.ts';
import { figureOf, rowsOf, type Sample } from '../figures.ts';
import { requestBody } from '../load/traffic.ts';
import { missing, type Section } from '../section.ts';
import { issueKey } from '../subjects/gateway.ts';
import type { Subject } from '../subjects/subject.ts';
import type { Scenario } from './scenario.ts';

const KEYS = fileURLToPath(new URL('../keys.ts', import.meta.url));
/** A row that targets look at. */
const COLD_ROW = 'clients of the SDK, all at once';
const KEYS_MS = 15 * 60_000;

export const coldKeys: Scenario = {
  id: 'cold-keys',
  sections: ['cold-keys'],
  async run({ processes, gateway, rounds }) {
    const samples: Sample[] = [];
    for (let key = 0; key < 2 * rounds; key += 1) {
      const authorization = `Bearer ${await issueKey(processes, gateway.configFile)}`;
      const first_ms = await ask(gateway, authorization);
      const second_ms = await ask(gateway, authorization);
      samples.push({ first_ms, second_ms, added_ms: first_ms - second_ms });
    }
    return [
      {
        id: 'cold-keys',
        title: 'Cold keys',
        note: `The first request of a key that the process has never seen, and the second, of ${samples.length} new keys, one after the other.`,
        columns: [
          { field: 'first_ms', heading: 'first ms', digits: 2 },
          { field: 'second_ms', heading: 'second ms', digits: 2 },
          { field: 'added_ms', heading: 'added ms', digits: 2 },
        ],
        rows: rowsOf(new Map([['gateway', samples]])),
      },
    ];
  },
};

async function ask({ url, alias }: Subject, authorization: string): Promise<number> {
  const began = performance.now();
  const response = await fetch(url, {
    method: 'POST',
    headers: { authorization, 'content-type': 'application/json' },
    body: requestBody({ model: alias }),
  });
  await response.arrayBuffer();
  if (!response.ok) throw new Error(`a new key was answered ${response.status}`);
  return performance.now() - began;
}

const warmed = z.object({ ms: z.number(), argon2_runs: z.number() });
const keysReport = z.object({
  cold: z.object({
    keys: z.number(),
    ms: z.number(),
    argon2_runs: z.number(),
    retried: z.number(),
    gave_up: z.number(),
  }),
  warming: z.object({
    by_replicas_that_know_them: warmed,
    by_a_new_one_from_redis: warmed,
    by_a_new_one: warmed,
  }),
});

export const fleetKeys: Scenario = {
  id: 'fleet-keys',
  sections: ['fleet-keys'],
  isLong: true,
  async run({ processes }) {
    const id = 'fleet-keys';
    const title = 'Keys after Redis was emptied';
    tell('The bench of keys in a fleet, about a minute.');
    let out: string;
    try {
      out = await processes.run(
        process.execPath,
        [KEYS, '--json', '--revocations', '20', '--rounds', '1'],
        KEYS_MS,
      );
    } catch (error) {
      return [missing(id, title, error instanceof Error ? error.message : String(error))];
    }
    const { cold, warming } = keysReport.parse(JSON.parse(out));
    const section: Section = {
      id,
      title,
      note:
        'From `node bench/keys.ts`, three replicas: until each of 100 keys was accepted, four at a time, and how often Argon2 ran for it. ' +
        `The first row is ${cold.keys} keys that no replica has seen, each of a client of the official SDK with its defaults, all at once: until the last one has its ` +
        'answer, how many requests were answered 503 and sent again, and how many clients gave up.',
      columns: [
        { field: 'ms', heading: 'ms', digits: 0 },
        { field: 'argon2_runs', heading: 'Argon2 runs', digits: 0 },
        { field: 'retried', heading: 'sent again', digits: 0 },
        { field: 'gave_up', heading: 'gave up', digits: 0 },
      ],
      rows: Object.entries({ [COLD_ROW]: cold, ...warming }).map(([name, values]) => {
        const figures = Object.entries(values).map(([field, value]) => [field, figureOf([value])]);
        return { name: name.replaceAll('_', ' '), figures: Object.fromEntries(figures) };
      }),
    };
    return [section];
  },
};
