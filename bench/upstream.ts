// The upstream of the proxy bench, a process of its own: prepared bytes over bare sockets, so that it costs little beside
// what is measured. It prints its port and ends when its stdin does. It understands no more HTTP than the bench speaks.
import { createServer, type Socket } from 'node:net';
import { completion, FRAME_EVERY_MS, streamFrames, UPSTREAM_MODEL, usageFrame } from './traffic.ts';

const HEAD_END = Buffer.from('\r\n\r\n');
const STREAM = Buffer.from('"stream":true');
const INCLUDE_USAGE = Buffer.from('"include_usage":true');
const NOTHING: Buffer = Buffer.alloc(0);

const body = completion(UPSTREAM_MODEL);
const ANSWER = Buffer.concat([
  Buffer.from(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`),
  body,
]);
const STREAM_HEAD = Buffer.from(
  'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n',
);

const frames = streamFrames(UPSTREAM_MODEL);
const done = frames.at(-1) ?? NOTHING;
const PLAIN = [STREAM_HEAD, ...frames.map(chunked), Buffer.from('0\r\n\r\n')];
const WITH_USAGE = [
  STREAM_HEAD,
  ...frames.slice(0, -1).map(chunked),
  chunked(usageFrame(UPSTREAM_MODEL)),
  chunked(done),
  Buffer.from('0\r\n\r\n'),
];

function chunked(data: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]);
}

/** A stream under way: what is still to be written. */
interface Playing {
  readonly socket: Socket;
  readonly pieces: readonly Buffer[];
  next: number;
}

// Streams are spread over the milliseconds of a period: real ones do not all speak at once, and a proxy that finds many
// sockets ready in one turn of its loop has less to do for each.
const slots: Set<Playing>[] = Array.from({ length: FRAME_EVERY_MS }, () => new Set());
let begun = 0;
let turn = 0;
setInterval(() => {
  const slot = slots[turn++ % FRAME_EVERY_MS];
  for (const playing of slot ?? []) {
    const piece = playing.pieces[playing.next++];
    if (piece === undefined || playing.socket.destroyed) slot?.delete(playing);
    else playing.socket.write(piece);
  }
}, 1);

function answer(socket: Socket, request: Buffer): void {
  if (!request.includes(STREAM)) socket.write(ANSWER);
  else {
    const pieces = request.includes(INCLUDE_USAGE) ? WITH_USAGE : PLAIN;
    slots[begun++ % FRAME_EVERY_MS]?.add({ socket, pieces, next: 0 });
  }
}

/** Length of the first request in `bytes`, or undefined while it is not complete. */
function requestLength(bytes: Buffer): number | undefined {
  const end = bytes.indexOf(HEAD_END);
  if (end === -1) return undefined;
  const length = /content-length: *(\d+)/i.exec(bytes.toString('latin1', 0, end))?.[1];
  const whole = end + HEAD_END.length + Number(length ?? 0);
  return bytes.length < whole ? undefined : whole;
}

const server = createServer({ noDelay: true }, (socket) => {
  let held = NOTHING;
  socket.on('data', (data: Buffer) => {
    held = held.length === 0 ? data : Buffer.concat([held, data]);
    for (let length = requestLength(held); length !== undefined; length = requestLength(held)) {
      answer(socket, held.subarray(0, length));
      held = held.length === length ? NOTHING : held.subarray(length);
    }
  });
  // Load generators and proxies leave as they like.
  socket.on('error', () => socket.destroy());
});
server.listen({ host: '127.0.0.1', port: 0, backlog: 1024 }, () => {
  const address = server.address();
  if (address !== null && typeof address === 'object') console.log(`port ${address.port}`);
});
process.stdin.resume().once('end', () => process.exit());
