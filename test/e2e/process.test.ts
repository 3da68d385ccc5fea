// The gateway as a process: what it prints, how it stops, why it does not start, and the demo. Always real children.
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, readdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { startApp } from '../../src/app.ts';
import { startFault } from '../../src/start-fault.ts';
import { openStore } from '../../src/store/open.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import {
  type CommandResult,
  type Gateway,
  runCommand,
  runProgram,
  startGateway,
} from '../helpers/gateway.ts';
import {
  chatRequest,
  chunk,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  lastChunk,
  type Script,
  SSE_HEADERS,
  silence,
  waitFor,
} from '../helpers/hostile-upstream.ts';
import { RawClient, type RawResponse } from '../helpers/raw-client.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { ask, bearer, freeKey, statusOf, textField } from './holder.ts';
import { LAUNCHER, Program, ROOT } from './program.ts';

/** A folder with the shipped configuration, and with listeners that are in nobody's way. */
async function shippedFolder(): Promise<TempDir> {
  const directory = await tempDir();
  const shipped = await readFile(join(ROOT, 'config.yaml'), 'utf8');
  await writeFile(directory.file('config.yaml'), `${shipped}\nadmin: { port: 0 }\n`);
  return directory;
}

/** Runs text in a shell, as somebody does who pastes it. */
function shell(text: string): string {
  return execFileSync('sh', ['-c', text], {
    encoding: 'utf8',
    timeout: 60_000,
    env: { PATH: process.env['PATH'] ?? '', NO_PROXY: '*' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

function has(program: string): boolean {
  try {
    shell(`command -v ${program}`);
    return true;
  } catch {
    return false;
  }
}

describe('npm start', () => {
  let directory: TempDir;
  let program: Program;
  let url: string;

  beforeAll(async () => {
    const { scripts } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
    directory = await shippedFolder();
    const script = join(ROOT, JSON.parse(scripts.start));
    program = new Program([], { command: script, cwd: directory.path, env: { PORT: '0' } });
    url = await program.listening();
  });
  afterAll(async () => {
    await program?.[Symbol.asyncDispose]();
    await directory?.remove();
  });

  test('says where it listens and how to get a first key; the log on stdout stays JSON', async () => {
    await program.wrote(/keys issue/);
    expect(program.stderr).toContain(`${url}/pricing`);
    expect(program.stderr).toMatch(/http:\/\/127\.0\.0\.1:\d+\/metrics/);
    expect(program.stderr).toContain('config.yaml');
    expect((await ask(url, { method: 'GET', target: '/pricing' })).status).toBe(200);
    await until(() => program.stdout.includes('/pricing'), 'the access log');
    for (const line of program.stdout.trim().split('\n')) JSON.parse(line);
  });

  test.skipIf(!has('curl'))('the printed command for a first key works as it is printed', () => {
    const printed = /in a shell: +(curl .*)/.exec(program.stderr)?.[1] ?? '';
    const key = textField(JSON.parse(shell(printed)), 'key');
    expect(key).toMatch(/^[0-9a-f]{32}$/);
  });

  test.skipIf(!has('curl'))('and so does the example on the page that a form is answered with', async () => {
    const page = shell(`curl -s ${url}/checkout -d tier=Free`);
    const example = /(curl &#39;[^<]*)<\/pre>/.exec(page)?.[1] ?? '';
    const line = example.replaceAll(/&#(\d+);/g, (_, code) => String.fromCharCode(Number(code)));
    const answer = JSON.parse(shell(line.replace('curl', 'curl -s')));
    expect(textField(answer.choices[0], 'message', 'content')).toBe('You said: Hello');
  });

  test('the command line issues a key for it, from the same folder', async () => {
    await using command = new Program([LAUNCHER, 'keys', 'issue', '--tier', 'Pro'], { cwd: directory.path });
    const { code, stdout } = await command.end();
    expect(code).toBe(0);
    expect(await statusOf(url, stdout.trim())).toBe(200);
  });

  test('idle, it ends at once on SIGTERM, with 0, and lets go of kept connections', async () => {
    using kept = await RawClient.connect(url);
    await kept.ask({ method: 'GET', target: '/health' });
    program.child.kill('SIGTERM');
    expect(await program.end()).toMatchObject({ code: 0, signal: null });
    expect(await kept.closed).toBe('fin');
  });
});

describe('SIGTERM', () => {
  let upstream: HostileUpstream;
  let release: boolean;

  beforeAll(async () => {
    upstream = await HostileUpstream.start();
  });
  afterAll(() => upstream?.close());

  /** A stream that has begun and ends when `release` is set. */
  const held: Script = [
    head(200, SSE_HEADERS),
    chunk(frame(contentChunk('Begun'))),
    waitFor(() => release),
    chunk(frame(contentChunk(' and ended'))),
    chunk(frame(finishChunk())),
    chunk(DONE),
    lastChunk(),
  ];

  const start = async (drain: Record<string, string> = {}): Promise<Gateway> => {
    release = false;
    upstream.always(held);
    const gateway = await startGateway({
      process: true,
      upstreams: { up: upstream.baseUrl },
      config: { drain },
    });
    expect(await statusOf(gateway.url, await gateway.key())).toBe(200);
    return gateway;
  };

  async function openStream(gateway: Gateway): Promise<{ client: RawClient; response: RawResponse }> {
    const client = await gateway.open(chatRequest({ stream: true }));
    const response = await client.responseHead();
    await until(() => response.text().includes('Begun'), 'the first token');
    return { client, response };
  }

  async function exitOf(gateway: Gateway): Promise<[number | null, NodeJS.Signals | null]> {
    await until(() => gateway.child.exitCode !== null || gateway.child.signalCode !== null, 'the exit');
    return [gateway.child.exitCode, gateway.child.signalCode];
  }

  async function isRefused(gateway: Gateway): Promise<boolean> {
    try {
      (await RawClient.connect(gateway.url)).destroy();
      return false;
    } catch (error) {
      return /ECONNREFUSED/.test(String(error));
    }
  }

  const refused = (gateway: Gateway) => until(() => isRefused(gateway), 'the refusal of new connections');

  test('lets a running stream end whole, takes no new connection, and exits with 0', async () => {
    await using gateway = await start();
    const { client, response } = await openStream(gateway);
    gateway.child.kill('SIGTERM');
    await refused(gateway);
    expect(gateway.output).toMatch(/SIGTERM: draining 1 request;/);
    expect(gateway.child.exitCode).toBeNull();
    release = true;
    await response.ended;
    expect(response.complete).toBe(true);
    expect(response.frames().at(-1)).toBe('data: [DONE]');
    expect(response.text()).toContain(' and ended');
    expect(await exitOf(gateway)).toEqual([0, null]);
    await client.closed;
  });

  test('a second one ends the stream at once and visibly, and still exits with 0', async () => {
    await using gateway = await start();
    const { client, response } = await openStream(gateway);
    gateway.child.kill('SIGTERM');
    await refused(gateway);
    gateway.child.kill('SIGTERM');
    await response.ended;
    await client.closed;
    expect(response.text()).not.toContain('[DONE]');
    expect(response.complete).toBe(false);
    const last = response.frames().at(-1) ?? '';
    expect(last === '' || last.includes('Begun') || last.includes('"code":"draining"')).toBe(true);
    expect(await exitOf(gateway)).toEqual([0, null]);
    const request = upstream.requests.at(-1);
    expect(await request?.closed).toMatchObject({ by: 'peer' });
    const line = await gateway.logLine((each) => each['msg'] === 'request' && each['stream'] === true);
    expect(line['outcome']).not.toBe('ok');
  });

  test('SIGINT twice does the same', async () => {
    await using gateway = await start();
    const { response } = await openStream(gateway);
    gateway.child.kill('SIGINT');
    await refused(gateway);
    gateway.child.kill('SIGINT');
    await response.ended;
    expect([response.complete, response.text().includes('[DONE]')]).toEqual([false, false]);
    expect(await exitOf(gateway)).toEqual([0, null]);
  });

  test('at the end of drain.timeout what still runs is ended, visibly', async () => {
    await using gateway = await start({ timeout: '300ms' });
    const { response } = await openStream(gateway);
    gateway.child.kill('SIGTERM');
    await response.ended;
    expect([response.complete, response.text().includes('[DONE]')]).toEqual([false, false]);
    expect(await exitOf(gateway)).toEqual([0, null]);
  });

  test('does not wait for an upstream that says nothing: the request is answered 503', async () => {
    await using gateway = await start({ timeout: '300ms' });
    upstream.always(silence());
    using waiting = await gateway.open(chatRequest());
    const asked = upstream.requests.length;
    await until(
      () => upstream.requests.length > asked - 1 && upstream.answering > 0,
      'the upstream to be asked',
    );
    gateway.child.kill('SIGTERM');
    await waiting.closed;
    const [response] = waiting.responses;
    // Nothing was sent before, so there is room for the whole truth.
    expect(response?.status).toBe(503);
    expect(textField(response?.json(), 'error', 'code')).toBe('draining');
    expect(await exitOf(gateway)).toEqual([0, null]);
  });

  test('with drain.delay: readiness goes first, requests are still served, connections close after them', async () => {
    await using gateway = await start({ delay: '60s' });
    using kept = await RawClient.connect(gateway.url);
    expect((await kept.ask({ method: 'GET', target: '/health' })).status).toBe(200);
    gateway.child.kill('SIGTERM');
    await until(
      async () => (await ask(gateway.adminUrl, { method: 'GET', target: '/readyz' })).status === 503,
      'the readiness to fail',
    );
    const health = await ask(gateway.url, { method: 'GET', target: '/health' });
    expect([health.status, textField(health.json(), 'status')]).toEqual([503, 'draining']);
    expect((await ask(gateway.adminUrl, { method: 'GET', target: '/livez' })).status).toBe(200);
    const key = await gateway.key();
    const last = await kept.ask({ method: 'GET', target: '/v1/models', headers: bearer(key) });
    expect([last.status, last.header('connection')]).toEqual([200, 'close']);
    await kept.closed;
    gateway.child.kill('SIGTERM');
    expect(await exitOf(gateway)).toEqual([0, null]);
  });
});

describe('it does not start, and says why', () => {
  let directory: TempDir;

  beforeAll(async () => {
    directory = await tempDir();
  });
  afterAll(() => directory?.remove());

  /** `tollgate serve` with this configuration, to its end. */
  async function serve(yaml: string, env: Record<string, string> = {}): Promise<CommandResult> {
    const file = directory.file('config.yaml');
    await writeFile(file, yaml);
    return await runProgram(['serve', '--config', file], { DIR: directory.path, ...env });
  }

  /** The same in this process, which is quicker. @returns what it would print before it exits with 1 */
  async function fault(yaml: string, env: Record<string, string> = {}): Promise<string> {
    const configFile = directory.file('config.yaml');
    await writeFile(configFile, yaml);
    try {
      const logger = createLogger(undefined, 'silent');
      const app = await startApp({ configFile, env: { DIR: directory.path, ...env }, logger });
      await Promise.all([app.close(), app.close()]);
    } catch (error) {
      return startFault(error);
    }
    throw new Error('it starts');
  }

  // biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration expands it.
  const STORE = 'store: sqlite:${DIR}/t.db\n';
  const ECHO =
    'upstreams: { e: { builtin: echo } }\nmodels: { m: { targets: [{ upstream: e, model: m }] } }\n';
  const GOOD = `listen: { port: 0 }\nadmin: { port: 0 }\n${STORE}${ECHO}`;

  test.each(['listen', 'admin'])('the port of %s is in use', async (which) => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const address = other.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const { code, stdout, stderr } = await serve(
      GOOD.replace(`${which}: { port: 0 }`, `${which}: { port: ${port} }`),
    );
    other.close();
    expect(code).toBe(1);
    expect(stderr).toContain(`127.0.0.1:${port} is in use`);
    expect(stderr).toMatch(/PORT|admin\.port/);
    expect(stderr).not.toMatch(/^ +at /m);
    expect(stdout).toBe('');
  });

  test('a mistyped field: file, line and column, the line itself, and the right name', async () => {
    const { code, stderr } = await serve(`${GOOD}fre_keys: { per_ip_per_day: 1 }\n`);
    expect(code).toBe(1);
    expect(stderr).toMatch(/config\.yaml:6:1: /);
    expect(stderr).toMatch(/^ +fre_keys: /m);
    expect(stderr).toContain('free_keys');
    expect(stderr).toMatch(/1 fault\b/);
  });

  test('several faults: all of them at once', async () => {
    const stderr = await fault(`${GOOD}retry: { attempts: 0 }\nmax_body: 3 apples\ndrain: { delay: 1 }\n`);
    expect(stderr.match(/config\.yaml:\d+:\d+: /g)?.length).toBe(3);
    expect(stderr).toMatch(/3 faults/);
  });

  test('what is no YAML', async () => {
    const stderr = await fault('listen: { port: 0\nmodels: [');
    expect(stderr).toMatch(/config\.yaml:\d+:\d+: /);
    expect(stderr).not.toMatch(/^ +at /m);
  });

  test('a variable that is not set is named', async () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration expands it.
    const upstream = 'upstreams: { e: { base_url: "http://127.0.0.1:9/v1", api_key: "${VENDOR_KEY}" } }';
    const yaml = GOOD.replace('upstreams: { e: { builtin: echo } }', upstream);
    expect(await fault(yaml)).toMatch(/config\.yaml:4:\d+: .*VENDOR_KEY/);
    expect(await fault(yaml, { VENDOR_KEY: ' ' })).toContain('VENDOR_KEY');
  });

  test('there is no configuration', async () => {
    const file = directory.file('nothing.yaml');
    const said = startFault(await startApp({ configFile: file, env: {} }).catch((error: unknown) => error));
    expect(said).toContain(`${file}:1:1: cannot be read: there is no such file`);
  });

  test('nor in the folder, where none is named', async () => {
    await using empty = await tempDir();
    await using program = new Program([LAUNCHER, 'serve'], { cwd: empty.path });
    const { code, stderr } = await program.end();
    expect(code).toBe(1);
    expect(stderr).toContain('./config.yaml:1:1: cannot be read: there is no such file');
  });

  test('PORT is no port', async () => {
    expect(await fault(GOOD, { PORT: 'eighty' })).toMatch(/PORT must be a whole number/);
  });

  test('the store cannot be made', async () => {
    const stderr = await fault(GOOD.replace('/t.db', '/config.yaml/t.db'));
    expect(stderr).toMatch(/^tollgate: .*store/);
    expect(stderr).not.toMatch(/^ +at /m);
  });

  test('another process holds the lock of the store', async () => {
    const path = directory.file('locked.db');
    await (await openStore({ kind: 'sqlite', path })).close();
    using other = new DatabaseSync(path);
    other.exec('begin immediate');
    expect(await fault(GOOD.replace('/t.db', '/locked.db'))).toBe(
      'tollgate: the store cannot be used: database is locked; another process holds its lock; stop that process, or try again',
    );
  });
});

test('PORT takes the place of listen.port', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const address = other.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  other.close();
  await once(other, 'close');
  await using directory = await shippedFolder();
  await using program = new Program([LAUNCHER, 'serve'], {
    cwd: directory.path,
    env: { PORT: String(port) },
  });
  expect(await program.listening()).toBe(`http://127.0.0.1:${port}`);
  expect(await freeKey(`http://127.0.0.1:${port}`)).toMatch(/^[0-9a-f]{32}$/);
});

const COMMANDS = [
  'init',
  'serve',
  'check',
  'explain',
  'keys',
  'holders',
  'teams',
  'orders',
  'upstreams',
  'usage',
];

describe('check and help', () => {
  test('check: 0 and what the configuration means', async () => {
    const { code, stdout, stderr } = await runProgram(['check', '--config', join(ROOT, 'config.yaml')]);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/config\.yaml is valid/);
    expect(stdout).toMatch(/echo/);
  });

  test('check: 1 and every fault, nothing on stdout', async () => {
    await using directory = await tempDir();
    await copyFile(join(ROOT, 'config.yaml'), directory.file('config.yaml'));
    const good = await readFile(directory.file('config.yaml'), 'utf8');
    await writeFile(directory.file('config.yaml'), `${good}\nnonsense: 1\n`);
    const { code, stdout, stderr } = await runCommand(['check', '--config', directory.file('config.yaml')]);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/config\.yaml:\d+:1: .*nonsense/);
  });

  test('check does not start anything: the store is not made', async () => {
    await using directory = await shippedFolder();
    await using program = new Program([LAUNCHER, 'check'], { cwd: directory.path });
    expect((await program.end()).code).toBe(0);
    await expect(readFile(directory.file('data/tollgate.db'))).rejects.toThrow(/ENOENT/);
  });

  test('every example configuration is good', async () => {
    const files = ['azure.yaml', 'openai-with-fallback.yaml', 'self-hosted.yaml', 'stripe.yaml'];
    const env = Object.fromEntries(
      (await Promise.all(files.map((file) => readFile(join(ROOT, 'examples', file), 'utf8')))).flatMap(
        (text) =>
          [...text.matchAll(/\$\{([A-Z_0-9]+)\}/g)].map(([, name = '']) => [
            name,
            name.endsWith('URL') ? 'https://vendor.test' : `value-of-${name}`,
          ]),
      ),
    );
    for (const file of files) {
      const { code, stderr } = await runCommand(['check', '--config', join(ROOT, 'examples', file)], env);
      expect([file, code, stderr]).toEqual([file, 0, '']);
    }
  });

  test.each([['--help'], ['-h'], ['help']])('%s: 0 and every command', async (word) => {
    const { code, stdout, stderr } = await runCommand([word]);
    expect([code, stderr]).toEqual([0, '']);
    for (const command of COMMANDS) expect(stdout).toMatch(new RegExp(`^  ${command} `, 'm'));
  });

  test.each([...COMMANDS, 'keys issue', 'orders lapse', 'usage close', 'upstreams drain'])(
    '%s --help: 0 and how it is used',
    async (command) => {
      const words = command.split(' ');
      for (const help of ['--help', '-h']) {
        const { code, stdout, stderr } = await runCommand([...words, '--config', 'none.yaml', help]);
        expect([code, stderr]).toEqual([0, '']);
        expect(stdout.startsWith(`Usage: tollgate ${words[0]} `)).toBe(true);
      }
    },
  );

  test('the reader of a list goes: no word, and the status of other programs', async () => {
    await using directory = await shippedFolder();
    for (const words of ['check', 'explain --model echo', 'explain --model echo --json', 'keys --help']) {
      await using program = new Program([LAUNCHER, ...words.split(' ')], { cwd: directory.path });
      program.child.stdout.destroy();
      expect([words, await program.end()]).toMatchObject([words, { code: 141, stderr: '' }]);
    }
  });

  test('--version: the one of package.json', async () => {
    const { version } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
    expect(await runCommand(['--version'])).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' });
  });

  test.each([
    ['nothing', []],
    ['a command that there is not', ['sevre']],
    ['an option that there is not', ['serve', '--confg', 'x']],
    ['an option without its value', ['check', '--config']],
    ['an operand', ['check', 'config.yaml']],
  ])('%s: 2, where to read how it is used, nothing on stdout', async (name, words) => {
    const { code, stdout, stderr } = await runCommand(words);
    expect([code, stdout]).toEqual([2, '']);
    if (name === 'nothing') expect(stderr).toMatch(/^ {2}serve {2}/m);
    else expect(stderr).toMatch(/^(tollgate(?: \w+)?): .+; see \1 --help\n$/);
  });

  test('a mistyped command or option: the one that is meant', async () => {
    expect((await runCommand(['sevre'])).stderr).toContain('unknown command (did you mean serve?)');
    expect((await runCommand(['serve', '--confg', 'x'])).stderr).toContain('(did you mean --config?)');
    expect((await runCommand(['check', '--credential'])).stderr).toContain('(did you mean --credentials?)');
  });
});

describe('the demo', () => {
  /** The command that it printed, over several lines. */
  const curlLine = (output: string): string =>
    /^curl (?:[^\n]*\\\r?\n)*[^\n]*/m.exec(output)?.[0].replaceAll('\r', '') ?? '';

  test('without a terminal: streams an answer, prints a command, ends with 0 and leaves nothing', async () => {
    const { scripts } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
    expect(scripts.demo).toBe('node examples/demo.ts');
    await using temporary = await tempDir();
    await using program = new Program([join(ROOT, 'examples/demo.ts')], {
      cwd: ROOT,
      // Not for the demo, which must not stand in anybody's way.
      env: { TMPDIR: temporary.path, PORT: '1' },
    });
    const { code, stdout, stderr } = await program.end(60_000);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/streamed \(echo\): You said: \S/);
    expect(stdout).toMatch(/whole +\(echo\): You said: \S/);
    const line = curlLine(stdout);
    const [, url = ''] = /listens on (http:\S+)/.exec(stdout) ?? [];
    const [, key = ''] = /issued: ([0-9a-f]{32})/.exec(stdout) ?? [];
    expect(line).toContain(`curl -N ${url}/v1/chat/completions`);
    expect(line).toContain(`-H 'Authorization: Bearer ${key}'`);
    expect(JSON.parse(/-d '([^']*)'/.exec(line)?.[1] ?? '')).toMatchObject({ model: 'echo', stream: true });
    await expect(fetch(`${url}/health`)).rejects.toThrow();
    expect(await readdir(temporary.path)).toEqual([]);
  });

  test.skipIf(!has('curl') || !has('script'))(
    'at a terminal: the gateway stays, the printed command works as it is, Ctrl-C ends both',
    async () => {
      // `script` gives it a terminal; what is written to it is typed there.
      const demo = `exec ${process.execPath} ${join(ROOT, 'examples/demo.ts')}`;
      await using program = new Program(['-qefc', demo, '/dev/null'], { cwd: ROOT, command: 'script' });
      await program.wrote(/Ctrl-C ends it/, 'stdout');
      const answer = shell(curlLine(program.stdout).replace('curl', 'curl -s'));
      expect(answer).toContain('data: [DONE]');
      const text = [...answer.matchAll(/^data: (\{.*)$/gm)]
        .map(([, data = '']) => JSON.parse(data).choices[0]?.delta.content ?? '')
        .join('');
      expect(text).toBe('You said: Hello from curl!');
      const url = /listens on (http:\S+)/.exec(program.stdout)?.[1] ?? '';
      program.child.stdin.write('\x03');
      expect((await program.end()).code).toBe(0);
      await expect(fetch(`${url}/health`)).rejects.toThrow();
    },
  );

  test('talks about the configuration that is shipped', async () => {
    const shipped: unknown = parse(await readFile(join(ROOT, 'config.yaml'), 'utf8'));
    expect(shipped).toMatchObject({ models: { echo: {} }, upstreams: { demo: { builtin: 'echo' } } });
  });
});
