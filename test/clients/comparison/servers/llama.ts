// llama.cpp's own server with a small chat model, in a process of its own. Answers are real and repeatable: greedy sampling,
// and no cache between requests.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { until, within } from '../../../helpers/wait.ts';
import { pinnedVersion, pythonPackages } from '../python-packages.ts';
import type { ComparedServer, RunningServer } from '../types.ts';

const file = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

/** Loading takes less than a second on an idle machine. */
const START_MS = 60_000;

const MODEL = 'smollm2';
const API_KEY = 'credential-of-llama';

const ANY_MODEL = 'llama.cpp answers for any model';
const NO_ENDPOINT = 'llama.cpp has no such endpoint';
const NO_ERROR = 'llama.cpp does not fail on request';
const LONG_PROMPT = 'the prompt of Codex is longer than the context of the model';

const LACKS: Readonly<Record<string, string>> = {
  'responses.websocket': NO_ENDPOINT,
  'models.retrieve': NO_ENDPOINT,
  images: NO_ENDPOINT,
  speech: NO_ENDPOINT,
  transcription: NO_ENDPOINT,
  moderations: NO_ENDPOINT,
  'error.unknown_model': ANY_MODEL,
  'error.bad_request.embeddings': NO_ERROR,
  'error.rate_limit': NO_ERROR,
  'error.server': NO_ERROR,
  'responses.stream.codex': LONG_PROMPT,
  'responses.tools.shell': LONG_PROMPT,
  'responses.tools.exec_command': LONG_PROMPT,
  'chat.stream.codex': LONG_PROMPT,
  'chat.tools.stream.shell': LONG_PROMPT,
  'error.bad_request.codex': LONG_PROMPT,
};

export const llama: ComparedServer = {
  name: 'llama.cpp',
  version: `${pinnedVersion('llama', 'xllamacpp')} (xllamacpp)`,
  start: async (): Promise<RunningServer> => {
    const python = await pythonPackages('llama');
    const child = spawn(python, [file('llama.py'), MODEL, file('llama.jinja')], {
      env: { PATH: process.env['PATH'], API_KEY },
      // The server ends with its standard input, so it does not outlive this process.
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    let output = '';
    let notices = '';
    child.stdout.on('data', (bytes: Buffer) => {
      output += bytes.toString();
    });
    child.stderr.on('data', (bytes: Buffer) => {
      notices = (notices + bytes.toString()).slice(-4_000);
    });
    try {
      const address = until(() => /^(http:\S+)\n/.exec(output)?.[1], 'llama.cpp to listen', START_MS);
      const url = await Promise.race([address, endOf(child)]);
      return {
        baseUrl: `${url}/v1`,
        apiKey: API_KEY,
        model: MODEL,
        embeddingModel: MODEL,
        lacks: LACKS,
        close: () => stop(child),
      };
    } catch (cause) {
      await stop(child);
      throw new Error(`llama.cpp did not start: ${notices}`, { cause });
    }
  },
};

/** Rejects when the process ends or cannot be started. */
async function endOf(child: ChildProcess): Promise<never> {
  const [code, signal] = await once(child, 'exit');
  throw new Error(`its process ended with ${code ?? signal}`);
}

async function stop(child: ChildProcess): Promise<void> {
  if (hasEnded(child)) return;
  const exit = once(child, 'exit');
  child.stdin?.end();
  await within(exit, 'the end of llama.cpp', 5_000).catch(async () => {
    child.kill('SIGKILL');
    await exit;
  });
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}
