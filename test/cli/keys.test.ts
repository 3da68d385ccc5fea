import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { main } from '../../src/main.ts';
import { isPrefix } from '../../src/store/key-record.ts';
import { openStore } from '../../src/store/open.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { startChild } from '../store/processes.ts';
import { collector } from './collector.ts';

let dir: TempDir;
let configFile: string;

beforeEach(async () => {
  dir = await tempDir();
  configFile = dir.file('config.yaml');
  writeFileSync(
    configFile,
    `store: sqlite:${dir.file('keys.db')}
upstreams: { demo: { builtin: echo } }
models: { echo: { targets: [{ upstream: demo, model: echo }] } }
`,
  );
});

afterEach(() => dir.remove());

async function keys(...argv: string[]) {
  const [out, err] = [collector(), collector()];
  const io = { stdout: out.stream, stderr: err.stream, env: {} };
  const named = argv.includes('--config') ? argv : [...argv, '--config', configFile];
  const code = await main(['keys', ...named], io);
  return { code, out: out.text(), err: err.text() };
}

async function issue(...argv: string[]): Promise<string> {
  const { code, out } = await keys('issue', ...argv);
  expect([code, out]).toEqual([0, expect.stringMatching(/^[0-9a-f]{32}\n$/)]);
  return out.trim();
}

describe('tollgate keys issue', () => {
  test('prints only the key on stdout, and everything else on stderr', async () => {
    const { code, out, err } = await keys('issue', '--tier', 'Lite', '--holder', 'nightly build');
    expect(code).toBe(0);
    expect(out).toMatch(/^[0-9a-f]{32}\n$/);
    expect(err).toContain(`Creating a new store at ${dir.file('keys.db')}`);
    expect(err).toContain(`Issued ${out.slice(0, 8)} (Lite)`);
    expect(err).not.toContain(out.trim());
    expect((await keys('issue', '--tier', 'Pro')).err).not.toContain('Creating');
  });

  test('--for issues another key for the holder of a key', async () => {
    const first = await issue('--tier', 'Pro', '--holder', 'team');
    const second = await issue('--for', first.slice(0, 8));
    const { out } = await keys('list', '--json');
    const [one, two]: unknown[] = JSON.parse(out);
    expect(one).toMatchObject({ prefix: first.slice(0, 8), tier: 'Pro', holder_name: 'team' });
    expect(two).toMatchObject({ ...Object(one), prefix: second.slice(0, 8), created_at: expect.any(String) });
    expect(await keys('issue', '--for', '00000000')).toMatchObject({ code: 1, out: '' });
  });

  test.each([
    [['issue']],
    [['issue', '--tier', 'Lite', '--for', '01234567']],
    [['issue', '--for', '01234567', '--holder', 'x']],
    [['issue', '--tier', 'lite']],
    [['issue', '--tier']],
    [['issue', '--teir', 'Lite']],
    [['issue', 'Lite']],
    [['issue', '--for', 'xyz']],
  ])('%j is wrong usage and touches no store', async (argv) => {
    const { code, out, err } = await keys(...argv);
    expect([code, out]).toEqual([2, '']);
    expect(err).toMatch(/^tollgate keys issue: .+; see tollgate keys issue --help\n$/);
    expect(existsSync(dir.file('keys.db'))).toBe(false);
  });

  test('an invalid name is rejected', async () => {
    expect(await keys('issue', '--tier', 'Lite', '--holder', '0123456789abcdef'.repeat(2))).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringContaining('looks like a key'),
    });
  });

  test('a key that could not be printed is revoked', async () => {
    const err = collector();
    const broken = new Writable({
      write(_chunk, _encoding, done) {
        done(new Error('no space left'));
      },
    });
    const io = { stdout: broken, stderr: err.stream, env: {} };
    expect(await main(['keys', 'issue', '--tier', 'Lite', '--config', configFile], io)).toBe(1);
    expect(err.text()).toMatch(/could not be written out, and [0-9a-f]{8} was revoked \(no space left\)/);
    expect(JSON.parse((await keys('list', '--json')).out)).toMatchObject([{ state: 'revoked' }]);
  });
});

describe('tollgate keys list', () => {
  test('shows all keys, or those of a tier and state, and never a hash', async () => {
    const [lite, pro] = [await issue('--tier', 'Lite'), await issue('--tier', 'Pro', '--holder', 'ops')];
    await keys('revoke', pro.slice(0, 8));
    const { code, out } = await keys('list');
    expect(code).toBe(0);
    const [head, ...lines] = out.trimEnd().split('\n');
    expect(head).toMatch(
      /^PREFIX +STATE +TIER +CREATED_AT +ENDS_AT +LAST_USED +HOLDER +HOLDER_NAME +NAME +LIMITS$/,
    );
    expect(lines).toEqual([
      expect.stringMatching(new RegExp(`^${lite.slice(0, 8)}  active +Lite .+ - `)),
      expect.stringMatching(new RegExp(`^${pro.slice(0, 8)}  revoked +Pro .+Z .+ops +- +-$`)),
    ]);
    const prefixes = async (...argv: string[]) => {
      const listed: { prefix: string }[] = JSON.parse((await keys('list', '--json', ...argv)).out);
      return listed.map(({ prefix }) => prefix);
    };
    expect(await prefixes('--tier', 'Pro')).toEqual([pro.slice(0, 8)]);
    expect(await prefixes('--state', 'active')).toEqual([lite.slice(0, 8)]);
    expect(await prefixes('--state', 'active', '--tier', 'Pro')).toEqual([]);
    expect(out + (await keys('list', '--json')).out).not.toMatch(/argon2|hmac/);
  });

  test('--json prints valid JSON for long lists', async () => {
    const store = await openStore({ kind: 'sqlite', path: dir.file('keys.db') });
    for (let index = 0; index < 1203; index += 1) {
      const prefix = index.toString(16).padStart(8, '0');
      if (!isPrefix(prefix)) throw new Error(prefix);
      const createdAt = '2030-01-01T00:00:00.000Z';
      const key = { prefix, argon2: '$argon2id$x', hmac: Buffer.alloc(32), createdAt };
      await store.addKey(key, { kind: 'new', id: prefix, tier: 'Free' }, null);
    }
    await store.close();
    const { out } = await keys('list', '--json');
    const listed: unknown[] = JSON.parse(out);
    expect(listed).toHaveLength(1203);
    expect(listed.at(-1)).toEqual({
      prefix: '000004b2',
      state: 'active',
      tier: 'Free',
      standing: 'good',
      holder: '000004b2',
      holder_name: null,
      name: null,
      expires_at: null,
      models: null,
      limits: null,
      budget: null,
      model_limits: null,
      endpoints: null,
      last_used: null,
      version: 1,
      created_at: '2030-01-01T00:00:00.000Z',
      ended_at: null,
      replaces: null,
      replaced_by: null,
    });
  });

  test.each([['list'], ['show', '01234567'], ['revoke', '01234567']])(
    '%s creates no store',
    async (...argv) => {
      expect(await keys(...argv)).toMatchObject({
        code: 1,
        out: '',
        err: expect.stringContaining('there is no store at'),
      });
      expect(existsSync(dir.file('keys.db'))).toBe(false);
    },
  );
});

describe('tollgate keys show', () => {
  test('prints the history of a key', async () => {
    const key = await issue('--tier', 'Lite', '--holder', 'x');
    await keys('revoke', key.slice(0, 8), '--reason', 'found in a repository');
    const { code, out } = await keys('show', key.slice(0, 8));
    expect(code).toBe(0);
    expect(out).toMatch(/^prefix +[0-9a-f]{8}\nstate +revoked\ntier +Lite\n/);
    expect(out).toMatch(
      /events\n {2}\S+Z {2}issued, version 1 by \S+\n {2}\S+Z {2}revoked, version 2 by \S+: found in a repository\n$/,
    );
    expect(JSON.parse((await keys('show', key.slice(0, 8), '--json')).out)).toMatchObject({
      prefix: key.slice(0, 8),
      state: 'revoked',
      events: [{ kind: 'issued' }, { kind: 'revoked', reason: 'found in a repository' }],
    });
  });

  test.each(['show', 'revoke'])(
    'given a whole key, %s uses its prefix, warns and does not print the key',
    async (command) => {
      const key = await issue('--tier', 'Lite');
      for (const given of [key, key.toUpperCase()]) {
        const { code, out, err } = await keys(command, given);
        expect(code).toBe(0);
        expect(out).toContain(key.slice(0, 8));
        expect(err).toContain('Warning: a whole key was given');
        expect((out + err).toLowerCase()).not.toContain(key.slice(8, 20));
      }
    },
  );

  test('other text is wrong usage and is not printed', async () => {
    const key = await issue('--tier', 'Lite');
    for (const given of [key.slice(0, 31), `${key}0`, key.slice(0, 7), `sk-${key}`]) {
      const { code, out, err } = await keys('show', given);
      expect(code).toBe(2);
      expect(out + err).not.toContain(key.slice(8, 20));
    }
    expect(await keys('show', key.slice(0, 8), key)).toMatchObject({
      code: 2,
      err: expect.not.stringContaining(key.slice(8, 20)),
    });
    expect(await keys('show', '00000000')).toMatchObject({
      code: 1,
      err: expect.stringContaining('no key with this prefix'),
    });
  });
});

describe('tollgate keys revoke', () => {
  test('revokes a key, reports it again when repeated, and keeps the first reason', async () => {
    const key = await issue('--tier', 'Lite');
    const prefix = key.slice(0, 8);
    expect(await keys('revoke', prefix)).toMatchObject({
      code: 0,
      out: expect.stringMatching(/is revoked.*within 1 s/),
    });
    expect(await keys('revoke', prefix)).toMatchObject({
      code: 0,
      out: expect.stringContaining('was revoked before'),
    });
    expect(JSON.parse((await keys('revoke', prefix, '--json')).out)).toMatchObject({
      outcome: 'already',
      prefix,
    });
    expect(await keys('revoke', '00000000')).toMatchObject({ code: 1, out: '' });
  });

  test('of a rotated key names the successor to revoke', async () => {
    const key = await issue('--tier', 'Lite');
    const store = await openStore({ kind: 'sqlite', path: dir.file('keys.db') });
    let last = key.slice(0, 8);
    for (const next of ['aaaaaaaa', 'bbbbbbbb']) {
      if (!isPrefix(last) || !isPrefix(next)) throw new Error('no prefix');
      const createdAt = '2030-01-01T00:00:00.000Z';
      const successor = { prefix: next, argon2: '$argon2id$x', hmac: Buffer.alloc(32), createdAt };
      expect(await store.rotateKey({ prefix: last }, successor)).toMatchObject({
        kind: 'rotated',
      });
      last = next;
    }
    await store.close();
    const { code, out, err } = await keys('revoke', key.slice(0, 8));
    expect(code).toBe(1);
    expect(out).toContain('was invalidated before');
    expect(err).toContain('its successor bbbbbbbb is active. To end the access, revoke that one.');
    expect((await keys('revoke', 'bbbbbbbb')).code).toBe(0);
    expect((await keys('revoke', key.slice(0, 8))).err).toBe('');
  });

  test('works without the secret', async () => {
    const key = await issue('--tier', 'Lite');
    rmSync(`${dir.file('keys.db')}.secret`);
    expect(await keys('issue', '--tier', 'Lite')).toMatchObject({
      code: 1,
      err: expect.stringContaining('restore it'),
    });
    expect((await keys('revoke', key.slice(0, 8))).code).toBe(0);
  });
});

describe('tollgate keys', () => {
  test.each([
    [[], /a command is missing/],
    [['isue'], /unknown command \(did you mean issue\?\)/],
    [['list', '--confg', 'x'], /unknown option --confg \(did you mean --config\?\)/],
    [['list', '--state', 'dead'], /unknown state: it is one of active, invalidated, revoked/],
  ])('%j is wrong usage', async (argv, message) => {
    const err = collector();
    const io = { stdout: collector().stream, stderr: err.stream, env: {} };
    expect(await main(['keys', ...argv], io)).toBe(2);
    expect(err.text()).toMatch(message);
  });

  test('--help explains on stdout', async () => {
    for (const argv of [['--help'], ['list', '-h'], ['help']]) {
      expect(await keys(...argv)).toMatchObject({
        code: 0,
        out: expect.stringContaining('Usage: tollgate keys'),
        err: '',
      });
    }
  });

  test('an invalid or missing configuration is rejected with its place', async () => {
    expect(await keys('list', '--config', dir.file('none.yaml'))).toMatchObject({
      code: 1,
      err: expect.stringMatching(/none\.yaml:1:1: /),
    });
    writeFileSync(configFile, 'store: 7\nmodels: {}\nupstreams: {}\n');
    expect(await keys('list')).toMatchObject({ code: 1, err: expect.stringMatching(/config\.yaml:1:\d+: /) });
  });

  test('a store that cannot be opened is named', async () => {
    writeFileSync(
      dir.file('keys.db'),
      'this is no database at all, but long enough to be read as one. '.repeat(50),
    );
    expect(await keys('list')).toMatchObject({
      code: 1,
      err: expect.stringContaining('file is not a database'),
    });
    rmSync(dir.file('keys.db'));
    await issue('--tier', 'Lite');
    const database = new DatabaseSync(dir.file('keys.db'));
    database.exec(`insert into schema_migrations values (2000, 'later', '2040')`);
    database.close();
    expect(await keys('list')).toMatchObject({ code: 1, err: expect.stringContaining('newer version') });
  });

  test('as a process: the key on stdout, the exit code, and the lock of another process', async () => {
    const script = fileURLToPath(new URL('./children/keys.ts', import.meta.url));
    const run = async (...argv: string[]) => {
      await using child = startChild(script, [...argv, '--config', configFile]);
      return { code: await child.ended, lines: child.lines, err: child.stderr() };
    };
    const issued = await run('issue', '--tier', 'Free');
    expect(issued).toMatchObject({ code: 0, lines: [expect.stringMatching(/^[0-9a-f]{32}$/)] });
    await using holder = startChild('hold-lock.ts', [dir.file('keys.db')]);
    await holder.nextLine();
    const locked = await run('revoke', issued.lines[0]?.slice(0, 8) ?? '');
    expect(locked).toMatchObject({
      code: 1,
      lines: [],
      err: expect.stringMatching(
        /keys revoke: the store cannot be used: database is locked; another process holds its lock; stop that process, or try again\n$/,
      ),
    });
    expect((await run('lst')).code).toBe(2);
  });
});
