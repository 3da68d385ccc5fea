// The fields of the public listener and the admin listener.
import { z } from 'zod';
import { readHost, readNetwork } from './addresses.ts';
import {
  duration,
  hiddenText,
  integer,
  mapping,
  name,
  optional,
  section,
  text,
  withDefault,
} from './field-kinds.ts';
import { readCertificates, readPrivateKeyPem } from './pem.ts';
import { accepted, rejected } from './units.ts';

const certificatePair = section({
  cert: hiddenText(readCertificates).describe(
    'PEM of the certificate, with its intermediates after it; usually a reference to a file. A new pair of `cert` and `key` needs no restart.',
  ),
  key: hiddenText(readPrivateKeyPem).describe(
    'PEM of the private key of the certificate, without a passphrase; usually a reference to a file.',
  ),
});

export const listenSection = section({
  host: withDefault(text(readHost), '127.0.0.1').describe(
    'Address or host name that the public listener binds to.',
  ),
  port: withDefault(integer(0, 65_535), '8080').describe(
    'Port of the public listener; 0 takes a free one. The environment variable PORT overrides it.',
  ),
  trusted_proxies: withDefault(z.array(text(readNetwork)), []).describe(
    'Addresses and networks of trusted reverse proxies, whose `x-forwarded-for` is used. A network wider than /16 (IPv6: /48) causes a warning: each machine in it may claim any client address.',
  ),
  keep_alive: withDefault(duration('1s', '2h'), '75s').describe(
    'Keep-alive timeout of idle client connections. Set it longer than that of the load balancer in front: Google Cloud 600 s, Envoy 1 h, AWS and nginx 60 s.',
  ),
  max_connections: optional(integer(1, 1_000_000)).describe(
    'Maximum client connections at once, over all workers; more are refused. Default: half of the open file limit, at most 16384, for each worker.',
  ),
  tls: optional(certificatePair).describe(
    'Serves HTTPS (TLS 1.2 and 1.3, HTTP/1.1) instead of HTTP. Adding or removing it needs a restart.',
  ),
});

type Listen = z.output<typeof listenSection>;
/** A certificate of a listener and its key, in PEM. They are in the dynamic part. */
export type ServerCertificate = NonNullable<Listen['tls']>;
const operatorName = name(
  (key) => (/^(?:\*|[a-z0-9._@+-]{1,100})$/i.test(key) ? undefined : 'is not the name of an operator, nor *'),
  () => true,
);

export const adminSection = section({
  host: withDefault(text(readHost), '127.0.0.1').describe(
    'Address or host name that the admin listener binds to.',
  ),
  port: withDefault(integer(0, 65_535), '9090').describe(
    'Port of the admin listener (metrics and probes); 0 takes a free one.',
  ),
  hosts: optional(z.array(text((value) => (value === '*' ? accepted(value) : readHost(value))))).describe(
    'Allowed `Host` names with a public domain, or `*` for all. Addresses, names without a dot, and names below `.svc`, `.local`, `.internal`, `.localhost`, `.test` and `.home.arpa` are always allowed.',
  ),
  tls: optional(certificatePair).describe(
    'Serves HTTPS instead of HTTP. Adding or removing it needs a restart.',
  ),
  sso: section({
    header: text((value) =>
      /^[a-z0-9-]{1,100}$/i.test(value)
        ? accepted(value.toLowerCase())
        : rejected('is the name of a header, such as x-forwarded-user'),
    ).describe(
      'Header with the name of the operator, such as `x-forwarded-user`. The proxy has to remove it from requests of its clients.',
    ),
    trusted_proxies: z
      .array(text(readNetwork))
      .min(1)
      .describe('Addresses and networks of the identity proxy. The header of any other peer is ignored.'),
    roles: mapping(operatorName, z.enum(['viewer', 'support', 'admin'])).describe(
      'Role by name; `*` is that of all others, who have none without it.',
    ),
  })
    .exactOptional()
    .describe('Operators whom an identity proxy in front of the admin listener has signed in.'),
});

/** Both listeners in the static part. `tls`: whether one serves HTTPS. */
export interface ListenersConfig {
  readonly listen: Omit<Listen, 'tls'> & { readonly tls?: true };
  readonly admin: Omit<z.output<typeof adminSection>, 'tls'> & { readonly tls?: true };
}
