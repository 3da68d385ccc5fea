// One API, a gateway in Go, built from its module. It always checks a key and counts its quota in SQLite; the settings are those that
// its documentation gives for much traffic. It writes a line for each request and has no setting against that.
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { VENDOR_KEY } from '../load/sdk-request.ts';
import { ALIAS, UPSTREAM_MODEL } from '../load/traffic.ts';
import type { Processes } from '../processes.ts';
import { liteLlmHome } from './litellm.ts';
import { freePort } from './nginx.ts';
import { installed, runTool } from './peer-install.ts';
import { CHAT, type Subject } from './subject.ts';

const MODULE = 'github.com/songquanpeng/one-api';
export const ONE_API_VERSION = 'v0.6.10';
const START_MS = 5 * 60_000;
const ADMIN = 'not-a-credential-of-the-bench';

const downloaded = z.object({ Dir: z.string() });
const issued = z.object({ success: z.literal(true), data: z.object({ key: z.string() }) });
const done = z.object({ success: z.literal(true) });

/** @returns the path of the program */
async function build(processes: Processes): Promise<string> {
  const home = await installed(`one-api-${ONE_API_VERSION}`, async (folder) => {
    const found = await runTool(
      processes,
      'go',
      ['mod', 'download', '-json', `${MODULE}@${ONE_API_VERSION}`],
      {
        cwd: folder,
      },
    );
    const source = join(folder, 'source');
    cpSync(downloaded.parse(JSON.parse(found)).Dir, source, { recursive: true });
    await runTool(processes, 'chmod', ['-R', 'u+w', source]);
    // Its pages are built by npm and are not in the module; nobody opens them here.
    for (const theme of ['default', 'air', 'berry']) {
      mkdirSync(join(source, 'web', 'build', theme), { recursive: true });
      writeFileSync(join(source, 'web', 'build', theme, 'index.html'), '');
    }
    await runTool(processes, 'go', ['build', '-o', join(folder, 'one-api'), '.'], {
      cwd: source,
      env: { CGO_ENABLED: '1' },
    });
  });
  return join(home, 'one-api');
}

/** Tables of tokens, which it would fetch from the network; LiteLLM's package brings the same files. */
async function tokenTables(processes: Processes): Promise<string> {
  const words = [
    '-c',
    'import litellm, os; print(os.path.join(os.path.dirname(litellm.__file__), "litellm_core_utils", "tokenizers"))',
  ];
  const python = join(await liteLlmHome(processes), 'bin', 'python');
  return (
    await processes.run(python, words, START_MS, { env: { LITELLM_LOCAL_MODEL_COST_MAP: 'True' } })
  ).trim();
}

export async function startOneApi(
  processes: Processes,
  folder: string,
  upstream: number,
): Promise<Subject[]> {
  const program = await build(processes);
  const tables = await tokenTables(processes);
  mkdirSync(folder, { recursive: true });
  const port = await freePort();
  const start = () =>
    processes.start(program, ['--port', `${port}`, '--log-dir', join(folder, 'logs')], {
      ready: /server started on/,
      cwd: folder,
      deadline: START_MS,
      env: {
        SQLITE_PATH: join(folder, 'one-api.db'),
        TIKTOKEN_CACHE_DIR: tables,
        INITIAL_ROOT_ACCESS_TOKEN: ADMIN,
        MEMORY_CACHE_ENABLED: 'true',
        BATCH_UPDATE_ENABLED: 'true',
        GIN_MODE: 'release',
      },
    });
  const post = async (path: string, body: object): Promise<unknown> => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method: 'POST',
      headers: { authorization: ADMIN, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return response.json();
  };
  const first = await start();
  done.parse(
    await post('/api/channel/', {
      name: 'vendor',
      type: 1,
      key: VENDOR_KEY,
      base_url: `http://127.0.0.1:${upstream}`,
      models: ALIAS,
      group: 'default',
      model_mapping: JSON.stringify({ [ALIAS]: UPSTREAM_MODEL }),
    }),
  );
  const token = { name: 'bench', remain_quota: 1_000_000_000_000, unlimited_quota: false, expired_time: -1 };
  const { data } = issued.parse(await post('/api/token/', token));
  await first.stop();
  // It reads channels into its cache when it starts.
  const started = await start();
  return [
    {
      name: 'one api',
      url: `http://127.0.0.1:${port}${CHAT}`,
      pids: [started.pid],
      headers: { authorization: `Bearer sk-${data.key}` },
      alias: ALIAS,
      model: null,
      stop: started.stop,
    },
  ];
}
