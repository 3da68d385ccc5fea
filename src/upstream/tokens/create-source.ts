// Maps `upstreams.NAME.auth` to its token source. A new kind is one line here, its schema and its file.
import type { UpstreamAuth } from '../../config/schema/config-schema.ts';
import { Outbound } from '../outbound/outbound.ts';
import { AzureSource } from './azure-source.ts';
import { CommandSource } from './command-source.ts';
import { GoogleSource } from './google-source.ts';
import { OAuth2Source } from './oauth2-source.ts';
import type { TokenSource } from './token-source.ts';

/** @param outbound for the connections to the issuer */
export function createTokenSource(auth: UpstreamAuth, outbound = new Outbound()): TokenSource {
  switch (auth.kind) {
    case 'oauth2':
      return new OAuth2Source(auth, outbound);
    case 'azure':
      return new AzureSource(auth, outbound);
    case 'google':
      return new GoogleSource(auth, outbound);
    case 'command':
      return new CommandSource(auth);
  }
}
