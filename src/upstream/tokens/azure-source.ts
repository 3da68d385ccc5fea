// Tokens of Microsoft Entra ID by Azure's own library, which is loaded when the first one is fetched.
import type { TokenCredential } from '@azure/identity';
import type { UpstreamAuth } from '../../config/schema/config-schema.ts';
import { type AccessToken, accessToken, TokenError, type TokenSource } from './token-source.ts';

type Azure = Extract<UpstreamAuth, { kind: 'azure' }>;

export class AzureSource implements TokenSource {
  readonly #config: Azure;
  #credential: TokenCredential | undefined;

  constructor(config: Azure) {
    this.#config = config;
  }

  async fetch(signal: AbortSignal): Promise<AccessToken> {
    let found: Awaited<ReturnType<TokenCredential['getToken']>>;
    try {
      this.#credential ??= await createCredential(this.#config);
      found = await this.#credential.getToken(this.#config.scope, { abortSignal: signal });
    } catch (error) {
      throw new TokenError(`Entra ID gave no token: ${summaryOf(error)}`);
    }
    if (found === null) throw new TokenError('Entra ID gave no token');
    return accessToken(found.token, found.expiresOnTimestamp - Date.now());
  }
}

async function createCredential(config: Azure): Promise<TokenCredential> {
  const azure = await import('@azure/identity');
  const { tenant_id, client_id, client_secret, federated_token_file, authority_host } = config;
  const options = authority_host === undefined ? {} : { authorityHost: authority_host };
  if (client_secret !== undefined && tenant_id !== undefined && client_id !== undefined) {
    return new azure.ClientSecretCredential(tenant_id, client_id, client_secret, options);
  }
  if (config.identity === 'workload') {
    return new azure.WorkloadIdentityCredential({
      ...options,
      ...(tenant_id !== undefined && { tenantId: tenant_id }),
      ...(client_id !== undefined && { clientId: client_id }),
      ...(federated_token_file !== undefined && { tokenFilePath: federated_token_file }),
    });
  }
  return client_id === undefined
    ? new azure.ManagedIdentityCredential()
    : new azure.ManagedIdentityCredential({ clientId: client_id });
}

/** The first line of the library's error, which names Entra's code (`AADSTS7000215`) and quotes no credential. */
function summaryOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return (message.split('\n')[0] ?? '').slice(0, 300);
}
