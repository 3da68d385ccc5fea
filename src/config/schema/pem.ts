// PEM values: certificates and private keys. They usually come from files that are replaced while the gateway runs, so a half-written
// one has to be noticed. Messages quote nothing of a value.
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { accepted, rejected, type ScalarResult } from './units.ts';

// biome-ignore lint/suspicious/noTemplateCurlyInString: the syntax of the configuration
const FROM_FILE = 'for the content of a file write ${file:PATH}';
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

const INCOMPLETE = 'is incomplete: a block in it has no end';

/** A certificate that ends this soon is worth a warning, in milliseconds. */
export const EXPIRY_MARGIN_MS = 7 * 86_400_000;

/** The certificates of a PEM text, in order. @throws the system's error when one cannot be parsed */
export function certificatesIn(pem: string): X509Certificate[] {
  return (pem.match(CERTIFICATE) ?? []).map((block) => new X509Certificate(block));
}

/** One or more whole certificates. Text around them, such as their names in a bundle, is allowed. */
export function readCertificates(pem: string): ScalarResult<string> {
  const unended = unendedBlocks(pem);
  try {
    const found = certificatesIn(pem);
    if (found.length > 0 && unended === 0) return accepted(pem);
    return rejected(unended > 0 ? INCOMPLETE : `must be certificates in PEM form; ${FROM_FILE}`);
  } catch {
    return rejected('has a certificate that cannot be parsed');
  }
}

/** Blocks that begin and have no end: the file is half-written. */
function unendedBlocks(pem: string): number {
  const [begun = 0, ended = 0] = ['BEGIN', 'END'].map((word) => pem.split(`-----${word} `).length - 1);
  return begun - ended;
}

/** A private key of any type. */
export function readPrivateKeyPem(pem: string): ScalarResult<string> {
  if (/-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED/m.test(pem)) {
    return rejected('is encrypted with a passphrase; store it without one, readable by the gateway alone');
  }
  try {
    createPrivateKey(pem);
    return accepted(pem);
  } catch {
    return rejected(unendedBlocks(pem) > 0 ? INCOMPLETE : `must be a private key in PEM form; ${FROM_FILE}`);
  }
}

type TlsValues = { readonly [Part in 'ca' | 'cert' | 'key']?: string | undefined };

/**
 * What is wrong with these values together; undefined if they can be used.
 * @param values each read by the functions above
 */
export function tlsFault(values: TlsValues): string | undefined {
  const { cert, key } = values;
  if (cert !== undefined && key !== undefined) {
    const privateKey = createPrivateKey(key);
    const owner = certificatesIn(cert).findIndex((each) => each.checkPrivateKey(privateKey));
    if (owner < 0) return 'has a `key` that does not belong to the first certificate of `cert`';
    if (owner > 0) return 'has the certificate of its `key` not first in `cert`; put it before its issuers';
  }
  try {
    createSecureContext(values);
    return undefined;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    return `cannot be used: OpenSSL says ${code}`;
  }
}
