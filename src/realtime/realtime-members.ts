// Checks the events of a realtime client before they are forwarded, if the configuration rejects members of them (`session.model`, for
// example). It forwards whole messages unchanged, and nothing of a rejected one.
import { type ErrorCode, GatewayError } from '../errors.ts';
import { BodyBuffer } from '../http/pieces/body-buffer.ts';
import type { Route } from '../proxy/routes/route-table.ts';
import { MemberSearch, unsupportedMember, type WatchedMembers } from '../proxy/routes/watched-members.ts';
import { JsonWalk } from '../wire/json/json-walk.ts';
import { WebSocketFrameReader } from './websocket/websocket-frames.ts';

/** Maximum size of an event: OpenAI accepts 15 MiB of sound in one, in base64. */
const MAX_EVENT = 32 * 1024 * 1024;
/** Maximum bytes of its frames. Frames may be empty, and control frames may come between them. */
const MAX_HELD = MAX_EVENT + 1024 * 1024;
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
  readonly #rejected: NonNullable<Route['rejected']>;
  readonly #reader: WebSocketFrameReader;
  /** The incomplete message, and control frames within it. */
  #held = new BodyBuffer(MAX_HELD);
  #rejection: EventRejection | undefined;

  constructor(watched: WatchedMembers, rejected: NonNullable<Route['rejected']>) {
    this.#watched = watched;
    this.#rejected = rejected;
    this.#reader = new WebSocketFrameReader(
      { onText: (text) => this.#read(text), onTooLong: () => this.#rejectLong(), onClose: () => {} },
      MAX_EVENT,
    );
  }

  /** @returns undefined if the route rejects no members */
  static for(watched: WatchedMembers | undefined, { rejected }: Route): ClientEvents | undefined {
    return watched === undefined || rejected === undefined ? undefined : new ClientEvents(watched, rejected);
  }

  /** Set when an event was rejected; nothing is forwarded after that. */
  get rejection(): EventRejection | undefined {
    return this.#rejection;
  }

  /** @returns the whole messages to forward, from held and new bytes */
  admit(bytes: Buffer): Buffer {
    if (this.#rejection !== undefined) return NO_BYTES;
    const reader = this.#reader;
    let passed = 0;
    for (let at = 0; at < bytes.length; ) {
      // Some servers also read JSON from binary messages, which no client needs.
      if (reader.betweenMessages && ((bytes[at] ?? 0) & 0x0f) === BINARY)
        this.#reject(1003, 'invalid_value', 'Events have to be text messages.');
      else at += reader.push(bytes.subarray(at), true);
      if (reader.isLost) this.#reject(1002, 'invalid_value', 'This is no sequence of WebSocket frames.');
      if (this.#rejection !== undefined) break;
      if (reader.betweenMessages) passed = at;
    }
    const held = this.#held;
    if (passed > 0 || this.#rejection !== undefined) this.#held = new BodyBuffer(MAX_HELD);
    if (this.#rejection === undefined && !this.#held.push(bytes.subarray(passed))) this.#rejectLong();
    if (passed === 0) return NO_BYTES;
    const whole = bytes.subarray(0, passed);
    return held.size === 0 ? whole : Buffer.concat([held.take(), whole]);
  }

  #rejectLong(): void {
    this.#reject(1009, 'request_too_large', 'An event is longer than 32 MiB.');
  }

  #read(text: Buffer): void {
    const search = new MemberSearch(this.#watched);
    const walk = new JsonWalk(search);
    walk.advance(text, text.length, true);
    // The upstream could read it differently.
    if (walk.fault !== null) this.#reject(1007, 'invalid_json', 'An event is not valid JSON.');
    for (const path of search.found.keys()) {
      const name = this.#rejected.get(path);
      if (name !== undefined) this.#end(1008, unsupportedMember(name));
    }
  }

  #reject(closeCode: number, code: ErrorCode, message: string): void {
    this.#end(closeCode, new GatewayError(code, message));
  }

  #end(closeCode: number, error: GatewayError): void {
    this.#rejection ??= { closeCode, error };
  }
}
