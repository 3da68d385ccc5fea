// Anthropic's official libraries and Claude Code, with and without the gateway: the same session at the same scripted server. What is
// not installed is fetched once, and skipped where that is impossible.
import { execFile } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { tempDir } from '../helpers/wait.ts';
import { differences } from './comparison/compare.ts';
import { npmPackages } from './comparison/installs.ts';
import { runProgram } from './comparison/program.ts';
import { pythonPackages } from './comparison/python-packages.ts';
import { MODEL, type SentMessage, startMessagesServer } from './comparison/servers/messages.ts';
import {
  available,
  type Play,
  playDirectly,
  playThroughGateway,
  type Session,
} from './comparison/session.ts';
import { type CallResult, type Target, Unavailable } from './comparison/types.ts';

const program = (path: string): string =>
  fileURLToPath(new URL(`comparison/clients/${path}`, import.meta.url));

/** Fetching what is not installed takes minutes. */
const INSTALL_MS = 600_000;

type Run<T> = (target: Target) => Promise<T>;
type MessagesSession<T> = Session<T, SentMessage>;

const playOf = <T>(run: Run<T>): Play<T, SentMessage> => ({
  start: startMessagesServer,
  run,
  models: [MODEL],
  upstream: { protocol: 'anthropic' },
});
const directly = <T>(run: Run<T>) => playDirectly(playOf(run));
const throughGateway = <T>(run: Run<T>) => playThroughGateway(playOf(run));

/** A stream that breaks: directly the library may see nothing of it, and with the gateway it throws. */
const BROKEN = ['error.cut', 'error.end'];

function expectSame(direct: MessagesSession<CallResult[]>, through: MessagesSession<CallResult[]>): void {
  const found = direct.result.flatMap((each, index) => {
    const other = through.result[index];
    if (other === undefined || BROKEN.includes(each.call)) return [];
    return differences(each, other);
  });
  expect(found).toEqual([]);
  expect(through.sent).toEqual(direct.sent);
  for (const { call, result } of through.result.filter((each) => BROKEN.includes(each.call))) {
    expect([call, result]).toEqual([
      call,
      {
        events: expect.any(Array),
        thrown: expect.objectContaining({ class: expect.stringMatching(/Error$/) }),
      },
    ]);
    const told = JSON.stringify(result);
    expect(told).toContain('stream_incomplete');
    expect(told).toContain('Hel');
    expect(told).not.toContain('message_stop');
  }
  const failed = through.result.flatMap(({ call, error }) => (error === undefined ? [] : [call]));
  expect(failed).toEqual(
    through.result.map(({ call }) => call).filter((call) => /bad|large|over|rate/.test(call)),
  );
}

describe('a session is the same with and without the gateway', () => {
  test('of the library for TypeScript', { timeout: INSTALL_MS }, async ({ skip }) => {
    const folder = await available(() => npmPackages('anthropic'), skip);
    const calls =
      'message message.response message.bearer message.beta stream stream.helper stream.thinking stream.tools stream.abort ' +
      'count_tokens models.list models.retrieve error.bad_request error.too_large error.overloaded error.rate_limit error.once ' +
      'error.event error.cut error.end';
    const run = (target: Target) =>
      runProgram(
        process.execPath,
        ['--import', program('node/resolve.ts'), program('node/anthropic.ts')],
        target,
        calls.split(' '),
        { env: { PACKAGES: folder } },
      );
    const [direct, through] = await Promise.all([directly(run), throughGateway(run)]);
    expectSame(direct, through);
    expect(through.sent.some(({ headers }) => headers['beta'] === 'some-beta-2026-01-01')).toBe(true);
  });

  test('of the library for Python', { timeout: INSTALL_MS }, async ({ skip }) => {
    const python = await available(() => pythonPackages('vendors'), skip);
    const calls =
      'message message.bearer stream stream.helper stream.thinking count_tokens models.list models.retrieve ' +
      'error.bad_request error.overloaded error.rate_limit error.once error.event error.cut error.end';
    const run = (target: Target) =>
      runProgram(python, [program('python/anthropic_sdk.py')], target, calls.split(' '));
    const [direct, through] = await Promise.all([directly(run), throughGateway(run)]);
    expectSame(direct, through);
  });

  test('of Claude Code, which calls a tool', { timeout: INSTALL_MS }, async ({ skip }) => {
    const claude = await available(claudeCode, skip);
    await using home = await tempDir();
    const run: Run<unknown[]> = (target) => claudeSession(claude, home.path, target);
    const direct = await directly(run);
    const through = await throughGateway(run);
    expect(through.result).toEqual(direct.result);
    expect(through.sent.map(comparable)).toEqual(direct.sent.map(comparable));
    expect(through.sent.map(({ target }) => target)).toEqual(Array(2).fill('/v1/messages?beta=true'));
    expect(JSON.stringify(through.result)).toContain('from-tool');
    expect(through.result.at(-1)).toMatchObject({ type: 'result', is_error: false, result: 'Hello' });
  });
});

/** The program of the installed package for this machine. */
async function claudeCode(): Promise<string> {
  const folder = join(await npmPackages('claude-code'), 'node_modules/@anthropic-ai');
  const name = `claude-code-${process.platform}-${process.arch}`;
  if (!(await readdir(folder)).includes(name)) throw new Unavailable(`${name} is not installed`);
  return join(folder, name, 'claude');
}

const SESSION = '11111111-2222-4333-8444-555555555555';

/** The events of one session that Claude Code prints, without what differs between two runs. */
async function claudeSession(claude: string, home: string, target: Target): Promise<unknown[]> {
  const words = [
    '-p',
    'Call tools',
    '--model',
    target.model,
    '--allowedTools',
    'Bash',
    '--session-id',
    SESSION,
  ];
  const child = promisify(execFile)(
    claude,
    [...words, '--output-format', 'stream-json', '--verbose', '--no-session-persistence'],
    {
      cwd: home,
      env: {
        PATH: process.env['PATH'],
        HOME: home,
        ANTHROPIC_BASE_URL: target.baseUrl,
        ANTHROPIC_AUTH_TOKEN: target.apiKey,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
        DISABLE_AUTOUPDATER: '1',
        // It calls nothing but the target.
        HTTPS_PROXY: 'http://127.0.0.1:9',
        NO_PROXY: '127.0.0.1',
      },
      timeout: 120_000,
      maxBuffer: 16 << 20,
    },
  );
  child.child.stdin?.end();
  const { stdout } = await child;
  return stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line, withoutChance));
}

const withoutChance = (name: string, value: unknown): unknown =>
  /(?:^|_)(?:uuid|ms|timestamp|id)$|Ms$/.test(name) && !/^(?:session|tool_use)_id$/.test(name) ? '<>' : value;

function comparable({ target, headers, body }: SentMessage): unknown {
  return { target, headers, body: JSON.parse(body, (name, value) => (name === 'user_id' ? '<>' : value)) };
}
