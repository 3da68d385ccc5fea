// Other gateways on the same load: Portkey's, from its npm package in a folder of its own and on this Node, and LiteLLM where
// it is installed. Each as its own documentation starts it, without log lines for each request.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { childrenOf } from '../cpu.ts';
import { VENDOR_KEY } from '../load/sdk-request.ts';
import { ALIAS, UPSTREAM_MODEL } from '../load/traffic.ts';
import { findProgram, type Processes } from '../processes.ts';
import { freePort } from './nginx.ts';
import { CHAT, NO_HEADERS, type Subject } from './subject.ts';

const PORTKEY = '@portkey-ai/gateway';
export const PORTKEY_VERSION = '1.15.2';
/** With later versions that its package allows, 1.19.5 and 1.19.19 among them, it answers every stream with status 500. */
const OVERRIDES = { '@hono/node-server': '1.13.8' };
const INSTALL_MS = 5 * 60_000;
const START_MS = 60_000;

export async function startPortkey(processes: Processes, folder: string, upstream: number): Promise<Subject> {
  mkdirSync(folder);
  const npm = findProgram('npm');
  if (npm === undefined) throw new Error('npm, which installs the peer, is not on the path');
  const dependencies = { [PORTKEY]: PORTKEY_VERSION };
  writeFileSync(
    join(folder, 'package.json'),
    JSON.stringify({ private: true, dependencies, overrides: OVERRIDES }),
  );
  const words = ['install', '--no-audit', '--no-fund', '--ignore-scripts'];
  await processes.run(npm, words, INSTALL_MS, { cwd: folder });
  const port = await freePort();
  const script = join(folder, 'node_modules', PORTKEY, 'build', 'start-server.js');
  const started = await processes.start(process.execPath, [script, `--port=${port}`, '--headless'], {
    ready: /Ready for connections|Your AI Gateway is now running/,
    cwd: folder,
    deadline: START_MS,
  });
  return {
    name: 'portkey',
    url: `http://127.0.0.1:${port}${CHAT}`,
    pids: [started.pid],
    headers: {
      ...NO_HEADERS,
      'x-portkey-provider': 'openai',
      'x-portkey-custom-host': `http://127.0.0.1:${upstream}/v1`,
    },
    alias: UPSTREAM_MODEL,
    model: null,
    stop: started.stop,
  };
}

/** @returns undefined where it is not installed */
export async function startLiteLlm(
  processes: Processes,
  folder: string,
  upstream: number,
): Promise<Subject | undefined> {
  const program = findProgram('litellm');
  if (program === undefined) return undefined;
  mkdirSync(folder);
  const port = await freePort();
  const file = join(folder, 'config.yaml');
  const params = {
    model: `openai/${UPSTREAM_MODEL}`,
    api_base: `http://127.0.0.1:${upstream}/v1`,
    api_key: VENDOR_KEY,
  };
  writeFileSync(file, stringify({ model_list: [{ model_name: ALIAS, litellm_params: params }] }));
  const started = await processes.start(
    program,
    ['--config', file, '--host', '127.0.0.1', '--port', `${port}`],
    {
      ready: /Uvicorn running on/,
      cwd: folder,
      deadline: START_MS,
      env: { LITELLM_LOG: 'ERROR' },
    },
  );
  return {
    name: 'litellm',
    url: `http://127.0.0.1:${port}${CHAT}`,
    pids: [started.pid, ...childrenOf(started.pid)],
    headers: NO_HEADERS,
    alias: ALIAS,
    model: null,
    stop: started.stop,
  };
}
