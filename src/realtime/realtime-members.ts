// Reads the events of a realtime client before they go to the upstream, where the configuration refuses members of them
// (`session.model`, say). Whole messages are passed on as they came, and one that is refused is not passed on at all.
import { type ErrorCode, GatewayError } from '../errors.ts';
import type { Route } from '../proxy/routes/route-table.ts';
import { MemberSearch, unsupportedMember, type WatchedMembers } from '../proxy/routes/watched-members.ts';
import { JsonWalk } from '../wire/json-walk.ts';
import { WebSocketFrameReader } from './websocket-frames.ts';

/** Of one event: OpenAI takes 15 MiB of sound in one, in base64. */
const MAX_EVENT = 32 * 1024 * 1024;
const NO_BYTES: Buffer = Buffer.alloc(0);
const BINARY = 0x2;

/** Why a session has to end. */
interface EventRejection {
  /** RFC 6455, 7.4.1. */
  readonly closeCode: number;
  readonly error: GatewayError;
}

export class ClientEvents {
  readonly #watched: WatchedMembers;
  readonly #refused: NonNullable<Route['rejected']>;
  readonly #reader: WebSocketFrameReader;
  /** Of a message that has not ended. */
  #held: Buffer[] = [];
  #refusal: EventRejection | undefined;

  constructor(watched: WatchedMembers, refused: NonNullable<Route['rejected']>) {
    this.#watched = watched;
    this.#refused = refused;
    const onLongText = () => this.#refuse(1009, 'request_too_large', 'An event is longer than 32 MiB.');
    this.#reader = new WebSocketFrameReader(
      { onText: (text) => this.#read(text), onLongText, onClose: () => {} },
      MAX_EVENT,
    );
  }

  /** Nothing is refused by this route, or there is nothing to refuse. */
  static for(watched: WatchedMembers | undefined, { rejected: refused }: Route): ClientEvents | undefined {
    return watched === undefined || refused === undefined ? undefined : new ClientEvents(watched, refused);
  }

  /** Set once an event was refused; nothing is passed on from then on. */
  get refusal(): EventRejection | undefined {
    return this.#refusal;
  }

  /** @returns what of it, and of what was held back, may be passed on: whole messages, as they came */
  admit(bytes: Buffer): Buffer {
    if (this.#refusal !== undefined) return NO_BYTES;
    const reader = this.#reader;
    let passed = 0;
    for (let at = 0; at < bytes.length; ) {
      // Some servers read JSON in binary messages too, and no client needs them.
      if (reader.betweenMessages && ((bytes[at] ?? 0) & 0x0f) === BINARY)
        this.#refuse(1003, 'invalid_value', 'Events have to be text messages.');
      else at += reader.push(bytes.subarray(at), true);
      if (reader.isLost) this.#refuse(1002, 'invalid_value', 'This is no sequence of WebSocket frames.');
      if (this.#refusal !== undefined) break;
      if (reader.betweenMessages) passed = at;
    }
    const held = this.#held;
    if (passed === 0 && this.#refusal === undefined) held.push(bytes);
    else this.#held = this.#refusal !== undefined || passed === bytes.length ? [] : [bytes.subarray(passed)];
    if (passed === 0) return NO_BYTES;
    const whole = bytes.subarray(0, passed);
    return held.length === 0 ? whole : Buffer.concat([...held, whole]);
  }

  #read(text: Buffer): void {
    const search = new MemberSearch(this.#watched);
    const walk = new JsonWalk(search);
    walk.advance(text, text.length, true);
    // What cannot be read here could be read there.
    if (walk.fault !== null) this.#refuse(1007, 'invalid_json', 'An event is not valid JSON.');
    for (const path of search.found.keys()) {
      const name = this.#refused.get(path);
      if (name !== undefined) this.#end(1008, unsupportedMember(name));
    }
  }

  #refuse(closeCode: number, code: ErrorCode, message: string): void {
    this.#end(closeCode, new GatewayError(code, message));
  }

  #end(closeCode: number, error: GatewayError): void {
    this.#refusal ??= { closeCode, error };
  }
}
