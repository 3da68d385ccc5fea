// Node with nothing on, a process of its own, which prints its port: `sockets PORT` passes bytes on between two sockets and does
// not know what they are; `server PORT` is `node:http` alone, which answers by itself what the upstream would; `http-proxy-3 PORT` is
// that package with kept connections and nothing around it.
import { Agent, createServer as createHttpServer, type ServerResponse } from 'node:http';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { createProxyServer } from 'http-proxy-3';
import { answerHeaders, JSON_TYPE, STREAM_TYPE } from '../load/answer-headers.ts';
import { Player } from '../load/playback.ts';
import { completion, paceOf, UPSTREAM_MODEL } from '../load/traffic.ts';

const HOST = '127.0.0.1';
const RELAYS: Readonly<Record<string, (port: number) => Server>> = {
  sockets,
  server: alone,
  'http-proxy-3': httpProxy3,
};

/** Each connection has one to the upstream for itself: nothing has to be read to know where an answer belongs. */
function sockets(port: number): Server {
  return createServer({ noDelay: true }, (client) => {
    const upstream = connect({ port, host: HOST, noDelay: true });
    const end = () => {
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) socket.on('error', end).on('close', end);
    join(client, upstream);
    join(upstream, client);
  });
}

function join(from: Socket, to: Socket): void {
  from.on('data', (bytes) => {
    if (!to.write(bytes)) from.pause();
  });
  to.on('drain', () => from.resume());
}

/** What `node:http` would write by itself is left to it. */
function headersOf(contentType: string): string[] {
  return answerHeaders(contentType)
    .filter(([name]) => !['Transfer-Encoding', 'Connection'].includes(name))
    .flat();
}

function alone(): Server {
  const answer = completion(UPSTREAM_MODEL);
  const [json, stream] = [headersOf(JSON_TYPE), headersOf(STREAM_TYPE)];
  const player = new Player((frame) => frame);
  const reply = (request: string, response: ServerResponse) => {
    const pace = paceOf(request);
    if (pace === undefined) {
      response.writeHead(200, json).end(answer);
      return;
    }
    response.writeHead(200, stream);
    const sink = {
      get isGone() {
        return response.destroyed;
      },
      write: (frame: Buffer) => void response.write(frame),
      end: () => void response.end(),
    };
    player.play(sink, pace, request.includes('"include_usage":true'));
  };
  return createHttpServer((request, response) => {
    let body = '';
    request.setEncoding('latin1').on('data', (piece: string) => {
      body += piece;
    });
    request.once('end', () => reply(body, response));
  });
}

function httpProxy3(port: number): Server {
  const agent = new Agent({ keepAlive: true, maxSockets: 1_024 });
  const proxy = createProxyServer({ target: `http://${HOST}:${port}`, agent });
  proxy.on('error', (_error, _request, response) => void response.destroy());
  return createHttpServer((request, response) => proxy.web(request, response));
}

const [kind = '', port = ''] = process.argv.slice(2);
const server = RELAYS[kind]?.(Number(port));
if (server === undefined) throw new Error(`there is no ${kind}; there are ${Object.keys(RELAYS).join(', ')}`);
server.listen({ port: 0, host: HOST, backlog: 4_096 }, () => {
  const address = server.address();
  if (address !== null && typeof address === 'object') console.log(`port ${address.port}`);
});
process.stdin.resume().once('end', () => process.exit());
