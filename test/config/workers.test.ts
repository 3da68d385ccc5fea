import { describe, expect, it } from 'vitest';
import { extended, MINIMAL, placesOf } from './sample.ts';

const REDIS = 'redis: redis://127.0.0.1:6379';
const NEEDS = 'workers: needs `redis`, through which workers share limits and learn of revoked keys';

describe('workers', () => {
  it.each([
    ['workers: 4', 4],
    ['workers: auto', 'auto'],
    ['workers: 1', 1],
  ])('%s is read', (line, expected) => {
    expect(extended(`${line}\n${REDIS}`).static.workers).toBe(expected);
  });

  it('one worker needs no Redis, however it is said', () => {
    expect(extended('workers: 1').static.workers).toBe(1);
    expect(extended('').static.workers).toBe(1);
  });

  it.each(['2', 'auto', '256'])('%s without Redis is a fault, at its value', (value) => {
    expect(placesOf(`workers: ${value}\n${MINIMAL}`)).toEqual([`1:10 ${NEEDS}`]);
    expect(placesOf(`redis: \${R:-}\nworkers: ${value}\n${MINIMAL}`)).toEqual([`2:10 ${NEEDS}`]);
    expect(placesOf(`redis:\nworkers: ${value}\n${MINIMAL}`)).toEqual([
      '1:1 redis: is empty: write a value, or leave it out',
    ]);
  });

  it.each([
    ['0', 'must be `auto`, or a whole number, 1 to 256'],
    ['257', 'must be `auto`, or a whole number, 1 to 256'],
    ['many', 'must be `auto`, or a whole number, 1 to 256'],
  ])('%s is no number of workers', (value, fault) => {
    expect(placesOf(`workers: ${value}\n${REDIS}\n${MINIMAL}`)).toEqual([`1:10 workers: ${fault}`]);
  });
});
