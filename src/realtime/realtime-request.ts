// What a client asks for when it opens a realtime session: the model in the query, the key in a header or a subprotocol. It
// finds them in the text as it came, and changes nothing but what it was told to.
import { GatewayError } from '../errors.ts';
import { ReferenceFinder } from '../proxy/objects/object-references.ts';
import { isParameter } from '../upstream/upstream-query.ts';

/** What browsers send a key in, as they can set no header. */
const KEY_PROTOCOL = 'openai-insecure-api-key.';
/** The protocol itself and its versions. Others may hold credentials, and stay here. */
const FORWARDED_PROTOCOL = /^(?:realtime|openai-beta\.[\w.-]{1,64})$/;

const MODEL: ReadonlySet<string> = new Set(['model']);

/** The query of a session, with its model. */
export interface SessionQuery {
  readonly model: string;
  /**
   * The query for an upstream: every other parameter byte for byte and in its place.
   * @param model the name there; undefined leaves the parameter out
   */
  rewrite(model: string | undefined): string;
}

/**
 * @param target the request target, in origin form
 * @throws GatewayError missing_required_parameter, duplicate_parameter, invalid_value, or object_not_found: calls and other things
 *   at an upstream, which a session could join, are nobody's here
 */
export function readSessionQuery(target: string): SessionQuery {
  const start = target.indexOf('?');
  const pieces = start === -1 ? [] : target.slice(start + 1).split('&');
  const names = pieces.map((piece) => decode(piece.split('=', 1)[0] ?? ''));
  // Gateway and upstream could read different ones.
  if (pieces.some((each, index) => names[index] !== 'model' && isParameter(each, MODEL))) {
    throw new GatewayError(
      'invalid_value',
      'The parameter model is spelled differently: spell it exactly like this.',
      {
        param: 'model',
      },
    );
  }
  const at = names.indexOf('model');
  if (at === -1) throw missing();
  if (names.indexOf('model', at + 1) !== -1) {
    throw new GatewayError('duplicate_parameter', 'The parameter model is given more than once.', {
      param: 'model',
    });
  }
  const piece = pieces[at] ?? '';
  const equals = piece.indexOf('=');
  const model = equals === -1 ? '' : decode(piece.slice(equals + 1));
  if (model === undefined) {
    throw new GatewayError('invalid_value', 'The parameter model is not valid percent-encoding.', {
      param: 'model',
    });
  }
  if (model === '') throw missing();
  const finder = new ReferenceFinder();
  finder.addQuery(target.slice(start + 1));
  if (finder.certain.size > 0) throw new GatewayError('object_not_found');
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

function missing(): GatewayError {
  return new GatewayError(
    'missing_required_parameter',
    'Say which model in the query: /v1/realtime?model=NAME.',
    {
      param: 'model',
    },
  );
}

/** As forms encode (`+` is a space), which servers read queries by; undefined for what is no encoding. */
function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return undefined;
  }
}

interface OfferedProtocols {
  /** The value of an Authorization header with the key that was offered; undefined where there was none. */
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
