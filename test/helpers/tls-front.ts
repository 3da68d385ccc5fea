// A server with TLS in front of a plain one: it demands client certificates where it is told to, records what clients show, and
// passes the bytes on.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { createServer, type Server, type TLSSocket, type TlsOptions } from 'node:tls';

export interface TlsFront extends AsyncDisposable {
  readonly port: number;
  /** Per handshake that came to its end: the asked name, and the serial number or key of the client's certificate. */
  readonly handshakes: readonly { readonly name: string | false | null; readonly client: string }[];
  /** Connections whose handshake failed. */
  readonly failures: number;
}

/** @param port of the plain server */
export async function startTlsFront(port: number, options: TlsOptions): Promise<TlsFront> {
  const handshakes: { name: string | false | null; client: string }[] = [];
  const sockets = new Set<Socket>();
  let failures = 0;
  const keep = (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).once('close', () => sockets.delete(socket));
  };
  const server: Server = createServer(options, (socket: TLSSocket) => {
    const { fingerprint256 = '' } = socket.getPeerCertificate();
    handshakes.push({ name: socket.servername ?? null, client: fingerprint256 });
    const target = connect(port, '127.0.0.1');
    keep(target);
    socket.pipe(target).pipe(socket);
    socket.once('close', () => target.destroy());
    target.once('close', () => socket.destroy());
  });
  server.on('connection', keep);
  server.on('secureConnection', keep);
  server.on('tlsClientError', () => (failures += 1));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  return {
    port: address !== null && typeof address === 'object' ? address.port : 0,
    handshakes,
    get failures() {
      return failures;
    },
    async [Symbol.asyncDispose]() {
      server.close();
      for (const socket of sockets) socket.destroy();
      await once(server, 'close');
    },
  };
}
