// What the programs of Node clients share: they make the calls of `CALLS` one after the other and print what the library
// hands to its user, or what it throws, as one JSON line for each.
import { plain, plainError } from './plain.ts';

export { collect, itemsOf } from './plain.ts';

/** A call of a program. */
export type Call = () => Promise<unknown>;

/** The target, from the environment. */
export const target = {
  baseURL: variable('BASE_URL'),
  apiKey: variable('API_KEY'),
  model: variable('MODEL'),
  embeddingModel: variable('EMBEDDING_MODEL'),
};

/** Makes the calls that the environment names, in its order. */
export async function makeCalls(calls: Readonly<Record<string, Call>>): Promise<void> {
  for (const call of variable('CALLS').split(',')) {
    const make = calls[call];
    if (make === undefined) throw new Error(`this program has no call ${call}`);
    const outcome = await inTime(make).then(
      (result) => ({ call, result: plain(result) }),
      (error: unknown) => ({ call, error: plainError(error) }),
    );
    process.stdout.write(`${JSON.stringify(outcome)}\n`);
  }
}

/** Long enough for a slow machine with a server that computes its answers. */
const CALL_MS = 300_000;

/** A call that hangs is a result too. */
async function inTime(make: Call): Promise<unknown> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('the call did not end')), CALL_MS);
  });
  return await Promise.race([make(), late]).finally(() => clearTimeout(timer));
}

function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}
