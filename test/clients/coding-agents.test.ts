// Codex and aider, with and without the gateway: the same session at the same scripted server prints the same, leaves the same files, and sends the
// same bodies. What is not installed is fetched once, and skipped where that is impossible. Claude Code is in anthropic.test.ts.
import { execFile } from 'node:child_process';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import {
  completion,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  roleChunk,
  upstreamError,
} from '../helpers/completions.ts';
import { eventFrame, framesOf, responseEvents, responseObject } from '../helpers/recorded.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { codexClients } from './comparison/clients/codex.ts';
import { differences } from './comparison/compare.ts';
import { pythonPackages } from './comparison/python-packages.ts';
import { type Answer, type Sent, startScripted } from './comparison/servers/scripted.ts';
import { available, type Play, playDirectly, playThroughGateway } from './comparison/session.ts';
import { promptOf, type Target } from './comparison/types.ts';

const run = promisify(execFile);

/** Its environment is 700 MB large, so AIDER=1 asks for it, as a release does. */
const isAiderWanted = process.env['AIDER'] === '1';

/** Fetching what is not installed takes minutes. */
const INSTALL_MS = 900_000;

async function playBoth<T>(play: Play<T, Sent>) {
  const [direct, through] = await Promise.all([playDirectly(play), playThroughGateway(play)]);
  return { direct, through };
}

describe('a session is the same with and without the gateway', () => {
  test('of aider, which edits files and commits them', { timeout: INSTALL_MS }, async ({ skip }) => {
    if (!isAiderWanted) skip('AIDER=1 installs aider and plays its session');
    const python = await available(() => pythonPackages('aider'), skip);
    const { direct, through } = await playBoth<AiderResult>({
      start: () => startScripted(aiderModel()),
      run: (target) => aiderSession(python, target),
      models: ['chat-mini', 'chat-small'],
      path: '/v1',
    });
    expect(through.result).toEqual(direct.result);
    expect(through.result.files).toEqual({ 'greeting.py': EDITED, 'test_greeting.py': TESTED });
    expect(through.result.commits).toEqual([
      'Tester: test: Greet',
      'Tester: feat: Greet the world',
      'Tester: Begin',
    ]);
    expect(through.result.shown).toContain('“fine” 🌤️');
    // A stream, its commit message; a refused try, a stream, its commit message.
    expect(through.sent.map(({ body }) => JSON.parse(body).model)).toEqual([
      'chat-mini',
      'chat-small',
      'chat-mini',
      'chat-mini',
      'chat-small',
    ]);
    // The gateway asks for the usage of streams, to count it.
    const asked = through.sent.filter(({ body }) => body.includes(USAGE_WANTED));
    expect(asked).toHaveLength(3);
    expect(
      through.sent.map(({ target, body }) => ({ target, body: body.replace(USAGE_WANTED, '') })),
    ).toEqual(direct.sent);
  });

  test('of Codex, which runs a command', { timeout: INSTALL_MS }, async ({ skip }) => {
    const codex = codexClients.find(({ name, version }) => name === 'Codex CLI' && version !== '0.80.0');
    if (codex === undefined) throw new Error('no such version of Codex');
    await available(() => codex.prepare(), skip);
    const { direct, through } = await playBoth({
      start: () => startScripted(codexModel),
      run: (target) => codex.run(target, [CODEX_CALL]),
      models: ['chat-large'],
      path: '/v1',
    });
    const [first, second] = [direct, through].map(({ result: [each] }) => each);
    if (first === undefined || second === undefined) throw new Error('Codex made no call');
    expect(second.error).toBeUndefined();
    expect(differences(first, second)).toEqual([]);
    expect(JSON.stringify(second.result)).toContain('the answer is 42');
    expect(through.sent.map(({ target }) => target)).toEqual(Array(2).fill('/v1/responses'));
    expect(through.sent[1]?.body).toContain('the answer is 42');
    expect(through.sent.flatMap((each, index) => differencesOf(direct.sent[index], each))).toEqual([]);
  });
});

const USAGE_WANTED = ',"stream_options":{"include_usage":true}';

const ORIGINAL = 'def greet():\n    return "Hello"\n';
const EDITED = 'def greet():\n    return "Hello, world — “fine” 🌤️"\n';
const TESTED = 'from greeting import greet\n\nassert greet()\n';

/** A block that aider applies: the old lines are replaced by the new ones. */
const edit = (file: string, before: string, after: string): string =>
  `\n${file}\n\`\`\`python\n<<<<<<< SEARCH\n${before}=======\n${after}>>>>>>> REPLACE\n\`\`\`\n`;

/** The model of aider's session: an edit, a failure, a new file, and messages of commits. */
function aiderModel(): (target: string, body: string) => Answer {
  let failures = 0;
  return (_target, body) => {
    const { stream } = JSON.parse(body);
    const isSecond = body.includes(SECOND_TURN);
    if (stream !== true) {
      const content = body.includes('test_greeting.py') ? 'test: Greet' : 'feat: Greet the world';
      return { json: completion({ content }) };
    }
    if (isSecond && failures++ === 0)
      return { status: 500, json: upstreamError('The server failed.', { type: 'server_error' }) };
    const said = isSecond
      ? edit('test_greeting.py', '', TESTED)
      : edit('greeting.py', '    return "Hello"\n', EDITED.slice(EDITED.indexOf('    ')));
    const pieces = `I change it.\n${said}`.match(/[\s\S]{1,5}/gu) ?? [];
    return {
      frames: [...[roleChunk(), ...pieces.map((each) => contentChunk(each)), finishChunk()].map(frame), DONE],
    };
  };
}

const FIRST_TURN = 'Greet the world.';
const SECOND_TURN = 'Now a test.';

interface AiderResult {
  readonly shown: string;
  readonly files: Readonly<Record<string, string>>;
  readonly commits: readonly string[];
  readonly state: string;
}

/** Two turns in a new repository. Commits have fixed names and times, because aider tells the model their hashes. */
async function aiderSession(python: string, target: Target): Promise<AiderResult> {
  await using home = await tempDir();
  await using repository = await tempDir();
  const when = '2026-01-01T00:00:00Z';
  const env = {
    PATH: process.env['PATH'],
    HOME: home.path,
    GIT_AUTHOR_NAME: 'Tester',
    GIT_AUTHOR_EMAIL: 'tester@example.com',
    GIT_AUTHOR_DATE: when,
    GIT_COMMITTER_NAME: 'Tester',
    GIT_COMMITTER_EMAIL: 'tester@example.com',
    GIT_COMMITTER_DATE: when,
  };
  const git = async (...words: string[]): Promise<string> =>
    (await run('git', words, { cwd: repository.path, env })).stdout;
  await git('init', '--quiet', '--initial-branch', 'main');
  await writeFile(repository.file('greeting.py'), ORIGINAL);
  await git('add', '.');
  await git('commit', '--quiet', '--message', 'Begin');
  const shown = await runAider(python, home, {
    cwd: repository.path,
    env: {
      ...env,
      OPENAI_API_BASE: target.baseUrl,
      OPENAI_API_KEY: target.apiKey,
      LITELLM_LOCAL_MODEL_COST_MAP: 'True',
      // It calls nothing but the target.
      HTTPS_PROXY: 'http://127.0.0.1:9',
      NO_PROXY: '127.0.0.1',
    },
  });
  const names = (await readdir(repository.path)).filter((name) => name.endsWith('.py')).sort();
  const files = names.map(async (name) => [name, await readFile(repository.file(name), 'utf8')] as const);
  return {
    shown,
    files: Object.fromEntries(await Promise.all(files)),
    commits: (await git('log', '--format=%an: %s')).trim().split('\n'),
    state: await git('log', '--patch'),
  };
}

const MODELS_OF_AIDER = Object.fromEntries(
  ['openai/chat-mini', 'openai/chat-small'].map((name) => [
    name,
    { max_input_tokens: 128_000, max_output_tokens: 16_384, litellm_provider: 'openai', mode: 'chat' },
  ]),
);
const AIDER_WORDS =
  '-m aider --model openai/chat-mini --weak-model openai/chat-small --edit-format diff --map-tokens 0 --no-pretty --no-fancy-input ' +
  '--yes-always --no-check-update --no-show-release-notes --analytics-disable --no-gitignore --no-detect-urls --no-auto-lint ' +
  '--no-suggest-shell-commands greeting.py';

async function runAider(
  python: string,
  home: TempDir,
  options: { readonly cwd: string; readonly env: NodeJS.ProcessEnv },
): Promise<string> {
  await writeFile(home.file('.aider.model.metadata.json'), JSON.stringify(MODELS_OF_AIDER));
  const child = run(python, AIDER_WORDS.split(' '), { ...options, timeout: 300_000 });
  child.child.stdin?.end(`${FIRST_TURN}\n${SECOND_TURN}\n/exit\n`);
  return (await child).stdout;
}

const CODEX_CALL = 'responses.tools.exec_command';

/** The model of Codex's session: a command, and a text when its output has come. */
function codexModel(_target: string, body: string): Answer {
  if (body.includes('"function_call_output"'))
    return { frames: framesOf(responseEvents(['Grüße: ', 'the answer is 42', ' 🌤️'])) };
  if (!body.includes(promptOf(CODEX_CALL))) return { status: 404, json: upstreamError('no such call') };
  const [first, second] = ['{"cmd":"echo \\"the answer', ' is $((40 + 2))\\""}'];
  const item = (status: string, text: string) => ({
    id: 'fc_scripted',
    type: 'function_call',
    status,
    name: 'exec_command',
    call_id: 'call_scripted',
    arguments: text,
  });
  const done = item('completed', first + second);
  const at = { item_id: 'fc_scripted', output_index: 0 };
  const events = [
    { type: 'response.created', response: responseObject({ status: 'in_progress' }) },
    { type: 'response.output_item.added', output_index: 0, item: item('in_progress', '') },
    ...[first, second].map((delta) => ({ type: 'response.function_call_arguments.delta', ...at, delta })),
    { type: 'response.function_call_arguments.done', ...at, arguments: done.arguments },
    { type: 'response.output_item.done', output_index: 0, item: done },
    { type: 'response.completed', response: { ...responseObject(), output: [done] } },
  ];
  return { frames: events.map((event, index) => eventFrame({ ...event, sequence_number: index })) };
}

/** What differs of a body, but for what Codex draws for each session: ids, its folder, and times. */
function differencesOf(direct: Sent | undefined, through: Sent | undefined) {
  const resultOf = ({ body }: Sent) =>
    JSON.parse(
      body
        .replaceAll(/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, '<id>')
        .replaceAll(/tollgate-test-\w{6}/g, '<folder>')
        .replaceAll(/(?<=Wall time: |Chunk ID: |_ms\\":)[\w.]+/g, '<>'),
    );
  if (direct === undefined || through === undefined)
    return [{ call: '', path: 'requests', direct: direct?.target, through: through?.target }];
  return differences({ call: '', result: resultOf(direct) }, { call: '', result: resultOf(through) });
}
