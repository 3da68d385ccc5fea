// What the errors of sockets mean: a failed TLS handshake, a rejected client certificate, a lack of resources.

const codeOf = (cause: Error): string =>
  'code' in cause && typeof cause.code === 'string' ? cause.code : '';

/** File descriptors of the process or host, and socket memory. */
const EXHAUSTED: ReadonlySet<string> = new Set(['EMFILE', 'ENFILE', 'ENOBUFS']);

/** Whether this process or host is out of resources. */
export function isExhausted(cause: Error): boolean {
  return EXHAUSTED.has(codeOf(cause));
}

/** Whether the time for the connection was over, as undici's connector says it. */
export function isConnectTimeout(cause: Error): boolean {
  return codeOf(cause) === 'UND_ERR_CONNECT_TIMEOUT';
}

/** Node and OpenSSL codes of a failed TLS handshake: a rejected certificate, or a peer without TLS. */
const TLS_FAILURE =
  /^(ERR_TLS_|ERR_SSL_|CERT_|CRL_|EPROTO$|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|ERROR_IN_C|INVALID_(CA|PURPOSE)$|HOSTNAME_MISMATCH$|PATH_LENGTH_EXCEEDED$)/;

/** Whether the TLS handshake failed, so that the peer is not authenticated. */
export function isTlsFailure(cause: Error): boolean {
  return TLS_FAILURE.test(codeOf(cause));
}

/** Alerts about a client certificate (RFC 8446, 6.2). */
const CERTIFICATE_ALERT =
  /ALERT_(BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|CERTIFICATE_(REVOKED|EXPIRED|UNKNOWN|REQUIRED)|UNKNOWN_CA|ACCESS_DENIED|HANDSHAKE_FAILURE|DECRYPT_ERROR)$/;

/**
 * Whether the peer rejected the client certificate, or the lack of one. In TLS 1.3 this arrives after the client has finished its
 * handshake and may have written a request, which the peer then never reads.
 */
export function isCertificateRejected(cause: Error): boolean {
  return CERTIFICATE_ALERT.test(codeOf(cause));
}
