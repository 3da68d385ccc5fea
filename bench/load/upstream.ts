// The upstream of the bench, a process of its own: prepared bytes over bare sockets, so that it costs little beside what is
// measured. It answers with the headers of api.openai.com, prints its port and ends when its stdin does. It understands no more
// HTTP than the bench speaks.
import { createServer, type Socket } from 'node:net';
import { answerHeaders, JSON_TYPE, STREAM_TYPE } from './answer-headers.ts';
import { Player } from './playback.ts';
import { answerBytesOf, completion, paceOf, UPSTREAM_MODEL } from './traffic.ts';

const HEAD_END = Buffer.from('\r\n\r\n');
const STREAM = Buffer.from('"stream":true');
const INCLUDE_USAGE = Buffer.from('"include_usage":true');
const NOTHING: Buffer = Buffer.alloc(0);
/** Longer bodies are counted and not looked at: they never ask for streams. */
const READ_BYTES = 64 * 1024;

function headOf(contentType: string): Buffer {
  const lines = answerHeaders(contentType).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(`HTTP/1.1 200 OK\r\n${lines.join('')}\r\n`);
}

const END = Buffer.from('0\r\n\r\n');

function chunked(data: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]);
}

function jsonAnswer(bytes?: number): Buffer {
  return Buffer.concat([headOf(JSON_TYPE), chunked(completion(UPSTREAM_MODEL, bytes)), END]);
}

const ANSWER = jsonAnswer();
/** By their lengths. */
const largeAnswers = new Map<number, Buffer>();
const LARGE_ANSWER = Buffer.from('"user":"answer=');
const STREAM_HEAD = headOf(STREAM_TYPE);
const player = new Player(chunked);

function largeAnswer(request: Buffer): Buffer {
  const bytes = answerBytesOf(request.toString('latin1')) ?? 0;
  const known = largeAnswers.get(bytes) ?? jsonAnswer(bytes);
  largeAnswers.set(bytes, known);
  return known;
}

/** The head goes with the first frame. */
class SocketSink {
  readonly #socket: Socket;
  #hasHead = false;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  get isGone(): boolean {
    return this.#socket.destroyed;
  }

  write(frame: Buffer): void {
    this.#socket.write(this.#hasHead ? frame : Buffer.concat([STREAM_HEAD, frame]));
    this.#hasHead = true;
  }

  end(): void {
    this.#socket.write(END);
  }
}

function answer(socket: Socket, request: Buffer): void {
  const pace = request.includes(STREAM) ? paceOf(request.toString('latin1')) : undefined;
  if (pace !== undefined) player.play(new SocketSink(socket), pace, request.includes(INCLUDE_USAGE));
  else socket.write(request.includes(LARGE_ANSWER) ? largeAnswer(request) : ANSWER);
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
