// Checks of each upstream by itself, and whether anything uses it.
import { isLoopback, readBaseUrl } from '../schema/addresses.ts';
import { AUTH_KINDS } from '../schema/auth-schema.ts';
import { quote } from '../source/schema-issues.ts';
import type { ConfigField } from './config-field.ts';
import { checkTls } from './outbound-check.ts';

/** Paths of base URLs at vendors that have only these, by host, and the one to suggest; docs/vendors.md has the same. */
const VENDOR_PATHS: readonly (readonly [host: RegExp, paths: RegExp, shown: string])[] = [
  [/^(\w+\.)?api\.openai\.com$/, /^\/v1$/, '/v1'],
  [/^api\.(anthropic\.com|mistral\.ai|together\.(ai|xyz))$/, /^\/v1$/, '/v1'],
  [/^api\.groq\.com$/, /^\/openai\/v1$/, '/openai/v1'],
  [/^openrouter\.ai$/, /^\/api\/v1$/, '/api/v1'],
  [/^api\.deepseek\.com$/, /^(\/v1|\/beta|\/anthropic\/v1)?$/, ''],
  [/\.openai\.azure\.com$/, /^\/openai\/(v1|deployments\/[^/]+)$/, '/openai/v1'],
  [/^bedrock-runtime[.-].*\.amazonaws\.com$/, /^\/(openai|anthropic)\/v1$/, '/openai/v1'],
  [
    /(^|-)aiplatform\.googleapis\.com$/,
    /\/endpoints\/[^/]+$/,
    '/v1/projects/PROJECT/locations/LOCATION/endpoints/openapi',
  ],
];

const PROOFS = ['client_secret', 'private_key', 'assertion'] as const;

/** What is wrong with the path of a known vendor's base URL; undefined for a right one and for other hosts. */
function vendorBase({ hostname, pathname }: URL): string | undefined {
  const vendor = VENDOR_PATHS.find(([host]) => host.test(hostname));
  if (vendor === undefined || vendor[1].test(pathname.replace(/\/+$/, ''))) return undefined;
  const [, , path] = vendor;
  return `is probably not where this vendor serves: its base URL ${path === '' ? 'has no path' : `ends with \`${path}\``}`;
}

/** Header names are case-insensitive; parameter names that differ only in case are a mistake. */
function checkCase(entries: readonly ConfigField[]): void {
  const seen = new Set<string>();
  for (const { name, key } of entries) {
    const folded = name.toLowerCase();
    if (seen.has(folded)) key.fault('is given twice, with different case');
    seen.add(folded);
  }
}

export function checkUpstream(upstream: ConfigField): void {
  if (upstream.node?.kind !== 'branch') return;
  const has = (field: string): boolean => upstream.at(field).isGiven;
  if (!has('base_url') && !has('builtin')) upstream.key.fault('needs a `base_url`, or `builtin: echo`');
  if (has('base_url') && has('builtin'))
    upstream.at('builtin').key.fault('and `base_url` are mutually exclusive; remove one of them');
  else if (has('builtin'))
    for (const field of ['protocol', 'api_key', 'headers', 'forward_headers', 'query', 'proxy', 'tls'])
      if (has(field)) upstream.at(field).key.fault('has no effect with `builtin`; remove it');
  const headers = upstream.at('headers').entries;
  checkCase(headers);
  const other = ['api_key', 'auth'].find(has);
  const isOther = other === 'api_key' && upstream.at('protocol').text === 'anthropic';
  for (const { name, key } of headers)
    if (other !== undefined && name.toLowerCase() === (isOther ? 'x-api-key' : 'authorization'))
      key.fault(`is also set by \`${other}\`; remove one of them`);
  for (const item of upstream.at('forward_headers').items)
    if (headers.some(({ name }) => name.toLowerCase() === item.text?.toLowerCase()))
      item.fault('is also set by `headers`; remove one of them');
  checkAuth(upstream);
  checkOldMembers(upstream);
  checkTls(upstream);
  const query = upstream.at('query').entries;
  checkCase(query);
  const base = upstream.at('base_url');
  if (base.text === undefined || !readBaseUrl(base.text).ok) return;
  const url = new URL(base.text);
  for (const { name, key } of query)
    if (url.searchParams.has(name)) key.fault('is also in the query of `base_url`');
  const advice = vendorBase(url);
  if (advice !== undefined) base.warn(advice);
  const apiKey = upstream.at('api_key');
  if (/^bearer\s/i.test(apiKey.text ?? ''))
    apiKey.warn('begins with `Bearer`, which the gateway adds itself; remove it');
  const credential =
    has('api_key') || has('auth') || headers.some(({ name }) => /auth|key|token/i.test(name));
  if (url.protocol === 'http:' && credential && !isLoopback(url))
    base.warn('sends its credential over plain http to another machine');
}

/** Of `auth` across its fields: one kind, one proof of identity, no second credential. */
function checkAuth(upstream: ConfigField): void {
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

/** The earlier name of `body`. */
export function checkOldMembers(holder: ConfigField): void {
  const members = holder.at('members');
  if (!members.isGiven) return;
  if (holder.at('body').isGiven) members.key.fault('is the earlier name of `body`: move its rules there');
  else members.key.warn('is deprecated: rename it to `body`');
}

/** Warns of upstreams in service that no model and no other section uses. */
export function checkUse(file: ConfigField): void {
  const targets = file.at('models').entries.flatMap((model) => model.at('targets').items);
  const used = new Set([file.at('passthrough'), ...targets].map((user) => user.at('upstream').text));
  for (const upstream of file.at('upstreams').entries)
    if (!used.has(upstream.name) && upstream.at('enabled').text !== 'false')
      upstream.key.warn('is not used: no model has a target there');
}
