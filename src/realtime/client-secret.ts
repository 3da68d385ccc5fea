// Client secrets of realtime sessions: what one is for is encrypted in itself (AES-256-GCM), so that every replica can read it and none
// stores it. It never goes to an upstream, and ends with the key that made it.
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { deflateRawSync, inflateRawSync } from 'node:zlib';
import type { Authenticator } from '../auth/authenticator.ts';
import { noteHolder } from '../auth/identify.ts';
import type { Principal } from '../auth/key/principal.ts';
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { isPrefix } from '../store/key-record.ts';
import { memberOf, parse } from '../wire/error-answer.ts';
import { textFrame } from './websocket/websocket-frames.ts';

const START = 'ek_';
const HEADER = /^Bearer +(ek_[\w-]{40,})$/i;
const ALGORITHM = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** It is sent in a header, whose size the gateway limits to 16 KiB. */
const MAX_LENGTH = 8 * 1024;
const MAX_BYTES = 128 * 1024;

/** A session as its maker configured it. */
export type SessionConfig = Readonly<Record<string, unknown>>;

export interface BoundSession {
  /** Public name of its only model. */
  readonly model: string;
  readonly isTranscription: boolean;
  readonly session: SessionConfig;
}

export interface ClientSecretOptions {
  readonly authenticator: Pick<Authenticator, 'principalOf'>;
  readonly sealingKey: Buffer;
  /** Milliseconds since 1970. */
  readonly clock?: () => number;
}

export class ClientSecrets {
  readonly #options: ClientSecretOptions;
  readonly #clock: () => number;

  constructor(options: ClientSecretOptions) {
    this.#options = options;
    this.#clock = options.clock ?? Date.now;
  }

  /** @param seconds until it expires @throws GatewayError invalid_value for a session that is too large */
  make(
    { prefix, holderId }: Pick<Principal, 'prefix' | 'holderId'>,
    bound: BoundSession,
    seconds: number,
  ): { readonly value: string; readonly expiresAt: number } {
    const expiresAt = Math.floor(this.#clock() / 1000) + seconds;
    const text = JSON.stringify({ prefix, holderId, expiresAt, ...bound });
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, this.#options.sealingKey, nonce);
    const sealed = [nonce, cipher.update(deflateRawSync(text)), cipher.final(), cipher.getAuthTag()];
    const value = START + Buffer.concat(sealed).toString('base64url');
    if (value.length <= MAX_LENGTH) return { value, expiresAt };
    const message = 'The session is too large for a client secret. Send the rest with session.update.';
    throw new GatewayError('invalid_value', message, { param: 'session' });
  }

  /**
   * Reads the secret of a handshake.
   * @param authorization value of an Authorization header
   * @returns undefined where it has no client secret
   * @throws (rejects with) GatewayError invalid_api_key, api_key_expired, or what `Authenticator.principalOf` throws
   */
  async identify(
    exchange: Exchange,
    authorization: string | undefined,
  ): Promise<{ readonly principal: Principal; readonly bound: BoundSession } | undefined> {
    const value = HEADER.exec(authorization ?? '')?.[1];
    if (value === undefined) return undefined;
    const content = parse(this.#open(value) ?? '');
    const [prefix, model, session] = ['prefix', 'model', 'session'].map((name) => memberOf(content, name));
    const expiresAt = Number(memberOf(content, 'expiresAt'));
    const isWhole =
      typeof prefix === 'string' && isPrefix(prefix) && typeof model === 'string' && isConfig(session);
    if (!isWhole) throw new GatewayError('invalid_api_key', 'The client secret is not valid.');
    if (this.#clock() >= expiresAt * 1000) {
      const time = new Date(expiresAt * 1000).toISOString();
      throw new GatewayError('api_key_expired', `The client secret expired on ${time}.`);
    }
    const principal = await this.#options.authenticator.principalOf(prefix);
    if (principal.holderId !== memberOf(content, 'holderId')) throw new GatewayError('invalid_api_key');
    noteHolder(exchange, principal);
    const isTranscription = memberOf(content, 'isTranscription') === true;
    return { principal, bound: { model, session, isTranscription } };
  }

  #open(value: string): string | undefined {
    const sealed = Buffer.from(value.slice(START.length), 'base64url');
    if (sealed.length <= NONCE_BYTES + TAG_BYTES) return undefined;
    try {
      const cipher = createDecipheriv(ALGORITHM, this.#options.sealingKey, sealed.subarray(0, NONCE_BYTES));
      cipher.setAuthTag(sealed.subarray(-TAG_BYTES));
      const text = [cipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES)), cipher.final()];
      return inflateRawSync(Buffer.concat(text), { maxOutputLength: MAX_BYTES }).toString();
    } catch {
      // Not made with this key, or changed.
      return undefined;
    }
  }
}

export function isConfig(value: unknown): value is SessionConfig {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The model that a session names: of a transcription that of its input. */
export function modelIn(session: SessionConfig, isTranscription: boolean): unknown {
  if (!isTranscription) return session['model'];
  const input = memberOf(memberOf(session, 'audio'), 'input');
  return (
    memberOf(memberOf(input, 'transcription'), 'model') ??
    memberOf(session['input_audio_transcription'], 'model')
  );
}

/** A frame for an upstream: the event that sets a session with the name of the model there. @param type of the event */
export function sessionUpdate(
  session: SessionConfig,
  isTranscription: boolean,
  model: string,
  type = 'session.update',
): Buffer {
  return textFrame(JSON.stringify({ type, session: sessionAt(session, isTranscription, model) }), true);
}

/** The event that sets the session of a client secret at an upstream. */
export function firstEventOf({ session, isTranscription }: BoundSession): (model: string) => Buffer {
  return (model) => sessionUpdate(session, isTranscription, model);
}

/** A session with the name of the model at its upstream, where the address does not have it. */
export function sessionAt(session: SessionConfig, isTranscription: boolean, model: string): SessionConfig {
  if (!isTranscription) {
    const { model: _, ...rest } = session;
    return rest;
  }
  const older = session['input_audio_transcription'];
  if (isConfig(older)) return { ...session, input_audio_transcription: { ...older, model } };
  const audio = Object(session['audio']);
  const transcription = { ...Object(audio.input?.transcription), model };
  return { ...session, audio: { ...audio, input: { ...Object(audio.input), transcription } } };
}
