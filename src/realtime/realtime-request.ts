// Reads the handshake of a realtime session: the model in the query, and the key in a subprotocol.
import { type ErrorCode, GatewayError } from '../errors.ts';
import { ReferenceSet } from '../proxy/objects/reference-set.ts';
import { isParameter } from '../upstream/upstream-query.ts';
import type { BoundSession } from './client-secret.ts';

/** Browsers cannot set headers, so they send the key in a subprotocol. */
const KEY_PROTOCOL = 'openai-insecure-api-key.';
/** The protocol and its versions. Other subprotocols may hold credentials and are not forwarded. */
const FORWARDED_PROTOCOL = /^(?:realtime|openai-beta\.[\w.-]{1,64})$/;

const TRANSCRIPTION = 'intent=transcription';
const MODEL: ReadonlySet<string> = new Set(['model']);

/** The query of a session, with its model. */
export interface SessionQuery {
  /** Undefined for a transcription session whose first event names it. */
  readonly model: string | undefined;
  /**
   * The query for an upstream: every other parameter byte for byte and in its place.
   * @param model the name there; undefined leaves the parameter out. A transcription session without the parameter gets none
   */
  rewrite(model: string | undefined): string;
}

/**
 * @param target the request target, in origin form
 * @param bound what the client secret is for, if it is one
 * @throws GatewayError missing_required_parameter, duplicate_parameter, invalid_value, or object_not_found
 *   for the id of a call or another object at the upstream, because none of these has a recorded owner
 */
export function readSessionQuery(
  target: string,
  bound?: Pick<BoundSession, 'model' | 'isTranscription'>,
): SessionQuery {
  const start = target.indexOf('?');
  const pieces = start === -1 ? [] : target.slice(start + 1).split('&');
  const names = pieces.map((piece) => decode(piece.split('=', 1)[0] ?? ''));
  const isTranscription = pieces.includes(TRANSCRIPTION);
  const isBound = bound !== undefined;
  if (isBound && isTranscription !== bound.isTranscription) {
    if (names.includes('intent'))
      throw new GatewayError('invalid_value', 'The client secret is for another kind of session.', {
        param: 'intent',
      });
    pieces.push(TRANSCRIPTION);
  }
  // Otherwise the gateway and the upstream could read different models.
  if (pieces.some((each, index) => names[index] !== 'model' && isParameter(each, MODEL))) {
    throw invalidModel(
      'invalid_value',
      'The parameter model is spelled differently: spell it exactly like this.',
    );
  }
  const at = names.indexOf('model');
  if (at === -1) {
    if (!isBound && !isTranscription) throw missing();
    refuseObjects(target.slice(start + 1));
    const isNamed = bound?.isTranscription === false;
    return {
      model: bound?.model,
      rewrite: (name) =>
        [...pieces, ...(isNamed && name !== undefined ? [`model=${encodeURIComponent(name)}`] : [])].join(
          '&',
        ),
    };
  }
  if (names.indexOf('model', at + 1) !== -1) {
    throw invalidModel('duplicate_parameter', 'The parameter model is given more than once.');
  }
  const piece = pieces[at] ?? '';
  const equals = piece.indexOf('=');
  const model = equals === -1 ? '' : decode(piece.slice(equals + 1));
  if (model === undefined) {
    throw invalidModel('invalid_value', 'The parameter model is not valid percent-encoding.');
  }
  if (model === '') throw missing();
  if (isBound && bound.model !== model)
    throw invalidModel('invalid_value', 'The client secret is for another model.');
  refuseObjects(target.slice(start + 1));
  return {
    model,
    rewrite(name) {
      return pieces
        .flatMap((each, index) => {
          if (index !== at) return [each];
          return name === undefined ? [] : [`${piece.slice(0, equals)}=${encodeURIComponent(name)}`];
        })
        .join('&');
    },
  };
}

function refuseObjects(query: string): void {
  const finder = new ReferenceSet();
  finder.addQuery(query);
  if (finder.certain.size > 0) throw new GatewayError('object_not_found');
}

function missing(): GatewayError {
  return invalidModel('missing_required_parameter', 'Say which model in the query: /v1/realtime?model=NAME.');
}

function invalidModel(code: ErrorCode, message: string): GatewayError {
  return new GatewayError(code, message, { param: 'model' });
}

/** Decodes form encoding (`+` is a space); undefined if the encoding is invalid. */
function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return undefined;
  }
}

interface OfferedProtocols {
  /** The offered key as the value of an Authorization header; undefined if there is none. */
  readonly authorization: string | undefined;
  /** For the upstream, in the client's order. */
  readonly forwarded: readonly string[];
}

/**
 * @param header the value of `sec-websocket-protocol`; it may hold a key
 * @throws GatewayError missing_api_key when several keys are offered
 */
export function readProtocols(header: string | undefined): OfferedProtocols {
  const offered = (header ?? '').split(',').map((each) => each.trim());
  const keys = offered.filter((each) => each.startsWith(KEY_PROTOCOL));
  if (keys.length > 1) throw new GatewayError('missing_api_key', 'Several API keys were given. Send one.');
  const [key] = keys;
  return {
    authorization: key === undefined ? undefined : `Bearer ${key.slice(KEY_PROTOCOL.length)}`,
    forwarded: [...new Set(offered.filter((each) => FORWARDED_PROTOCOL.test(each)))],
  };
}
