// Errors of sockets, of Node and of the response parser as the gateway's errors.
import { GatewayError } from '../../errors.ts';
import {
  isCertificateRejected,
  isConnectTimeout,
  isExhausted,
  isTlsFailure,
} from '../outbound/socket-errors.ts';
import { InvalidResponse } from './response-head.ts';

export function invalidResponse(cause: unknown): GatewayError {
  return new GatewayError('upstream_invalid_response', undefined, { cause });
}

/** Maps an error of the socket or parser to a gateway error. The cause may hold addresses; it is only logged. */
export function wrapTransportError(cause: Error): GatewayError {
  if (cause instanceof GatewayError) return cause;
  if (isConnectTimeout(cause)) {
    return new GatewayError('upstream_timeout', undefined, { cause });
  }
  // Not the upstream's fault.
  if (isExhausted(cause)) return new GatewayError('upstream_busy', undefined, { cause });
  if (cause instanceof InvalidResponse) return invalidResponse(cause);
  if (isCertificateRejected(cause)) {
    const message =
      'The upstream rejected the TLS handshake; it may want another client certificate. The operator has to act.';
    return new GatewayError('upstream_tls', message, { cause });
  }
  return new GatewayError(isTlsFailure(cause) ? 'upstream_tls' : 'upstream_unreachable', undefined, {
    cause,
  });
}

/** The error for a failure that Node or http-proxy-3 reported before there was an answer. */
export function wrapConnectionError(cause: unknown): GatewayError {
  if (cause instanceof GatewayError) return cause;
  const error = cause instanceof Error ? cause : new Error(String(cause));
  const code = String(Reflect.get(error, 'code'));
  if (code === 'ECONNECT_TIMEOUT') return new GatewayError('upstream_timeout', undefined, { cause });
  return code.startsWith('HPE_') ? invalidResponse(cause) : wrapTransportError(error);
}
