// Random histories: clients issue, rotate, revoke and use keys at three replicas while Redis, the store, the ways between them and
// the replicas themselves fail and come back. A checker reads what happened and says whether each promise about keys held.
// `HISTORY_SEED=7` repeats the draws of a run, `HISTORY_ROUNDS=2000` makes it longer.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FLEET_TIMEOUT, type Fleet, startFleet } from '../helpers/fleet.ts';
import { pause } from '../helpers/wait.ts';
import { Chance } from './history/chance.ts';
import { check, excerpt } from './history/checker.ts';
import { Client } from './history/client.ts';
import { Desk } from './history/desk.ts';
import { Journal } from './history/journal.ts';
import { Keyring } from './history/keyring.ts';
import { Nemesis } from './history/nemesis.ts';
import { describeMeasures, measure } from './history/report.ts';
import { Roster } from './history/roster.ts';
import { SETTLE_MS } from './history/timeline.ts';
import { statusOf } from './holder.ts';

const ROUNDS = Number(process.env['HISTORY_ROUNDS'] ?? 30);
const SEED = Number(process.env['HISTORY_SEED'] ?? Math.floor(Math.random() * 1_000_000));
const CLIENTS = 5;
/** Rounds between two times of calm. */
const CALM_EVERY = 66;
/** A round takes less than half a second, unless something has to start. */
const TIMEOUT = 120_000 + ROUNDS * 2000;
/** Long enough for nothing to be felt any more, and for some traffic after that. */
const CALM_MS = SETTLE_MS + 1000;
/** A change has reached every replica by then when all is well. */
const REACHED_MS = 2000;
/** No dead key lives longer in times when all is well. */
const WELL_MS = 3000;

let fleet: Fleet;

beforeAll(async () => {
  // Invented keys are part of the game; that they are limited is tested elsewhere.
  const config = { auth: { failures_per_minute: 1_000_000 } };
  fleet = await startFleet({ gateway: { config, env: { LOG_LEVEL: 'info' } } });
}, FLEET_TIMEOUT);
afterAll(() => fleet?.[Symbol.asyncDispose]());

describe('a random history', () => {
  test(
    `of ${ROUNDS} rounds keeps every promise about keys (HISTORY_SEED=${SEED})`,
    async () => {
      const chance = new Chance(SEED);
      const roster = new Roster(fleet);
      using journal = new Journal();
      await using desk = await Desk.open(fleet, roster);
      const keyring = new Keyring();
      const nemesis = new Nemesis({ fleet, roster, journal, chance: chance.fork() });
      const clients = Array.from({ length: CLIENTS }, (_, number) => {
        return new Client({ number, roster, keyring, desk, journal, chance: chance.fork() });
      });
      for (let count = 0; count < 10; count += 1) await clients[0]?.issue();

      let isOver = false;
      const running = Promise.all(clients.map((client) => client.run(() => isOver)));
      // A client that fails ends the test, and not the others.
      running.catch(() => {});
      try {
        await pause(CALM_MS);
        for (let round = 1; round <= ROUNDS; round += 1) {
          if (round % CALM_EVERY === 33) await nemesis.breakBoth();
          else if (round % CALM_EVERY === 0) {
            await nemesis.heal();
            await pause(CALM_MS);
          } else await nemesis.round();
        }
      } finally {
        isOver = true;
        await nemesis.heal();
      }
      await running;
      await pause(REACHED_MS);

      const stored = await desk.inventory();
      const states = new Map(stored.map(({ key, state }) => [key, state]));
      const wrong: string[] = [];
      for (const { name, key } of keyring.all) {
        const expected = states.get(name) === 'active' ? 200 : 401;
        for (const member of roster.present) {
          const status = await statusOf(member.url, key);
          if (status !== expected)
            wrong.push(`${name} is ${states.get(name)}: ${status} at ${member.number}`);
        }
      }
      const { history } = journal;
      const all = check(history, stored);
      // A process that the machine has kept waiting for longer than a look-up may take says 503, and no key is the worse for it.
      const violations = all.filter(({ rule }) => rule !== '503 only while something is away');
      const measures = measure(history);
      const counts = Array.from(nemesis.counts, ([kind, count]) => `${kind} ${count}`).join(', ');
      console.log(`seed ${SEED}, ${ROUNDS} rounds: ${counts}\n${describeMeasures(measures)}`);
      expect
        .soft(
          violations
            .slice(0, 5)
            .map((each) => excerpt(history, each))
            .join('\n'),
        )
        .toBe('');
      expect.soft(violations).toHaveLength(0);
      const calm = measures.unavailable.get('well')?.requests ?? 0;
      expect.soft(all.length - violations.length).toBeLessThanOrEqual(3 + calm / 100);
      expect.soft(measures.lags.get('well')?.longest ?? 0).toBeLessThan(WELL_MS);
      // What was promised was put to the test.
      expect.soft(measures.operations['call accepted']).toBeGreaterThan(5 * ROUNDS);
      expect.soft(measures.operations['rotate accepted']).toBeGreaterThan(ROUNDS / 10);
      expect.soft(measures.operations['revoke revoked']).toBeGreaterThan(ROUNDS / 20);
      expect.soft(wrong).toEqual([]);
      expect.soft(roster.deserters).toEqual([]);
      const issued = new Set(keyring.all.map(({ key }) => key));
      for (const { replica, number } of roster.everyone) {
        const { output } = replica.gateway;
        const whole = output.match(/[0-9a-f]{32}/g)?.filter((text) => issued.has(text)) ?? [];
        expect.soft(whole.length, `whole keys in the log of replica ${number}`).toBe(0);
        expect.soft(/uncaught|unhandled/i.exec(output)?.[0], `the log of replica ${number}`).toBeUndefined();
      }
    },
    TIMEOUT,
  );
});
