// The clients for Go: the official SDK, and net/http. Go compiles and caches them itself.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { runProgram } from '../program.ts';
import { CALLS, type ComparedClient, Unavailable } from '../types.ts';
import { plainClient } from './plain.ts';
import { programVersion } from './toolchain.ts';

const run = promisify(execFile);

const DOWNLOAD_MS = 600_000;
const folder = fileURLToPath(new URL('go/', import.meta.url));
/** The modules are those of go.sum, and the toolchain is the one of this machine. */
const env = { GOFLAGS: '-mod=readonly', GOTOOLCHAIN: 'local' };

const goVersion = (): Promise<string> => programVersion('go', ['version'], /go(\d\S*)/);

async function downloadModules(): Promise<void> {
  await run('go', ['mod', 'download'], {
    cwd: folder,
    env: { ...process.env, ...env },
    timeout: DOWNLOAD_MS,
  }).catch((cause: unknown) => {
    throw new Unavailable('the Go modules cannot be downloaded', { cause });
  });
}

const sdk: ComparedClient = {
  name: 'openai-go',
  version: /openai-go\/v\d+ v(\S+)/.exec(readFileSync(`${folder}go.mod`, 'utf8'))?.[1] ?? '',
  calls: CALLS,
  prepare: async () => {
    await goVersion();
    await downloadModules();
  },
  run: (target, calls) => runProgram('go', ['run', './sdk'], target, calls, { cwd: folder, env }),
};

const netHttp = plainClient({
  name: 'net/http (Go)',
  prepare: goVersion,
  command: 'go',
  words: ['run', './nethttp'],
  options: { cwd: folder, env },
});

export const goClients: readonly ComparedClient[] = [sdk, netHttp];
