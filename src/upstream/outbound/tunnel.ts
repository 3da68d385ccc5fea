// One tunnel through an HTTP proxy: connects to it, asks with CONNECT (RFC 9110, 9.3.6), and starts TLS with the target inside.
// Destinations without TLS get a tunnel too. The errors say whether the proxy was the reason.
import type { Socket } from 'node:net';
import { startDeadline } from '../../deadline.ts';
import { type ErrorCode, GatewayError } from '../../errors.ts';
import type { Connect, Destination, PendingConnection } from './connect.ts';
import { isExhausted, isTlsFailure } from './socket-errors.ts';

interface TunnelSteps {
  readonly proxy: URL;
  /** Connects to the proxy. */
  readonly dial: Connect;
  /** Starts TLS with the target. */
  readonly secure: (
    destination: Destination & { readonly httpSocket: Socket },
    callback: (outcome: Socket | Error) => void,
  ) => PendingConnection;
  readonly timeoutMs: number;
}

/** Maximum length of an answer's head, in bytes. */
const MAX_HEAD = 16 * 1024;
const HEAD_END = /\r?\n\r?\n/;
const STATUS = /^HTTP\/1\.[01] ([1-5]\d\d)[ \r\n]/;
/** The tunnel gives up a little before the deadline of an attempt, which does not know what was waited for. */
const EARLIER = 0.97;

export class Tunnel implements PendingConnection {
  readonly #steps: TunnelSteps;
  readonly #destination: Destination;
  readonly #callback: (outcome: Socket | Error) => void;
  readonly #stopDeadline: () => void;
  #pending: PendingConnection;
  #step = 'a connection to it';
  #isOver = false;

  /** @param callback called once, asynchronously or by `destroy` */
  constructor(steps: TunnelSteps, destination: Destination, callback: (outcome: Socket | Error) => void) {
    this.#steps = steps;
    this.#destination = destination;
    this.#callback = callback;
    this.#stopDeadline = startDeadline(steps.timeoutMs * EARLIER, () =>
      this.destroy(this.#failure('upstream_timeout', `gave no tunnel in time: waited for ${this.#step}`)),
    );
    const { protocol, hostname, host, port } = steps.proxy;
    const proxy = { protocol, hostname: hostname.replace(/^\[|\]$/g, ''), host, port };
    this.#pending = steps.dial(proxy, (outcome) => {
      if (this.#isOver) return;
      if (!(outcome instanceof Error)) this.#ask(outcome);
      else if (isExhausted(outcome)) this.destroy(outcome);
      else if (isTlsFailure(outcome))
        this.destroy(this.#failure('upstream_proxy_denied', 'cannot be verified', outcome));
      else this.destroy(this.#failure('upstream_proxy_error', 'cannot be reached', outcome));
    });
  }

  destroy(reason: Error): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#stopDeadline();
    this.#pending.destroy(reason);
    this.#callback(reason);
  }

  #ask(socket: Socket): void {
    this.#pending = socket;
    this.#step = 'its answer to CONNECT';
    let head = Buffer.alloc(0);
    const onData = (bytes: Buffer) => {
      head = Buffer.concat([head, bytes]);
      for (;;) {
        const text = head.toString('latin1', 0, MAX_HEAD);
        const end = HEAD_END.exec(text);
        if (end === null && text.length < MAX_HEAD && (text.length < 13 || STATUS.test(text))) return;
        const status = Number(STATUS.exec(text)?.[1]);
        if (end === null || Number.isNaN(status)) {
          const what = Number.isNaN(status) ? 'something that is not HTTP' : 'a head of more than 16 KiB';
          this.destroy(this.#failure('upstream_proxy_error', `answered CONNECT with ${what}`));
          return;
        }
        head = head.subarray(end.index + end[0].length);
        if (status >= 200) {
          socket.pause();
          socket.off('data', onData).off('end', onEnd).off('close', onClose);
          this.#onAnswer(status, socket, head);
          return;
        }
      }
    };
    const onClose = () =>
      this.destroy(
        this.#failure('upstream_proxy_error', 'closed the connection before its answer to CONNECT'),
      );
    const onEnd = () => socket.destroy();
    socket.on('data', onData).once('end', onEnd).once('close', onClose);
    const authority =
      this.#destination.port === '' ? `${this.#destination.host}:${this.#port}` : this.#destination.host;
    const { username, password } = this.#steps.proxy;
    const login = [username, password].map(decodeURIComponent).join(':');
    const credentials =
      login === ':' ? '' : `proxy-authorization: Basic ${Buffer.from(login).toString('base64')}\r\n`;
    socket.write(`CONNECT ${authority} HTTP/1.1\r\nhost: ${authority}\r\n${credentials}\r\n`);
  }

  get #port(): number {
    return this.#destination.protocol === 'https:' ? 443 : 80;
  }

  /** @param rest bytes behind the head, which belong to the tunnel */
  #onAnswer(status: number, socket: Socket, rest: Buffer): void {
    if (status > 299) {
      const hint =
        status === 407
          ? this.#steps.proxy.username === ''
            ? ': it demands credentials'
            : ': it demands other credentials'
          : '';
      // A temporary failure, mostly of the way from the proxy to the target.
      const isTemporary = status >= 500 || status === 408 || status === 429 || status < 400;
      const code = isTemporary ? 'upstream_proxy_error' : 'upstream_proxy_denied';
      this.destroy(this.#failure(code, `answered CONNECT with ${status}${hint}`));
      return;
    }
    if (rest.length > 0) socket.unshift(rest);
    if (this.#destination.protocol !== 'https:') {
      this.#succeed(socket);
      return;
    }
    this.#step = 'TLS with the upstream';
    this.#pending = this.#steps.secure({ ...this.#destination, httpSocket: socket }, (outcome) => {
      if (!(outcome instanceof Error)) this.#succeed(outcome);
      else if (isTlsFailure(outcome)) this.destroy(outcome);
      else
        this.destroy(
          this.#failure(
            'upstream_proxy_error',
            'closed the tunnel, or the upstream did, before TLS was set up',
            outcome,
          ),
        );
    });
  }

  #succeed(socket: Socket): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#stopDeadline();
    this.#callback(socket);
  }

  /** The cause names the proxy, for the log only. */
  #failure(code: ErrorCode, what: string, cause?: Error): GatewayError {
    return new GatewayError(code, undefined, {
      cause: new Error(`the proxy ${this.#steps.proxy.host} ${what}`, { cause }),
    });
  }
}
