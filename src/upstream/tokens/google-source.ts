// Tokens of Google Cloud by Google's own library, which is loaded when the first one is fetched.
import type { AuthClient } from 'google-auth-library';
import type { UpstreamAuth } from '../../config/schema/config-schema.ts';
import type { Outbound } from '../outbound/outbound.ts';
import { type AccessToken, accessToken, TokenError, type TokenSource } from './token-source.ts';

type Google = Extract<UpstreamAuth, { kind: 'google' }>;

export class GoogleSource implements TokenSource {
  readonly #config: Google;

  readonly #outbound: Outbound;

  constructor(config: Google, outbound: Outbound) {
    this.#config = config;
    this.#outbound = outbound;
  }

  /** A new client each time, because a client would answer from its own cache. */
  async fetch(): Promise<AccessToken> {
    let client: AuthClient;
    let token: string | null | undefined;
    try {
      client = await createClient(this.#config, this.#outbound);
      ({ token } = await client.getAccessToken());
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      throw new TokenError(`Google gave no token: ${(message.split('\n')[0] ?? '').slice(0, 300)}`);
    }
    const { expiry_date } = client.credentials;
    return accessToken(token ?? undefined, expiry_date ? expiry_date - Date.now() : undefined);
  }
}

async function createClient({ credentials, scope }: Google, outbound: Outbound): Promise<AuthClient> {
  const { GoogleAuth } = await import('google-auth-library');
  const agent = ({ protocol }: URL) => outbound.agent(protocol === 'https:');
  const options = { scopes: scope.split(' '), clientOptions: { transporterOptions: { agent } } };
  if (credentials === undefined) return new GoogleAuth(options).getClient();
  return new GoogleAuth({ ...options, credentials: JSON.parse(credentials) }).getClient();
}
