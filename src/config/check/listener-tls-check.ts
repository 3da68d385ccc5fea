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
import type { ConfigField } from './config-field.ts';

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

export function checkListenerTls(file: ConfigField, listener: 'listen' | 'admin', now = Date.now()): void {
  const tls = file.at(listener, 'tls');
  const [pem, key] = [tls.at('cert'), tls.at('key')];
  const cert = pem.text;
  if (cert === undefined || !readCertificates(cert).ok) return;
  if (key.text !== undefined && readPrivateKeyPem(key.text).ok) {
    const found = tlsFault({ cert, key: key.text });
    if (found !== undefined) key.faultOf(tls.path, found);
  }
  const chain = certificatesIn(cert);
  for (const each of chain) {
    const warning = expiryWarning(each, now);
    if (warning !== undefined) pem.warn(warning);
  }
  // RFC 8446, 4.4.2: clients may require that each certificate is issued by the one after it.
  if (chain.some((each, index) => index > 0 && chain[index - 1]?.checkIssued(each) === false))
    pem.warn(
      'has certificates of which one was not issued by the next; order them from the server to the root',
    );
  const [leaf] = chain;
  const host = listener === 'listen' ? publicHost(file) : undefined;
  if (leaf !== undefined && host !== undefined && !isNamed(leaf, host))
    pem.warn('has no certificate for the host of `public_url`');
}

/** The host that clients check; undefined behind a proxy, where the certificate is for the proxy. */
function publicHost(file: ConfigField): string | undefined {
  if (file.at('listen', 'trusted_proxies').isGiven) return undefined;
  return file.at('public_url').url?.hostname.replace(/^\[|\]$/g, '');
}

function isNamed(leaf: X509Certificate, host: string): boolean {
  return (isIP(host) === 0 ? leaf.checkHost(host) : leaf.checkIP(host)) !== undefined;
}
