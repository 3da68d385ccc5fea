// A lost store: files beside it prevent a new one in its place, where every key would be invalid, unless the operator asks for
// one.
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openStore, StoreOpenError } from '../../src/store/open.ts';
import { runCommand, startGateway } from '../helpers/gateway.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { startChild } from './processes.ts';
import { newHolder, newKey } from './samples.ts';

const LAUNCHER = fileURLToPath(new URL('../../bin/tollgate.js', import.meta.url));
const SEGMENT = '0123456789ab.1.0123456789ab.0123456789abcdef.jsonl';
const SAYS_ALL = /a store existed here before.*401.*restore it from a backup.*--new-store/;

let dir: TempDir;
let path: string;

beforeEach(async () => {
  dir = await tempDir();
  path = dir.file('keys.db');
});

afterEach(() => dir.remove());

const open = (options = {}) => openStore({ kind: 'sqlite', path }, options);

describe('a SQLite file that is', () => {
  const conditions: Record<string, () => void> = {
    missing: () => {},
    empty: () => writeFileSync(path, ''),
    'a database without tables': () => {
      const database = new DatabaseSync(path);
      database.exec('pragma journal_mode = wal; create table x (y integer); drop table x');
      database.close();
    },
  };
  const signs: Record<string, () => string> = {
    'a secret': () => {
      writeFileSync(`${path}.secret`, '00'.repeat(32));
      return 'keys.db.secret';
    },
    'a log without its file': () => {
      writeFileSync(`${path}-wal`, 'commits that are in no file');
      return 'keys.db-wal';
    },
    'a folder of use': () => {
      mkdirSync(`${path}.usage`);
      return 'keys.db.usage';
    },
    'use in a folder that the configuration names': () => {
      mkdirSync(dir.file('spool'));
      writeFileSync(join(dir.file('spool'), SEGMENT), '');
      return 'spool';
    },
  };
  const cases = Object.entries(conditions).flatMap(([condition, make]) =>
    Object.entries(signs)
      // SQLite reads the log of a file that is a database.
      .filter(([sign]) => sign !== 'a log without its file' || !condition.startsWith('a database'))
      .map(([sign, leave]) => ({ condition, sign, make, leave })),
  );

  test.each(cases)('$condition, beside $sign, is rejected and left unchanged', async ({ make, leave }) => {
    make();
    const name = leave();
    const before = readdirSync(dir.path).map((file) => [file, statSync(dir.file(file)).size]);
    const opening = open({ spool: dir.file('spool') });
    await expect(opening).rejects.toThrow(StoreOpenError);
    await expect(opening).rejects.toThrow(SAYS_ALL);
    await expect(opening).rejects.toThrow(name);
    expect(readdirSync(dir.path).map((file) => [file, statSync(dir.file(file)).size])).toEqual(before);
    const store = await open({ spool: dir.file('spool'), createNew: true });
    expect(store.isNew).toBe(true);
    await store.close();
    // Now it is there.
    const again = await open({ spool: dir.file('spool') });
    expect(again.isNew).toBe(false);
    await again.close();
  });

  test.each(Object.keys(conditions))('%s, without any sign, is a first start', async (condition) => {
    conditions[condition]?.();
    // Made by an operator, or mounted.
    mkdirSync(dir.file('spool'));
    const store = await open({ spool: dir.file('spool') });
    expect(store.isNew).toBe(true);
    await store.close();
  });

  test('truncated or overwritten is rejected with advice', async () => {
    const store = await open();
    for (let count = 0; count < 20; count += 1)
      await store.addKey(newKey(), newHolder('Pro', 'x'.repeat(500)), null);
    await store.close();
    const whole = readFileSync(path);
    truncateSync(path, whole.length / 2);
    await expect(open()).rejects.toThrow(/damaged or truncated; restore it from a backup/);
    writeFileSync(path, Buffer.concat([Buffer.from('not a database at all'), whole.subarray(21)]));
    await expect(open()).rejects.toThrow(/file is not a database; correct the path .* restore the file/);
    writeFileSync(path, whole);
    await (await open()).close();
  });
});

describe('the program', () => {
  test('does not start when the file is gone, explains it, and starts with --new-store', async () => {
    await using gateway = await startGateway();
    await gateway.key();
    await gateway.app.close();
    const file = gateway.directory.file('tollgate.db');
    const words = ['--config', gateway.configFile];
    const env = { TEST_DIR: gateway.directory.path };
    rmSync(file);
    const [served, checked, issued, listed] = await Promise.all([
      runCommand(['serve', ...words], env),
      runCommand(['check', ...words], env),
      runCommand(['keys', 'issue', '--tier', 'Pro', ...words], env),
      runCommand(['keys', 'list', ...words], env),
    ]);
    expect([served.code, checked.code, issued.code, listed.code]).toEqual([1, 1, 1, 1]);
    for (const { stderr } of [served, checked, issued, listed]) expect(stderr).toMatch(SAYS_ALL);
    expect(existsSync(file)).toBe(false);
    await using child = startChild(LAUNCHER, ['serve', '--new-store', ...words], { ...process.env, ...env });
    await until(() => child.stderr().includes('listening on'), 'the start');
    child.process.kill('SIGTERM');
    expect(await child.ended).toBe(0);
    expect((await runCommand(['keys', 'list', ...words], env)).code).toBe(0);
  }, 60_000);

  test('warns when it has created a new store', async () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration expands it.
    await using gateway = await startGateway({ config: { store: 'sqlite:${TEST_DIR}/new.db' } });
    await gateway.logLine(
      ({ msg, level }) => level === 'warn' && String(msg).startsWith('created a new, empty store'),
    );
  });
});
