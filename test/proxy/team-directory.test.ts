// What a process knows of teams: a clock and a store of the test, which can be slow or away.
import { afterEach, describe, expect, test } from 'vitest';
import { TeamDirectory } from '../../src/proxy/reservation/team-directory.ts';
import type { Team } from '../../src/store/organisation-record.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { pause, until } from '../helpers/wait.ts';

const opened: TeamDirectory[] = [];
afterEach(() => Promise.all(opened.splice(0).map((each) => each.stop())));

function team(id: string, version: number, concurrency = version): Team {
  return { id, name: id, terms: { limits: { concurrency } }, version, createdAt: '' };
}

/** @param teams of the store, which a test changes */
function directoryOf(teams: Team[], options: { intervalMs?: number; maxTeams?: number } = {}) {
  const state = { isAway: false, isSilent: false, polls: 0, finds: 0, now: 0 };
  const metrics = createMetrics();
  const answer = async <Result>(result: () => Result): Promise<Result> => {
    if (state.isSilent) return new Promise(() => {});
    await pause(1);
    if (state.isAway) throw new Error('away');
    return result();
  };
  const directory = new TeamDirectory({
    metrics,
    intervalMs: 60_000,
    now: () => state.now,
    store: {
      teamsAfter: (version, limit) => {
        state.polls += 1;
        const later = () =>
          teams
            .filter((each) => each.version > version)
            .sort((a, b) => a.version - b.version)
            .slice(0, limit);
        return answer(later);
      },
      findTeam: (whose) => {
        state.finds += 1;
        return answer(() => teams.find((each) => 'id' in whose && each.id === whose.id));
      },
    },
    ...options,
  });
  opened.push(directory);
  return { directory, state, metrics };
}

describe('a process', () => {
  test('knows all teams from its start, over several pages, and answers at once', async () => {
    const teams = Array.from({ length: 1201 }, (_, index) => team(`t${index}`, index + 1));
    const { directory, state } = directoryOf(teams);
    await directory.start();
    expect(state.polls).toBe(3);
    expect(directory.find('t1200')).toMatchObject({ terms: { limits: { concurrency: 1201 } } });
    expect(directory.find('t0')).toBe(directory.find('t0'));
    expect(state.finds).toBe(0);
  });

  test('does not start without the store', async () => {
    const { directory, state } = directoryOf([]);
    state.isAway = true;
    await expect(directory.start()).rejects.toThrow('away');
  });

  test('learns of a change by polling, and of a team removed keeps nothing wrong', async () => {
    const teams = [team('one', 1), team('two', 2)];
    const { directory } = directoryOf(teams, { intervalMs: 5 });
    await directory.start();
    const [one, two] = [directory.find('one'), directory.find('two')];
    teams[0] = team('one', 3, 9);
    const changed = await until(() => directory.find('one') !== one && directory.find('one'), 'the change');
    expect(changed).toMatchObject({ terms: { limits: { concurrency: 9 } } });
    expect(directory.find('two')).toBe(two);
  });

  test('keeps the last known terms while the store is away, and its age says so', async () => {
    const { directory, state, metrics } = directoryOf([team('one', 1)], { intervalMs: 5 });
    await directory.start();
    state.isAway = true;
    state.now = 60_000;
    const text = () => metrics.registry.metrics();
    await until(async () => (await text()).includes('tollgate_teams_age_seconds 60'), 'the age');
    expect(directory.find('one')).toMatchObject({ version: 1 });
    expect(await text()).not.toContain('tollgate_team_read_failures_total 0');
    state.isAway = false;
    await until(async () => (await text()).includes('tollgate_teams_age_seconds 0'), 'the poll');
  });

  test('reads a team that it does not know once for all that ask', async () => {
    const teams: Team[] = [];
    const { directory, state } = directoryOf(teams);
    await directory.start();
    teams.push(team('new', 1));
    const found = await Promise.all([directory.find('new'), directory.find('new'), directory.find('new')]);
    expect(found).toEqual(Array(3).fill({ id: 'new', version: 1, terms: { limits: { concurrency: 1 } } }));
    expect(state.finds).toBe(1);
    expect(directory.find('new')).toBe(found[0]);
  });

  test.each([['isAway'], ['isSilent']] as const)(
    'treats a team as one without limits while the store %s, and asks again later',
    async (how) => {
      const { directory, state } = directoryOf([team('new', 1)]);
      state[how] = true;
      expect(await directory.find('new')).toBeUndefined();
      state[how] = false;
      state.now = 4999;
      expect(directory.find('new')).toBeUndefined();
      expect(state.finds).toBe(1);
      state.now = 5000;
      expect(await directory.find('new')).toMatchObject({ version: 1 });
    },
  );

  test('asks for a team that does not exist once in five seconds', async () => {
    const { directory, state } = directoryOf([]);
    expect(await directory.find('gone')).toBeUndefined();
    expect(directory.find('gone')).toBeUndefined();
    expect(state.finds).toBe(1);
  });

  test('remembers a bounded number of teams and reads the others when they are needed', async () => {
    const { directory, state } = directoryOf([team('a', 1), team('b', 2), team('c', 3)], { maxTeams: 2 });
    await directory.start();
    expect(directory.find('c')).toMatchObject({ version: 3 });
    expect(await directory.find('a')).toMatchObject({ version: 1 });
    expect(state.finds).toBe(1);
  });
});
