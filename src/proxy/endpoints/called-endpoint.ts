// An endpoint as one request calls it: with the model of its path, what it forwards of its query, and the content type that it takes.
import { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { isJson, mediaType } from '../../http/multipart/media-type.ts';
import type { Endpoint } from '../contracts/endpoint.ts';

/** The endpoint with what the request's URL says: the model in its path, and its query. */
export function calledEndpoint(endpoint: Endpoint, { deployment, target }: Exchange): Endpoint {
  return withQuery(deployment === undefined ? endpoint : withModelInPath(endpoint), target);
}

/**
 * The endpoint for requests whose path names the model. One in the body is replaced. Without one, the default is a name that no target
 * has, so that each target's name is added.
 */
function withModelInPath({ wanted, form, ...endpoint }: Endpoint): Endpoint {
  const defaultModel = '';
  return {
    ...endpoint,
    wanted: { ...wanted, defaultModel },
    ...(form === undefined ? {} : { form: { ...form, defaultModel } }),
  };
}

/** With what it forwards of the query. */
function withQuery(endpoint: Endpoint, target: string): Endpoint {
  const { keepsQuery = false } = endpoint;
  const at = keepsQuery === false ? -1 : target.indexOf('?');
  if (at === -1) return endpoint;
  const query = target.slice(at + 1);
  if (typeof keepsQuery === 'boolean') return { ...endpoint, query };
  const kept = [...new URLSearchParams(query)].filter(([name]) => keepsQuery.includes(name));
  return kept.length === 0 ? endpoint : { ...endpoint, query: new URLSearchParams(kept).toString() };
}

/** @throws GatewayError unsupported_content_type */
export function requireJson({ request }: Exchange, { form }: Endpoint): void {
  const isTaken = form === undefined || form.isEither;
  if (isTaken && isJson(mediaType(request.headers))) return;
  if (form === undefined) throw new GatewayError('unsupported_content_type');
  const types = isTaken ? 'multipart/form-data or application/json' : 'multipart/form-data';
  throw new GatewayError('unsupported_content_type', `The content-type of this request must be ${types}.`);
}
