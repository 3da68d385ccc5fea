// The clients for Python: which program, with which installed packages, each of them is.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cacheFolder } from '../installs.ts';
import { runProgram } from '../program.ts';
import { pinnedVersion, pythonPackages } from '../python-packages.ts';
import { CALLS, type ComparedClient } from '../types.ts';

interface PythonClient {
  readonly name: string;
  /** The package that gives the client its version. */
  readonly packageName: string;
  /** Of `python/requirements-NAME.txt`. */
  readonly requirements: string;
  /** A program of the folder `python`, and its arguments. */
  readonly program: readonly [file: string, ...words: string[]];
  readonly calls: readonly string[];
}

/** Libraries must not call anything but the target: no telemetry, no lists of models or prices from elsewhere. */
const QUIET = {
  LITELLM_LOCAL_MODEL_COST_MAP: 'True',
  LANGSMITH_TRACING: 'false',
  PYTHONPYCACHEPREFIX: join(cacheFolder(), 'python-cache'),
};

function pythonClient({ name, packageName, requirements, program, calls }: PythonClient): ComparedClient {
  const [file, ...words] = program;
  let python = '';
  return {
    name,
    version: pinnedVersion(requirements, packageName),
    calls,
    prepare: async () => {
      python = await pythonPackages(requirements);
    },
    run: (target, names) =>
      runProgram(
        python,
        [fileURLToPath(new URL(`python/${file}`, import.meta.url)), ...words],
        target,
        names,
        { env: QUIET },
      ),
  };
}

/**
 * The calls of the official SDK. A target that answered 429 is left alone for a while, so `error.rate_limit` is the last one
 * of every client.
 */
const OPENAI_CALLS = [
  ...CALLS.filter((call) => call !== 'error.rate_limit'),
  'chat.with_raw_response',
  'chat.stream.with_raw_response',
  'chat.stream.with_streaming_response',
  'chat.stream.helper',
  'chat.tools.stream.helper',
  'chat.json_schema.parse',
  'chat.logprobs.stream',
  'chat.reasoning.stream',
  'responses.stream.helper',
  'responses.tools.stream',
  'completions.stream',
  'error.unknown_model.stream',
  'error.bad_request.stream',
  'error.bad_request.responses',
  'error.bad_request.embeddings',
  'error.server.stream',
  'error.rate_limit',
];

/** What the frameworks offer of the calls, each with variants. */
const LANGCHAIN_CALLS = [
  'chat',
  'chat.stream',
  'chat.stream.usage',
  'chat.tools',
  'chat.tools.stream',
  'chat.json_schema',
  'chat.json_schema.stream',
  'chat.n2',
  'chat.logprobs',
  'chat.reasoning',
  'responses',
  'responses.stream',
  'responses.tools',
  'responses.tools.stream',
  'embeddings',
  'completions',
  'completions.stream',
  'error.unknown_model',
  'error.unknown_model.stream',
  'error.bad_request',
  'error.bad_request.stream',
  'error.bad_request.responses',
  'error.bad_request.embeddings',
  'error.server',
  'error.server.stream',
  'error.rate_limit',
];
const LLAMA_INDEX_CALLS = [
  'chat',
  'chat.stream',
  'chat.stream.usage',
  'chat.tools',
  'chat.tools.stream',
  'chat.json_schema',
  'chat.logprobs',
  'chat.reasoning',
  'responses',
  'responses.stream',
  'responses.tools',
  'embeddings',
  'completions',
  'completions.stream',
  'error.unknown_model',
  'error.bad_request',
  'error.bad_request.stream',
  'error.server',
  'error.rate_limit',
];
const LITELLM_CALLS = [
  'chat',
  'chat.stream',
  'chat.stream.usage',
  'chat.tools',
  'chat.tools.stream',
  'chat.json_schema',
  'chat.n2',
  'chat.logprobs',
  'chat.reasoning',
  'chat.reasoning.stream',
  'responses',
  'responses.stream',
  'responses.tools',
  'responses.tools.stream',
  'embeddings',
  'embeddings.base64',
  'images',
  'speech',
  'transcription',
  'moderations',
  'completions',
  'error.unknown_model',
  'error.bad_request',
  'error.bad_request.stream',
  'error.bad_request.responses',
  'error.bad_request.embeddings',
  'error.server',
  'error.server.stream',
  'error.rate_limit',
];
const PYDANTIC_AI_CALLS = [
  'chat',
  'chat.stream',
  'chat.tools',
  'chat.tools.stream',
  'chat.json_schema',
  'chat.reasoning',
  'responses',
  'responses.stream',
  'responses.tools',
  'embeddings',
  'error.unknown_model',
  'error.bad_request',
  'error.bad_request.stream',
  'error.bad_request.responses',
  'error.server',
  'error.rate_limit',
];

const KINDS = ['sync', 'async'] as const;

export const pythonClients: readonly ComparedClient[] = [
  ...['openai-1', 'openai-current'].flatMap((requirements) =>
    KINDS.map((kind) =>
      pythonClient({
        name: `openai (Python, ${kind})`,
        packageName: 'openai',
        requirements,
        program: ['openai_sdk.py', kind],
        // The older version has no WebSockets for responses.
        calls: requirements === 'openai-1' ? OPENAI_CALLS : ['responses.websocket', ...OPENAI_CALLS],
      }),
    ),
  ),
  ...(['azure', 'azure-async'] as const).map((kind) => ({
    ...pythonClient({
      name: `openai (Python, ${kind})`,
      packageName: 'openai',
      requirements: 'openai-current',
      program: ['openai_sdk.py', kind],
      calls: OPENAI_CALLS,
    }),
    isAzure: true,
  })),
  ...KINDS.map((kind) =>
    pythonClient({
      name: `langchain-openai (${kind})`,
      packageName: 'langchain-openai',
      requirements: 'langchain',
      program: ['langchain_sdk.py', kind],
      calls: LANGCHAIN_CALLS,
    }),
  ),
  ...KINDS.map((kind) =>
    pythonClient({
      name: `llama-index-llms-openai-like (${kind})`,
      packageName: 'llama-index-llms-openai-like',
      requirements: 'llama-index',
      program: ['llama_index_sdk.py', kind],
      calls: LLAMA_INDEX_CALLS,
    }),
  ),
  ...KINDS.map((kind) =>
    pythonClient({
      name: `litellm (${kind})`,
      packageName: 'litellm',
      requirements: 'litellm',
      program: ['litellm_sdk.py', kind],
      calls: LITELLM_CALLS,
    }),
  ),
  pythonClient({
    name: 'pydantic-ai',
    packageName: 'pydantic-ai-slim',
    requirements: 'pydantic-ai',
    program: ['pydantic_ai_sdk.py'],
    calls: PYDANTIC_AI_CALLS,
  }),
];
