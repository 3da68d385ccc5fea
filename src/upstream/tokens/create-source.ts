// Maps `upstreams.NAME.auth` to its token source. A new kind is one line here, its schema and its file.
import type { UpstreamAuth } from '../../config/schema/config-schema.ts';
import { AzureSource } from './azure-source.ts';
import { CommandSource } from './command-source.ts';
import { GoogleSource } from './google-source.ts';
import { OAuth2Source } from './oauth2-source.ts';
import type { TokenSource } from './token-source.ts';

export function createTokenSource(auth: UpstreamAuth): TokenSource {
  switch (auth.kind) {
    case 'oauth2':
      return new OAuth2Source(auth);
    case 'azure':
      return new AzureSource(auth);
    case 'google':
      return new GoogleSource(auth);
    case 'command':
      return new CommandSource(auth);
  }
}
