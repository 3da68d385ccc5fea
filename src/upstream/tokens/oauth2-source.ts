// Tokens of OAuth 2.0 client credentials (RFC 6749, 4.4), with a secret, a signed assertion (RFC 7523) or a federated token.
import { createPrivateKey, randomUUID, sign } from 'node:crypto';
import type { Dispatcher, Response } from 'undici';
import { z } from 'zod';
import type { UpstreamAuth } from '../../config/schema/config-schema.ts';
import { parse } from '../../wire/error-answer.ts';
import { loadHttpClient, type Outbound } from '../outbound/outbound.ts';
import {
  type AccessToken,
  accessToken,
  lifeFromSeconds,
  loadPackage,
  TokenError,
  type TokenSource,
} from './token-source.ts';

type OAuth2 = Extract<UpstreamAuth, { kind: 'oauth2' }>;

/** In bytes. */
const MAX_ANSWER = 64 * 1024;
/** Life of a signed assertion, in seconds. */
const ASSERTION_S = 300;
const ASSERTION_TYPE = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer';

const Answer = z.looseObject({
  access_token: z.unknown().optional(),
  token_type: z.unknown().optional(),
  expires_in: z.unknown().optional(),
});
/** RFC 6749, 5.2. */
const Rejection = z.looseObject({
  error: z.string().regex(/^[\w.:/-]{1,80}$/),
  error_description: z.string().optional().catch(undefined),
});

export function oauth2Source(config: OAuth2, outbound: Outbound): TokenSource {
  return async (signal) => {
    await loadPackage(loadHttpClient);
    const dispatcher = await outbound.dispatcherFor(new URL(config.token_url));
    try {
      return await fetchToken(config, signal, dispatcher);
    } finally {
      void dispatcher?.destroy();
    }
  };
}

async function fetchToken(
  config: OAuth2,
  signal: AbortSignal,
  dispatcher: Dispatcher | undefined,
): Promise<AccessToken> {
  const { token_url } = config;
  const { fetch } = await loadHttpClient();
  let response: Response;
  try {
    response = await fetch(token_url, {
      method: 'POST',
      headers: { accept: 'application/json', ...basicHeader(config) },
      body: formOf(config),
      redirect: 'error',
      signal,
      ...(dispatcher === undefined ? {} : { dispatcher }),
    });
  } catch (cause) {
    throw new TokenError('the token endpoint cannot be reached', { cause });
  }
  const json = parse(await readText(response));
  if (!response.ok) throw new TokenError(rejectionOf(config, response.status, json));
  const answer = Answer.safeParse(json);
  if (!answer.success) {
    throw new TokenError(`the token endpoint answered ${response.status} without a JSON object`);
  }
  const { access_token, token_type, expires_in } = answer.data;
  if (typeof token_type === 'string' && token_type.toLowerCase() !== 'bearer') {
    throw new TokenError('the token endpoint gave a token of another type than Bearer');
  }
  return accessToken(access_token, lifeFromSeconds(expires_in));
}

function formOf(config: OAuth2): URLSearchParams {
  const { client_id, client_secret, send_secret, assertion, scope, audience, resource } = config;
  const form = new URLSearchParams({ grant_type: 'client_credentials' });
  for (const [name, value] of Object.entries({ scope, audience, resource })) {
    if (value !== undefined) form.set(name, value);
  }
  const proof = signedAssertion(config) ?? assertion;
  if (proof !== undefined) {
    form.set('client_id', client_id);
    form.set('client_assertion_type', ASSERTION_TYPE);
    form.set('client_assertion', proof);
  } else if (send_secret === 'body') {
    form.set('client_id', client_id);
    form.set('client_secret', client_secret ?? '');
  }
  return form;
}

/** RFC 6749, 2.3.1: both parts are form-encoded first. */
function basicHeader({ client_id, client_secret, send_secret }: OAuth2): Record<string, string> {
  if (client_secret === undefined || send_secret === 'body') return {};
  const pair = [client_id, client_secret].map((part) =>
    new URLSearchParams({ '': part }).toString().slice(1),
  );
  return { authorization: `Basic ${Buffer.from(pair.join(':')).toString('base64')}` };
}

/** RFC 7523, 3: a JWT that names the client as issuer and subject. */
function signedAssertion({ private_key, key_id, client_id, token_url }: OAuth2): string | undefined {
  if (private_key === undefined) return undefined;
  const key = createPrivateKey(private_key);
  const isEc = key.asymmetricKeyType === 'ec';
  const now = Math.floor(Date.now() / 1000);
  const head = {
    alg: isEc ? 'ES256' : 'RS256',
    typ: 'JWT',
    ...(key_id === undefined ? {} : { kid: key_id }),
  };
  const claims = {
    iss: client_id,
    sub: client_id,
    aud: token_url,
    jti: randomUUID(),
    iat: now,
    exp: now + ASSERTION_S,
  };
  const text = [head, claims]
    .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
    .join('.');
  const signature = sign('sha256', Buffer.from(text), isEc ? { key, dsaEncoding: 'ieee-p1363' } : key);
  return `${text}.${signature.toString('base64url')}`;
}

/** Quotes the description only if it holds no credential of the configuration. */
function rejectionOf({ client_secret, assertion }: OAuth2, status: number, json: unknown): string {
  const found = Rejection.safeParse(json);
  const told = `the token endpoint answered ${status}`;
  if (!found.success) return told;
  const { error, error_description = '' } = found.data;
  const isQuoting = [client_secret, assertion].some((secret) => secret && error_description.includes(secret));
  const description = isQuoting ? '' : error_description.replace(/[^\x20-\x7e]+/g, ' ').slice(0, 200);
  return `${told}: ${error}${description === '' ? '' : ` (${description})`}`;
}

/** @throws TokenError */
async function readText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of response.body ?? []) {
      size += chunk.length;
      if (size > MAX_ANSWER) throw new TokenError('the answer of the token endpoint is larger than 64 KiB');
      chunks.push(chunk);
    }
  } catch (cause) {
    if (cause instanceof TokenError) throw cause;
    throw new TokenError('the answer of the token endpoint broke off', { cause });
  }
  return Buffer.concat(chunks).toString();
}
