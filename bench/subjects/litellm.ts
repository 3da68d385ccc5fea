// LiteLLM's proxy, from PyPI in a virtual environment. Two rows: as its documentation starts it first, without a key; and with as much
// as it does without a database of its own: a master key that it checks, and limits of requests and tokens a minute of the model.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { childrenOf } from '../cpu.ts';
import { VENDOR_KEY } from '../load/sdk-request.ts';
import { ALIAS, UPSTREAM_MODEL } from '../load/traffic.ts';
import type { Processes } from '../processes.ts';
import { freePort } from './nginx.ts';
import { installed, runTool } from './peer-install.ts';
import { CHAT, NO_HEADERS, type Subject } from './subject.ts';

/** The last whose dependencies for the proxy are all on the index. */
export const LITELLM_VERSION = '1.100.0';
const MASTER_KEY = 'sk-not-a-credential-of-the-bench';
const START_MS = 5 * 60_000;

/** @returns the folder of the environment */
export function liteLlmHome(processes: Processes): Promise<string> {
  return installed(`litellm-${LITELLM_VERSION}`, async (folder) => {
    await runTool(processes, 'python3', ['-m', 'venv', folder]);
    const pip = join(folder, 'bin', 'pip');
    await processes.run(pip, ['install', '--quiet', `litellm[proxy]==${LITELLM_VERSION}`], START_MS * 6);
  });
}

export async function startLiteLlm(
  processes: Processes,
  folder: string,
  upstream: number,
): Promise<Subject[]> {
  const home = await liteLlmHome(processes);
  mkdirSync(folder, { recursive: true });
  return [
    await start(processes, home, folder, upstream, false),
    await start(processes, home, folder, upstream, true),
  ];
}

async function start(
  processes: Processes,
  home: string,
  folder: string,
  upstream: number,
  withLimits: boolean,
): Promise<Subject> {
  const port = await freePort();
  const file = join(folder, withLimits ? 'limits.yaml' : 'config.yaml');
  const limits = { rpm: 1_000_000_000, tpm: 1_000_000_000_000 };
  const params = {
    model: `openai/${UPSTREAM_MODEL}`,
    api_base: `http://127.0.0.1:${upstream}/v1`,
    api_key: VENDOR_KEY,
    ...(withLimits ? limits : {}),
  };
  const config = {
    model_list: [{ model_name: ALIAS, litellm_params: params }],
    ...(withLimits
      ? {
          general_settings: { master_key: MASTER_KEY },
          router_settings: {
            routing_strategy: 'usage-based-routing-v2',
            optional_pre_call_checks: ['enforce_model_rate_limits'],
          },
        }
      : {}),
  };
  writeFileSync(file, stringify(config));
  const words = ['--config', file, '--host', '127.0.0.1', '--port', `${port}`];
  const started = await processes.start(join(home, 'bin', 'litellm'), words, {
    ready: /Uvicorn running on/,
    cwd: folder,
    deadline: START_MS,
    isGroup: true,
    env: { LITELLM_LOG: 'ERROR', LITELLM_LOCAL_MODEL_COST_MAP: 'True' },
  });
  return {
    name: withLimits ? 'litellm, key and limits' : 'litellm',
    url: `http://127.0.0.1:${port}${CHAT}`,
    pids: [started.pid, ...childrenOf(started.pid)],
    headers: withLimits ? { authorization: `Bearer ${MASTER_KEY}` } : NO_HEADERS,
    alias: ALIAS,
    model: null,
    stop: started.stop,
  };
}
