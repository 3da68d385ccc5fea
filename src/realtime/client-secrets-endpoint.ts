// `POST /v1/realtime/client_secrets`: a short-lived secret with which a browser opens sessions of one model, instead of a key; and the
// answer for calls, which the gateway does not offer.
import { randomBytes } from 'node:crypto';
import type { Authenticator } from '../auth/authenticator.ts';
import { identify } from '../auth/identify.ts';
import { type ErrorCode, GatewayError } from '../errors.ts';
import { readBody } from '../http/body/read-body.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { answerJson } from '../http/exchange/response-writer.ts';
import type { Handler } from '../http/router.ts';
import type { ConfigSnapshot } from '../proxy/routes/config-snapshot.ts';
import { type ClientSecrets, isConfig, modelIn, type SessionConfig } from './client-secret.ts';

const MAX_BODY = 64 * 1024;
/** As in the API. */
const SECONDS = { default: 600, min: 10, max: 7_200 } as const;

interface ClientSecretsEndpointOptions {
  readonly authenticator: Authenticator;
  readonly snapshot: () => ConfigSnapshot;
  readonly secrets: ClientSecrets;
}

export function clientSecretsEndpoint(options: ClientSecretsEndpointOptions): Handler {
  const { authenticator, snapshot, secrets } = options;
  return async (exchange: Exchange) => {
    const principal = await identify(authenticator, exchange);
    const { routes } = snapshot();
    routes.checkEndpoint(principal, 'realtime');
    const body = await readBody(exchange, MAX_BODY);
    const { seconds, session } = readRequest(body.toString());
    const isTranscription = isTranscriptionOf(session);
    const where = isTranscription ? 'session.audio.input.transcription.model' : 'session.model';
    const model = modelIn(session, isTranscription);
    if (model === undefined || model === null)
      throw invalid('missing_required_parameter', where, 'A client secret is for one model: name it.');
    if (typeof model !== 'string') throw invalid('invalid_type', where, 'The model has to be a string.');
    routes.resolve(model, principal, 'realtime');
    const bound = { model, isTranscription, session };
    const { value, expiresAt: expires_at } = secrets.make(principal, bound, seconds);
    const type = isTranscription ? 'transcription' : 'realtime';
    const object = isTranscription ? 'realtime.transcription_session' : 'realtime.session';
    const id = `sess_${randomBytes(12).toString('hex')}`;
    const secret = { value, expires_at, session: { ...session, type, object, id } };
    answerJson(exchange, 200, secret, { 'cache-control': 'no-store' });
  };
}

/** Calls (WebRTC, SIP): their sound would go past the gateway, which could not count it. */
export const refuseCalls: Handler = () => {
  const message =
    'This gateway offers no calls (WebRTC, SIP). Open a WebSocket instead: GET /v1/realtime?model=NAME.';
  throw new GatewayError('endpoint_not_offered', message);
};

function readRequest(text: string): { readonly seconds: number; readonly session: SessionConfig } {
  let body: unknown = {};
  try {
    if (text !== '') body = JSON.parse(text);
  } catch (cause) {
    throw new GatewayError('invalid_json', undefined, { cause });
  }
  if (!isConfig(body)) throw new GatewayError('invalid_body');
  const { expires_after: expiry = {}, session = {} } = body;
  if (!isConfig(expiry)) throw invalid('invalid_type', 'expires_after', 'It has to be an object.');
  if (!isConfig(session)) throw invalid('invalid_type', 'session', 'It has to be an object.');
  const { anchor = 'created_at', seconds = SECONDS.default } = expiry;
  if (anchor !== 'created_at')
    throw invalid('invalid_value', 'expires_after.anchor', 'The only anchor is created_at.');
  const isInRange =
    Number.isInteger(seconds) && Number(seconds) >= SECONDS.min && Number(seconds) <= SECONDS.max;
  if (!isInRange)
    throw invalid(
      'invalid_value',
      'expires_after.seconds',
      `It has to be an integer from ${SECONDS.min} to ${SECONDS.max}.`,
    );
  return { seconds: Number(seconds), session };
}

function isTranscriptionOf({ type = 'realtime' }: SessionConfig): boolean {
  if (type === 'realtime' || type === 'transcription') return type === 'transcription';
  throw invalid('invalid_value', 'session.type', 'The type of a session is realtime or transcription.');
}

function invalid(code: ErrorCode, param: string, message: string): GatewayError {
  return new GatewayError(code, message, { param });
}
