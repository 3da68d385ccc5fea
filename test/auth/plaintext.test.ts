import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import type { Key } from '../../src/auth/key/key.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { tempDir } from '../helpers/wait.ts';
import { bearer, openSetting, wrongKey } from './setting.ts';

/** Every way in which a key could stand somewhere: as text, as bytes, and coded. The prefix may. */
function traces(key: Key): readonly { readonly name: string; readonly bytes: Buffer }[] {
  const whole = key.reveal();
  const bytes = Buffer.from(whole, 'hex');
  const reversed = [...whole].reverse().join('');
  return [
    { name: 'text', bytes: Buffer.from(whole.slice(8)) },
    { name: 'capitals', bytes: Buffer.from(whole.slice(8).toUpperCase()) },
    { name: 'reversed', bytes: Buffer.from(reversed) },
    { name: 'UTF-16', bytes: Buffer.from(whole.slice(8), 'utf16le') },
    { name: 'bytes', bytes: bytes.subarray(4) },
    { name: 'base64 of the bytes', bytes: Buffer.from(bytes.toString('base64').slice(0, 20)) },
    { name: 'base64 of the text', bytes: Buffer.from(Buffer.from(whole).toString('base64').slice(0, 40)) },
    { name: 'hexadecimal of the text', bytes: Buffer.from(Buffer.from(whole).toString('hex').slice(16)) },
  ];
}

function found(keys: readonly Key[], places: ReadonlyMap<string, Buffer | string>): string[] {
  const hits: string[] = [];
  for (const [place, content] of places) {
    const buffer = typeof content === 'string' ? Buffer.from(content) : content;
    for (const key of keys) {
      for (const { name, bytes } of traces(key)) if (buffer.includes(bytes)) hits.push(`${name} in ${place}`);
    }
  }
  return hits;
}

test('the search finds a planted key', () => {
  const key = wrongKey();
  expect(found([key], new Map([['here', `x ${key.reveal()} y`]]))).toEqual(['text in here']);
  const coded = Buffer.from(key.reveal()).toString('base64');
  expect(found([key], new Map([['there', coded]]))).toEqual(['base64 of the text in there']);
});

test('no whole key is in the store, the log, the metrics, an error or an object of the gateway', async () => {
  await using setting = await openSetting({});
  const { issuer, authenticator, store } = setting;
  const destination = new PassThrough();
  const logger = createLogger(destination, 'trace');
  const written = text(destination);
  const shown: unknown[] = [];
  const say = (thing: unknown) => {
    shown.push(thing);
    logger.info({ thing }, 'said');
    logger.error(thing);
    logger.info(`in a text: ${thing}`);
  };
  const failure = async (work: () => unknown) => {
    try {
      say(await work());
    } catch (error) {
      say(error);
    }
  };

  const first = await issuer.issue({ tier: 'Pro', name: 'x' });
  const second = await issuer.issueFree({ address: '192.0.2.1', perDay: 5 });
  const third = await issuer.issueFor(first.prefix);
  const caller = await authenticator.authenticate(bearer(first.key), '192.0.2.1');
  const rotated = await issuer.rotate(caller);
  await issuer.revoke(second.prefix, 'lost');
  const wrong = [wrongKey(), wrongKey(first.prefix)];
  const keys = [first.key, second.key, rotated.key, ...(third ? [third.key] : []), ...wrong];
  for (const thing of [first, second, third, caller, rotated, setting.secret, setting.hasher]) say(thing);
  for (const key of keys) {
    await failure(() => authenticator.authenticate(bearer(key), '192.0.2.1'));
    await failure(() => authenticator.authenticate(` ${bearer(key)}`, '192.0.2.1'));
    await failure(() => authenticator.authenticate(`Basic ${key.reveal()}`, '192.0.2.1'));
    await failure(() => issuer.issue({ tier: 'Free', name: key.reveal() }));
    await failure(() => issuer.revoke(first.prefix, key.reveal()));
  }
  await failure(() => issuer.rotate(caller));
  // A constraint that is broken, and a store that is away.
  const record = await store.findKey(rotated.prefix);
  const database = new DatabaseSync(setting.path);
  await failure(() => database.exec(`update keys set hmac = zeroblob(32), version = 9`));
  database.close();
  say(record);
  say((await store.listKeys({ limit: 10 })).items);
  say(await store.historyOf(first.prefix));
  // With its log still there; by another process, because reading the file here would drop SQLite's locks on it.
  await using copy = await tempDir();
  execFileSync('cp', ['-r', `${setting.dir.path}/.`, copy.path]);
  const copied = readdirSync(copy.path);
  expect(copied.sort()).toEqual(['keys.db', 'keys.db-shm', 'keys.db-wal', 'keys.db.secret']);
  await store.close();
  await failure(() => store.findKey(first.prefix));
  await failure(() => authenticator.authenticate(bearer(wrong[0] ?? ''), '192.0.2.1'));
  destination.end();

  const places = new Map<string, Buffer | string>();
  for (const name of copied) places.set(`open/${name}`, readFileSync(copy.file(name)));
  for (const name of readdirSync(setting.dir.path)) places.set(name, readFileSync(setting.dir.file(name)));
  places.set('the log', await written);
  places.set('the metrics', await setting.metrics.registry.metrics());
  const deep = {
    depth: null,
    showHidden: true,
    maxArrayLength: null,
    maxStringLength: null,
    getters: true,
  } as const;
  places.set('what inspection shows', inspect(shown, deep));
  places.set('the stacks', shown.map((thing) => (thing instanceof Error ? `${thing.stack}` : '')).join('\n'));
  places.set('JSON', JSON.stringify(shown));
  places.set('the authenticator', inspect(authenticator, deep));
  places.set('the issuer', inspect(issuer, deep));
  expect(shown.filter((thing) => thing instanceof Error).length).toBeGreaterThan(20);
  expect((await written).length).toBeGreaterThan(10_000);
  expect(found(keys, places)).toEqual([]);
});
