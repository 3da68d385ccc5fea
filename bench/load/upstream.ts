// The upstream of the bench, a process of its own: prepared bytes over bare sockets, so that it costs little beside what is
// measured. It prints its port and ends when its stdin does. It understands no more HTTP than the bench speaks.
import { createServer, type Socket } from 'node:net';
import {
  answerBytesOf,
  completion,
  type Pace,
  paceOf,
  streamFrames,
  timedFrame,
  UPSTREAM_MODEL,
  usageFrame,
} from './traffic.ts';

const HEAD_END = Buffer.from('\r\n\r\n');
const STREAM = Buffer.from('"stream":true');
const INCLUDE_USAGE = Buffer.from('"include_usage":true');
const NOTHING: Buffer = Buffer.alloc(0);
/** Longer bodies are counted and not looked at: they never ask for streams. */
const READ_BYTES = 64 * 1024;

function jsonAnswer(bytes?: number): Buffer {
  const body = completion(UPSTREAM_MODEL, bytes);
  const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), body]);
}

const ANSWER = jsonAnswer();
/** By their lengths. */
const largeAnswers = new Map<number, Buffer>();
const LARGE_ANSWER = Buffer.from('"user":"answer=');
const STREAM_HEAD = Buffer.from(
  'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n',
);
const END = Buffer.from('0\r\n\r\n');
/** Stands for a frame that is made when it is written. */
const TIMED = 'timed';

/** Frames that are there at once: a role and a word. */
const FIRST = 2;

type Piece = Buffer | typeof TIMED;

function chunked(data: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]);
}

/** Made once for each kind of stream. */
const prepared = new Map<string, readonly Piece[]>();

function piecesOf({ frames: count, kind }: Pace, withUsage: boolean): readonly Piece[] {
  const name = `${count} ${kind} ${withUsage}`;
  const known = prepared.get(name);
  if (known !== undefined) return known;
  const frames = streamFrames(UPSTREAM_MODEL, count).map(chunked);
  const [first = NOTHING, ...words] = frames.slice(0, -2);
  const [finish = NOTHING, done = NOTHING] = frames.slice(-2);
  const usage = withUsage ? [chunked(usageFrame(UPSTREAM_MODEL, count))] : [];
  const pieces: Piece[] = [Buffer.concat([STREAM_HEAD, first])];
  if (kind === 'hold') pieces.push(...words.slice(0, 1));
  else {
    pieces.push(...(kind === 'timed' ? words.map((): Piece => TIMED) : words));
    pieces.push(finish, ...usage, done, END);
  }
  prepared.set(name, pieces);
  return pieces;
}

function bytesOf(piece: Piece): Buffer {
  return piece === TIMED ? chunked(timedFrame(UPSTREAM_MODEL)) : piece;
}

/** A stream under way: what is still to be written. */
interface Playing {
  readonly socket: Socket;
  readonly pieces: readonly Piece[];
  next: number;
}

/**
 * Streams of one pace. They are spread over the milliseconds of a period: real ones do not all speak at once, and a proxy
 * that finds many sockets ready in one turn of its loop has less to do for each.
 */
class Wheel {
  readonly #slots: Set<Playing>[];
  #begun = 0;
  #turn = 0;

  constructor(every: number) {
    this.#slots = Array.from({ length: every }, () => new Set());
  }

  add(socket: Socket, pieces: readonly Piece[]): void {
    // A step that shares no factor with common periods, so that streams that begin together do not speak together.
    this.#slots[(this.#begun++ * 7) % this.#slots.length]?.add({ socket, pieces, next: 0 });
  }

  turn(): void {
    const slot = this.#slots[this.#turn++ % this.#slots.length];
    for (const playing of slot ?? []) {
      const piece = playing.pieces[playing.next++];
      if (piece === undefined || playing.socket.destroyed) slot?.delete(playing);
      else playing.socket.write(bytesOf(piece));
    }
  }
}

const wheels = new Map<number, Wheel>();
setInterval(() => {
  for (const wheel of wheels.values()) wheel.turn();
}, 1);

function largeAnswer(request: Buffer): Buffer {
  const bytes = answerBytesOf(request.toString('latin1')) ?? 0;
  const known = largeAnswers.get(bytes) ?? jsonAnswer(bytes);
  largeAnswers.set(bytes, known);
  return known;
}

function answer(socket: Socket, request: Buffer): void {
  const pace = request.includes(STREAM) ? paceOf(request.toString('latin1')) : undefined;
  if (pace === undefined) {
    socket.write(request.includes(LARGE_ANSWER) ? largeAnswer(request) : ANSWER);
    return;
  }
  const pieces = piecesOf(pace, request.includes(INCLUDE_USAGE));
  if (pace.every === 0) {
    for (const piece of pieces) socket.write(bytesOf(piece));
    return;
  }
  // The first word at once, so that the time to it is the time on the way.
  for (const piece of pieces.slice(0, FIRST)) socket.write(bytesOf(piece));
  const wheel = wheels.get(pace.every) ?? new Wheel(pace.every);
  wheels.set(pace.every, wheel);
  wheel.add(socket, pieces.slice(FIRST));
}

/** Length of the first request in `bytes`, or undefined while its head is not complete. */
function requestLength(bytes: Buffer): number | undefined {
  const end = bytes.indexOf(HEAD_END);
  if (end === -1) return undefined;
  const length = /content-length: *(\d+)/i.exec(bytes.toString('latin1', 0, end))?.[1];
  return end + HEAD_END.length + Number(length ?? 0);
}

const server = createServer({ noDelay: true }, (socket) => {
  let held = NOTHING;
  /** Of a body that is only counted: what is still to come. */
  let skip = 0;
  socket.on('data', (data: Buffer) => {
    if (skip > data.length) {
      skip -= data.length;
      return;
    }
    if (skip > 0) {
      socket.write(ANSWER);
      data = data.subarray(skip);
      skip = 0;
    }
    held = held.length === 0 ? data : Buffer.concat([held, data]);
    for (let length = requestLength(held); length !== undefined; length = requestLength(held)) {
      if (held.length < length) {
        if (length < READ_BYTES) return;
        skip = length - held.length;
        held = NOTHING;
        return;
      }
      answer(socket, held.subarray(0, length));
      held = held.length === length ? NOTHING : held.subarray(length);
    }
  });
  // Load generators and proxies leave as they like.
  socket.on('error', () => socket.destroy());
});
server.listen({ host: '127.0.0.1', port: 0, backlog: 4096 }, () => {
  const address = server.address();
  if (address !== null && typeof address === 'object') console.log(`port ${address.port}`);
});
process.stdin.resume().once('end', () => process.exit());
