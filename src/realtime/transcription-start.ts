// The beginning of a transcription session without a model in its address: the client gets its 101 first and names the model in
// `session.update`, by which the session is then routed. The events of the two sides keep their order.
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { startDeadline } from '../deadline.ts';
import { GatewayError, isServerFault, wrapError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import type { Upgrade } from '../http/exchange/upgrade.ts';
import { memberOf, parse } from '../wire/error-answer.ts';
import { isConfig, modelIn, type SessionConfig, sessionUpdate } from './client-secret.ts';
import { cutLater, errorFrame } from './websocket/session-end.ts';
import { closeFrame, textFrame, WebSocketFrameReader } from './websocket/websocket-frames.ts';

/** For the model to be named, in milliseconds, and the bytes that a client may send until then. */
const NAMING_MS = 30_000;
const MAX_BYTES = 64 * 1024;
const NO_BYTES: Buffer = Buffer.alloc(0);
const PARAM = 'session.audio.input.transcription.model';
const UNNAMED = 'Name the model in session.update before sending anything else.';

/** The event by which a client names its model. */
interface Update {
  readonly type: string;
  readonly session: SessionConfig;
  readonly model: string;
}

export class TranscriptionStart {
  readonly #socket: Socket;
  readonly #named: NamedSession;

  private constructor(socket: Socket, named: NamedSession) {
    this.#socket = socket;
    this.#named = named;
  }

  /**
   * Accepts the handshake and waits for the model.
   * @param head of the 101
   * @throws (rejects with) GatewayError; the client has been told by then
   */
  static async open(
    exchange: Exchange,
    { socket, head: first }: Upgrade,
    head: string,
  ): Promise<TranscriptionStart> {
    exchange.response.statusCode = 101;
    const session = {
      type: 'transcription',
      object: 'realtime.transcription_session',
      id: `sess_${randomBytes(12).toString('hex')}`,
    };
    const event_id = `event_${randomBytes(8).toString('hex')}`;
    socket.write(head);
    // Some clients send nothing before it. That of the upstream is left out.
    socket.write(textFrame(JSON.stringify({ type: 'session.created', event_id, session })));
    try {
      return new TranscriptionStart(socket, await exchange.orStopped(readUpdate(socket, first)));
    } catch (error) {
      reject(socket, wrapError(error, 'internal_error'));
      throw error;
    }
  }

  get model(): string {
    return this.#named.update.model;
  }

  /** The client's bytes after its update. */
  get rest(): Buffer {
    return this.#named.rest;
  }

  /** The client's bytes up to its update, for an upstream that knows the model by this name. */
  bytesFor(model: string): Buffer {
    const { update, before } = this.#named;
    return Buffer.concat([before, sessionUpdate(update.session, true, model, update.type)]);
  }

  /** There is no session after all. */
  fail(error: GatewayError): void {
    reject(this.#socket, error);
  }
}

/** Leaves out the upstream's first event if it says that the session was created. */
export class CreatedFilter {
  #held: Buffer[] = [];
  #size = 0;
  #isOver = false;
  #isCreated = false;
  readonly #reader = new WebSocketFrameReader({
    onText: (text) => {
      this.#isOver = true;
      this.#isCreated = memberOf(parse(text.toString()), 'type') === 'session.created';
    },
    onBinary: () => this.#end(),
    onClose: () => this.#end(),
  });

  /** @returns what is to be passed on */
  readonly pass = (bytes: Buffer): Buffer => {
    if (this.#isOver) return bytes;
    let at = 0;
    while (at < bytes.length && !this.#isOver) {
      at += this.#reader.push(bytes.subarray(at), true);
      this.#isOver ||= this.#reader.isLost || this.#size + at > MAX_BYTES;
    }
    const held = this.#held;
    if (this.#isCreated) return bytes.subarray(at);
    if (this.#isOver) return Buffer.concat([...held, bytes]);
    held.push(bytes);
    this.#size += bytes.length;
    return NO_BYTES;
  };

  #end(): void {
    this.#isOver = true;
  }
}

interface NamedSession {
  readonly update: Update;
  readonly before: Buffer;
  readonly rest: Buffer;
}

/** Reads up to the event with the model. The socket is paused then. @throws (rejects with) GatewayError */
function readUpdate(socket: Socket, first: Buffer): Promise<NamedSession> {
  return new Promise((resolve, reject) => {
    let all = NO_BYTES;
    let read = 0;
    /** The end of the last whole message. */
    let boundary = 0;
    let update: Update | undefined;
    const refuse = (message: string) => {
      throw new GatewayError('invalid_value', message);
    };
    const reader = new WebSocketFrameReader(
      {
        onText: (text) => {
          update = updateIn(text.toString());
        },
        onTooLong: () => refuse(UNNAMED),
        onBinary: () => refuse('Events have to be text messages.'),
        onClose: () => leave(),
      },
      MAX_BYTES,
      true,
    );
    const end = (settle: () => void) => {
      stop();
      socket.off('data', onData).off('end', leave).off('close', leave).pause();
      settle();
    };
    const leave = () => {
      end(() => reject(new GatewayError('client_closed')));
      socket.destroy();
    };
    const onData = (bytes: Buffer) => {
      try {
        all = Buffer.concat([all, bytes]);
        while (read < all.length && update === undefined) {
          read += reader.push(all.subarray(read), true);
          if (reader.isLost) refuse('This is no sequence of WebSocket frames from a client.');
          if (update === undefined && reader.betweenMessages) boundary = read;
        }
        if (update === undefined && all.length > MAX_BYTES) refuse(UNNAMED);
      } catch (error) {
        end(() => reject(wrapError(error, 'internal_error')));
        return;
      }
      const named = update;
      if (named === undefined) return;
      end(() => resolve({ update: named, before: all.subarray(0, boundary), rest: all.subarray(read) }));
    };
    const stop = startDeadline(NAMING_MS, () =>
      end(() => reject(new GatewayError('request_timeout', 'No session.update named a model in time.'))),
    );
    socket.on('data', onData).once('end', leave).once('close', leave);
    if (first.length > 0) onData(first);
    else socket.resume();
  });
}

/** @returns undefined for any other event. @throws GatewayError for one that names no model */
function updateIn(text: string): Update | undefined {
  const event = parse(text);
  const type = memberOf(event, 'type');
  if (type !== 'session.update' && type !== 'transcription_session.update') return undefined;
  const session = memberOf(event, 'session');
  const model = isConfig(session) ? modelIn(session, true) : undefined;
  if (isConfig(session) && typeof model === 'string') return { type, session, model };
  const message = 'Name the model of the transcription in the first session.update.';
  throw new GatewayError('missing_required_parameter', message, { param: PARAM });
}

/** An error event and a Close: 1013 (Try Again Later) where another attempt may succeed. */
function reject(socket: Socket, error: GatewayError): void {
  if (socket.destroyed || error.code === 'client_closed') return;
  socket.write(errorFrame(error));
  const isTransient = error.status === 429 || isServerFault(error.status);
  socket.end(closeFrame(isTransient ? 1013 : 1008, error.code, false));
  socket.resume();
  cutLater(socket);
}
