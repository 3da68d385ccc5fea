// The packed package, installed into an empty folder with what production needs and nothing more: what is in it, and the way
// of a user who has only the package, from `npx tollgate init` to the commands of the README, on both lines of Node that `engines` has, and on
// an older one. NPM_INSTALL=1 installs it by npm itself.
import { execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { appendFile, readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { basename, delimiter, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Ended, Program, ROOT } from '../e2e/program.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { installProduction } from './installed.ts';
import { followReadme, README_WORKS, shell } from './readme.ts';

const run = promisify(execFile);
/** What a checkout has beside what a package is made of. */
const NOT_PACKED = new Set([
  'node_modules',
  '.git',
  'dist',
  'data',
  'coverage',
  'test',
  'bench',
  'docs',
  'examples',
]);
const byNpm = process.env['NPM_INSTALL'] === '1';

let directory: TempDir;
/** The empty folder. */
let folder: string;
let packed: readonly string[];

/** Packs a copy: what it builds must not stand in the checkout, where something else may be using it. */
async function pack(): Promise<string> {
  const checkout = directory.file('checkout');
  mkdirSync(checkout);
  for (const name of readdirSync(ROOT)) {
    if (!NOT_PACKED.has(name)) cpSync(join(ROOT, name), join(checkout, name), { recursive: true });
  }
  symlinkSync(join(ROOT, 'node_modules'), join(checkout, 'node_modules'));
  const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', directory.path], {
    cwd: checkout,
    maxBuffer: 2 ** 24,
  });
  // What prepack says stands before the list.
  const [{ filename, files }] = JSON.parse(stdout.slice(stdout.search(/^\[/m)));
  packed = files.map((file: { path: string }) => file.path);
  return directory.file(filename);
}

async function install(tarball: string): Promise<void> {
  if (byNpm) {
    await run('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund', tarball], { cwd: folder });
    return;
  }
  const target = join(folder, 'node_modules', 'tollgate');
  mkdirSync(target, { recursive: true });
  await run('tar', ['xzf', tarball, '--strip-components=1', '-C', target]);
  await installProduction(folder);
  mkdirSync(join(folder, 'node_modules', '.bin'), { recursive: true });
  symlinkSync('../tollgate/bin/tollgate.js', join(folder, 'node_modules', '.bin', 'tollgate'));
}

beforeAll(async () => {
  directory = await tempDir();
  folder = directory.file('empty');
  mkdirSync(folder);
  await install(await pack());
});
afterAll(() => directory?.remove());

const start = (words: readonly string[], env: Record<string, string> = {}): Program =>
  new Program(words, { command: join(folder, 'node_modules/.bin/tollgate'), cwd: folder, env });

/** The environment in which `node` is of this line: the one that runs this test, or one that npm has. */
async function nodeOf(line: number): Promise<{ readonly PATH: string }> {
  const isThis = process.versions.node.startsWith(`${line}.`);
  const words = [
    'exec',
    '--yes',
    '--prefer-offline',
    `--package=node@${line}`,
    '--',
    'node',
    '-p',
    'process.execPath',
  ];
  const node = isThis ? process.execPath : (await run('npm', words)).stdout.trim();
  return { PATH: [dirname(node), process.env['PATH']].join(delimiter) };
}

async function tollgate(...words: string[]): Promise<Ended> {
  await using program = start(words);
  return await program.end();
}

describe('what is packed', () => {
  test('what runs, what it reads, and what somebody must know; no source, no tests, no data', () => {
    const runs = [
      'dist/main.js',
      'dist/usage/outbox/outbox-thread.js',
      ...readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
        .filter((file) => /\.(js|lua)$/.test(file))
        .map((file) => `dist/${file}`),
    ];
    const beside = [
      'bin/start',
      'bin/start.cmd',
      'bin/tollgate.js',
      'config.yaml',
      'config.schema.json',
      'package.json',
      'sbom.cdx.json',
      'README.md',
      'CHANGELOG.md',
      'SECURITY.md',
      'LICENSE',
    ];
    // Other code is in files whose names end in a digest.
    const named = packed.filter((file) => !/^dist\/[\w-]+-[\w-]{8}\.js$/.test(file));
    expect(named.toSorted()).toEqual([...runs, ...beside].sort());
    expect(packed.length - named.length).toBeGreaterThan(10);
  });

  // V8 keeps two bytes for each character of a source with one character beyond Latin-1.
  test('code of ASCII alone', () => {
    // Files of pages are in folders.
    const code = packed.filter((file) => /^dist\/[^/]+\.js$/.test(file));
    const others = code.filter((file) =>
      /[^\p{ASCII}]/u.test(readFileSync(directory.file(`checkout/${file}`), 'utf8')),
    );
    expect(others).toEqual([]);
  });

  test('a start loads few files, and the thread of the outbox few bytes', () => {
    const files = (entry: string): readonly string[] => {
      const found = new Set([directory.file(`checkout/dist/${entry}`)]);
      for (const file of found) {
        const imports = readFileSync(file, 'utf8').matchAll(/^import .* from "(\.[^"]+)";$/gm);
        for (const [, path = ''] of imports) found.add(join(dirname(file), path));
      }
      return [...found];
    };
    const [, serve = ''] =
      /"\.\/(serve-[\w-]{8}\.js)"/.exec(readFileSync(directory.file('checkout/dist/main.js'), 'utf8')) ?? [];
    expect(new Set([...files('main.js'), ...files(serve)]).size).toBeLessThan(20);
    const bytes = files('usage/outbox/outbox-thread.js').map((file) => statSync(file).size);
    expect(bytes.reduce((sum, each) => sum + each)).toBeLessThan(150_000);
  });

  test('needs nothing that is only there for development', async () => {
    const installed = readdirSync(join(folder, 'node_modules'));
    expect(installed).toContain('argon2');
    for (const name of ['node', 'typescript', 'vitest', 'ajv-cli', 'openai'])
      expect(installed).not.toContain(name);
  });
});

describe('in an empty folder', () => {
  test('npx finds it', async () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    const npx = await run('npx', ['--offline', 'tollgate', '--version'], { cwd: folder });
    expect(npx.stdout).toBe(`${version}\n`);
  });

  test.each(['serve', 'check'])('%s without a configuration says how to get one', async (command) => {
    const { code, stderr } = await tollgate(command);
    expect(code).toBe(1);
    expect(stderr).toContain(
      './config.yaml:1:1: cannot be read: there is no such file; `tollgate init` writes a first one',
    );
  });

  test('init writes one that is good as it is, says what comes next, and overwrites nothing', async () => {
    expect(await tollgate('init')).toMatchObject({
      code: 0,
      stdout: '',
      stderr: 'Wrote ./config.yaml. Now: npx tollgate serve\n',
    });
    const file = join(folder, 'config.yaml');
    const written = await readFile(file, 'utf8');
    const shipped = await readFile(join(ROOT, 'config.yaml'), 'utf8');
    const [schema = '', ...rest] = written.split('\n');
    expect(shipped.endsWith(rest.join('\n'))).toBe(true);
    const [, path = ''] = /^# yaml-language-server: \$schema=(.*)$/.exec(schema) ?? [];
    expect(path).toBe('./node_modules/tollgate/config.schema.json');
    expect(existsSync(join(folder, path))).toBe(true);
    // The docs are not in the package.
    expect(rest.join('\n')).not.toMatch(/docs\/|config\.schema/);
    const checked = await tollgate('check');
    expect(checked).toMatchObject({ code: 0, stderr: '' });
    expect(checked.stdout).not.toContain('warnings');

    const admin = `admin: { port: ${await closedPort()} }\n`;
    await appendFile(file, admin);
    expect(await tollgate('init')).toMatchObject({
      code: 1,
      stderr: 'tollgate init: ./config.yaml exists; nothing was written\n',
    });
    expect(await readFile(file, 'utf8')).toBe(written + admin);
  });

  test('init is used wrongly, or writes where it cannot', async () => {
    expect(await tollgate('init', 'config.yaml')).toMatchObject({ code: 2, stdout: '' });
    const nowhere = await tollgate('init', '--config', 'no/such/folder.yaml');
    expect(nowhere.code).toBe(1);
    expect(nowhere.stderr).toMatch(/^tollgate init: ENOENT/);
  });

  test('a configuration in another folder names the schema from there', async () => {
    mkdirSync(join(folder, 'conf/deep'), { recursive: true });
    expect((await tollgate('init', '--config', 'conf/deep/gateway.yaml')).code).toBe(0);
    const written = await readFile(join(folder, 'conf/deep/gateway.yaml'), 'utf8');
    expect(written).toMatch(
      /^# yaml-language-server: \$schema=\.\.\/\.\.\/node_modules\/tollgate\/config\.schema\.json\n/,
    );
    rmSync(join(folder, 'conf'), { recursive: true });
  });

  test.each([24, 26])('on Node %i it serves, the README holds, and SIGTERM ends it with 0', async (line) => {
    const env = await nodeOf(line);
    // Its requests and the first command on any, all of its commands on this one.
    const count = process.versions.node.startsWith(`${line}.`) ? README_WORKS.length : 3;
    await using gateway = start(['serve'], { ...env, PORT: '0' });
    const url = await gateway.listening();
    const done = await followReadme(
      url,
      async (words) => {
        await using program = start(words, env);
        return await program.end();
      },
      shell,
      count,
    );
    expect(done).toEqual(README_WORKS.slice(0, count));
    expect(JSON.parse(await (await fetch(`${url}/health`)).text())).toMatchObject({ status: 'ok' });
    gateway.child.kill('SIGTERM');
    expect(await gateway.end()).toMatchObject({ code: 0, signal: null });
    const left = readdirSync(folder).filter((name) => !/^(node_modules|package(-lock)?\.json)$/.test(name));
    expect(left.map((name) => basename(name)).sort()).toEqual(['config.yaml', 'data']);
  });

  test('a gateway whose files an upgrade replaces goes on: calls, notices, the console, and commands by its API', async () => {
    let notices = 0;
    const vendor = createServer((request, response) => {
      if (request.url === '/notices') notices += 1;
      response.setHeader('content-type', 'application/json');
      response.end(
        request.url?.endsWith('/chat/completions')
          ? '{"object":"chat.completion","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}'
          : '{"object":"list","data":[],"has_more":false}',
      );
    });
    vendor.listen(0, '127.0.0.1');
    await once(vendor, 'listening');
    const address = vendor.address();
    const port = typeof address === 'object' ? address?.port : undefined;
    const config = directory.file('upgraded.yaml');
    writeFileSync(
      config,
      `listen: { port: 0 }
admin: { port: 0 }
store: sqlite:${directory.file('upgraded.db')}
upstreams: { vendor: { base_url: "http://127.0.0.1:${port}/v1", api_key: vendor-key } }
models: { chat: { targets: [{ upstream: vendor, model: chat, price: { input: 1000, output: 1000 } }] } }
tiers: { Pro: { budget: { per_day: 100, soft: [0.0001] } } }
budgets: { webhook: { url: "http://127.0.0.1:${port}/notices", secret: secret-of-the-notices } }
passthrough: { upstream: vendor, paths: [/v1/vector_stores] }
`,
    );
    const token = await tollgate('operators', 'add', 'ann', '--role', 'admin', '--config', config);
    const issued = await tollgate('keys', 'issue', '--tier', 'Pro', '--config', config);
    const replaced = ['tollgate/dist', 'undici', 'http-proxy-3'].map((name) =>
      join(folder, 'node_modules', name),
    );
    await using gateway = start(['serve', '--config', config], { LOG_LEVEL: 'debug' });
    const url = await gateway.listening();
    const [, admin = ''] = await gateway.wrote(/metrics and probes +(http:\/\/[^/]+)/);
    await gateway.wrote(/loaded what the start left/, 'stdout');
    for (const path of replaced) renameSync(path, `${path}.away`);
    // The parser of another version, which fits no client of this one.
    const parsers = join(folder, 'node_modules/undici/lib/llhttp');
    mkdirSync(parsers, { recursive: true });
    for (const name of ['llhttp-wasm.js', 'llhttp_simd-wasm.js'])
      writeFileSync(join(parsers, name), 'module.exports = Buffer.from("another version");');
    try {
      const ask = async (path: string, secret: string, body?: object) => {
        const headers = { authorization: `Bearer ${secret.trim()}`, 'content-type': 'application/json' };
        const sent = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) };
        return (await fetch(path, { headers, redirect: 'manual', ...sent })).status;
      };
      expect([
        await ask(`${url}/v1/vector_stores`, issued.stdout),
        await ask(`${url}/v1/chat/completions`, issued.stdout, { model: 'chat', messages: [] }),
        await ask(`${admin}/console/login`, ''),
        await ask(`${admin}/api/v1/keys`, token.stdout),
        await ask(`${admin}/api/v1/keys`, token.stdout, { tier: 'Pro' }),
      ]).toEqual([200, 200, 200, 200, 200]);
      await until(() => notices > 0, 'a notice');
    } finally {
      for (const path of replaced) {
        rmSync(path, { recursive: true, force: true });
        renameSync(`${path}.away`, path);
      }
      vendor.close();
    }
  });

  test('a reload that needs a package whose files an upgrade has taken away says that a restart is needed', async () => {
    const config = directory.file('reloaded.yaml');
    const settings = `listen: { port: 0 }
admin: { port: 0 }
store: sqlite:${directory.file('reloaded.db')}
models: { chat: { targets: [{ upstream: vendor, model: chat }] } }
tiers: { Pro: {} }
upstreams:
  vendor: { base_url: "http://127.0.0.1:1/v1" }
`;
    writeFileSync(config, settings);
    const credentials = [
      'azure: { tenant_id: t, client_id: c, client_secret: s }',
      'azure: { identity: managed }',
      'google: {}',
      'oauth2: { token_url: "http://127.0.0.1:1", client_id: c, client_secret: s }',
    ];
    const upstreams = credentials.map(
      (auth, i) => `  u${i}: { base_url: "http://127.0.0.1:1", auth: { ${auth} } }\n`,
    );
    const paths = ['http-proxy-3', '@azure', 'google-auth-library', 'undici'].map((name) =>
      join(folder, 'node_modules', name),
    );
    await using gateway = start(['serve', '--config', config], { LOG_LEVEL: 'debug' });
    await gateway.wrote(/loaded what the start left/, 'stdout');
    for (const path of paths) renameSync(path, `${path}.away`);
    try {
      writeFileSync(
        config,
        `${settings}${upstreams.join('')}passthrough: { upstream: vendor, paths: [/v1/vector_stores] }\n`,
      );
      await gateway.wrote(/failed to load what the configuration needs; restart the gateway/, 'stdout');
      for (const i of credentials.keys())
        await gateway.wrote(
          new RegExp(`"upstream":"u${i}".*the package that fetches it cannot be loaded; restart the gateway`),
          'stdout',
        );
    } finally {
      for (const path of paths) renameSync(`${path}.away`, path);
    }
  });

  test('on an older Node one line says what to do', async () => {
    const old = (process.env['PATH'] ?? '')
      .split(delimiter)
      .find((each) => existsSync(join(each, 'node')) && isOld(join(each, 'node')));
    const env = old === undefined ? await nodeOf(20) : { PATH: [old, '/usr/bin', '/bin'].join(delimiter) };
    await using program = start(['serve'], env);
    expect(await program.end()).toEqual({
      code: 1,
      signal: null,
      stdout: '',
      stderr: expect.stringMatching(
        /^tollgate needs Node 24\.\d+\.\d+ or 26\.\d+\.\d+ or newer of its line; this is v(18|20|22)\.\S+ Install a newer Node, or add one to the project: npm install node@26\n$/,
      ),
    });
  });
});

/** Whether a Node is of a line before those that the gateway runs on. */
function isOld(node: string): boolean {
  const major = Number(/^v(\d+)/.exec(execFileSync(node, ['--version'], { encoding: 'utf8' }))?.[1]);
  return major >= 18 && major < 24;
}
