// `tollgate explain`: asks the configuration and a running gateway where a request for a model would go, and prints the explanation. It sends
// nothing to upstreams and prints no credentials and no header or query values.
import { loadConfig } from '../../config/load-config.ts';
import { TIERS } from '../../config/schema/config-schema.ts';
import { ENDPOINTS } from '../../config/schema/endpoint-names.ts';
import { nearestOf } from '../../config/source/nearest.ts';
import { GatewayError } from '../../errors.ts';
import { CHAT } from '../../proxy/endpoints/json-endpoints.ts';
import { requestOf, routesOf } from '../../proxy/request/example-request.ts';
import { fetchLiveState, forecastOf, mergedStates } from '../live-state.ts';
import { UsageError } from '../program/arguments.ts';
import { choice, command, SHOW_OPTIONS, text } from '../program/command.ts';
import { type CommandIo, write } from '../program/terminal.ts';
import { readInput } from '../support-command.ts';
import { endpointOf, explain, orderOf } from './explanation.ts';
import { explanationText, unknownModel } from './explanation-text.ts';
import { keyLimits, keyRejectedBeforeBody } from './key-limits.ts';
import { isBeforeBody, type KeyRejection, rejectionText } from './key-rejection.ts';

/** Timeout of the request to a running gateway. */
const TIMEOUT_MS = 500;
const MAX_NEAREST = 3;
/** Exits with 1 when a request would be rejected: no such model, not for this tier, or not with this key. */
export const EXPLAIN = command('explain', 'show where a request for a model would go', {
  detail:
    'Shows the targets of a request for MODEL, in order, and its limits. When a gateway answers at the admin address of the configuration, it also shows the live state of the targets.',
  operand: { name: 'MODEL', about: 'the model that is asked for, as --model', isOptional: true },
  options: {
    model: text('MODEL', 'the model that is asked for; with --body, the one of the body'),
    tier: choice(TIERS, 'TIER', 'the tier of the holder', ['key']),
    key: text(
      'WHOSE',
      'a key by its prefix or a holder by its id: all its limits with what is used of them, and the error that a request gets',
    ),
    endpoint: choice(
      ENDPOINTS,
      'ENDPOINT',
      'the endpoint that is called; the default is the first of the model',
    ),
    body: text(
      'FILE',
      'the JSON body of a request, - for the standard input: show what each target would be sent',
    ),
    cacheKey: text('KEY', 'the order of the targets for this prompt_cache_key, with balance: affinity'),
    ...SHOW_OPTIONS,
  },
  examples: [
    'explain gpt-4o --tier Pro',
    'explain gpt-4o --key 0123abcd',
    'explain --body request.json --json',
  ],
  run: async (given, io, operand) => {
    const { body: file, endpoint: name, tier: named, key: whose, cacheKey: key, json: asJson } = given;
    if (operand !== '' && given.model !== undefined) throw new UsageError('give either MODEL or --model');
    const wanted = operand === '' ? given.model : operand;
    if (file === undefined && wanted === undefined) throw new UsageError('--model is missing');
    const called = name === undefined ? undefined : endpointOf([name]);
    const timeoutMs = io.gatewayTimeoutMs ?? TIMEOUT_MS;
    const config = io.desk?.config() ?? loadConfig(given.config, io.env);
    const body = file === undefined ? undefined : await readInput(file, io, config.dynamic.max_body);
    const { model = wanted ?? '', rejected } = requestOf(body, called ?? CHAT);
    if (rejected === undefined && (wanted ?? model) !== model)
      throw new UsageError('the body names another model than --model');
    const routes = routesOf(config.dynamic);
    const found = rejected === undefined ? routes.find(model) : undefined;
    if (found === undefined) {
      // As for a request, the key comes first.
      const asked = { whose: whose ?? '', routes, endpoint: name };
      const ofKey = whose === undefined ? undefined : await keyRejectedBeforeBody(config, io, asked);
      if (rejected !== undefined) return reject(io, asJson, ofKey ?? rejected);
      const near = nearestOf(model, Object.keys(config.dynamic.models), MAX_NEAREST);
      if (asJson)
        await write(
          io.stdout,
          json({ model, match: null, nearest: near, ...(ofKey && { rejected: ofKey }) }),
        );
      const why = ofKey === undefined ? unknownModel(config, model, near) : rejectionText(ofKey);
      io.stderr.write(`tollgate explain: ${why}\n`);
      return 1;
    }
    const request = requestOf(body, called ?? endpointOf(found.endpoints), found);
    const { example } = request;
    const asked = { model, route: found, routes, endpoint: name, example };
    const limited =
      whose === undefined ? undefined : await keyLimits(config, io, { whose, ...asked }, timeoutMs);
    const ofKey = limited?.rejected ?? undefined;
    if (request.rejected !== undefined && (ofKey === undefined || !isBeforeBody(ofKey)))
      return reject(io, asJson, request.rejected);
    const tier = named ?? limited?.tier;
    const live = await fetchLiveState(config, timeoutMs, io.desk);
    const order = orderOf(found, key);
    const next = forecastOf(found, live, key);
    const question = { model, tier, route: found, live, states: mergedStates(live), next, called, example };
    const explanation = {
      ...explain(config, question),
      ...(order && { order }),
      ...(limited && { key: limited }),
    };
    await write(io.stdout, asJson ? json(explanation) : explanationText(explanation, live, found));
    const { allowed, endpoints } = limited ?? { allowed: true, endpoints: explanation.endpoints };
    const isUsable = explanation.tier?.allowed === true && allowed && endpoints.length > 0;
    return ofKey !== undefined || (tier !== undefined && !isUsable) ? 1 : 0;
  },
});

async function reject(io: CommandIo, asJson: boolean, error: GatewayError | KeyRejection): Promise<number> {
  if (error instanceof GatewayError) {
    const { status, code, message, param } = error;
    if (asJson) await write(io.stdout, json({ rejected: { status, code, message, param } }));
    io.stderr.write(`tollgate explain: the request gets a ${status} ${code}: ${message}\n`);
  } else {
    if (asJson) await write(io.stdout, json({ rejected: error }));
    io.stderr.write(`tollgate explain: ${rejectionText(error)}\n`);
  }
  return 1;
}

const json = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;
