// Calls of the API by the pages, in this process: the same roles, checks and events.
import { GatewayError } from '../../errors.ts';
import type { AnyCall, ApiRoute } from '../api/api-route.ts';
import { API_ROUTES } from '../api/api-routes.ts';
import { type ChangeTerms, makeChange, operatorActor, parsed, requireCallable } from '../api/api-server.ts';
import { JsonText } from '../console-answer.ts';
import type { ConsoleRequest } from '../console-page.ts';

type Caller = Pick<ConsoleRequest, 'desk' | 'operator' | 'address'>;
type Params = Readonly<Record<string, string>>;

function routeNamed(name: string): ApiRoute {
  const found = API_ROUTES.find((route) => route.name === name);
  if (found === undefined) throw new GatewayError('unknown_url');
  return found;
}

function callOf(caller: Caller, route: ApiRoute, params: Params, query: object, body: object): AnyCall {
  const { desk, operator, address } = caller;
  requireCallable(route, operator, params);
  return {
    desk,
    operator,
    address,
    params,
    actor: operatorActor(operator),
    query: parsed(route.query, query),
    body: route.body === undefined ? undefined : parsed(route.body, body),
  };
}

/**
 * @param query texts, as in an address; empty ones are left out
 * @throws GatewayError as the API
 */
export async function readRoute(
  caller: Caller,
  name: string,
  { params = {}, query = {} }: { readonly params?: Params; readonly query?: Params } = {},
): Promise<object> {
  const route = routeNamed(name);
  const given = Object.fromEntries(Object.entries(query).filter(([, value]) => value !== ''));
  const answer = await route.run(callOf(caller, route, params, given, {}));
  return answer instanceof JsonText ? JSON.parse(answer.text) : answer;
}

/** @returns what the API answers */
export async function changeRoute(
  caller: Caller,
  name: string,
  { params, body, ...terms }: Omit<ChangeTerms, 'path'> & { readonly params: Params; readonly body: object },
): Promise<object> {
  const route = routeNamed(name);
  if (route.method === 'GET' || route.recordsItself) throw new GatewayError('unknown_url');
  // A call without a body takes its reason in the address.
  const [query, own] = route.body === undefined ? [body, {}] : [{}, body];
  const call = callOf(caller, route, params, query, own);
  const path = Object.values(params).join('/');
  return (await makeChange(route, call, { ...terms, path })).body;
}
