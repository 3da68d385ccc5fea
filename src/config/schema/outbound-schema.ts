// The fields of connections to others, `proxy` and `tls`, and the readers of PEM values. A value usually comes from a file that is
// replaced while the gateway runs, so a half-written one has to be noticed.
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { createSecureContext } from 'node:tls';
import type { z } from 'zod';
import { readProxy } from './addresses.ts';
import { address, hiddenText, section, text } from './field-kinds.ts';
import { accepted, rejected, type ScalarResult } from './units.ts';

// biome-ignore lint/suspicious/noTemplateCurlyInString: the syntax of the configuration
const FROM_FILE = 'for the content of a file write ${file:PATH}';
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

/** A client certificate that ends this soon is worth a warning, in milliseconds. */
export const EXPIRY_MARGIN_MS = 7 * 86_400_000;

/** The certificates of a PEM text, in order. @throws the system's error when one cannot be parsed */
export function certificatesIn(pem: string): X509Certificate[] {
  return (pem.match(CERTIFICATE) ?? []).map((block) => new X509Certificate(block));
}

/** One or more whole certificates. Text around them, such as their names in a bundle, is allowed. */
export function readCertificates(pem: string): ScalarResult<string> {
  const begun = pem.split('-----BEGIN ').length - 1;
  const ended = pem.split('-----END ').length - 1;
  try {
    const found = certificatesIn(pem);
    if (found.length > 0 && begun === ended) return accepted(pem);
    return rejected(
      found.length > 0 || begun > 0
        ? 'is incomplete: a certificate in it has no end'
        : `must be certificates in PEM form; ${FROM_FILE}`,
    );
  } catch {
    return rejected('has a certificate that cannot be parsed');
  }
}

/** A private key of any type. */
export function readPrivateKeyPem(pem: string): ScalarResult<string> {
  try {
    createPrivateKey(pem);
    return accepted(pem);
  } catch {
    return rejected(`must be a private key in PEM form, without a passphrase; ${FROM_FILE}`);
  }
}

/**
 * What is wrong with these values together; undefined if they can be used.
 * @param values each valid by itself
 */
export function tlsFault({ ca, cert, key }: TlsConfig): string | undefined {
  const [leaf] = cert === undefined ? [] : certificatesIn(cert);
  if (leaf !== undefined && key !== undefined && !leaf.checkPrivateKey(createPrivateKey(key))) {
    return 'has a `key` that does not belong to the first certificate of `cert`';
  }
  try {
    createSecureContext({ ca, cert, key });
    return undefined;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    return `cannot be used: OpenSSL says ${code}`;
  }
}

export const proxy = address(readProxy, '^none$|^https?://');

export const tls = section({
  ca: hiddenText(readCertificates)
    .exactOptional()
    .describe('PEM of the authorities to trust instead of the public ones that Node.js brings along.'),
  cert: hiddenText(readCertificates)
    .exactOptional()
    .describe('PEM of the client certificate, with its intermediates after it. Needs `key`.'),
  key: hiddenText(readPrivateKeyPem)
    .exactOptional()
    .describe('PEM of the private key of `cert`, without a passphrase.'),
  server_name: text((value) =>
    isIP(value) === 0 && /^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$/.test(value)
      ? accepted(value)
      : rejected('must be a host name, without a port'),
  )
    .exactOptional()
    .describe(
      'Name that is asked for (SNI) and that the certificate must hold. Default: the host of `base_url`.',
    ),
});

export type TlsConfig = z.output<typeof tls>;

/** Which proxy a group of targets takes. All fields are plain values, so that they count in the hash of a configuration. */
export interface OutboundRules {
  /** URL of the proxy for targets with the scheme `http`. */
  readonly http?: string;
  /** URL of the proxy for targets with the scheme `https`. */
  readonly https?: string;
  /** NO_PROXY. */
  readonly except?: string;
  /** The proxy is meant for one upstream: there are no exceptions. */
  readonly always?: true;
  /** The global `tls`. */
  readonly tls?: TlsConfig;
}
