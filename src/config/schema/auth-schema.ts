// The fields of `upstreams.NAME.auth`: access tokens that the gateway fetches and renews. One field of it selects the kind.
import { createPrivateKey } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { readBaseUrl } from './addresses.ts';
import {
  address,
  credential,
  fieldMetadata,
  hiddenText,
  mapping,
  name,
  optional,
  section,
  text,
  withDefault,
} from './field-kinds.ts';
import { accepted, rejected, type ScalarResult } from './units.ts';

/** A PEM of a key that RS256 or ES256 can use. */
function readPrivateKey(pem: string): ScalarResult<string> {
  try {
    const { asymmetricKeyType, asymmetricKeyDetails } = createPrivateKey(pem);
    const isUsable =
      asymmetricKeyType === 'rsa' ||
      (asymmetricKeyType === 'ec' && asymmetricKeyDetails?.namedCurve === 'prime256v1');
    return isUsable ? accepted(pem) : rejected('must be an RSA key, or an EC key of the curve P-256');
  } catch {
    return rejected('must be a private key in PEM form, without a passphrase');
  }
}

/** The JSON of a Google credentials file. */
function readGoogleCredentials(json: string): ScalarResult<string> {
  const kinds = ['service_account', 'external_account', 'authorized_user', 'impersonated_service_account'];
  try {
    const parsed: unknown = JSON.parse(json);
    const kind = typeof parsed === 'object' && parsed !== null ? Reflect.get(parsed, 'type') : undefined;
    if (kinds.includes(kind)) return accepted(json);
  } catch {
    // The same message as for JSON of another kind.
  }
  return rejected(`must be the JSON of a credentials file, with a \`type\` such as \`${kinds[0]}\``);
}

const scope = (value: string) => text().prefault(value).describe('Scopes of the token, separated by spaces.');

const oauth2 = section({
  token_url: address(readBaseUrl, '^https?://').describe('Token endpoint of the issuer.'),
  client_id: text().describe('Client identifier at the issuer.'),
  client_secret: optional(credential()).describe('Secret of the client.'),
  send_secret: withDefault(z.enum(['basic', 'body']), 'basic').describe(
    'Whether the secret is sent as HTTP Basic authentication or in the body.',
  ),
  private_key: optional(hiddenText(readPrivateKey)).describe(
    'Instead of a secret: PEM of the key that signs an assertion (RFC 7523), RSA or EC P-256.',
  ),
  key_id: optional(text()).describe('Identifier of `private_key` at the issuer.'),
  assertion: optional(credential()).describe(
    'Instead of a secret: a federated token, usually a reference to the file of a token that the platform renews.',
  ),
  scope: optional(text()).describe('Scopes of the token, separated by spaces.'),
  audience: optional(text()).describe('Audience parameter, for issuers that want one.'),
  resource: optional(text()).describe('Resource parameter (RFC 8707), for issuers that want one.'),
});

const azure = section({
  identity: withDefault(z.enum(['managed', 'workload']), 'managed').describe(
    'Without `client_secret`: the managed identity of the machine, or the workload identity of a Kubernetes pod.',
  ),
  tenant_id: optional(text()).describe('Directory. Default for a workload identity: `AZURE_TENANT_ID`.'),
  client_id: optional(text()).describe(
    'Application, or user-assigned identity. Default for a workload identity: `AZURE_CLIENT_ID`.',
  ),
  client_secret: optional(credential()).describe('Secret of the application.'),
  federated_token_file: optional(text()).describe(
    'Token of the workload identity. Default: `AZURE_FEDERATED_TOKEN_FILE`.',
  ),
  authority_host: optional(address(readBaseUrl, '^https?://')).describe('Entra ID of another cloud.'),
  scope: scope('https://cognitiveservices.azure.com/.default'),
});

const google = section({
  credentials: optional(hiddenText(readGoogleCredentials)).describe(
    'Content of a credentials file: service account or workload identity federation. Default: the application default credentials, such as the metadata server.',
  ),
  scope: scope('https://www.googleapis.com/auth/cloud-platform'),
});

const isVariable = (key: string): boolean => /^[A-Za-z_][A-Za-z0-9_]*$/.test(key);
const variableName = name(
  (key) => (isVariable(key) ? undefined : 'is not the name of a variable'),
  (key, empty) => !empty && isVariable(key),
);

const command = section({
  run: z
    .array(
      text((value) => (value.includes('\0') ? rejected('must not hold a NUL character') : accepted(value))),
    )
    .describe('Program and arguments. There is no shell.'),
  env: withDefault(mapping(variableName, hiddenText()), {}).describe(
    'Variables of the program, besides `PATH`, `HOME` and a few others.',
  ),
});

const kinds = {
  oauth2: optional(oauth2).describe(
    'OAuth 2.0 client credentials. Needs one of `client_secret`, `private_key` and `assertion`.',
  ),
  azure: optional(azure).describe('Microsoft Entra ID, by the library `@azure/identity`.'),
  google: optional(google).describe('Google Cloud, by the library `google-auth-library`.'),
  command: optional(command).describe(
    'A program that prints a token as JSON: `{"token": …, "expires_at": …}`, an `ExecCredential` of Kubernetes, or `access_token` with `expires_in`.',
  ),
};

/** The fields of `auth`, of which exactly one is given. */
export const AUTH_KINDS: readonly string[] = Object.keys(kinds);

export const upstreamAuth = section(kinds)
  .register(fieldMetadata, {
    extra: { minProperties: 1, maxProperties: 1 },
  })
  .transform(({ oauth2, azure, google, command }) => {
    if (oauth2 !== undefined) return { kind: 'oauth2' as const, ...oauth2 };
    if (azure !== undefined) return { kind: 'azure' as const, ...azure };
    if (google !== undefined) return { kind: 'google' as const, ...google };
    return { kind: 'command' as const, run: [], env: {}, ...command };
  });

type UpstreamAuth = z.output<typeof upstreamAuth>;

/** What proves the identity, in all kinds. Its rotation keeps the identity, so the present token stays usable. */
const PROOFS: ReadonlySet<string> = new Set([
  'client_secret',
  'private_key',
  'key_id',
  'assertion',
  'credentials',
  'env',
]);

/** Whether two settings mean the same identity at the issuer, whatever proves it. */
export function isSameIdentity(one: UpstreamAuth, other: UpstreamAuth): boolean {
  return isDeepStrictEqual(withoutProofs(one), withoutProofs(other));
}

function withoutProofs(auth: UpstreamAuth): object {
  return Object.fromEntries(Object.entries(auth).filter(([field]) => !PROOFS.has(field)));
}

/** The secrets that are sent to the issuer, so that its texts may quote them. Keys that sign stay in the process. */
export function sentSecrets(auth: UpstreamAuth): string[] {
  return Object.entries(auth).flatMap(([field, value]: [string, unknown]) =>
    (field === 'client_secret' || field === 'assertion') && typeof value === 'string' ? [value] : [],
  );
}
