// What the holder of a key does over HTTP: take a key, use it, rotate it. Each request has a connection of its own.
import { RawClient, type RawResponse, type RequestInput } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';

/** A field of a JSON object, or undefined. */
export function field(value: unknown, ...names: readonly string[]): unknown {
  let inner = value;
  for (const name of names) {
    if (typeof inner !== 'object' || inner === null) return undefined;
    inner = Object.getOwnPropertyDescriptor(inner, name)?.value;
  }
  return inner;
}

/** A field that has to be a text. */
export function textField(value: unknown, ...names: readonly string[]): string {
  const inner = field(value, ...names);
  if (typeof inner !== 'string') throw new Error(`no text at ${names.join('.')} of ${JSON.stringify(value)}`);
  return inner;
}

/** One request, and its answer to the end. */
export async function ask(url: string, input: RequestInput): Promise<RawResponse> {
  using client = await RawClient.connect(url);
  return await client.ask({ host: new URL(url).host, ...input });
}

export const bearer = (key: string): Record<string, string> => ({ authorization: `Bearer ${key}` });

/** `POST /checkout` as a program does it. */
export function order(url: string, tier: string): Promise<RawResponse> {
  return ask(url, { target: '/checkout', body: { tier } });
}

/** Asks again while too many keys are hashed, as on a busy machine. A call that has no answer is not repeated. */
async function withPlace(ask: () => Promise<RawResponse>): Promise<RawResponse> {
  const answer = await until(async () => {
    const [result] = await Promise.allSettled([ask()]);
    const isBusy = result.status === 'fulfilled' && codeOf(result.value) === 'key_hashing_overloaded';
    return isBusy ? undefined : result;
  }, 'a place to hash a key');
  if (answer.status === 'rejected') throw answer.reason;
  return answer.value;
}

/** A Free key from the JSON checkout. */
export async function freeKey(url: string): Promise<string> {
  const response = await withPlace(() => order(url, 'Free'));
  if (response.status !== 201) throw new Error(`no key: ${response.status} ${response.text()}`);
  return textField(response.json(), 'key');
}

/** `POST /checkout` as a browser does it that shows the gateway's own page. */
export function orderByForm(
  url: string,
  fields: Readonly<Record<string, string>>,
  headers: Readonly<Record<string, string>> = {},
): Promise<RawResponse> {
  return ask(url, {
    target: '/checkout',
    headers: {
      'content-type': 'application/x-www-form-urlencoded',
      origin: new URL(url).origin,
      'sec-fetch-site': 'same-origin',
      'sec-fetch-mode': 'navigate',
      'sec-fetch-dest': 'document',
      accept: 'text/html,application/xhtml+xml',
      ...headers,
    },
    body: new URLSearchParams(fields).toString(),
  });
}

/** The key on the page that a form was answered with. */
export function keyOnPage(page: string): string {
  const key = />([0-9a-f]{32})</.exec(page)?.[1];
  if (key === undefined) throw new Error('there is no key on the page');
  return key;
}

export function rotate(url: string, key: string): Promise<RawResponse> {
  return withPlace(() => ask(url, { target: '/admin/keys/rotate', headers: bearer(key) }));
}

/** `GET /v1/models` with this key: the cheapest request that needs one. */
export function listModels(url: string, key: string): Promise<RawResponse> {
  return ask(url, { method: 'GET', target: '/v1/models', headers: bearer(key) });
}

/**
 * Whether this key is good: the status with which it is answered. 503 says nothing about a key (on a busy machine a first
 * check can find no place), so it is asked again.
 */
export function statusOf(url: string, key: string): Promise<number> {
  return until(async () => {
    const { status } = await listModels(url, key);
    return status === 503 ? undefined : status;
  }, 'an answer about the key');
}

/** `error.code` of an answer. */
export function codeOf(response: RawResponse): unknown {
  return field(response.json(), 'error', 'code');
}

/** The sums of a holder who has made one request, as soon as it is counted. */
export function totalsOfOne(url: string, key: string): Promise<unknown> {
  return until(async () => {
    const response = await ask(url, { method: 'GET', target: '/admin/usage', headers: bearer(key) });
    const sums = field(response.json(), 'totals');
    return field(sums, 'requests') === 1 ? sums : undefined;
  }, 'the request to be counted');
}
