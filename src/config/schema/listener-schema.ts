// The fields of the two listeners: the public one and that of the admin.
import { z } from 'zod';
import { readHost, readNetwork } from './addresses.ts';
import { duration, integer, section, text } from './field-kinds.ts';
import { accepted } from './units.ts';

export const listenSection = section({
  host: text(readHost)
    .prefault('127.0.0.1')
    .describe('Address or host name that the public listener binds to.'),
  port: integer(0, 65_535)
    .prefault('8080')
    .describe('Port of the public listener; 0 takes a free one. The environment variable PORT overrides it.'),
  trusted_proxies: z
    .array(text(readNetwork))
    .prefault([])
    .describe(
      'Addresses and networks of the proxies in front, whose `x-forwarded-for` is believed. A warning for a network wider than /16 (IPv6: /48): each machine in it may claim any client address.',
    ),
  keep_alive: duration('1s', '2h')
    .prefault('75s')
    .describe(
      'How long an idle connection of a client is kept. Longer than the load balancer in front keeps it: Google Cloud 600 s, Envoy 1 h, AWS and nginx 60 s.',
    ),
  max_connections: integer(1, 1_000_000)
    .exactOptional()
    .describe(
      'Most client connections at one time, over all workers; more are refused. Default: half of the open files that the system allows, at most 16384, for each worker.',
    ),
});

export const adminSection = section({
  host: text(readHost)
    .prefault('127.0.0.1')
    .describe('Address or host name that the admin listener binds to.'),
  port: integer(0, 65_535)
    .prefault('9090')
    .describe('Port of the admin listener (metrics and probes); 0 takes a free one.'),
  hosts: z
    .array(text((value) => (value === '*' ? accepted(value) : readHost(value))))
    .exactOptional()
    .describe(
      'Names with a public domain by which it may be asked, or `*` for all. Addresses, names without a dot, and names below `.svc`, `.local`, `.internal`, `.localhost`, `.test` and `.home.arpa` always may.',
    ),
});
