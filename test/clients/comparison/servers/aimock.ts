// `@copilotkit/aimock`, a mock of the API with a protocol implementation of its own, in a process of its own.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { tempDir, until, within } from '../../../helpers/wait.ts';
import { type ComparedServer, promptOf, type RunningServer, UNKNOWN_MODEL } from '../types.ts';

const PROGRAM = fileURLToPath(
  import.meta.resolve('@copilotkit/aimock').replace(/index\.js$/, 'aimock-cli.js'),
);
const { version } = JSON.parse(
  readFileSync(
    fileURLToPath(import.meta.resolve('@copilotkit/aimock').replace(/dist\/.*/, 'package.json')),
    'utf8',
  ),
);

const MODEL = 'gpt-4o-mini';
const EMBEDDING_MODEL = 'text-embedding-3-small';

const TOOL = { name: 'get_weather', arguments: { city: 'Lisbon' } };
const TEXT = 'The weather in Lisbon is fine: 21 °C, “light” winds — and no rain. 🌤️';
const CITY = { city: 'Lisbon', country: 'Portugal' };
const IMAGE =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

const error = (status: number, message: string, rest: object) => ({ status, error: { message, ...rest } });

const BAD_REQUEST = error(400, "Invalid value for 'temperature': too high.", {
  type: 'invalid_request_error',
  param: 'temperature',
  code: 'invalid_value',
});

const COMMAND = 'echo "the answer is $((40 + 2))"';

/** The tools of Codex run a command. The older version has `shell`. */
const SHELL = { name: 'shell', arguments: { command: ['bash', '-c', COMMAND] } };
const EXEC_COMMAND = { name: 'exec_command', arguments: { cmd: COMMAND } };

/** The answer to each call; those that are not here get `TEXT`. The text of a prompt is matched as a part of it. */
const ANSWERS: Readonly<Record<string, object>> = {
  'chat.tools.stream.shell': { toolCalls: [SHELL] },
  'responses.tools.shell': { toolCalls: [SHELL] },
  'responses.tools.exec_command': { toolCalls: [EXEC_COMMAND] },
  'chat.tools': { toolCalls: [TOOL] },
  'chat.json_schema': { content: CITY },
  'chat.reasoning': { content: TEXT, reasoning: 'The user asks about Lisbon. I know the weather there.' },
  'responses.tools': { toolCalls: [TOOL] },
  images: { image: { b64Json: IMAGE, revisedPrompt: 'A call of images.' } },
  speech: { audio: Buffer.from('sound of a speech').toString('base64'), format: 'mp3' },
  'error.bad_request': BAD_REQUEST,
  'error.unknown_model': error(
    404,
    `The model \`${UNKNOWN_MODEL}\` does not exist or you do not have access to it.`,
    { type: 'invalid_request_error', code: 'model_not_found' },
  ),
  'error.server': error(500, 'The server had an error while processing your request.', {
    type: 'server_error',
    code: 'server_error',
  }),
  'error.rate_limit': error(429, 'Rate limit reached for requests.', {
    type: 'requests',
    code: 'rate_limit_exceeded',
  }),
};

const FIXTURES = [
  { match: { endpoint: 'transcription' }, response: { transcription: { text: TEXT } } },
  { match: { inputText: promptOf('error.bad_request') }, response: BAD_REQUEST },
  { match: { endpoint: 'embedding' }, response: { embedding: [0.25, -0.5, 1, 0.0078125] } },
  // A conversation that ends with the result of the tool is answered with text.
  { match: { hasToolResult: true }, response: { content: TEXT } },
  ...Object.entries(ANSWERS).map(([call, response]) => ({
    match: { userMessage: promptOf(call) },
    response,
  })),
  { match: { model: EMBEDDING_MODEL }, response: { content: TEXT } },
  { match: { model: MODEL }, response: { content: TEXT } },
];

const NO_FIXTURE = 'aimock has no field for it';

export const aimock: ComparedServer = {
  name: 'aimock',
  version,
  start: async (): Promise<RunningServer> => {
    const directory = await tempDir();
    const fixtures = directory.file('fixtures.json');
    const config = directory.file('aimock.json');
    await writeFile(fixtures, JSON.stringify({ fixtures: FIXTURES }));
    await writeFile(
      config,
      JSON.stringify({
        host: '127.0.0.1',
        port: 0,
        services: { moderate: true },
        llm: { fixtures, logLevel: 'warn' },
      }),
    );
    const child = spawn(process.execPath, [PROGRAM, '--config', config], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (bytes: Buffer) => {
        output = (output + bytes.toString()).slice(-10_000);
      });
    const close = async (): Promise<void> => {
      await stop(child);
      await directory.remove();
    };
    try {
      const url = await until(() => /listening on (http:\S+)/.exec(output)?.[1], 'aimock to listen');
      return {
        baseUrl: `${url}/v1`,
        apiKey: 'credential-of-aimock',
        model: MODEL,
        embeddingModel: EMBEDDING_MODEL,
        takesWebSockets: true,
        isParallel: true,
        lacks: {
          'chat.n2': 'aimock answers with one choice',
          'chat.logprobs': NO_FIXTURE,
          'images.stream': 'aimock does not stream images',
          completions: 'aimock has no such endpoint',
          'models.retrieve': 'aimock has no such endpoint',
          'error.unknown_model.retrieve': 'aimock has no such endpoint',
          'error.final': NO_FIXTURE,
          'error.cut_stream': NO_FIXTURE,
        },
        close,
      };
    } catch (cause) {
      await close();
      throw new Error(`aimock did not start: ${output}`, { cause });
    }
  },
};

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill('SIGTERM');
  await within(exit, 'the end of aimock', 2_000).catch(async () => {
    child.kill('SIGKILL');
    await exit;
  });
}
