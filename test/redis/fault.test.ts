// Which errors mean that Redis is unavailable, which that one command failed, and what they keep.
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { Backoff } from '../../src/redis/reconnect-backoff.ts';
import { DeadlinePassed, inTime } from '../../src/redis/redis-deadline.ts';
import { classifyError, plainError } from '../../src/redis/redis-fault.ts';

function reply(message: string): Error {
  return Object.assign(new Error(message), {
    name: 'ReplyError',
    command: { name: 'auth', args: ['sesame'] },
  });
}

describe('Redis is unavailable', () => {
  test.each([
    "READONLY You can't write against a read only replica.",
    'LOADING Redis is loading the dataset in memory',
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    'CLUSTERDOWN The cluster is down',
    'BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.',
    'NOREPLICAS Not enough good replicas to write.',
    'MISCONF Redis is configured to save RDB snapshots',
    'NOAUTH Authentication required.',
    "ERR Error running script (call to f_0a): @user_script:1: @user_script: 1: -READONLY You can't write",
  ])('when it answers %s', (message) => {
    expect(classifyError(reply(message)).kind).toBe('away');
  });

  test.each([
    new Error('Connection is closed.'),
    new Error("Stream isn't writeable and enableOfflineQueue options is false"),
    new Error('Too many Cluster redirections. Last error: Error: MOVED 1 h:1'),
    Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:1'), { syscall: 'connect' }),
    Object.assign(new Error('aborted'), { name: 'AbortError' }),
    new DeadlinePassed('Redis', 100),
  ])('when the connection fails with %s', (error) => {
    expect(classifyError(error).kind).toBe('away');
  });
});

describe('one command failed', () => {
  test.each([
    ['WRONGTYPE Operation against a key holding the wrong kind of value', 'WRONGTYPE'],
    ["OOM command not allowed when used memory > 'maxmemory'.", 'OOM'],
    ['NOSCRIPT No matching script.', 'NOSCRIPT'],
    ['NOPERM User default has no permissions', 'NOPERM'],
    ["CROSSSLOT Keys in request don't hash to the same slot", 'CROSSSLOT'],
    ['ERR unknown command', 'ERR'],
    ['STALE a word of the script', 'STALE'],
    ['user_script:1: something went wrong', 'ERR'],
    ['ERR Error running script (call to f_0a): @user_script:1: -OOM command not allowed', 'OOM'],
  ])('when Redis answers %s', (message, code) => {
    expect(classifyError(reply(message))).toMatchObject({ kind: 'command', error: { code } });
  });
});

test.each([new TypeError('x is not a function'), 'a string', undefined])(
  'a foreign error stays unclassified: %s',
  (error) => {
    expect(classifyError(error)).toEqual({ kind: 'foreign' });
  },
);

test('errors contain no arguments and no logins', () => {
  const secret = 'sesame';
  const errors = [
    reply(`READONLY ${'x'.repeat(300)}${secret}`),
    reply(`ERR unknown command 'X', with args beginning with: '${secret}' `),
    Object.assign(new Error(`connect to redis://u:${secret}@h`), { syscall: 'connect' }),
  ];
  for (const error of errors) {
    expect(inspect(classifyError(error), { depth: 9, showHidden: true })).not.toContain(secret);
    expect(inspect(plainError(error), { depth: 9, showHidden: true })).not.toContain(secret);
  }
});

describe('the reconnect backoff', () => {
  test('doubles up to its maximum, with jitter of one half', () => {
    for (const [chance, waits] of [
      [0, [50, 100, 200, 400, 800, 1000, 1000]],
      [0.5, [37.5, 75, 150, 300, 600, 750, 750]],
    ] as const) {
      const backoff = new Backoff({
        firstMs: 50,
        maxMs: 1000,
        resetMs: 1,
        now: () => 0,
        random: () => chance,
      });
      expect(waits.map(() => backoff.next())).toEqual(waits);
    }
  });

  test('starts over only after a period of success', () => {
    let now = 0;
    const backoff = new Backoff({ firstMs: 1, maxMs: 99, resetMs: 1000, now: () => now, random: () => 0 });
    expect([backoff.next(), backoff.next()]).toEqual([1, 2]);
    backoff.succeeded();
    now = 999;
    expect(backoff.next()).toBe(4);
    backoff.succeeded();
    now = 1999;
    expect([backoff.next(), backoff.tries]).toEqual([1, 1]);
    // Without a success the time that has passed counts for nothing.
    now = 9999;
    expect(backoff.next()).toBe(2);
  });
});

describe('a wait with a deadline', () => {
  test('resolves, rejects, or times out', async () => {
    await expect(inTime(Promise.resolve(1), 'it', 20_000)).resolves.toBe(1);
    await expect(inTime(Promise.reject(new Error('no')), 'it', 20_000)).rejects.toThrow('no');
    await expect(inTime(new Promise(() => {}), 'it', 1)).rejects.toThrow('it did not answer within 1 ms');
  });

  test('rejects with the reason of its signal, even when it was aborted before', async () => {
    const abort = new AbortController();
    const waits = [inTime(new Promise(() => {}), 'it', 20_000, abort.signal)];
    abort.abort(new Error('stop'));
    waits.push(inTime(new Promise(() => {}), 'it', 20_000, abort.signal));
    for (const wait of waits) await expect(wait).rejects.toThrow('stop');
  });
});
