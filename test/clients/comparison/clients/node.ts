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
  readonly calls: readonly string[];
}

function nodeClient({ name, program, packages, calls }: NodeClient): ComparedClient {
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
          env: { PACKAGES: folder, ALIASES: JSON.stringify(packages) },
        },
      ),
  };
}

/** `4.104.0` of `npm:openai@4.104.0`. */
function versionOf(name: string): string {
  const spec = pinned.dependencies[name];
  if (spec === undefined) throw new Error(`${name} is not in npm/package.json`);
  return spec.slice(spec.lastIndexOf('@') + 1);
}

const VARIANTS = [
  'chat.with_response',
  'chat.reasoning.stream',
  'responses.tools.stream',
  'error.unknown_model.stream',
  'error.unknown_model.retrieve',
  'error.bad_request.stream',
  'error.bad_request.responses',
  'error.bad_request.embeddings',
  'error.server.stream',
];

/** The calls of the official SDK. A target that answered 429 is left alone for a while, so that call is the last one. */
export const OPENAI_CALLS: readonly string[] = [
  ...CALLS.filter((call) => call !== 'error.rate_limit'),
  ...VARIANTS,
  'error.rate_limit',
];

const openai = (alias: string): ComparedClient =>
  nodeClient({
    name: 'openai (Node)',
    program: 'openai.ts',
    packages: { openai: alias },
    calls: OPENAI_CALLS,
  });

export const nodeClients: readonly ComparedClient[] = [
  openai('openai-4'),
  openai('openai-5'),
  openai('openai-6'),
  openai('openai'),
];
