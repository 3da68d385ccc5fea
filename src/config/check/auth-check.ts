// Checks of `upstreams.NAME.auth` across its fields: one kind, one proof of identity, no second credential.
import { isLoopback } from '../schema/addresses.ts';
import { AUTH_KINDS } from '../schema/auth-schema.ts';
import { quote } from '../source/schema-issues.ts';
import type { ConfigField } from './config-field.ts';

const PROOFS = ['client_secret', 'private_key', 'assertion'] as const;

export function checkAuth(upstream: ConfigField): void {
  const auth = upstream.at('auth');
  if (auth.node?.kind !== 'branch') return;
  const { entries } = auth.node;
  const kinds = AUTH_KINDS.filter((kind) => entries.has(kind));
  if (kinds.length !== 1) auth.key.fault(`needs exactly one of ${quote(AUTH_KINDS)}`);
  for (const field of ['api_key', 'builtin'])
    if (upstream.at(field).isGiven)
      auth.key.fault(`and \`${field}\` are mutually exclusive; remove one of them`);
  const oauth2 = auth.at('oauth2');
  if (oauth2.node?.kind === 'branch') {
    const proofs = PROOFS.filter((name) => oauth2.at(name).isGiven);
    if (proofs.length !== 1) auth.key.fault(`needs exactly one of ${quote(PROOFS)}`, 'oauth2');
    const url = oauth2.at('token_url');
    if (url.url?.protocol === 'http:' && !isLoopback(url.url))
      url.warn('sends its credential over plain http to another machine');
  }
  const azure = auth.at('azure');
  for (const name of azure.at('client_secret').isGiven ? ['tenant_id', 'client_id'] : [])
    if (!azure.at(name).isGiven) auth.key.fault(`needs a \`${name}\` for its \`client_secret\``, 'azure');
  const run = auth.at('command', 'run');
  if (run.node?.kind === 'list' && run.items.length === 0) run.key.fault('needs a program');
}
