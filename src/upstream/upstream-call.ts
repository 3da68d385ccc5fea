// One request for an upstream, before its credentials and defaults are added.
import type { BodySource } from '../http/pieces/body-source.ts';
import type { ClientHeaders, ForwardedHeaders } from './http/forwarded-headers.ts';
import type { OwnHeaders } from './http/upstream-headers.ts';
import type { Transport } from './transport.ts';

/** The API operation to call. */
interface CallTarget {
  /** Below the API root, without a slash in front. */
  readonly path: string;
  /** Default POST. */
  readonly method?: 'GET' | 'DELETE';
  /** The client's query without its `?`, for a path of this request only. */
  readonly query?: string;
}

/** One request for an upstream. */
export interface UpstreamCall extends OwnHeaders {
  readonly endpoint: CallTarget;
  /** The complete body, already adapted to this upstream. */
  readonly body: Buffer | BodySource;
  readonly client: ClientHeaders;
  /** The headers of the client that are forwarded. Default: those of the upstream. */
  readonly forwarded?: ForwardedHeaders | undefined;
  /** Replaces the transport of the upstream. */
  readonly transport?: Pick<Transport, 'send'> | undefined;
  /** Use a new connection, because a keep-alive one was stale. */
  readonly fresh: boolean;
}
