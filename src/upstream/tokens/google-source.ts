// Tokens of Google Cloud by Google's own library, which is loaded when the first one is fetched.
import type { AuthClient } from 'google-auth-library';
import type { UpstreamAuth } from '../../config/schema/config-schema.ts';
import type { Outbound } from '../outbound/outbound.ts';
import { accessToken, firstLineOf, loadPackage, TokenError, type TokenSource } from './token-source.ts';

type Google = Extract<UpstreamAuth, { kind: 'google' }>;

/** A fetch makes a new client each time, because a client would answer from its own cache. */
export function googleSource(config: Google, outbound: Outbound): TokenSource {
  return async () => {
    let client: AuthClient;
    let token: string | null | undefined;
    try {
      client = await createClient(config, outbound);
      ({ token } = await client.getAccessToken());
    } catch (error) {
      if (error instanceof TokenError) throw error;
      throw new TokenError(`Google gave no token: ${firstLineOf(error)}`);
    }
    const { expiry_date } = client.credentials;
    return accessToken(token ?? undefined, expiry_date ? expiry_date - Date.now() : undefined);
  };
}

async function createClient({ credentials, scope }: Google, outbound: Outbound): Promise<AuthClient> {
  const { GoogleAuth } = await loadPackage(() => import('google-auth-library'));
  const agent = ({ protocol }: URL) => outbound.agent(protocol === 'https:');
  const options = { scopes: scope.split(' '), clientOptions: { transporterOptions: { agent } } };
  if (credentials === undefined) return new GoogleAuth(options).getClient();
  return new GoogleAuth({ ...options, credentials: JSON.parse(credentials) }).getClient();
}
