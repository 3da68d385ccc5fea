// The clients for Node: which program and which installed packages each of them is.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { npmPackages } from '../installs.ts';
import { runProgram } from '../program.ts';
import { CALLS, type ComparedClient } from '../types.ts';

const file = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const pinned: { readonly dependencies: Readonly<Record<string, string>> } = JSON.parse(
  readFileSync(file('../npm/package.json'), 'utf8'),
);

interface NodeClient {
  readonly name: string;
  readonly program: string;
  /** Package that the program imports → the name that it is installed under. The first tells the version. */
  readonly packages: Readonly<Record<string, string>>;
  readonly env?: Readonly<Record<string, string>>;
  readonly calls: readonly string[];
}

/** The order of the calls: a target that answered 429 is left alone for a while, so that call is the last one. */
const ORDER: readonly string[] = [
  ...CALLS.filter((call) => call !== 'error.rate_limit'),
  'chat.with_response',
  'chat.reasoning.stream',
  'responses.tools.stream',
  'error.unknown_model.stream',
  'error.unknown_model.retrieve',
  'error.bad_request.stream',
  'error.bad_request.responses',
  'error.bad_request.embeddings',
  'error.final',
  'error.cut_stream',
  'error.server.stream',
  'error.rate_limit',
];

const without = (...lacks: readonly RegExp[]): readonly string[] =>
  ORDER.filter((call) => !lacks.some((lack) => lack.test(call)));

function nodeClient({ name, program, packages, env, calls }: NodeClient): ComparedClient {
  let folder = '';
  const [first = ''] = Object.values(packages);
  return {
    name,
    version: versionOf(first),
    calls,
    prepare: async () => {
      folder = await npmPackages();
    },
    run: (target, names) =>
      runProgram(
        process.execPath,
        ['--import', file('node/resolve.ts'), file(`node/${program}`)],
        target,
        names,
        {
          env: { ...env, PACKAGES: folder, ALIASES: JSON.stringify(packages) },
        },
      ),
  };
}

/** The official SDK that the project itself is tested with: nothing is installed for it. */
export const openaiOfTheCheckout: ComparedClient = {
  name: 'openai (Node)',
  version: 'of the checkout',
  calls: ORDER,
  prepare: () => Promise.resolve(),
  run: (target, names) => runProgram(process.execPath, [file('node/openai.ts')], target, names),
};

/** `4.104.0` of `npm:openai@4.104.0`. */
function versionOf(name: string): string {
  const spec = pinned.dependencies[name];
  if (spec === undefined) throw new Error(`${name} is not in npm/package.json`);
  return spec.slice(spec.lastIndexOf('@') + 1);
}

/** Calls that only the official SDK has. */
const OFFICIAL =
  /^(?:models|moderations|chat\.with_response|images\.stream|embeddings\.base64|.*\.retrieve$|.*\.embeddings$)/;

const openai = (alias: string): ComparedClient =>
  nodeClient({ name: 'openai (Node)', program: 'openai.ts', packages: { openai: alias }, calls: ORDER });

const aiSdk = (
  provider: 'openai' | 'openai-compatible',
  names: { readonly ai: string; readonly openai: string; readonly compatible: string },
): ComparedClient =>
  nodeClient({
    name: `AI SDK with ${provider}`,
    program: 'ai-sdk.ts',
    packages: { ai: names.ai, '@ai-sdk/openai': names.openai, '@ai-sdk/openai-compatible': names.compatible },
    env: { PROVIDER: provider },
    calls:
      provider === 'openai'
        ? without(OFFICIAL, /^chat\.(?:n2|logprobs)/)
        : without(OFFICIAL, /^chat\.(?:n2|logprobs)/, /responses|^speech|^transcription/),
  });

const AI_CURRENT = { ai: 'ai', openai: '@ai-sdk/openai', compatible: '@ai-sdk/openai-compatible' };
const AI_5 = { ai: 'ai-5', openai: '@ai-sdk/openai-2', compatible: '@ai-sdk/openai-compatible-1' };

export const nodeClients: readonly ComparedClient[] = [
  openai('openai-4'),
  openai('openai-5'),
  openai('openai-6'),
  openai('openai'),
  {
    ...nodeClient({
      name: 'openai (Node, AzureOpenAI)',
      program: 'openai.ts',
      packages: { openai: 'openai' },
      env: { KIND: 'azure' },
      calls: ORDER,
    }),
    isAzure: true,
  },
  aiSdk('openai', AI_5),
  aiSdk('openai-compatible', AI_5),
  aiSdk('openai', AI_CURRENT),
  aiSdk('openai-compatible', AI_CURRENT),
  nodeClient({
    name: 'LangChain (Node)',
    program: 'langchain.ts',
    packages: { '@langchain/openai': '@langchain/openai' },
    calls: without(
      OFFICIAL,
      /^(?:images|speech|transcription)/,
      /(?:responses\.tools|unknown_model)\.stream$|\.responses$/,
    ),
  }),
  nodeClient({
    name: 'OpenAI Agents (Node)',
    program: 'agents.ts',
    packages: { '@openai/agents': '@openai/agents' },
    calls: without(
      OFFICIAL,
      /^(?:images|speech|transcription|embeddings|completions)/,
      /^chat\.(?:n2|logprobs|stream\.usage)/,
      /(?:unknown_model|server)\.stream$|\.responses$/,
    ),
  }),
];
