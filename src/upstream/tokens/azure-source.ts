// Tokens of Microsoft Entra ID by Microsoft's own libraries, which are loaded when the first one is fetched. They answer from
// caches of their own, so each fetch has a new credential, and a managed identity, whose cache is the process's, is forced.
import type { ClientSecretCredentialOptions } from '@azure/identity';
import type { UpstreamAuth } from '../../config/schema/config-schema.ts';
import type { Outbound } from '../outbound/outbound.ts';
import { accessToken, firstLineOf, loadPackage, TokenError, type TokenSource } from './token-source.ts';

type PipelinePolicy = NonNullable<ClientSecretCredentialOptions['additionalPolicies']>[number]['policy'];
type Azure = Extract<UpstreamAuth, { kind: 'azure' }>;

interface Found {
  readonly token: string;
  /** Unix time in milliseconds. */
  readonly expiresOnTimestamp: number;
}

export function azureSource(config: Azure, outbound: Outbound): TokenSource {
  return async (signal) => {
    let found: Found | null;
    try {
      found = isManaged(config) ? await fetchManaged(config) : await fetchOwn(config, outbound, signal);
    } catch (error) {
      if (error instanceof TokenError) throw error;
      throw new TokenError(`Entra ID gave no token: ${firstLineOf(error)}`);
    }
    if (found === null) throw new TokenError('Entra ID gave no token');
    return accessToken(found.token, found.expiresOnTimestamp - Date.now());
  };
}

/** Where AKS has given the pod a workload identity by these variables, that is the identity of the machine. */
function isManaged({ identity, client_id, client_secret }: Azure): boolean {
  const { AZURE_CLIENT_ID, AZURE_TENANT_ID, AZURE_FEDERATED_TOKEN_FILE } = process.env;
  const isPod = Boolean((client_id ?? AZURE_CLIENT_ID) && AZURE_TENANT_ID && AZURE_FEDERATED_TOKEN_FILE);
  return client_secret === undefined && identity === 'managed' && !isPod;
}

/** The endpoint is on this machine, so no proxy is asked. */
async function fetchManaged({ client_id, scope }: Azure): Promise<Found> {
  const { ManagedIdentityApplication } = await loadPackage(() => import('@azure/msal-node'));
  const identity = new ManagedIdentityApplication(
    client_id === undefined ? {} : { managedIdentityIdParams: { userAssignedClientId: client_id } },
  );
  const { accessToken: token, expiresOn } = await identity.acquireToken({
    resource: scope,
    forceRefresh: true,
  });
  return { token, expiresOnTimestamp: expiresOn?.getTime() ?? Number.NaN };
}

/** With the secret of an application, or the token of a workload. */
async function fetchOwn(config: Azure, outbound: Outbound, abortSignal: AbortSignal): Promise<Found | null> {
  const azure = await loadPackage(() => import('@azure/identity'));
  const { tenant_id, client_id, client_secret, federated_token_file, authority_host } = config;
  const policy: PipelinePolicy = {
    name: 'outbound',
    sendRequest(request, next) {
      // Without an agent, the library would read HTTPS_PROXY itself.
      request.agent = outbound.agent(new URL(request.url).protocol === 'https:');
      return next(request);
    },
  };
  const options = {
    additionalPolicies: [{ policy, position: 'perRetry' as const }],
    // Asking the public cloud whether it knows a host that the operator names would fail in a private cloud.
    ...(authority_host !== undefined && { authorityHost: authority_host, disableInstanceDiscovery: true }),
  };
  const credential =
    client_secret !== undefined && tenant_id !== undefined && client_id !== undefined
      ? new azure.ClientSecretCredential(tenant_id, client_id, client_secret, options)
      : new azure.WorkloadIdentityCredential({
          ...options,
          ...(tenant_id !== undefined && { tenantId: tenant_id }),
          ...(client_id !== undefined && { clientId: client_id }),
          ...(federated_token_file !== undefined && { tokenFilePath: federated_token_file }),
        });
  return await credential.getToken(config.scope, { abortSignal });
}
