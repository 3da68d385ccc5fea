// Maps `upstreams.NAME.auth` to its token source. A new kind is one line here, its schema and its file.
import type { UpstreamAuth } from '../../config/schema/config-schema.ts';
import { Outbound } from '../outbound/outbound.ts';
import { azureSource } from './azure-source.ts';
import { commandSource } from './command-source.ts';
import { googleSource } from './google-source.ts';
import { oauth2Source } from './oauth2-source.ts';
import type { TokenSource } from './token-source.ts';

/** @param outbound for the connections to the issuer */
export function createTokenSource(auth: UpstreamAuth, outbound = new Outbound()): TokenSource {
  switch (auth.kind) {
    case 'oauth2':
      return oauth2Source(auth, outbound);
    case 'azure':
      return azureSource(auth, outbound);
    case 'google':
      return googleSource(auth, outbound);
    case 'command':
      return commandSource(auth);
  }
}
