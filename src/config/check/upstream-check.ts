// Checks of each upstream by itself, and whether anything uses it.
import { isLoopback, readBaseUrl } from '../schema/addresses.ts';
import {
  findNode,
  isGiven,
  nodeText,
  type ReportFault,
  type YamlMapping,
  type YamlNode,
  type YamlPair,
  type YamlPath,
} from '../source/yaml-tree.ts';
import { checkAuth } from './auth-check.ts';
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

/** What is wrong with the path of a known vendor's base URL; undefined for a right one and for other hosts. */
function vendorBase({ hostname, pathname }: URL): string | undefined {
  const vendor = VENDOR_PATHS.find(([host]) => host.test(hostname));
  if (vendor === undefined || vendor[1].test(pathname.replace(/\/+$/, ''))) return undefined;
  const [, , path] = vendor;
  return `is probably not where this vendor serves: its base URL ${path === '' ? 'has no path' : `ends with \`${path}\``}`;
}

export function entriesOf(tree: YamlNode | undefined, ...path: YamlPath): ReadonlyMap<string, YamlPair> {
  const node = tree === undefined ? undefined : findNode(tree, path)?.node;
  return node?.kind === 'branch' ? node.entries : new Map<string, YamlPair>();
}

export function itemsOf(tree: YamlNode, ...path: YamlPath): readonly YamlNode[] {
  const node = findNode(tree, path)?.node;
  return node?.kind === 'list' ? node.items : [];
}

/** Header names are case-insensitive; parameter names that differ only in case are a mistake. */
function checkCase(entries: ReadonlyMap<string, YamlPair>, path: YamlPath, fault: ReportFault): void {
  const seen = new Set<string>();
  for (const [key, entry] of entries) {
    const folded = key.toLowerCase();
    if (seen.has(folded)) fault(entry.key.start, [...path, key], 'is given twice, with different case');
    seen.add(folded);
  }
}

export function checkUpstream(
  name: string,
  { key, value }: YamlPair,
  fault: ReportFault,
  warn: ReportFault,
): void {
  if (value.kind !== 'branch') return;
  const path = ['upstreams', name];
  const has = (field: string): boolean => isGiven(value.entries.get(field)?.value);
  const builtin = value.entries.get('builtin');
  if (!has('base_url') && !has('builtin')) {
    fault(key.start, path, 'needs a `base_url`, or `builtin: echo`');
  }
  if (has('builtin') && builtin !== undefined) {
    if (has('base_url'))
      fault(
        builtin.key.start,
        [...path, 'builtin'],
        'and `base_url` are mutually exclusive; remove one of them',
      );
    for (const field of has('base_url')
      ? []
      : ['protocol', 'api_key', 'headers', 'forward_headers', 'query', 'proxy', 'tls']) {
      const entry = value.entries.get(field);
      if (entry !== undefined && has(field)) {
        fault(entry.key.start, [...path, field], 'has no effect with `builtin`; remove it');
      }
    }
  }
  const headers = entriesOf(value, 'headers');
  checkCase(headers, [...path, 'headers'], fault);
  for (const [header, entry] of headers) {
    const other = ['api_key', 'auth'].find(has);
    const own =
      other === 'api_key' && nodeText(value, 'protocol') === 'anthropic' ? 'x-api-key' : 'authorization';
    if (other !== undefined && header.toLowerCase() === own) {
      fault(entry.key.start, [...path, 'headers', header], `is also set by \`${other}\`; remove one of them`);
    }
  }
  for (const [index, item] of itemsOf(value, 'forward_headers').entries()) {
    const header = nodeText(item)?.toLowerCase();
    if ([...headers.keys()].some((each) => each.toLowerCase() === header))
      fault(
        item.span.start,
        [...path, 'forward_headers', index],
        'is also set by `headers`; remove one of them',
      );
  }
  checkAuth(value, path, fault, warn);
  checkOldMembers(value, path, fault, warn);
  checkTls(value, path, fault, warn);
  const query = entriesOf(value, 'query');
  checkCase(query, [...path, 'query'], fault);
  const base = nodeText(value, 'base_url');
  if (base === undefined || !readBaseUrl(base).ok) return;
  const url = new URL(base);
  for (const [parameter, entry] of query) {
    if (url.searchParams.has(parameter)) {
      fault(entry.key.start, [...path, 'query', parameter], 'is also in the query of `base_url`');
    }
  }
  const at = value.entries.get('base_url')?.value.span.start ?? key.start;
  const advice = vendorBase(url);
  if (advice !== undefined) warn(at, [...path, 'base_url'], advice);
  const apiKey = value.entries.get('api_key')?.value;
  const given = nodeText(apiKey) ?? '';
  if (apiKey !== undefined && /^bearer\s/i.test(given))
    warn(
      apiKey.span.start,
      [...path, 'api_key'],
      'begins with `Bearer`, which the gateway adds itself; remove it',
    );
  const credential =
    has('api_key') || has('auth') || [...headers.keys()].some((header) => /auth|key|token/i.test(header));
  if (url.protocol === 'http:' && credential && !isLoopback(url)) {
    warn(at, [...path, 'base_url'], 'sends its credential over plain http to another machine');
  }
}

/** The earlier name of `body`. */
export function checkOldMembers(
  entry: YamlNode,
  path: YamlPath,
  fault: ReportFault,
  warn: ReportFault,
): void {
  const members = entry.kind === 'branch' ? entry.entries.get('members') : undefined;
  if (members === undefined || !isGiven(members.value)) return;
  const at = [...path, 'members'];
  if (isGiven(findNode(entry, ['body'])?.node))
    fault(members.key.start, at, 'is the earlier name of `body`: move its rules there');
  else warn(members.key.start, at, 'is deprecated: rename it to `body`');
}

/** Warns of upstreams in service that no model and no other section uses. */
export function checkUse(tree: YamlMapping, warn: ReportFault): void {
  const used = new Set([nodeText(tree, 'passthrough', 'upstream')]);
  for (const { value } of entriesOf(tree, 'models').values())
    for (const target of itemsOf(value, 'targets')) used.add(nodeText(target, 'upstream'));
  for (const [name, { key, value }] of entriesOf(tree, 'upstreams')) {
    if (!used.has(name) && nodeText(value, 'enabled') !== 'false')
      warn(key.start, ['upstreams', name], 'is not used: no model has a target there');
  }
}
