// Checks of `listen.tls` and `admin.tls` across their fields: the key belongs to the certificate. Warnings of what clients will object to.
import type { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import {
  certificatesIn,
  EXPIRY_MARGIN_MS,
  readCertificates,
  readPrivateKeyPem,
  tlsFault,
} from '../schema/pem.ts';
import { findNode, isGiven, nodeText, type ReportFault, type YamlMapping } from '../source/yaml-tree.ts';

/** What is wrong with the life of a certificate at a time; undefined if it is valid for longer than the warning. */
export function expiryWarning(
  { validFromDate, validToDate }: X509Certificate,
  now: number,
): string | undefined {
  const until = validToDate.toISOString();
  if (validToDate.getTime() <= now) return `has a certificate that expired at ${until}`;
  if (validFromDate.getTime() > now)
    return `has a certificate that is not valid before ${validFromDate.toISOString()}; compare the clocks`;
  return validToDate.getTime() - now < EXPIRY_MARGIN_MS
    ? `has a certificate that expires at ${until}`
    : undefined;
}

export function checkListenerTls(
  tree: YamlMapping,
  listener: 'listen' | 'admin',
  fault: ReportFault,
  warn: ReportFault,
  now = Date.now(),
): void {
  const path = [listener, 'tls'];
  const cert = nodeText(tree, ...path, 'cert');
  const key = nodeText(tree, ...path, 'key');
  const at = (field: string) => findNode(tree, [...path, field])?.node.span.start ?? 0;
  if (cert === undefined || !readCertificates(cert).ok) return;
  if (key !== undefined && readPrivateKeyPem(key).ok) {
    const found = tlsFault({ cert, key });
    if (found !== undefined) fault(at('key'), path, found);
  }
  const tell = (message: string) => warn(at('cert'), [...path, 'cert'], message);
  const chain = certificatesIn(cert);
  for (const each of chain) {
    const warning = expiryWarning(each, now);
    if (warning !== undefined) tell(warning);
  }
  // RFC 8446, 4.4.2: clients may require that each certificate is issued by the one after it.
  if (chain.some((each, index) => index > 0 && chain[index - 1]?.checkIssued(each) === false)) {
    tell('has certificates of which one was not issued by the next; order them from the server to the root');
  }
  const [leaf] = chain;
  const host = listener === 'listen' ? publicHost(tree) : undefined;
  if (leaf !== undefined && host !== undefined && !isNamed(leaf, host)) {
    tell('has no certificate for the host of `public_url`');
  }
}

/** The host that clients check; undefined behind a proxy, where the certificate is for the proxy. */
function publicHost(tree: YamlMapping): string | undefined {
  const proxies = findNode(tree, ['listen', 'trusted_proxies'])?.node;
  const url = nodeText(tree, 'public_url');
  if (isGiven(proxies) || url === undefined || !URL.canParse(url)) return undefined;
  return new URL(url).hostname.replace(/^\[|\]$/g, '');
}

function isNamed(leaf: X509Certificate, host: string): boolean {
  return (isIP(host) === 0 ? leaf.checkHost(host) : leaf.checkIP(host)) !== undefined;
}
