// When work on a large body may go on: after a turn for everybody else, or after a rest while others are served.
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Exchange } from '../../src/http/exchange/exchange.ts';
import { BodyPacing, exchangeBegan, exchangeEnded } from '../../src/http/pieces/body-pacing.ts';

/** Longer than others count after they were served. */
const QUIET_MS = 150;

const works: BodyPacing[] = [];

function begin(): BodyPacing {
  const work = new BodyPacing();
  works.push(work);
  return work;
}

function exchange(): Exchange {
  const request = new IncomingMessage(new Socket());
  exchangeBegan();
  return new Exchange(request, new ServerResponse(request), '192.0.2.1');
}

const rest = (work: BodyPacing) => new Promise<void>((resolve) => work.pause(resolve));

/** Whether it goes on in the next turn. */
async function goesOnAtOnce(work: BodyPacing): Promise<boolean> {
  let wentOn = false;
  work.pause(() => {
    wentOn = true;
  });
  await nextTurn();
  return wentOn;
}

async function restsFor(work: BodyPacing): Promise<number> {
  const began = performance.now();
  await rest(work);
  return performance.now() - began;
}

beforeEach(() => delay(QUIET_MS));
afterEach(() => {
  for (const work of works.splice(0)) work.end();
});

describe('a pause is due', () => {
  test('after a number of bytes, however fast', () => {
    const work = begin();
    work.record(200 * 1024, 0.01);
    expect(work.isDue).toBe(false);
    work.record(56 * 1024, 0.01);
    expect(work.isDue).toBe(true);
  });

  test('after a time, however few bytes', () => {
    const work = begin();
    work.record(1, 0.25);
    expect(work.isDue).toBe(false);
    work.record(1, 0.06);
    expect(work.isDue).toBe(true);
  });

  test('again after a pause', async () => {
    const work = begin();
    work.record(1, 5);
    await rest(work);
    expect(work.isDue).toBe(false);
  });
});

describe('it lasts one tick', () => {
  test('if no other request is served', async () => {
    expect(await goesOnAtOnce(begin())).toBe(true);
  });

  test('if the body belongs to the only request', async () => {
    const own = exchange();
    own.isLarge = true;
    expect(await goesOnAtOnce(begin())).toBe(true);
    exchangeEnded(own);
    expect(await goesOnAtOnce(begin())).toBe(true);
  });
});

describe('it lasts milliseconds', () => {
  test('while another request runs, however long', async () => {
    const other = exchange();
    await delay(QUIET_MS);
    const own = exchange();
    expect(await restsFor(begin())).toBeGreaterThanOrEqual(0.9);
    exchangeEnded(other);
    exchangeEnded(own);
  });

  test('shortly after another request was answered', async () => {
    exchangeEnded(exchange());
    const work = begin();
    expect(await restsFor(work)).toBeGreaterThanOrEqual(0.9);
    await delay(QUIET_MS);
    expect(await goesOnAtOnce(work)).toBe(true);
  });

  test('and those of several bodies are consecutive', async () => {
    const others = [exchange(), exchange(), exchange(), exchange(), exchange()];
    const began = performance.now();
    const ends = await Promise.all(
      Array.from({ length: 4 }, async () => {
        await rest(begin());
        return performance.now() - began;
      }),
    );
    for (const [index, end] of ends.entries()) expect(end).toBeGreaterThanOrEqual(index * 2 + 0.9);
    for (const other of others) exchangeEnded(other);
  });
});

test('the line of pauses does not grow with the bodies in it', async () => {
  const other = exchange();
  // One after the other, these would take eight seconds.
  const all = Promise.all(Array.from({ length: 4000 }, () => rest(begin())));
  expect(await Promise.race([all.then(() => 'over'), delay(4000, 'waiting')])).toBe('over');
  exchangeEnded(other);
});

test('work that has ended does not continue', async () => {
  const other = exchange();
  let wentOn = 0;
  for (const resting of [begin(), begin()]) {
    resting.pause(() => {
      wentOn += 1;
    });
    resting.end();
    resting.end();
  }
  exchangeEnded(other);
  await delay(QUIET_MS);
  const work = begin();
  work.pause(() => {
    wentOn += 1;
  });
  work.end();
  await delay(20);
  expect(wentOn).toBe(0);
});
