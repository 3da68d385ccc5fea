// Checks of `upstreams.NAME.auth` across its fields: one kind, one proof of identity, no second credential.
import { isLoopback } from '../schema/addresses.ts';
import { AUTH_KINDS } from '../schema/auth-schema.ts';
import { quote } from '../source/schema-issues.ts';
import {
  findNode,
  isGiven,
  nodeText,
  type ReportFault,
  type YamlNode,
  type YamlPath,
} from '../source/yaml-tree.ts';

const PROOFS = ['client_secret', 'private_key', 'assertion'] as const;

/** @param upstream the mapping of one upstream, at `path` */
export function checkAuth(upstream: YamlNode, path: YamlPath, fault: ReportFault, warn: ReportFault): void {
  const auth = findNode(upstream, ['auth']);
  if (auth?.key === undefined || auth.node.kind !== 'branch') return;
  const { entries } = auth.node;
  const at = auth.key.start;
  const inAuth = [...path, 'auth'];
  const kinds = AUTH_KINDS.filter((kind) => entries.has(kind));
  if (kinds.length !== 1) fault(at, inAuth, `needs exactly one of ${quote(AUTH_KINDS)}`);
  for (const field of ['api_key', 'builtin']) {
    if (isGiven(findNode(upstream, [field])?.node))
      fault(at, inAuth, `and \`${field}\` are mutually exclusive; remove one of them`);
  }
  const oauth2 = entries.get('oauth2')?.value;
  if (oauth2?.kind === 'branch') {
    const proofs = PROOFS.filter((name) => isGiven(oauth2.entries.get(name)?.value));
    if (proofs.length !== 1) fault(at, [...inAuth, 'oauth2'], `needs exactly one of ${quote(PROOFS)}`);
    checkTransport(oauth2, [...inAuth, 'oauth2'], warn);
  }
  const azure = entries.get('azure')?.value;
  if (azure?.kind === 'branch' && isGiven(azure.entries.get('client_secret')?.value)) {
    for (const name of ['tenant_id', 'client_id']) {
      if (!isGiven(azure.entries.get(name)?.value)) {
        fault(at, [...inAuth, 'azure'], `needs a \`${name}\` for its \`client_secret\``);
      }
    }
  }
  const run = entries.get('command') && findNode(auth.node, ['command', 'run']);
  if (run?.key !== undefined && run.node.kind === 'list' && run.node.items.length === 0) {
    fault(run.key.start, [...inAuth, 'command', 'run'], 'needs a program');
  }
}

function checkTransport(oauth2: YamlNode, path: YamlPath, warn: ReportFault): void {
  const url = nodeText(oauth2, 'token_url');
  const at = findNode(oauth2, ['token_url'])?.node.span.start;
  if (url === undefined || at === undefined || !URL.canParse(url)) return;
  const parsed = new URL(url);
  if (parsed.protocol === 'http:' && !isLoopback(parsed)) {
    warn(at, [...path, 'token_url'], 'sends its credential over plain http to another machine');
  }
}
