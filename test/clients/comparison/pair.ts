// One client and one server: the calls directly, the same calls through a gateway in front of the server, and what differs.
import { startGateway } from '../../helpers/gateway.ts';
import { type Difference, differences, ID_IN_TEXT } from './compare.ts';
import { type Explanation, explanationOf } from './explained.ts';
import type { Where } from './places.ts';
import { Tap } from './tap.ts';
import {
  type CallError,
  type CallResult,
  type ComparedClient,
  type RunningServer,
  type Target,
  Unavailable,
} from './types.ts';

/** What became of one call. */
export interface ComparedCall {
  readonly call: string;
  readonly direct: CallResult;
  readonly unexplained: readonly Difference[];
  readonly explained: readonly { readonly difference: Difference; readonly by: Explanation }[];
}

/** What became of all calls of a client with a server. */
export interface ComparedPair {
  readonly calls: readonly ComparedCall[];
  /** Calls that were not made, each with the reason. */
  readonly skipped: readonly { readonly call: string; readonly why: string }[];
}

/**
 * Makes the calls of a client that the server can answer, with and without the gateway.
 * @param serverTitle name and version, for explanations of one server
 * @param only the names of the calls to make, all if undefined
 */
export async function comparePair(
  client: ComparedClient,
  server: RunningServer,
  serverTitle: string,
  only?: readonly string[],
): Promise<ComparedPair> {
  if (client.isAzure === true && server.hasAzurePaths !== true)
    throw new Unavailable('it has no paths of Azure');
  const where = { client: `${client.name} ${client.version}`, server: serverTitle };
  const wanted = client.calls.filter((call) => only?.includes(call) ?? true);
  const skipped = wanted.flatMap((call) => {
    const why = reasonOf(server, call);
    return why === undefined ? [] : [{ call, why }];
  });
  const calls = wanted.filter((call) => reasonOf(server, call) === undefined);
  const [direct, through] =
    server.isParallel === true
      ? await Promise.all([runDirectly(client, server, calls), runThroughGateway(client, server, calls)])
      : [await runDirectly(client, server, calls), await runThroughGateway(client, server, calls)];
  const compared = calls.map((call, index) =>
    judge(call, resultAt(direct, index), resultAt(through, index), where),
  );
  // A call that does not show what it is for says nothing, so long as it goes the same way through the gateway.
  const vain = compared.flatMap((each) => {
    const isOnlyDirect = each.explained.some(({ difference }) => difference.path === 'error');
    const why = each.unexplained.length > 0 || isOnlyDirect ? undefined : vainness(each.direct);
    return why === undefined ? [] : [{ call: each.call, why }];
  });
  return {
    skipped: [...skipped, ...vain],
    calls: compared.filter(({ call }) => !vain.some((each) => each.call === call)),
  };
}

/** Why a call does not show what it is for: it fails without the gateway, or does not fail although it is to. */
function vainness({ call, result, error }: CallResult): string | undefined {
  const failure = error ?? thrownBy(result);
  if (call.startsWith('error.'))
    return failure === undefined ? 'does not fail without the gateway' : undefined;
  if (failure === undefined) return undefined;
  const message = String(failure.message).replace(ID_IN_TEXT, '<id>').split('\n')[0]?.slice(0, 120);
  return `fails without the gateway too: ${failure.class}: ${message}`;
}

/** What the programs report of a stream that broke. */
function thrownBy(result: unknown): CallError | undefined {
  const thrown = typeof result === 'object' && result !== null ? Reflect.get(result, 'thrown') : undefined;
  return thrown ?? undefined;
}

/** A result, and the requests that the server got for it. */
interface Observed {
  readonly result: CallResult;
  readonly requests: readonly string[];
}

function judge(call: string, direct: Observed, through: Observed, where: Where): ComparedCall {
  const found = differences(direct.result, through.result);
  // A call that succeeds without a request at the server was not counted: its prompt is not the one that it should be.
  const isUncounted = direct.requests.length === 0 && vainness(direct.result) === undefined;
  if (isUncounted || direct.requests.join() !== through.requests.join())
    found.push({ call, path: 'requests', direct: direct.requests, through: through.requests });
  const explained: { difference: Difference; by: Explanation }[] = [];
  const unexplained: Difference[] = [];
  for (const difference of found) {
    const by = explanationOf(difference, where);
    if (by === undefined) unexplained.push(difference);
    else explained.push({ difference, by });
  }
  return { call, direct: direct.result, explained, unexplained };
}

async function runDirectly(
  client: ComparedClient,
  server: RunningServer,
  calls: readonly string[],
): Promise<Observed[]> {
  const tap = await Tap.open(server.baseUrl);
  try {
    return await observe(client, { ...targetOf(server), baseUrl: tap.baseUrl }, calls, tap);
  } finally {
    await tap.close();
  }
}

async function runThroughGateway(
  client: ComparedClient,
  server: RunningServer,
  calls: readonly string[],
): Promise<Observed[]> {
  const tap = await Tap.open(server.baseUrl);
  try {
    await using gateway = await startGateway({
      config: {
        upstreams: {
          server: {
            base_url: tap.baseUrl,
            api_key: server.apiKey,
            websocket: server.takesWebSockets === true,
          },
        },
        models: Object.fromEntries(
          [server.model, server.embeddingModel].map((model) => [
            model,
            { targets: [{ upstream: 'server', model }] },
          ]),
        ),
        // The retries of the gateway are its own feature; here those of the SDKs are counted.
        retry: { attempts: 1 },
      },
    });
    const target = { ...targetOf(server), baseUrl: `${gateway.url}/v1`, apiKey: await gateway.key() };
    return await observe(client, target, calls, tap);
  } finally {
    await tap.close();
  }
}

async function observe(
  client: ComparedClient,
  target: Target,
  calls: readonly string[],
  tap: Tap,
): Promise<Observed[]> {
  const results = await client.run(target, calls);
  const requests = tap.requests();
  return results.map((result) => ({ result, requests: requests.get(result.call) ?? [] }));
}

function targetOf({ baseUrl, apiKey, model, embeddingModel }: RunningServer): Target {
  return { baseUrl, apiKey, model, embeddingModel };
}

/** Why the server cannot answer a call: the reason of the call itself, or of one that it is a variant of. */
function reasonOf(server: RunningServer, call: string): string | undefined {
  const lacking = Object.keys(server.lacks).find((lack) => call === lack || call.startsWith(`${lack}.`));
  return lacking === undefined ? undefined : server.lacks[lacking];
}

function resultAt(results: readonly Observed[], index: number): Observed {
  const result = results[index];
  if (result === undefined) throw new Error('a client left a call out');
  return result;
}
