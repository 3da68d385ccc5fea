// curl, as people use it in scripts: one process for each call, with `--no-buffer`, as streams need it.
import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { tempDir } from '../../../helpers/wait.ts';
import { CALLS, type CallResult, type ComparedClient, type Target } from '../types.ts';
import { plainRequest, readAnswers } from './plain.ts';
import { programVersion } from './toolchain.ts';

const CALL_MS = 60_000;

let version = '';

export const curl: ComparedClient = {
  name: 'curl',
  get version() {
    return version;
  },
  calls: CALLS,
  prepare: async () => {
    version = await programVersion('curl', ['--version'], /^curl (\S+)/);
  },
  run: async (target, calls) => {
    const results: CallResult[] = [];
    for (const call of calls) results.push(await send(target, call));
    return readAnswers(results);
  },
};

async function send(target: Target, call: string): Promise<CallResult> {
  await using directory = await tempDir();
  const { method, path, contentType, body } = plainRequest(call, target);
  await writeFile(directory.file('body'), body);
  const lines = [
    `url = "${target.baseUrl}${path}"`,
    `request = "${method}"`,
    `header = "Authorization: Bearer ${target.apiKey}"`,
    `dump-header = "${directory.file('head')}"`,
    ...(method === 'GET'
      ? []
      : [`header = "Content-Type: ${contentType}"`, `data-binary = "@${directory.file('body')}"`]),
  ];
  try {
    const body = await runCurl(lines.join('\n'));
    return { call, result: { ...readHead(await readFile(directory.file('head'), 'latin1')), body } };
  } catch (error) {
    return { call, error: { class: 'curl', message: String(error) } };
  }
}

/** What curl prints, in Base64. The key is in its configuration: other users of the machine see the words of a command. */
function runCurl(configuration: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { encoding: 'buffer', timeout: CALL_MS, maxBuffer: 64 << 20 } as const;
    const words = ['--no-buffer', '--silent', '--show-error', '--config', '-'];
    const child = execFile('curl', words, options, (error, stdout, stderr) => {
      if (error === null) resolve(stdout.toString('base64'));
      else reject(new Error(stderr.toString(), { cause: error }));
    });
    child.stdin?.end(configuration);
  });
}

/** The last head: others are interim responses. */
function readHead(text: string): { status: number; headers: Record<string, string> } {
  const [statusLine = '', ...lines] = text.trimEnd().split('\r\n\r\n').at(-1)?.split('\r\n') ?? [];
  const fields = lines.map((line): [string, string] => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
  });
  return { status: Number(statusLine.split(' ')[1]), headers: Object.fromEntries(fields) };
}
