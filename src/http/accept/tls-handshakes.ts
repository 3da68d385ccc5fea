// TLS of the public listener: takes accepted connections until their handshake is complete. They count as connections meanwhile, and
// have one deadline. Requests are not its task.
import type { Socket } from 'node:net';
import { createServer, type Server, type TLSSocket } from 'node:tls';
import type { ServerCertificate } from '../../config/schema/listener-schema.ts';
import { GatewayError } from '../../errors.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { closingAnswer } from '../exchange/response-writer.ts';
import { CertificateExpiry } from './certificate-expiry.ts';

interface TlsHandshakesOptions {
  readonly certificate: ServerCertificate;
  /** From the connection to the end of its handshake, in milliseconds. */
  readonly deadlineMs: number;
  readonly metrics: Pick<Metrics, 'tls' | 'recordUnread'>;
  readonly logger: Pick<Logger, 'debug' | 'warn'>;
  /** The number of running handshakes has changed. */
  readonly onChange: () => void;
}

interface Handshake {
  readonly socket: Socket;
  readonly timer: NodeJS.Timeout;
  readonly onSecure: (socket: TLSSocket) => void;
  cause: 'timeout' | 'plain_http' | 'failed';
}

/** Time for a client to read the answer to plain HTTP. */
const CLOSE_MS = 1_000;
/** Methods are upper case; a TLS record begins with 22, its type. */
const [FIRST_LETTER, LAST_LETTER] = [0x41, 0x5a];

const PLAIN_HTTP = new GatewayError('invalid_http', 'This port speaks HTTPS: use https:// in the URL.');

export class TlsHandshakes {
  readonly #options: TlsHandshakesOptions;
  /** Never listens: it is given connections that the HTTP server has accepted. */
  readonly #server: Server;
  /** By `endsOf`. */
  readonly #running = new Map<string, Handshake>();
  readonly #expiry: CertificateExpiry;
  #certificate: ServerCertificate;

  constructor(options: TlsHandshakesOptions) {
    this.#options = options;
    this.#certificate = options.certificate;
    this.#expiry = new CertificateExpiry(options.metrics.tls.expiry, options.logger);
    this.#expiry.follow(options.certificate);
    this.#server = createServer({ ...contextOf(options.certificate), ALPNProtocols: ['http/1.1'] });
    this.#server.on('secureConnection', (socket) => this.#finish(socket));
    this.#server.on('tlsClientError', (err) => options.logger.debug({ err }, 'a TLS handshake failed'));
  }

  /** Running handshakes. */
  get size(): number {
    return this.#running.size;
  }

  /** Handshakes from now on use this pair; connections with the previous one live on. @throws the system's error */
  set certificate(pair: ServerCertificate) {
    const { cert, key } = this.#certificate;
    // A new context would also end the resumption of sessions.
    if (pair.cert === cert && pair.key === key) return;
    this.#server.setSecureContext(contextOf(pair));
    this.#certificate = pair;
    this.#expiry.follow(pair);
  }

  /** @param onSecure called when the handshake is complete; a connection without one is closed */
  begin(socket: Socket, onSecure: (socket: TLSSocket) => void): void {
    const { deadlineMs, onChange } = this.#options;
    const ends = endsOf(socket);
    const handshake: Handshake = {
      socket,
      onSecure,
      cause: 'failed',
      timer: setTimeout(() => {
        handshake.cause = 'timeout';
        socket.destroy();
      }, deadlineMs),
    };
    this.#running.set(ends, handshake);
    onChange();
    socket.on('error', () => undefined);
    socket.once('close', () => this.#onClose(ends, handshake));
    socket.once('readable', () => this.#read(handshake));
  }

  /** Closes the connections whose handshake is not complete. Call it when none is accepted any more. */
  close(): void {
    this.#expiry.stop();
    for (const { socket } of this.#running.values()) socket.destroy();
  }

  #read(handshake: Handshake): void {
    const { socket } = handshake;
    const bytes: Buffer | null = socket.read();
    const first = bytes?.[0];
    // The client sent FIN: a probe of the port.
    if (bytes === null || first === undefined) socket.destroy();
    else if (first >= FIRST_LETTER && first <= LAST_LETTER) this.#rejectPlain(handshake);
    else {
      socket.unshift(bytes);
      this.#server.emit('connection', socket);
    }
  }

  #rejectPlain(handshake: Handshake): void {
    const { socket } = handshake;
    handshake.cause = 'plain_http';
    this.#options.metrics.recordUnread('malformed', PLAIN_HTTP);
    socket.end(closingAnswer(PLAIN_HTTP));
    // With unread bytes the kernel would send RST, and the answer would be lost.
    socket.resume().once('end', () => socket.destroy());
    setTimeout(() => socket.destroy(), CLOSE_MS).unref();
  }

  #finish(secure: TLSSocket): void {
    const ends = endsOf(secure);
    const handshake = this.#running.get(ends);
    if (handshake === undefined) {
      secure.destroy();
      return;
    }
    this.#forget(ends, handshake);
    handshake.onSecure(secure);
  }

  #onClose(ends: string, handshake: Handshake): void {
    if (this.#running.get(ends) !== handshake) return;
    this.#forget(ends, handshake);
    const { socket, cause } = handshake;
    if (socket.bytesRead > 0 || cause === 'timeout') this.#options.metrics.tls.failures.inc({ cause });
  }

  #forget(ends: string, { timer }: Handshake): void {
    clearTimeout(timer);
    this.#running.delete(ends);
    this.#options.onChange();
  }
}

function contextOf({ cert, key }: ServerCertificate) {
  return { cert, key, minVersion: 'TLSv1.2' as const };
}

/** Both ends of a connection: the only public trait that a socket shares with the one above it. */
export function endsOf({ remoteAddress, remotePort, localAddress }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress}`;
}
