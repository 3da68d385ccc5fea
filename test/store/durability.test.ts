import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { KeySecret } from '../../src/auth/hashing/hashing-secret.ts';
import { Key } from '../../src/auth/key/key.ts';
import { openStore } from '../../src/store/open.ts';
import { tempDir, until } from '../helpers/wait.ts';
import { startChild } from './processes.ts';
import { newHolder, newKey } from './samples.ts';

const ROUNDS = Number(process.env['FUZZ_RUNS'] ?? 5);

test('kill -9 while keys are issued loses no acknowledged key, and the store opens again', async () => {
  await using dir = await tempDir();
  const path = dir.file('keys.db');
  const acknowledged: string[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    await using child = startChild('issue-keys.ts', [path]);
    // At another point of the work each time: the number of lines differs, and what follows the last one.
    await until(() => child.lines.length > round * 7, 'keys from the child', 60_000);
    child.process.kill('SIGKILL');
    expect(await child.ended).toBeNull();
    acknowledged.push(...child.lines.filter((line) => line.length === 32));

    const store = await openStore({ kind: 'sqlite', path });
    const secret = new KeySecret(readFileSync(`${path}.secret`, 'utf8').trim());
    for (const text of acknowledged) {
      const key = Key.parse(text);
      if (key === undefined) throw new Error('the child printed something else than keys');
      const record = await store.findKey(key.prefix);
      expect(record).toMatchObject({ state: 'active', version: 1 });
      expect(secret.digest(key).equals(record?.hmac ?? Buffer.alloc(0))).toBe(true);
    }
    // At most the one key that was under way is there without having been acknowledged, in each round.
    const all = (await store.listKeys({ limit: 1000 })).items;
    expect(all.length - acknowledged.length).toBeGreaterThanOrEqual(0);
    expect(all.length - acknowledged.length).toBeLessThanOrEqual(round + 1);
    expect(await store.lastChange()).toBe(all.length);
    await store.close();
  }
  const database = new DatabaseSync(path);
  expect(database.prepare('pragma integrity_check').all()).toEqual([{ integrity_check: 'ok' }]);
  expect(database.prepare('pragma foreign_key_check').all()).toEqual([]);
  database.close();
});

test('on a full disk writes and the check fail, reads work, and freed space repairs it', async () => {
  await using dir = await tempDir();
  const path = dir.file('keys.db');
  const script = fileURLToPath(new URL('./children/fill-up.ts', import.meta.url));
  // A limit on the size of files stands in for a small disk: what SQLite writes beyond it fails.
  const limited = 'ulimit -S -f 1800; trap "" XFSZ; exec "$0" "$1" "$2"';
  const output = execFileSync('sh', ['-c', limited, process.execPath, script, path], { encoding: 'utf8' });
  const { stored, failures, readable, checks } = JSON.parse(output);
  expect(failures).toEqual(['store_unavailable']);
  expect(checks).toEqual(['ok', 'store_unavailable']);
  expect(stored.length).toBeGreaterThan(5);
  expect(readable).toEqual(stored.slice(0, -1));
  const store = await openStore({ kind: 'sqlite', path });
  expect((await store.listKeys({ limit: 1000 })).items.map(({ prefix }) => prefix)).toEqual(stored);
  expect(await store.addKey(newKey(), newHolder(), null)).toMatchObject({ kind: 'added' });
  await store.close();
});
