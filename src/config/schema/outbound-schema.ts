// The fields of connections to others: `proxy` and `tls`.
import { isIP } from 'node:net';
import type { z } from 'zod';
import { readProxy } from './addresses.ts';
import { address, hiddenText, optional, section, text } from './field-kinds.ts';
import { readCertificates, readPrivateKeyPem } from './pem.ts';
import { HOST_NAME } from './redis-address.ts';
import { accepted, rejected } from './units.ts';

export const proxy = address(readProxy, '^none$|^https?://');

export const tls = section({
  ca: optional(hiddenText(readCertificates)).describe(
    'PEM of the authorities to trust instead of the public ones that Node.js brings along.',
  ),
  cert: optional(hiddenText(readCertificates)).describe(
    'PEM of the client certificate, with its intermediates after it. Needs `key`.',
  ),
  key: optional(hiddenText(readPrivateKeyPem)).describe(
    'PEM of the private key of `cert`, without a passphrase.',
  ),
  server_name: text((value) =>
    isIP(value) === 0 && HOST_NAME.test(value)
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
