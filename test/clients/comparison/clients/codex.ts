// Codex CLI: each call is one turn of `codex exec` in a home folder of its own. A turn is a prompt, the requests that it takes
// and the events that Codex prints. Codex repeats a request that fails or breaks off, and says so in its events.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type TempDir, tempDir } from '../../../helpers/wait.ts';
import { npmPackages } from '../installs.ts';
import { Tap } from '../tap.ts';
import { type CallResult, type ComparedClient, promptOf, type Target } from '../types.ts';

const TURN_MS = 120_000;
const KEY_VARIABLE = 'COMPARISON_KEY';
/** Where nothing listens. Codex has a proxy there for all but loopback, so that it sends nothing to its vendor. */
const NO_WAY_OUT = 'http://127.0.0.1:9';

const FEW_RETRIES = ['request_max_retries', 'stream_max_retries'].map(
  (name) => `model_providers.compared.${name}=1`,
);

interface Variant {
  readonly name: string;
  /** The name of the package in `codex/package.json`. */
  readonly alias: string;
  readonly wireApi: 'responses' | 'chat';
  readonly webSockets?: boolean;
  readonly calls: readonly string[];
}

const pinned: { readonly dependencies: Readonly<Record<string, string>> } = JSON.parse(
  readFileSync(fileURLToPath(new URL('../codex/package.json', import.meta.url)), 'utf8'),
);

function codex(variant: Variant): ComparedClient {
  let program = '';
  const spec = pinned.dependencies[variant.alias];
  if (spec === undefined) throw new Error(`${variant.alias} is not in codex/package.json`);
  return {
    name: variant.name,
    version: spec.slice(spec.lastIndexOf('@') + 1),
    calls: variant.calls,
    prepare: async () => {
      program = join(await npmPackages('codex'), 'node_modules', variant.alias, 'bin/codex.js');
    },
    run: async (target, calls) => {
      const results: CallResult[] = [];
      for (const call of calls) results.push(await makeTurn(program, variant, target, call));
      return results;
    },
  };
}

async function makeTurn(
  program: string,
  variant: Variant,
  target: Target,
  call: string,
): Promise<CallResult> {
  await using home = await tempDir();
  const tap = await Tap.open(target.baseUrl);
  try {
    await writeFile(home.file('config.toml'), configOf(variant, tap.baseUrl, target.model));
    const ended = await runCodex(program, home, target.apiKey, call);
    const events = eventsOf(ended.stdout, tap.baseUrl);
    if (events.length === 0) throw new Error(`Codex printed no event: ${ended.stderr.slice(-2000)}`);
    const reconnects = events.filter((event) => JSON.stringify(event).includes('Reconnecting')).length;
    const turn = {
      exit_code: ended.code,
      // A handshake has no prompt: the tap knows it by its path.
      handshakes: tap.requests().get(new URL(`${target.baseUrl}/responses`).pathname)?.length ?? 0,
      requests: tap.requests().get(call) ?? [],
      reconnects,
      events,
    };
    if (ended.code !== 0) return { call, error: { class: 'turn failed', ...turn } };
    return reconnects === 0 ? { call, result: turn } : { call, error: { class: 'reconnected', ...turn } };
  } finally {
    await tap.close();
  }
}

const configOf = ({ wireApi, webSockets = false }: Variant, baseUrl: string, model: string): string => `
model = "${model}"
model_provider = "compared"

[model_providers.compared]
name = "compared"
base_url = "${baseUrl}"
env_key = "${KEY_VARIABLE}"
wire_api = "${wireApi}"
${webSockets ? 'supports_websockets = true' : ''}

[analytics]
enabled = false

[features]
plugins = false
apps = false
`;

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function runCodex(program: string, home: TempDir, key: string, call: string): Promise<Ended> {
  const work = home.file('work');
  await mkdir(work);
  const words = ['exec', '--json', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox'];
  // Four requests instead of 30, in a second instead of 25.
  if (call.startsWith('error.')) words.push(...FEW_RETRIES.flatMap((setting) => ['--config', setting]));
  return await new Promise((resolve, reject) => {
    const child = execFile(
      process.execPath,
      [program, ...words, promptOf(call)],
      {
        cwd: work,
        env: {
          PATH: process.env['PATH'],
          HOME: home.path,
          CODEX_HOME: home.path,
          [KEY_VARIABLE]: key,
          HTTPS_PROXY: NO_WAY_OUT,
          NO_PROXY: '127.0.0.1',
        },
        timeout: TURN_MS,
        maxBuffer: 16 << 20,
      },
      (error, stdout, stderr) => {
        const { exitCode } = child;
        // A turn that fails ends with 1, which is a result; a null is a signal or a program that did not start.
        if (exitCode === null) reject(new Error(`Codex did not run: ${error?.message}`, { cause: error }));
        else resolve({ code: exitCode, stdout, stderr });
      },
    );
    // It reads more of the prompt from its standard input until that ends.
    child.stdin?.end();
  });
}

/** The events, without what differs by address: messages of errors name the URL and the id of the request. */
function eventsOf(stdout: string, baseUrl: string): unknown[] {
  const { host } = new URL(baseUrl);
  const lines = stdout.split('\n').filter((line) => line !== '');
  return lines.map((line) =>
    JSON.parse(line.replaceAll(host, '<host>').replaceAll(/request id: [\w-]+/g, 'request id: <id>')),
  );
}

export const codexClients: readonly ComparedClient[] = [
  codex({
    name: 'Codex CLI',
    alias: 'codex-0.80',
    wireApi: 'responses',
    calls: [
      'responses.stream.codex',
      'responses.tools.shell',
      'error.bad_request.codex',
      'error.server.codex',
    ],
  }),
  codex({
    name: 'Codex CLI (chat)',
    alias: 'codex-0.80',
    wireApi: 'chat',
    calls: ['chat.stream.codex', 'chat.tools.stream.shell', 'error.bad_request.codex', 'error.server.codex'],
  }),
  codex({
    name: 'Codex CLI',
    alias: '@openai/codex',
    wireApi: 'responses',
    calls: [
      'responses.stream.codex',
      'responses.tools.exec_command',
      'error.bad_request.codex',
      'error.server.codex',
    ],
  }),
  codex({
    name: 'Codex CLI (WebSocket first)',
    alias: '@openai/codex',
    wireApi: 'responses',
    webSockets: true,
    calls: ['responses.stream.codex', 'responses.tools.exec_command'],
  }),
];
